package verdict_test

import (
	"math"
	"testing"

	"github.com/likenessdb/likeness/learn/verdict"
)

// TestIntervalsOfFewQueries are those of Student's t: 2.776 standard errors to each side for five queries.
func TestIntervalsOfFewQueries(t *testing.T) {
	d := verdict.NewDifference(1, 0.1, 5, 0.95)
	if !(math.Abs(d.High-1.2776) <= 1e-3) || !(math.Abs(d.Low-0.7224) <= 1e-3) || d.Queries != 5 {
		t.Errorf("%+v", d)
	}
}
