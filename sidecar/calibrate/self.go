package calibrate

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// A route without a calibration makes one of its live answers. The auditor compares at most one
// answer in selfEvery with the exact one, and searches for exact answers for at most a twentieth of
// the time. After selfQueries of them the route promises the highest recall that they show. The
// answers that follow audit this promise, and after a rejection the next ones make another.
const (
	selfEvery   = 5 * time.Second
	selfPause   = 20 // times what the exact answer took
	selfQueries = 200
	selfWithin  = 30 * time.Second // for one exact answer
	// selfFailures is how many exact answers in a row may fail before the auditor gives up on a version of a route.
	selfFailures = 10
	// selfKinds bounds the kinds of searches that a route collects answers of at the same time.
	selfKinds = 8
	// selfShare and selfAlpha are the share of the answers that such a promise speaks of, and one minus its confidence.
	selfShare, selfAlpha = .95, .05
)

// SelfSource is the Source of the report of a route that calibrated itself.
const SelfSource = "live queries"

// kind says which answers one calibration can speak of.
type kind struct {
	k    int
	rule rerank.Rule
}

// selfSample holds the recalls of the answers that a version of a route has collected.
type selfSample struct {
	version string
	recalls map[kind][]float64
	failed  int // exact answers in a row that failed
	// scans: exact answers failed, so that the route collects queries for a scan of its collection.
	scans   bool
	queries map[kind]*querySample
}

// sample returns the sample of a route's version, empty at first.
func (a *Auditor) sample(rt, version string) *selfSample {
	s := a.samples[rt]
	if s == nil || s.version != version {
		s = &selfSample{version: version, recalls: map[kind][]float64{}, queries: map[kind]*querySample{}}
		a.samples[rt] = s
	}
	return s
}

// dueForSelf reports whether a route may draw another answer by itself now, and counts it.
func (a *Auditor) dueForSelf(rt string, every time.Duration) bool {
	now, next := int64(time.Since(a.start)), a.nextSelf[rt]
	at := next.Load()
	if at == 0 { // no search before was looked at
		next.CompareAndSwap(0, now+int64(every))
		return false
	}
	return now >= at && next.CompareAndSwap(at, now+int64(every))
}

// pauseSelf lets a route draw nothing by itself for a multiple of the time that an exact answer took.
func pauseSelf(next *atomic.Int64, start time.Time, took time.Duration) {
	next.Store(max(next.Load(), int64(time.Since(start)+selfPause*took)))
}

// drawsForSelf reports whether a route may calibrate itself by an answer: only by its answer to a
// plain search of the whole collection.
func drawsForSelf(r search.Request, answer search.Answer) bool {
	return r.IsUnrestricted() && r.MaxGap == nil && r.Calls == nil && answer.Certificate.Depth > 0
}

// isIndexing reports whether the store says that it builds an index which searches of the route use.
func isIndexing(ctx context.Context, r *route.Route) bool {
	describer := adapters.AbilitiesOf(r.Store).Describe
	if describer == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, describeWithin)
	defer cancel()
	_, indexing, err := describe(ctx, describer, searchedCollections(r))
	return err == nil && indexing != ""
}

// collect compares an answer with the exact one, and makes the route's calibration once there are enough.
func (a *Auditor) collect(ctx context.Context, r *route.Route, k *Keeper, d drawn) {
	s := a.sample(d.route, d.version)
	of := kind{d.request.K, d.rule(r, 0)}
	if s.failed == selfFailures || len(s.recalls) == selfKinds && s.recalls[of] == nil || len(r.Partitions) > 0 {
		return
	}
	recall, skipped := a.recall(ctx, r, d)
	switch skipped {
	case "":
		s.failed, skipped = 0, OutcomeSampled
	case SkippedFailed: // counts as an answer without any exact row: left out, it could make the others look better
		if a.countFailed(r, s); s.scans {
			a.collectForScan(r, d)
			return
		}
	default:
		a.options.Recorder.Audited(d.route, skipped)
		return
	}
	a.options.Recorder.Audited(d.route, skipped)
	s.recalls[of] = append(s.recalls[of], recall)
	if len(s.recalls[of]) < selfQueries {
		return
	}
	delete(a.samples, d.route)
	a.adopt(r, k, selfReport(r, of, s.recalls[of], "search"), of)
}

// countFailed counts an exact answer that failed. After selfFailures in a row the route goes over to scans of its
// collection, or gives up.
func (a *Auditor) countFailed(r *route.Route, s *selfSample) {
	if s.failed++; s.failed != selfFailures {
		return
	}
	if s.scans = a.mayScan(r); s.scans {
		a.options.Logger.Info("route reads its collection to calibrate itself, its store gives no exact answers", "route", r.Name)
		return
	}
	a.options.Logger.Info("route cannot calibrate itself, exact answers fail", "route", r.Name,
		"remedy", "run `likeness calibrate`, or give the route a table in full precision")
}

