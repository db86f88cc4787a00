package score

import (
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// FromList returns the rows of a list as hits, with φ as their scores. The probe's target must be
// rerank.TargetScore. RoundingError of the result bounds the error of the conversion, on top of the
// error of the list's scores.
func FromList(l rerank.List, p rerank.Probe) Found {
	f := Found{Hits: make([]rerank.Scored, len(l.IDs)), Scored: len(l.IDs)}
	var largest float64
	for i, id := range l.IDs {
		phi := float64(p.Scale) * (float64(l.Scores[i]) + float64(p.Offset))
		f.Hits[i] = rerank.Scored{ID: id, Score: float32(phi), Index: i}
		if !rerank.IsFinite(f.Hits[i].Score) {
			f.NotFinite++
			continue
		}
		largest = max(largest, math.Abs(phi))
	}
	if !slices.IsSortedFunc(f.Hits, Compare) { // two scores of the list can become one
		slices.SortFunc(f.Hits, Compare)
	}
	f.rounding.remaining = float32(largest*0x1p-23 + math.SmallestNonzeroFloat32)
	return f
}
