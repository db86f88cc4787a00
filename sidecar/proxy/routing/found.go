package routing

import (
	"context"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// rankFound ranks the rows that the database's own query finds, to the depth of the route's first
// stage: the candidates of a prefetch or a fusion, which no probe can find.
func (r *Router) rankFound(ctx context.Context, rt *route.Route, target Target, s Search) (Ranked, error) {
	if s.Threshold != nil && rt.KeepsStoreScores() {
		return Ranked{}, Pass("score-threshold") // the threshold is for scores of the query, which are not the similarity's
	}
	ids, err := s.Find(ctx, int(maxRank(rt)))
	if err != nil {
		return Ranked{}, err
	}
	if len(ids) == 0 {
		return Ranked{}, Pass("no-candidates")
	}
	a, err := r.searcher.Score(ctx, search.ScoreRequest{
		Route: rt.Name, Query: s.similarityQuery(), IDs: ids, Collection: target.renamed(),
	})
	if err != nil {
		return Ranked{}, r.failed(ctx, rt, err)
	}
	out := Ranked{
		Limit: int(s.Limit), Offset: int(s.Offset), All: true, Route: rt.Name, version: a.Version, gap: float32(math.NaN()), Vector: s.Vector, StoreScores: rt.KeepsStoreScores(),
		Cut: s.Threshold != nil, Certificate: rerank.StatusUnknown, WrongNorm: rt.Norms.Wrong() != nil, score: r.scoring(rt, s.similarityQuery()),
	}
	best := rerank.NewTopK(len(ids))
	for i, id := range ids {
		if !slices.Contains(a.Missing, id) { // unless it was deleted meanwhile
			best.Push(rerank.Scored{ID: id, Score: a.Scores[i]})
		}
	}
	for _, h := range best.Sorted() {
		out.Hits = append(out.Hits, search.Hit{ID: h.ID, Score: h.Score})
	}
	return out, out.finish(s)
}
