package calibrate

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// exactTop collects the best items for a query. Items that may be among them by their
// scores in float32 are scored again in float64.
type exactTop struct {
	query     rerank.Encoded
	k         int
	seen      seenItems // not in the answer
	top       *rerank.TopK
	wideError float64
}

func newExactTop(query rerank.Encoded, k int, seen seenItems) *exactTop {
	return &exactTop{query: query, k: k, seen: seen, top: rerank.NewTopK(k)}
}

// add adds scored items. id returns the id of item i, and false to leave it out. Scores
// that are not finite are left out, too: no exact answer can contain them.
func (t *exactTop) add(items rerank.Items, scores []float32, id func(i int) (rerank.ID, bool)) error {
	off, best := t.query.Bound(nil, nil).Epsilon, rerank.NewTopK(t.k)
	for i, score := range scores {
		if of, ok := id(i); ok && rerank.IsFinite(score) && !t.seen[of] {
			best.Push(rerank.Scored{ID: of, Score: score})
		}
	}
	reach := max(t.top.Threshold(), best.Threshold()-off)
	var near []int32
	for i, score := range scores {
		if of, ok := id(i); ok && rerank.IsFinite(score) && !(score+off < reach) && !t.seen[of] {
			near = append(near, int32(i))
		}
	}
	if len(near) == 0 {
		return nil
	}
	wide := make([]float64, len(near))
	epsilon, err := t.query.ScoreWide(wide, items.Pick(near))
	if err != nil {
		return err
	}
	t.wideError = max(t.wideError, epsilon)
	for n, i := range near {
		of, _ := id(int(i))
		t.top.Push(rerank.Scored{ID: of, Score: float32(wide[n])})
	}
	return nil
}

// answer returns the best items. Their scores are off by the error of float64 and by one
// rounding to float32.
func (t *exactTop) answer() exactAnswer {
	a := exactAnswer{top: t.top.Sorted()}
	var largest float64
	for _, s := range a.top {
		largest = max(largest, math.Abs(float64(s.Score)))
	}
	a.epsilon = float32((t.wideError + largest*0x1p-24) * (1 + 1e-6))
	return a
}
