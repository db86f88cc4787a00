package calibrate

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// A route without a table in full precision whose store gives no exact answers reads its whole collection for them. It
// collects queries in place of answers. A scan then finds the exact answers to all of them at once, and
// the route is searched for each query as it was when the query was collected.

// Scans says when a route may read its whole collection.
type Scans struct {
	// At is the time of the day, after midnight, in whose hour a long scan may begin.
	At time.Duration
	// RowsPerSecond bounds how fast rows are read; 0: the route never reads its collection.
	RowsPerSecond int
}

const (
	// scanSoon is the time within which a scan is short enough to begin at any time of the day, where the
	// route has no calibration. The scans that audit one wait for their hour.
	scanSoon = 10 * time.Minute
	// scanHour is how long after Scans.At a scan may begin.
	scanHour = time.Hour
	// scanRetry is the least time between two scans of one collection.
	scanRetry = time.Hour
	// scanLook is the time between two looks at whether a scan may begin.
	scanLook = time.Minute
	// busyPoll is the time between two looks at whether the sidecar is still busy.
	busyPoll = 50 * time.Millisecond
)

var errBehind = errors.New("the companion does not show every write yet")

// querySample is a random sample of at most selfQueries of the queries that were added.
type querySample struct {
	seen    int
	queries []rerank.Query
}

// add adds a query. Once the sample is full, the query takes the place of another one with the
// probability that every query before it had.
func (s *querySample) add(q rerank.Query) {
	s.seen++
	if len(s.queries) < selfQueries {
		s.queries = append(s.queries, q)
	} else if at := rand.IntN(s.seen); at < selfQueries {
		s.queries[at] = q
	}
}

// mayScan reports whether the collection of a route can be read for exact answers, and the operator lets it.
func (a *Auditor) mayScan(r *route.Route) bool {
	scans := (*a.routes.Load())[r.Name].Scans
	return scans.RowsPerSecond > 0 && adapters.AbilitiesOf(r.Store).Scan != nil &&
		r.Owner == "" && !r.HasBehaviouralVectors() && !r.NeedsRankerToEncode()
}

// collectsForScan reports whether the version of a route collects queries for a scan.
func (a *Auditor) collectsForScan(r *route.Route) bool {
	s := a.samples[r.Name]
	return s != nil && s.version == r.Model.Version && s.scans && a.mayScan(r)
}

func (a *Auditor) collectForScan(r *route.Route, d drawn) {
	s, of := a.sample(d.route, d.version), kind{d.request.K, d.rule(r, 0)}
	if s.queries[of] == nil {
		if len(s.queries) == selfKinds || len(r.Partitions) > 0 {
			return
		}
		s.queries[of] = &querySample{}
	}
	s.queries[of].add(d.request.Query)
	a.options.Recorder.Audited(d.route, OutcomeSampled)
}

// isDue reports whether a scan of so many rows may begin now. rows is −1 if the store does not tell.
func (s Scans) isDue(now time.Time, rows int64, promised bool) bool {
	if !promised && rows >= 0 && float64(rows) <= scanSoon.Seconds()*float64(s.RowsPerSecond) {
		return true
	}
	today := time.Duration(now.Hour())*time.Hour + time.Duration(now.Minute())*time.Minute + time.Duration(now.Second())*time.Second
	since := (today - s.At + 24*time.Hour) % (24 * time.Hour)
	return since < scanHour
}

// scanOneDue begins to read the collection of a route that has collected enough queries, if its time has
// come and no other is being read. It reports whether it did.
func (a *Auditor) scanOneDue(ctx context.Context, routes Holder, now time.Time) bool {
	for rt, sample := range a.samples {
		if a.scanning || !sample.scans || now.Before(a.nextScan[rt]) {
			continue
		}
		r, release, err := routes.Hold(rt)
		if err != nil {
			continue
		}
		if of, ok := a.kindDue(ctx, r, sample, now); ok {
			queries := sample.queries[of].queries
			delete(sample.queries, of)
			a.scanning = true
			go func() {
				result := a.scan(ctx, r, of, queries)
				release()
				a.scanned <- result
			}()
			return true
		}
		release()
	}
	return false
}

// kindDue returns a kind of searches with enough queries for a scan that may begin now.
func (a *Auditor) kindDue(ctx context.Context, r *route.Route, sample *selfSample, now time.Time) (of kind, ok bool) {
	k, isKeeper := r.Promise.(*Keeper)
	if !isKeeper || !a.collectsForScan(r) {
		return of, false
	}
	c, void := k.Calibration()
	promised := c != nil && void == ""
	for of, collected := range sample.queries {
		switch {
		case len(collected.queries) < selfQueries:
		case promised && c.Lacks(of.k, of.rule, false, false) != "": // the promise does not speak of such answers
		case !promised && (!k.isOpenToSelf() || isIndexing(ctx, r)):
		case (*a.routes.Load())[r.Name].Scans.isDue(now, rowsOf(ctx, r), promised):
			return of, true
		default:
			a.nextScan[r.Name] = now.Add(scanLook)
			return of, false
		}
	}
	return of, false
}

