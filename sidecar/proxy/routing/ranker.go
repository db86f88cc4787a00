package routing

import (
	"context"

	"github.com/likenessdb/likeness/sidecar/pipeline"
)

// checkRanker passes searches that a route's ranker cannot order: a database's client
// has no words for it to read, and what a prefetch finds is scored by the similarity.
func checkRanker(ctx context.Context, route *pipeline.Route, s Search) error {
	if route.Ranker == nil {
		return nil
	}
	d, err := route.Ranker.Describe(ctx)
	switch {
	case s.Find != nil:
		return Pass("ranker")
	case err != nil:
		return Degraded{Reason: pipeline.ReasonRanker, Closed: route.Failure == pipeline.FailClosed}
	case d.Text:
		return Pass("ranker")
	}
	return nil
}

// keepRanked keeps the hits with the ranker's scores: a client knows one score only.
func (r *Ranked) keepRanked(said *pipeline.Ranking) {
	if said == nil {
		return
	}
	r.Partial = said.Reason == pipeline.CutDeadline || said.Reason == pipeline.CutFailed
	for i, h := range r.Hits {
		if !h.Ranked {
			r.Hits, r.All = r.Hits[:i], false
			return
		}
	}
}