// adopt gives a route the calibration that it made of itself. The report is nil if its answers show no recall at all.
func (a *Auditor) adopt(r *route.Route, k *Keeper, report *Report, of kind) {
	if report == nil {
		a.options.Logger.Warn("route cannot calibrate itself, too many answers lack every exact row", "route", r.Name, "k", of.k, "depth", of.rule.Depth,
			"queries", selfQueries, "remedy", "raise the route's depth or ef")
		return
	}
	if err := k.adopt(report); err != nil {
		a.options.Logger.Warn("calibration not saved", "route", r.Name, "error", err)
	}
	a.report(r.Name, k)
}

// selfReport returns the report of the highest recall that a sample of answers shows; nil: it shows none.
// exact says where the exact answers came from.
func selfReport(r *route.Route, of kind, recalls []float64, exact string) *Report {
	var best Outcome
	promise := Promise{K: of.k, Share: selfShare, Alpha: selfAlpha}
	steps := min(of.k, 20)
	// Fixed-sequence testing, from the least recall on, until one is not shown. Their order does not depend on
	// the answers, so that their number needs no correction (Maurer, Hothorn and Lehmacher, 1995).
	for step := 1; step <= steps; step++ {
		next := Promise{K: of.k, Recall: float64(step) / float64(steps), Share: selfShare, Alpha: selfAlpha}
		kept := 0
		for _, recall := range recalls {
			if next.reached(recall) {
				kept++
			}
		}
		if !next.isShownBy(kept, len(recalls)) {
			break
		}
		promise, best.Kept = next, kept
	}
	if promise.Recall == 0 {
		return nil
	}
	best.Rule, best.Queries, best.Passed = of.rule, len(recalls), true
	best.LeastShare, best.LeastMeanRecall = LeastShare(best.Kept, len(recalls), selfAlpha), leastMean(recalls, selfAlpha)
	for _, recall := range recalls {
		best.MeanRecall += recall / float64(len(recalls))
	}
	return &Report{
		Route: r.Name, Collection: r.Collection, Rows: -1, Model: r.Model.Name, Version: r.Model.Version, Source: SelfSource,
		Promise: promise, Queries: len(recalls), LeastQueries: promise.LeastQueries(), Exact: exact, Rules: []Outcome{best},
		Calibration: &rerank.Calibration{
			Recall: promise.Recall, Share: promise.Share, Alpha: promise.Alpha, Queries: len(recalls), K: of.k,
			Rule: of.rule, Made: time.Now().UTC(),
		},
	}
}

// rule returns how the candidates of an answer were found. averageDepth is the depth of the averaged
// probe if the request names none.
func (d drawn) rule(r *route.Route, averageDepth int) rerank.Rule {
	by := rerank.Rule{
		Strategy: d.strategy, Depth: d.certificate.Depth,
		Weights: cmp.Or(d.request.Weights, r.Weights), Head: cmp.Or(d.request.Head, r.Head),
	}
	if by.Strategy == rerank.Combined {
		by.AverageDepth = cmp.Or(d.request.AverageDepth, averageDepth, r.AverageDepth)
	}
	return by
}

// exhaustive searches a route exactly, by its own store.
type exhaustive struct {
	route  *route.Route
	engine *search.Engine
}

var errNotExact = errors.New("the store's answer is not proved exact")

// searchExactly asks the store of a route for the exact answer. It returns errNotExact if the
// store cannot search exhaustively, or the similarity is not one inner product with the stored
// vectors.
func (a *Auditor) searchExactly(ctx context.Context, r *route.Route, d drawn) (exactAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, selfWithin)
	defer cancel()
	e := a.exhaustive[d.route]
	if e.route != r {
		rt := measuredRoute(*r, &opening{})
		rt.ExactSearch = true
		engine, err := search.New([]*route.Route{&rt}, search.Options{})
		if err != nil {
			return exactAnswer{}, err
		}
		if err := engine.Open(ctx); err != nil {
			return exactAnswer{}, err
		}
		e = exhaustive{r, engine}
		a.exhaustive[d.route] = e
	}
	q := d.request
	answer, err := e.engine.Search(ctx, search.Request{Route: d.route, Query: q.Query, K: q.K, Strategy: q.Strategy, Weights: q.Weights, Head: q.Head, Exclude: q.Exclude})
	if err != nil {
		return exactAnswer{}, err
	}
	return exactOf(answer)
}

// exactOf returns the exact answer that a search gave, or errNotExact.
func exactOf(answer search.Answer) (exactAnswer, error) {
	if answer.Certificate.Status != rerank.StatusExact {
		return exactAnswer{}, errNotExact
	}
	return exactAnswer{top: scored(answer.Hits), epsilon: answer.Certificate.Epsilon}, nil
}
