package routing

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/rank"
)

// MaxBatch limits the searches of one call that are answered. A call with more passes.
const MaxBatch = 256

// parallel limits the searches of one call that are ranked concurrently.
const parallel = 4

// rescorer ranks and rewrites searches by their routes. It is safe for concurrent use.
type rescorer struct {
	searcher search.Searcher
	coverage *coverage
	log      *slog.Logger
}

// rankAll ranks the searches of a call, with more hits each time deeper grows. It returns the first
// Pass or Degraded among them, since a call is answered by one side and one version of the route
// only.
func (r *rescorer) rankAll(ctx context.Context, target Target, searches []Search, deeper int) ([]Ranked, error) {
	if len(searches) == 1 { // a goroutine's stack would have to grow
		out, err := r.rank(adapters.AsCaller(ctx), target, searches[0], deeper)
		return []Ranked{out}, err
	}
	out, failed := make([]Ranked, len(searches)), make([]error, len(searches))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, s := range searches {
		group.Go(func() error {
			out[i], failed[i] = r.rank(adapters.AsCaller(ctx), target, s, deeper)
			return nil
		})
	}
	_ = group.Wait()
	return out, cmp.Or(failed...)
}

// rank ranks one search.
func (r *rescorer) rank(ctx context.Context, target Target, s Search, deeper int) (out Ranked, err error) {
	defer func() {
		if p := recover(); p != nil { // a panic in a goroutine would end the process
			err = searchPanicked(ctx, r.log, target.Routed, p)
		}
	}()
	rt, err := r.coverage.routeToRescore(ctx, target.Routed, s)
	if err != nil {
		return Ranked{}, err
	}
	if err := r.coverage.checkMetric(ctx, rt); err != nil {
		return Ranked{}, err
	}
	if err := checkRanker(ctx, rt, s); err != nil {
		return Ranked{}, err
	}
	if s.Find != nil {
		return r.rankFound(ctx, rt, target, s)
	}
	k, more := hitsFor(rt, s, deeper)
	a, err := r.searcher.Search(ctx, search.Request{
		Route: rt.Name, Query: s.similarityQuery(), K: k, Filter: s.Filter, NoFallback: true, Confirms: true,
		Partitions: otherPartitions(s.Partitions, rt.Partitions), MaxRank: int(s.maxRank(rt)), Collection: target.renamed(),
		Versions: s.IDsOnly && !target.Aliased() && !rt.KeepsStoreScores(), Tried: s.Tried, AnswerBy: s.answerBy, User: userOf(ctx),
	})
	switch {
	case err != nil:
		return Ranked{}, failed(ctx, r.log, rt, err)
	case a.Degraded != nil:
		return Ranked{}, Degraded{Reason: a.Degraded.Reason, Closed: rt.Failure == route.FailClosed}
	}
	out = Ranked{
		Hits: a.Hits, Limit: int(s.Limit), Offset: int(s.Offset), More: len(a.Hits) == k && more, All: len(a.Hits) < k,
		Route: rt.Name, Vector: s.Vector, StoreScores: rt.KeepsStoreScores(), Cut: s.Threshold != nil,
		Certificate: a.Certificate.Status, AsOf: a.Certificate.AsOf, Shown: a.HasVersions, WrongNorm: rt.Norms.Wrong() != nil,
		version: a.Version, gap: a.Certificate.Gap, experiment: a.Experiment, arm: a.Arm,
	}
	if out.Certificate == rerank.StatusExact || out.Certificate == rerank.StatusSnapshot { // other certificates may have an infinite one
		out.Epsilon = a.Certificate.Epsilon
	}
	if a.Reembedded != nil {
		share := a.Reembedded.Share()
		out.Reembedded = &share
	}
	if a.Experiment == "" { // otherwise hits have scores of two versions
		out.score = r.scoring(rt, s.similarityQuery())
	}
	out.keepRanked(a.Ranking)
	return out, out.finish(s)
}

// maxRank returns the greatest offset+limit that one ranked list of a route serves for the search.
func (s Search) maxRank(rt *route.Route) uint64 {
	if s.Tried { // both versions rank as much, so that a page goes on where the page before ended
		return min(maxRank(rt), search.MaxTried)
	}
	return maxRank(rt)
}

// maxRank returns the greatest offset+limit that one ranked list of a route serves.
func maxRank(rt *route.Route) uint64 {
	switch {
	case rt.Ranker != nil:
		return uint64(min(rt.MaxK, rt.Calls)) // later rows have no ranker's score
	case rt.Strategy == rerank.Scan:
		return uint64(rt.MaxK)
	}
	return uint64(min(rt.MaxK, rt.Depth))
}

