package routing

import (
	"context"

	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/rank"
)

// checkRanker passes searches that a route's ranker cannot order: a database's client
// has no words for it to read, and what a prefetch finds is scored by the similarity.
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

// keepRanked keeps the hits with the ranker's scores: a client knows one score only.
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
