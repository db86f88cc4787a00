package eval_test

import (
	"testing"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank"
)

// TestPrecisionOfManyRelevantItems: a list that is relevant throughout is perfect, also where more items are
// relevant than it has places.
func TestPrecisionOfManyRelevantItems(t *testing.T) {
	ranking := eval.Ranking{{ID: rerank.UintID(2), Index: 2}, {ID: rerank.UintID(0), Index: 0}}
	m := eval.Measure([]eval.Ranking{ranking}, []int{0}, eval.NewPairs([][]int32{{0, 1, 2, 3}}), 2)
	if m["map@2"] != 1 || m["ndcg@2"] != 1 || m["recall@2"] != 0.5 {
		t.Errorf("%v", m)
	}
}
