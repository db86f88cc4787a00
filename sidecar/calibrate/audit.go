package calibrate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// Audits says how many live answers of a route are audited.
type Audits struct {
	// Share is the share of the answers that are drawn, 0 for none. No more than PerSecond
	// are audited.
	Share, PerSecond float64
	// Self: the route draws answers by itself, to make a calibration where it has none and to audit
	// the one that it made, at most one in Every; 0: five seconds.
	Self  bool
	Every time.Duration
	// Scans says when such a route may read its whole collection, where nothing else answers exactly.
	Scans Scans
}

// Recorder takes the results of audits. It is safe for concurrent use.
type Recorder interface {
	// Audited counts an answer that was drawn, with one of the outcomes below.
	Audited(rt, outcome string)
	// Promise says whether a route's answers carry a calibration, and what its audit found.
	Promise(rt string, holds bool, recall, evidence float64)
}

// Outcomes of an answer that was drawn. Whether an answer is skipped does not depend on its
// recall: otherwise the audit would judge other answers than the promise speaks of.
const (
	OutcomeKept   = "kept"
	OutcomeMissed = "missed"
	// OutcomeSampled: the route has no calibration yet, and counts the answer for one.
	OutcomeSampled = "sampled"
	// SkippedRate: more answers were drawn than per_second allows.
	// SkippedQueue: more answers wait than the queue holds.
	SkippedRate  = "rate"
	SkippedQueue = "queue"
	// SkippedLoad: the sidecar was busy.
	SkippedLoad = "load"
	// SkippedBehind: the table does not show every write that was seen.
	SkippedBehind = "behind"
	// SkippedIndexing: the store builds an index, and searches compare rows that the index may miss.
	SkippedIndexing = "indexing"
	// SkippedFailed: the exact answer could not be computed.
	SkippedFailed = "failed"
)

// Holder lends the version of a route that is served, until release is called.
type Holder interface {
	Hold(name string) (r *route.Route, release func(), err error)
}

// AuditorOptions configure an Auditor.
type AuditorOptions struct {
	// Routes has every route that is served, by name.
	Routes map[string]Audits
	// Busy reports whether searches need the processors; nil: they never do.
	Busy     func() bool
	Recorder Recorder
	Logger   *slog.Logger
	// DescribeEvery is the time between two questions to the stores about the settings of
	// calibrated indices; 0: a minute.
	DescribeEvery time.Duration
}

// Auditor compares live answers with exact ones, in the background, one at a time on one
// core. It also reads calibrations again when their files change. It is safe for
// concurrent use.
type Auditor struct {
	options AuditorOptions
	routes  atomic.Pointer[map[string]Audits]
	// next and nextSelf are when the next audit of a route is due, and its next answer for a
	// calibration of itself, in nanoseconds since start.
	next, nextSelf map[string]*atomic.Int64

	start time.Time
	queue chan drawn
	// Only Run uses what follows, all by route: what was logged last of its promise, the answers
	// that it collects, how to search it exactly, and when its collection may be read next.
	logged     map[string]string
	samples    map[string]*selfSample
	exhaustive map[string]exhaustive
	nextScan   map[string]time.Time

	// scanning is true while a collection is read. One collection is read at a time.
	scanning bool
	scanned  chan scanResult
}

var _ search.Observer = (*Auditor)(nil)

// drawn is an answer that waits for its audit.
type drawn struct {
	route       string
	request     search.Request
	answer      []rerank.Scored
	certificate rerank.Certificate
	strategy    rerank.Strategy
	version     string
	self        bool // drawn by the route itself
}

const (
	maxQueue = 64 // answers that may wait for their audit
	// refreshEvery is the time between two looks at the files of calibrations.
	refreshEvery = 2 * time.Second
	// describeWithin bounds the time in which all stores describe their indices.
	describeWithin = 10 * time.Second
)

// NewAuditor makes an auditor. It audits nothing until Run.
func NewAuditor(o AuditorOptions) *Auditor {
	a := &Auditor{options: o, next: map[string]*atomic.Int64{}, nextSelf: map[string]*atomic.Int64{}, start: time.Now(), queue: make(chan drawn, maxQueue),
		logged: map[string]string{}, samples: map[string]*selfSample{}, exhaustive: map[string]exhaustive{},
		nextScan: map[string]time.Time{}, scanned: make(chan scanResult, 1)}
	for rt := range o.Routes {
		a.next[rt], a.nextSelf[rt] = new(atomic.Int64), new(atomic.Int64)
	}
	a.Adjust(o.Routes)
	if a.options.Busy == nil {
		a.options.Busy = func() bool { return false }
	}
	a.options.DescribeEvery = cmp.Or(o.DescribeEvery, time.Minute)
	return a
}

