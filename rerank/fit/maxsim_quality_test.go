package fit

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

var updateMaxSim = flag.Bool("update-maxsim", false, "write testdata/maxsim_quality.json anew")

// TestQualityMaxSim holds the MRR@10 of behavioural vectors on BANKING77's test
// questions to the committed figures, and to what MVG reaches there by NumPy.
func TestQualityMaxSim(t *testing.T) {
	withoutRace(t)
	const file = "testdata/maxsim_quality.json"
	golden, got := map[string]float64{}, map[string]float64{}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &golden)
	}
	if err != nil && !*updateMaxSim {
		t.Fatal(err)
	}
	train, test := intents(t, "train"), intents(t, "test")
	for _, tc := range []struct {
		name  string
		mavg  []float64
		least float64
	}{
		{"1 vector an item", []float64{1}, 0.895},
		{"3 vectors an item", []float64{3}, 0.930},
		{"10 vectors an item", []float64{10}, 0.943},
		{"chosen", DefaultMaxSimOptions().MAvg, 0.943},
	} {
		o := DefaultMaxSimOptions()
		o.MAvg = tc.mavg
		before := userTime()
		fitted, vectors := maxsimOf(t, train, o)
		t.Logf("%s: %.2f s of user time", tc.name, userTime()-before)
		mrr := maxsimOn(t, test, vectors)
		if mrr < tc.least {
			t.Errorf("%s: MRR@10 is %.4f, want %.3f", tc.name, mrr, tc.least)
		}
		r := fitted.Report
		if r.Vectors > r.Budget || r.Vectors < r.Budget*9/10 {
			t.Errorf("%s: %d vectors of a budget of %d", tc.name, r.Vectors, r.Budget)
		}
		got[tc.name] = mrr
		if want, ok := golden[tc.name]; !*updateMaxSim && (!ok || math.Abs(mrr-want) > 0.0005) {
			t.Errorf("%s: MRR@10 is %.4f, was %.4f; if that is meant, run with -update-maxsim", tc.name, mrr, want)
		}
	}
	if *updateMaxSim {
		text, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// maxsimOn is the MRR@10 of the items with these vectors beside their own.
func maxsimOn(t *testing.T, d Data, vectors map[int]rerank.Matrix) float64 {
	t.Helper()
	p, err := unscaled(d)
	if err != nil {
		t.Fatal(err)
	}
	j := p.unitJudge(allRows(d.Queries.Rows), nil)
	chunk := make([]rerank.Matrix, d.Items.Rows)
	for x, v := range vectors {
		chunk[x] = v
	}
	rows, starts := (&maxsimWork{problem: p}).rowsOf(0, chunk)
	r := newRanking(j, false, nil)
	r.add(0, rows, starts)
	reciprocal, _ := r.marks()
	return j.mean(reciprocal)
}
