// Package calibrate measures the recall that a route can promise, keeps the promise with
// the route, and audits it on live answers.
//
// A calibration searches the route's real store for sample queries, at growing depth, and
// compares each answer with the exact one. It ends at the first depth for which the answers
// show P(recall@K ≥ r) ≥ c. The promise holds for queries like the sample. The audit notices
// when live queries differ.
package calibrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// ErrInput means that the route cannot be calibrated, or that the queries cannot show the
// promise.
var ErrInput = errors.New("calibration not possible")

// Input has the route, the sample of queries and the promise of a calibration.
type Input struct {
	// Route is not opened yet. Its max_gap, timeout and failure policy are ignored.
	Route *route.Route
	// Queries are independent draws from the queries that the route gets. Source says where
	// they come from.
	Queries []rerank.Query
	Source  string
	// Seen[n] holds the ids of items that no answer to query n has, of Queries first and then of
	// HeldOut. If nil, answers have all items.
	Seen    [][]string
	Promise Promise
	// Depths of the rules; empty: some in each power of ten, from the promise's K to ten times the route's depth.
	Depths []int
	// HeldOut are queries on which the promise is checked once it was made.
	HeldOut []rerank.Query
	// Journal is the file of the answers so far, with which an interrupted calibration
	// goes on; empty: there is no file.
	Journal string
	// IndexWait is how long Run waits at most for a store that still builds an index.
	IndexWait time.Duration
	// Parallel is the number of searches at a time; 0: one.
	Parallel int
	Progress Progress
}

// Progress is called when a stage begins, with its number of steps. It returns a function
// that is called with the number of steps done since the last call.
type Progress func(stage string, steps int) (done func(n int))

func (p Progress) begin(stage string, steps int) func(n int) {
	if p == nil {
		return func(int) {}
	}
	return p(stage, steps)
}

// Run searches for every query by one rule after the other, until a rule shows the promise. If
// none does, the report has no calibration. Run returns ErrInput before the first search, and
// later the error of the store or of ctx. The journal keeps the answers so far.
func Run(ctx context.Context, in Input) (*Report, error) {
	r, err := open(ctx, in)
	if err != nil {
		return nil, err
	}
	defer r.release()
	if r.journal, err = openJournal(in.Journal, r.fingerprint()); err != nil {
		return nil, err
	}
	defer func() { _ = r.journal.Close() }() // each entry is in the file already
	report, err := r.run(ctx)
	if err != nil {
		return nil, err
	}
	return report, r.journal.remove()
}

// run is a calibration under way.
type run struct {
	Input
	*opening
	pipeline *search.Engine
	rules    []rerank.Rule // from the cheapest to the most expensive
	rows     int64
	indexing string      // what the store still builds although Run waited for it
	seen     []seenItems // of each query
	exact    exactSource
	journal  *journal
	release  func()
}

// opening is a route.Promise that promises nothing. Calibration sets it to get hold of the route as it is
// after the check against its store.
type opening struct {
	route    route.Route
	settings map[string]string
}

func (*opening) Calibration() (*rerank.Calibration, string) { return nil, "" }

func (o *opening) Opened(r *route.Route, settings map[string]string) {
	o.route, o.settings = *r, settings
}

// open checks the input and opens the route.
func open(ctx context.Context, in Input) (_ *run, err error) {
	if err := in.Promise.check(); err != nil {
		return nil, err
	}
	r := &run{Input: in, opening: &opening{}, rows: -1, release: func() {}}
	rt := measuredRoute(*in.Route, r.opening)
	if r.pipeline, err = search.New([]*route.Route{&rt}, search.Options{}); err != nil {
		return nil, err
	}
	if err := r.pipeline.Open(ctx); err != nil {
		return nil, err
	}
	if d := adapters.AbilitiesOf(rt.Store).Describe; d != nil {
		if r.rows, r.indexing, err = awaitIndex(ctx, d, searchedCollections(&rt), in.IndexWait, in.Progress); err != nil {
			return nil, err
		}
	}
	if err := r.checkRoute(); err != nil {
		return nil, err
	}
	if r.rules, err = r.ruleList(); err != nil {
		return nil, err
	}
	if least := in.Promise.spread(len(r.rules)).LeastQueries(); len(in.Queries) < least {
		return nil, fmt.Errorf("%w: %d queries cannot show a share of %v at confidence %.4g at one of %d depths, even if all of them are answered well; bring %d at least, or give fewer depths",
			ErrInput, len(in.Queries), in.Promise.Share, 1-in.Promise.Alpha, len(r.rules), least)
	}
	if err := r.spellSeen(ctx); err != nil {
		return nil, err
	}
	r.exact, r.release, err = r.exactSource()
	return r, err
}

// searchedCollections returns the collections that searches of a route may search: its own and its companion.
func searchedCollections(rt *route.Route) []string {
	if rt.Companion == "" {
		return []string{rt.Collection}
	}
	return []string{rt.Collection, rt.Companion}
}