// Adjust changes how many answers of the routes are audited.
func (a *Auditor) Adjust(routes map[string]Audits) { a.routes.Store(&routes) }

// Searched implements search.Observer. It draws answers, and never waits.
func (a *Auditor) Searched(_ context.Context, rt string, r search.Request, answer search.Answer, err error) {
	o := (*a.routes.Load())[rt]
	status := answer.Certificate.Status
	if err != nil || answer.Degraded != nil || r.HidesRows() || len(r.History) > 0 || answer.Narrowed || answer.Strategy == rerank.Scan {
		return
	}
	carries := status == rerank.StatusCalibrated || answer.Certificate.Proved()
	share := carries && o.Share > 0 && rand.Float64() < o.Share
	self := o.Self && !share && drawsForSelf(r, answer) && a.dueForSelf(rt, cmp.Or(o.Every, selfEvery))
	switch {
	case share && !a.due(rt, o.PerSecond):
		a.options.Recorder.Audited(rt, SkippedRate)
		return
	case !share && !self:
		return
	}
	d := drawn{route: rt, request: r, answer: scored(answer.Hits), certificate: answer.Certificate, strategy: answer.Strategy, version: answer.Version, self: self}
	q := &d.request.Query
	q.Vector, q.Vectors.Data, d.request.Exclude = slices.Clone(q.Vector), slices.Clone(q.Vectors.Data), slices.Clone(r.Exclude)
	select {
	case a.queue <- d:
	default:
		a.options.Recorder.Audited(rt, SkippedQueue)
	}
}

// due reports whether the rate permits another audit of the route now, and counts it.
func (a *Auditor) due(rt string, perSecond float64) bool {
	if perSecond <= 0 {
		return false
	}
	now, next := int64(time.Since(a.start)), a.next[rt]
	at := next.Load()
	return now >= at && next.CompareAndSwap(at, now+int64(float64(time.Second)/perSecond))
}

// Run audits the answers that are drawn, until ctx is done. Then it saves the audits.
func (a *Auditor) Run(ctx context.Context, routes Holder) error {
	tick, describe := time.NewTicker(refreshEvery), time.NewTicker(a.options.DescribeEvery)
	defer tick.Stop()
	defer describe.Stop()
	a.refresh(routes)
	for {
		select {
		case <-ctx.Done():
			if a.scanning { // it ends with ctx
				<-a.scanned
			}
			return a.each(routes, func(_ string, _ *route.Route, k *Keeper) error { return k.Save() })
		case <-tick.C:
			a.refresh(routes)
			a.scanOneDue(ctx, routes, time.Now())
		case s := <-a.scanned:
			a.takeScan(routes, s)
		case <-describe.C:
			a.describe(ctx, routes)
		case d := <-a.queue:
			a.audit(ctx, routes, d)
		}
	}
}

// each calls do for every route with a promise.
func (a *Auditor) each(routes Holder, do func(name string, r *route.Route, k *Keeper) error) error {
	var failed []error
	for rt := range a.options.Routes {
		r, release, err := routes.Hold(rt)
		if err != nil {
			continue
		}
		if k, ok := r.Promise.(*Keeper); ok {
			failed = append(failed, do(rt, r, k))
		}
		release()
	}
	return errors.Join(failed...)
}

// refresh reads calibrations whose files changed, and reports every promise.
func (a *Auditor) refresh(routes Holder) {
	_ = a.each(routes, func(rt string, _ *route.Route, k *Keeper) error {
		k.Refresh()
		a.report(rt, k)
		return nil
	})
}

// describe asks the stores whether the indices still have the settings that were
// calibrated. A store that does not answer changes nothing.
func (a *Auditor) describe(ctx context.Context, routes Holder) {
	ctx, cancel := context.WithTimeout(ctx, describeWithin)
	defer cancel()
	_ = a.each(routes, func(rt string, r *route.Route, k *Keeper) error {
		if c, _ := k.Calibration(); c == nil {
			return nil
		}
		if settings, err := route.Settings(ctx, r); err == nil {
			k.Described(settings)
			a.report(rt, k)
		}
		return nil
	})
}

