package rerank_test

import (
	"math"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestOrderOfIDs: numbers ascend, the negative ones first, and strings follow in byte order.
func TestOrderOfIDs(t *testing.T) {
	want := []rerank.ID{
		{}, rerank.IntID(math.MinInt64), rerank.IntID(-2), rerank.IntID(-1), rerank.UintID(0), rerank.IntID(1), rerank.UintID(2),
		rerank.UintID(math.MaxInt64), rerank.UintID(math.MaxUint64), rerank.TextID("-1"), rerank.TextID("B"), rerank.TextID("a"), rerank.TextID("aa"),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	if slices.SortFunc(got, rerank.ID.Compare); !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}