// awaitIndex waits until the store builds no index of the collections, at most for wait. It returns the rows
// of the first collection, and what the store still builds then. Without an index a store compares rows that the index may miss, so that
// a promise made meanwhile need not hold afterwards.
func awaitIndex(ctx context.Context, d adapters.Describer, collections []string, wait time.Duration, progress Progress) (rows int64, indexing string, err error) {
	until := time.Now().Add(wait)
	var waited func(seconds int)
	for {
		rows, indexing, err = describe(ctx, d, collections)
		if err != nil || indexing == "" || !time.Now().Before(until) {
			return rows, indexing, err
		}
		if waited == nil {
			waited = progress.begin("waiting while the store builds its index", int(wait/time.Second))
		}
		select {
		case <-ctx.Done():
			return 0, "", context.Cause(ctx)
		case <-time.After(time.Second):
			waited(1)
		}
	}
}

// describe returns how many rows the first collection has, and what the store still builds of any of
// them, "" if nothing.
func describe(ctx context.Context, d adapters.Describer, collections []string) (rows int64, indexing string, err error) {
	for i, name := range collections {
		described, err := d.Describe(ctx, name)
		if err != nil {
			return 0, "", err
		}
		if i == 0 {
			rows = described.Rows
		}
		if indexing == "" && described.Indexing != "" {
			indexing = fmt.Sprintf("collection %q: %s", name, described.Indexing)
		}
	}
	return rows, indexing, nil
}

// measuredRoute returns the route as a calibration searches it: every answer comes from the
// rule that was asked for, however long that takes, or is an error.
func measuredRoute(rt route.Route, p route.Promise) route.Route {
	rt.Promise, rt.MaxGap, rt.Timeout, rt.Failure, rt.ScanIfFaster = p, nil, 0, route.FailClosed, false
	return rt
}

func (p Promise) check() error {
	within := func(v float64) bool { return v > 0 && v < 1 }
	switch {
	case p.K < 1:
		return fmt.Errorf("%w: k is %d; promise 1 at least", ErrInput, p.K)
	case !(p.Recall > 0 && p.Recall <= 1):
		return fmt.Errorf("%w: a recall of %v; promise more than 0 and 1 at most", ErrInput, p.Recall)
	case !within(p.Share) || !within(p.Alpha):
		return fmt.Errorf("%w: share %v at confidence %v; both are above 0 and below 1", ErrInput, p.Share, 1-p.Alpha)
	}
	return nil
}

func (r *run) checkRoute() error {
	switch {
	case r.route.Strategy == rerank.Scan:
		return fmt.Errorf("%w: route %q scans its table, and its answers are proved exact; nothing is left to promise", ErrInput, r.route.Name)
	case len(r.route.Partitions) > 0:
		return fmt.Errorf("%w: route %q is narrowed to partitions %q, and the exact answer is of the whole collection", ErrInput, r.route.Name, r.route.Partitions)
	case r.Promise.K > r.route.MaxK || r.Promise.K > r.route.MaxDepth:
		return fmt.Errorf("%w: k is %d, route %q answers %d at most (max_k, max_depth)", ErrInput, r.Promise.K, r.route.Name, min(r.route.MaxK, r.route.MaxDepth))
	}
	return nil
}

// run searches by one rule after the other until one shows the promise, and checks that rule on the
// held-out queries.
func (r *run) run(ctx context.Context) (*Report, error) {
	all := slices.Concat(r.Queries, r.HeldOut)
	if err := r.exact.prepare(ctx, all, r.seen, r.journal, r.Progress); err != nil {
		return nil, err
	}
	report := r.report()
	each := r.Promise.spread(len(r.rules))
	for _, rule := range r.rules {
		if err := r.ask(ctx, fmt.Sprintf("searching the route at depth %d", rule.Depth), all, 0, len(r.Queries), rule); err != nil {
			return nil, err
		}
		o := r.outcome(each, rule, 0, len(r.Queries))
		report.Rules = append(report.Rules, o)
		if o.Passed {
			return report, r.promise(ctx, report, rule, all)
		}
	}
	return report, nil
}

// promise makes the calibration of a report, and checks it on the held-out queries.
func (r *run) promise(ctx context.Context, report *Report, rule rerank.Rule, all []rerank.Query) error {
	report.Calibration = &rerank.Calibration{
		Recall: r.Promise.Recall, Share: r.Promise.Share, Alpha: r.Promise.Alpha, Queries: len(r.Queries), K: r.Promise.K,
		Rule: rule, Made: time.Now().UTC(), Excluding: r.Seen != nil,
	}
	if len(r.HeldOut) == 0 {
		return nil
	}
	if err := r.ask(ctx, "checking on queries that were held out", all, len(r.Queries), len(all), rule); err != nil {
		return err
	}
	held := r.outcome(r.Promise, rule, len(r.Queries), len(all))
	report.HeldOut = &held
	return nil
}

// report returns a report without outcomes.
func (r *run) report() *Report {
	return &Report{
		Route: r.route.Name, Collection: r.route.Collection, Rows: r.rows, Settings: r.settings, Indexing: r.indexing,
		Model: r.route.Model.Name, Version: r.route.Model.Version, Source: r.Source, Depths: len(r.rules),
		Promise: r.Promise, Queries: len(r.Queries), LeastQueries: r.Promise.spread(len(r.rules)).LeastQueries(), Exact: r.exact.name(),
	}
}
