package search

import (
	"context"
	"math"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// canVerify reports whether the scores can be compared with the stored vectors: the answer is a
// snapshot, and its scores follow from the items' stored vectors alone, without new ones.
func (s *search) canVerify() bool {
	v := s.view
	fromStored := !v.Spec.GroupedRows && !v.Behavioural && !v.VectorsElsewhere && !v.Reembeds() && s.answer.Ranking == nil
	return fromStored && s.answer.Certificate.Status == rerank.StatusSnapshot
}

// scoresHold reports whether the hits' scores agree with the vectors that the collection holds now,
// in rows, up to the certificate's rounding error. Hits that the collection no longer has do not
// count.
func (s *search) scoresHold(ctx context.Context, rows adapters.Rows) bool {
	s.view.Norms.See(rows.IDs, rows.Vectors[0])
	b, err := retrieve.Encode(ctx, s.view.Checked, rows.IDs, nil, rows.Vectors[0])
	if err != nil {
		return false
	}
	scorer := score.Scorer{Turns: s.view.Turns}
	now, epsilon, err := scorer.Wide(ctx, s.plan.Encoded, b)
	if err != nil {
		return false
	}
	return agree(s.answer.Hits, float64(s.answer.Certificate.Epsilon), now, epsilon)
}

// agree reports whether the scores of hits agree with the exact scores, for every hit that has one.
// A hit's score may be off by hitError and one rounding, an exact score by exactError.
func agree(hits []Hit, hitError float64, exact map[rerank.ID]float64, exactError float64) bool {
	for _, h := range hits {
		have := float64(h.Score)
		want, there := exact[h.ID]
		if there && !(math.Abs(want-have) <= hitError+exactError+math.Abs(have)*0x1p-23) {
			return false
		}
	}
	return true
}
