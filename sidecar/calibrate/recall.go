package calibrate

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// exactAnswer has the best items of the whole collection, without scores that are not
// finite.
type exactAnswer struct {
	top     []rerank.Scored
	epsilon float32 // the rounding error of a score
}

// recall returns the share of the exact top K that an answer holds. Items that score within
// 2ε of the K-th tie with it: any of them may take one of the places behind the items
// above. An item of the exact top K counts whatever the answer's rounding made of its score.
func (e exactAnswer) recall(answer []rerank.Scored) float64 {
	if len(e.top) == 0 {
		return 1
	}
	kth, by := e.top[len(e.top)-1].Score, 2*e.epsilon
	if math.IsNaN(float64(by)) || math.IsInf(float64(by), 0) {
		by = 0
	}
	exact, above := map[rerank.ID]bool{}, map[rerank.ID]bool{}
	for _, s := range e.top {
		exact[s.ID] = true
		if s.Score > kth+by {
			above[s.ID] = true
		}
	}
	found, tied := 0, 0
	for _, s := range answer {
		switch {
		case above[s.ID]:
			found++
		case exact[s.ID] || s.Score >= kth-by:
			tied++
		}
	}
	return float64(found+min(tied, len(e.top)-len(above))) / float64(len(e.top))
}