// rowsOf returns how many rows the collection of a route has, −1 if its store does not tell.
func rowsOf(ctx context.Context, r *route.Route) int64 {
	describer := adapters.AbilitiesOf(r.Store).Describe
	if describer == nil {
		return -1
	}
	ctx, cancel := context.WithTimeout(ctx, describeWithin)
	defer cancel()
	described, err := describer.Describe(ctx, r.Collection)
	if err != nil {
		return -1
	}
	return described.Rows
}

// scanResult has the recalls of the answers to the queries of a scan, or its error.
type scanResult struct {
	route, version string
	of             kind
	queries        []rerank.Query
	recalls        []float64
	took           time.Duration
	err            error
}

// scan reads the collection of a route on one core, and compares the route's answers with the exact ones.
func (a *Auditor) scan(ctx context.Context, r *route.Route, of kind, queries []rerank.Query) scanResult {
	a.options.Logger.Info("collection scan started", "route", r.Name, "queries", len(queries))
	began := time.Now()
	recalls, err := a.scanRecalls(ctx, r, of, queries)
	return scanResult{route: r.Name, version: r.Model.Version, of: of, queries: queries, recalls: recalls, took: time.Since(began), err: err}
}

func (a *Auditor) scanRecalls(ctx context.Context, r *route.Route, of kind, queries []rerank.Query) ([]float64, error) {
	opened := &opening{}
	rt := measuredRoute(*r, opened)
	engine, err := search.New([]*route.Route{&rt}, search.Options{})
	if err != nil {
		return nil, err
	}
	if err := engine.Open(ctx); err != nil {
		return nil, err
	}
	source := &streamSource{
		route: &opened.route, scanner: adapters.AbilitiesOf(r.Store).Scan, can: rerank.AbilitiesOf(r.Model.Similarity), k: of.k,
		rows: -1, cores: 1, pace: a.pace((*a.routes.Load())[r.Name].Scans.RowsPerSecond),
	}
	if err := source.prepare(ctx, queries, make([]seenItems, len(queries)), newJournal(), nil); err != nil {
		return nil, err
	}
	recalls := make([]float64, len(queries))
	for n, q := range queries {
		if err := a.awaitIdle(ctx); err != nil {
			return nil, err
		}
		if !route.FreshNow(ctx, r.Freshness) {
			return nil, errBehind
		}
		answer, err := engine.Search(ctx, requestByRule(r.Name, q, of.k, of.rule))
		if err != nil {
			return nil, err
		}
		recalls[n] = source.answers[n].recall(scored(answer.Hits))
	}
	return recalls, nil
}

// pace returns a function that waits after each batch until the sidecar is idle and the rate permits the next batch.
func (a *Auditor) pace(rowsPerSecond int) func(ctx context.Context, rows int) error {
	due := time.Now()
	return func(ctx context.Context, rows int) error {
		if now := time.Now(); due.Before(now) { // time that was lost is not made up for
			due = now
		}
		due = due.Add(time.Duration(float64(rows) / float64(rowsPerSecond) * float64(time.Second)))
		if err := wait(ctx, time.Until(due)); err != nil {
			return err
		}
		return a.awaitIdle(ctx)
	}
}

// awaitIdle returns once the sidecar is not busy.
func (a *Auditor) awaitIdle(ctx context.Context) error {
	for a.options.Busy() {
		if err := wait(ctx, busyPoll); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// wait returns after d, or with the error of ctx.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// takeScan uses the exact answers of a scan to make the route's calibration, or to audit the one
// that it has.
func (a *Auditor) takeScan(routes Holder, s scanResult) {
	a.scanning = false
	a.nextScan[s.route] = time.Now().Add(max(scanRetry, selfPause*s.took))
	r, release, err := routes.Hold(s.route)
	if err != nil {
		return
	}
	defer release()
	k, isKeeper := r.Promise.(*Keeper)
	if !isKeeper || r.Model.Version != s.version {
		return // a newer version is served by now
	}
	if s.err != nil {
		a.options.Logger.Warn("collection scan failed, will retry", "route", s.route, "error", s.err)
		if sample := a.sample(s.route, s.version); sample.queries[s.of] == nil {
			sample.queries[s.of] = &querySample{seen: len(s.queries), queries: s.queries}
		}
		return
	}
	a.options.Logger.Info("collection scan finished", "route", s.route, "queries", len(s.queries), "took", s.took.Round(time.Millisecond))
	if k.isOpenToSelf() {
		a.adopt(r, k, selfReport(r, s.of, s.recalls, "collection"), s.of)
		return
	}
	c, void := k.Calibration()
	if c == nil || void != "" || c.Lacks(s.of.k, s.of.rule, false, false) != "" {
		return
	}
	for _, recall := range s.recalls {
		a.note(s.route, k, c, recall)
	}
	a.report(s.route, k)
}
