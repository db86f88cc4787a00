package routing

import (
	"context"

	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/rank"
)

// checkRanker returns the Pass of a search that the route's ranker cannot order: a client of a
// database sends no text for the ranker, and rows of a prefetch are scored by the similarity.
func checkRanker(ctx context.Context, rt *route.Route, s Search) error {
	if rt.Ranker == nil {
		return nil
	}
	d, err := rt.Ranker.Describe(ctx)
	switch {
	case s.Find != nil:
		return Pass("ranker")
	case err != nil:
		return Degraded{Reason: failure.Ranker, Closed: rt.Failure == route.FailClosed}
	case d.Text:
		return Pass("ranker")
	}
	return nil
}

// keepRanked keeps only the hits with the ranker's scores, because an answer to a client has scores
// of one kind.
func (r *Ranked) keepRanked(said *rank.Ranking) {
	if said == nil {
		return
	}
	r.Partial = said.Reason == rank.CutDeadline || said.Reason == rank.CutFailed
	for i, h := range r.Hits {
		if !h.Ranked {
			r.Hits, r.All = r.Hits[:i], false
			return
		}
	}
}