func (a *Auditor) report(rt string, k *Keeper) {
	c, void := k.Calibration()
	if c == nil && void == "" {
		return // the route was never calibrated
	}
	audit := k.Audit()
	a.options.Recorder.Promise(rt, void == "", audit.MeanRecall(), audit.Evidence)
	word := void
	if void == "" {
		word = c.Made.String()
	}
	if word == a.logged[rt] {
		return
	}
	a.logged[rt] = word
	if void != "" {
		a.options.Logger.Warn("answers carry no calibration", "route", rt, "reason", void)
		return
	}
	a.options.Logger.Info("answers carry a calibration", "route", rt, "recall", c.Recall, "k", c.K, "share", c.Share, "alpha", c.Alpha,
		"queries", c.Queries, "depth", c.Rule.Depth, "made", c.Made)
}

// audit compares one answer with the exact one.
func (a *Auditor) audit(ctx context.Context, routes Holder, d drawn) {
	r, release, err := routes.Hold(d.route)
	if err != nil {
		return
	}
	defer release()
	k, ok := r.Promise.(*Keeper)
	if !ok || d.version != r.Model.Version {
		return // a newer version is served by now
	}
	if d.self {
		began := time.Now()
		defer func() { pauseSelf(a.nextSelf[d.route], a.start, time.Since(began)) }()
	}
	c, void := k.Calibration()
	switch {
	case d.self && a.collectsForScan(r):
		a.collectForScan(r, d)
		return
	case d.self && k.isOpenToSelf() && isIndexing(ctx, r):
		a.options.Recorder.Audited(d.route, SkippedIndexing)
		return
	case d.self && k.isOpenToSelf():
		a.collect(ctx, r, k, d)
		return
	case c == nil || void != "" || !d.carries(c, r):
		return
	}
	recall, skipped := a.recall(ctx, r, d)
	if skipped != "" {
		if d.self && skipped == SkippedFailed {
			a.countFailed(r, a.sample(d.route, d.version))
		}
		a.options.Recorder.Audited(d.route, skipped)
		return
	}
	if s := a.samples[d.route]; s != nil {
		s.failed = 0
	}
	a.note(d.route, k, c, recall)
	a.report(d.route, k)
}

// note counts the recall of an answer that carried the calibration c.
func (a *Auditor) note(rt string, k *Keeper, c *rerank.Calibration, recall float64) {
	outcome := OutcomeMissed
	if (Promise{Recall: c.Recall}).reached(recall) {
		outcome = OutcomeKept
	}
	if err := k.note(c, recall); err != nil {
		a.options.Logger.Warn("audit not saved", "route", rt, "error", err)
	}
	a.options.Recorder.Audited(rt, outcome)
}

// carries reports whether the promise covers the answer: the answer carries it, or would
// if it had not been proved exact.
func (d drawn) carries(c *rerank.Calibration, r *route.Route) bool {
	if d.certificate.Status == rerank.StatusCalibrated {
		return d.certificate.Calibration == c
	}
	return c.Lacks(d.request.K, d.rule(r, c.Rule.AverageDepth), d.request.HidesRows(), len(d.request.Exclude) > 0) == ""
}

var errBusy = errors.New("the sidecar is busy")

// recall compares an answer with the exact one. skipped says why it could not.
func (a *Auditor) recall(ctx context.Context, r *route.Route, d drawn) (recall float64, skipped string) {
	if !route.FreshNow(ctx, r.Freshness) {
		return 0, SkippedBehind
	}
	t := r.CurrentTable()
	if t != nil {
		defer t.Release()
	}
	var exact exactAnswer
	var err error
	switch {
	case a.options.Busy():
		return 0, SkippedLoad
	case t == nil || !Precise(t): // proved answers too: where this fails, nothing may count
		exact, err = a.searchExactly(ctx, r, d)
	case d.certificate.Proved(): // after the checks that other answers pass
		return 1, ""
	default:
		seen, failed := itemsOf(r.Store, d.request.Exclude)
		if failed != nil {
			return 0, SkippedFailed
		}
		exact, err = scanTable(r.Model, t, d.request.Query, d.request.K, seen, func() error {
			if a.options.Busy() {
				return errBusy
			}
			return ctx.Err()
		})
	}
	switch {
	case errors.Is(err, errBusy):
		return 0, SkippedLoad
	case err != nil:
		return 0, SkippedFailed
	}
	return exact.recall(d.answer), ""
}