// hitsFor returns how many hits to rank for a search: those that are asked for, more if the
// features may be older than the database or if a threshold cuts the answer, and more each time
// deeper grows. more reports whether a deeper ranking has more hits.
func hitsFor(rt *route.Route, s Search, deeper int) (k int, more bool) {
	k = int(s.Limit + s.Offset)
	most := rt.MaxK
	if s.Tried {
		most = min(most, search.MaxTried)
	}
	if rt.Strategy != rerank.Scan && rt.MaxDepth > 0 {
		most = min(most, rt.MaxDepth)
	}
	if rt.Ranker != nil {
		return min(most, int(maxRank(rt))), false // its cost does not depend on the number of hits
	}
	here := most
	if deeper == 0 {
		here = max(k, int(maxRank(rt)))
	}
	fresh := rt.Placement == route.PlacementStored && rt.Strategy != rerank.Scan && !rt.ScanIfFaster && rt.Companion == ""
	if !fresh || s.Threshold != nil && rt.KeepsStoreScores() {
		k += max(8, k/2)
	}
	for range deeper {
		k *= 4
	}
	k = min(k, here)
	return k, k < most
}

// otherPartitions returns the partitions that a request names, or nil if they are the route's
// partitions.
func otherPartitions(asked, rt []string) []string {
	if sameNames(asked, rt) {
		return nil
	}
	return asked
}

// scoring returns a function that scores vectors of the collection as the route does, or nil if the
// route's scores do not follow from these vectors.
func (r *rescorer) scoring(rt *route.Route, query rerank.Query) func(context.Context, rerank.Matrix) ([]float32, error) {
	if rt.Ranker != nil || rt.Reembeds() || rt.Model.Similarity == nil || rt.Model.Similarity.Spec().Kind == rerank.KindRBE || rt.ModelCan.Vectors != nil {
		return nil
	}
	return func(ctx context.Context, vectors rerank.Matrix) ([]float32, error) {
		a, err := r.searcher.Score(search.WithinCall(ctx), search.ScoreRequest{Route: rt.Name, Query: query, Vectors: vectors})
		return a.Scores, err
	}
}

// finish checks the hits of a search, and cuts them at the search's threshold.
func (r *Ranked) finish(s Search) error {
	for _, h := range r.Hits {
		if f := float64(h.Score); math.IsNaN(f) || math.IsInf(f, 0) {
			return Degraded{Reason: "score-not-finite"}
		}
	}
	if s.Threshold != nil && !r.StoreScores {
		r.cut(*s.Threshold)
	}
	if !r.Cut && len(r.Hits) <= r.Offset {
		return Pass("no-candidates")
	}
	return nil
}

// cut keeps the hits whose score exceeds a threshold, as Qdrant does.
func (r *Ranked) cut(threshold float32) {
	for i, h := range r.Hits {
		if h.Score <= threshold {
			r.Hits, r.More, r.All = r.Hits[:i], false, true
			return
		}
	}
}

// failed classifies an error of a search. Errors that the database reports better itself pass; the
// others are Degraded.
func failed(ctx context.Context, log *slog.Logger, rt *route.Route, err error) error {
	if errors.Is(err, adapters.ErrFilter) && strings.Contains(err.Error(), "unknown key") {
		return Pass("unknown-field")
	}
	for reason, targets := range map[string][]error{
		"filter":  {adapters.ErrFilter},
		"refused": {adapters.ErrRefused},
		"request": {plan.ErrRequest, rerank.ErrQuery, rerank.ErrStrategy, adapters.ErrLimit, adapters.ErrNotFound, adapters.ErrDimension, adapters.ErrField},
	} {
		for _, target := range targets {
			if errors.Is(err, target) {
				return Pass(reason)
			}
		}
	}
	if errors.Is(err, gate.ErrOverload) { // the database's answer is cheaper, and one log line for each would be too much
		return Degraded{Reason: "overload"}
	}
	if errors.Is(err, context.Canceled) { // the client left; nothing is wrong
		return Degraded{Reason: "canceled"}
	}
	log.WarnContext(ctx, "a search of the proxy was not rescored", "route", rt.Name, "error", err)
	reason := "failed"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		reason = "deadline"
	case errors.Is(err, adapters.ErrUnavailable):
		reason = "unavailable"
	}
	return Degraded{Reason: reason, Closed: rt.Failure == route.FailClosed && errors.Is(err, failure.ErrDegraded)}
}

// rankFound ranks the rows that the database's own query finds, to the depth of the route's first
// stage: the candidates of a prefetch or a fusion, which no probe can find.
func (r *rescorer) rankFound(ctx context.Context, rt *route.Route, target Target, s Search) (Ranked, error) {
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
		return Ranked{}, failed(ctx, r.log, rt, err)
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

// rewrite turns a search of a route into a search of the database.
func (r *rescorer) rewrite(ctx context.Context, rt *route.Route, target Target, s Search) (out *search.Rewritten, err error) {
	defer func() {
		if p := recover(); p != nil { // a panic in a goroutine would end the process
			err = searchPanicked(ctx, r.log, target.Routed, p)
		}
	}()
	out, err = r.searcher.Rewrite(ctx, s.request(rt, target))
	switch {
	case errors.Is(err, search.ErrNotRewritten): // the vector is zero, or too large for float32
		return nil, Pass("not-rewritten")
	case err != nil:
		return nil, failed(ctx, r.log, rt, err)
	}
	return out, nil
}
