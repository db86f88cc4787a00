// Package trial runs the experiments of routes: it opens a candidate beside the version in service,
// credits what people choose to the two, raises the candidate's share or ends the experiment, and keeps
// the evidence across restarts.
package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/search"
)

// ErrNone: the route has no experiment that could be stopped or begun.
var ErrNone = errors.New("the route has no experiment")

// Versions opens, watches and activates versions of routes. rollout.Manager does so.
type Versions interface {
	Serving(route string) (version, model string, err error)
	OpenCandidate(ctx context.Context, route, version string) (*rollout.Candidate, error)
	Activated(ctx context.Context, route, version string) (changed bool, err error)
}

var _ Versions = (*rollout.Manager)(nil)

// Options of New.
type Options struct {
	Engine   *search.Engine
	Versions Versions
	Events   events.Book
	StateDir string
	Logger   *slog.Logger
}

// Runner runs the experiments of a sidecar, each in a goroutine of its own, so that a candidate that
// opens slowly delays no other one. It is safe for concurrent use.
type Runner struct {
	o       Options
	changed chan struct{} // holds a value after Configure

	mu     sync.Mutex
	trials map[string]*trial // by route
	next   map[string]config.Experiment
	ended  map[string]chan struct{} // by route: closed when its last experiment has ended
}

// New makes a runner of the experiments of a configuration.
func New(o Options, c *config.Config) *Runner {
	r := &Runner{o: o, changed: make(chan struct{}, 1), trials: map[string]*trial{}, ended: map[string]chan struct{}{}}
	r.Configure(c)
	return r
}

// Configure takes the experiments from a configuration. An experiment whose settings changed keeps its
// evidence, unless its candidate, kind, session or alpha changed.
func (r *Runner) Configure(c *config.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = map[string]config.Experiment{}
	for _, name := range c.RouteNames() {
		if e := c.Routes[name].Experiment; e.Candidate != "" && r.o.Events.Route(name) != nil {
			r.next[name] = e
		}
	}
	signal(r.changed)
}

// signal puts a value into a channel that holds one, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tick is how often the evidence is looked at.
const tick = 500 * time.Millisecond

// Run runs the experiments until ctx is done, and returns when their candidates are closed.
func (r *Runner) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		r.adopt(ctx, &running)
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		}
	}
}

// adopt applies the configuration: it ends experiments that are not configured so any more, and runs
// those that are new. One of the same route waits until the one before has closed its candidate.
func (r *Runner) adopt(ctx context.Context, running *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, t := range r.trials {
		if e, ok := r.next[name]; !ok || !reflect.DeepEqual(e, t.settings) {
			t.cancel()
			delete(r.trials, name)
		}
	}
	for name, e := range r.next {
		if r.trials[name] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		t := &trial{Options: r.o, route: name, settings: e, wake: make(chan struct{}, 1), cancel: cancel}
		before, ended := r.ended[name], make(chan struct{})
		r.trials[name], r.ended[name] = t, ended
		running.Go(func() {
			defer close(ended)
			defer cancel()
			if before != nil {
				<-before
			}
			t.run(ctx)
		})
	}
}

// all lists the trials, by route.
func (r *Runner) all() []*trial {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*trial, 0, len(r.trials))
	for _, name := range slices.Sorted(maps.Keys(r.trials)) {
		out = append(out, r.trials[name])
	}
	return out
}

// find returns the experiment of a route, or ErrNone.
func (r *Runner) find(route string) (*trial, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.trials[route]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrNone, route)
}

// Stop ends the experiment of a route: the version in service answers everything. It returns ErrNone.
func (r *Runner) Stop(route string) error { return r.ask(route, asked{what: askedToStop}) }

// Restart begins the experiment of a route again, without the evidence so far. It tries a version, or
// with "" the same one as before. It returns ErrNone.
func (r *Runner) Restart(route, version string) error {
	return r.ask(route, asked{what: askedToRestart, version: version})
}

func (r *Runner) ask(route string, what asked) error {
	t, err := r.find(route)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.asked = what
	t.mu.Unlock()
	signal(t.wake)
	return nil
}

// Statuses describes the experiments, by route.
func (r *Runner) Statuses() []Status {
	var out []Status
	for _, t := range r.all() {
		if s, ok := t.status(); ok {
			out = append(out, s)
		}
	}
	return out
}

// asked is a wish of a person, or of a refit.
type asked struct {
	what    wish
	version string // with askedToRestart: the version to try; "" is the same one as before
}

type wish int

const (
	askedToStop wish = iota + 1
	askedToRestart
)

// trial is the experiment of one route. Only run, and what it calls, uses candidate and retry, and sets state.
type trial struct {
	Options
	route    string
	settings config.Experiment
	wake     chan struct{}      // holds a value after Stop and Restart of the Runner
	cancel   context.CancelFunc // ends run

	candidate *rollout.Candidate // nil unless the experiment runs
	retry     time.Time          // when to open the candidate again after a failure

	mu    sync.Mutex
	asked asked
	state *State // nil before the first turn
	tally *tally // nil unless the experiment runs
	dirty bool   // the state differs from the file
	waits string
	// searched reports that the candidate answers searches too.
	searched bool
	saved    time.Time
}

var _ events.Watcher = (*trial)(nil)

// Shown implements events.Watcher.
func (t *trial) Shown(m *events.Impression) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tally != nil {
		t.tally.show(m)
	}
}

// Fed implements events.Watcher.
func (t *trial) Fed(all []events.Feedback) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tally == nil {
		return
	}
	for i := range all {
		t.tally.feed(&all[i])
	}
}

// attempted counts an answer of the candidate.
func (t *trial) attempted(a search.Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.observe(a)
	t.dirty = true
}

func (t *trial) status() (Status, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == nil {
		return Status{}, false
	}
	s := StatusOf(t.route, t.state)
	s.Waits, s.Searched = t.waits, t.searched
	if t.tally != nil {
		s.Dropped = t.tally.dropped
	}
	return s, true
}

// run runs the experiment until ctx is done. Then it closes the candidate.
func (t *trial) run(ctx context.Context) {
	defer t.leave()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for ctx.Err() == nil {
		t.turn(ctx, time.Now())
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-t.wake:
		}
	}
}

// turn opens the candidate if it is not open, counts the sessions that are over, and decides how the
// experiment goes on.
func (t *trial) turn(ctx context.Context, now time.Time) {
	if err := t.prepare(ctx, now); err != nil {
		if ctx.Err() == nil {
			t.wait(err, now)
		}
		return
	}
	if t.candidate == nil {
		return
	}
	before, after, err := t.decide(now)
	if err != nil {
		t.wait(err, now)
		return
	}
	if before.Stage == after.Stage && before.Share == after.Share {
		t.save(false)
		return
	}
	if after.Stage == experiment.Promoted { // before the state changes, so that a crash in between promotes it again
		t.leave()
		if _, err := t.Versions.Activated(ctx, t.route, t.state.Version); err != nil {
			if ctx.Err() == nil { // the state promotes it again
				t.wait(fmt.Errorf("the candidate is better and cannot go into service: %w", err), now)
			}
			return
		}
	}
	t.mu.Lock()
	t.state.Ramp = after
	if t.state.IsOver() {
		t.state.Ended = now.UTC()
	}
	t.mu.Unlock()
	level := slog.LevelInfo
	if after.Stage == experiment.Stopped {
		level = slog.LevelWarn
		t.leave()
	}
	t.Logger.Log(ctx, level, "experiment changed", "route", t.route, "candidate", t.state.Version,
		"stage", string(after.Stage), "share", after.Share, "before", before.Share, "why", after.Why)
	if t.candidate != nil {
		t.serve()
	}
	t.save(true)
}

// wait notes why the experiment does not run, and when to try again.
func (t *trial) wait(err error, now time.Time) {
	t.retry = now.Add(10 * time.Second)
	t.mu.Lock()
	isNew := t.waits != err.Error()
	t.waits = err.Error()
	candidate := t.settings.Candidate
	if t.state != nil {
		candidate = t.state.Version
	}
	t.mu.Unlock()
	if isNew {
		t.Logger.Warn("experiment waits; will retry", "route", t.route, "candidate", candidate, "error", err)
	}
}

// prepare reads the state and opens the candidate, unless the experiment is over.
func (t *trial) prepare(ctx context.Context, now time.Time) error {
	t.mu.Lock()
	restart, version := t.asked.what == askedToRestart, t.asked.version
	if restart {
		t.asked, t.retry = asked{}, time.Time{}
	}
	state := t.state
	t.mu.Unlock()
	if now.Before(t.retry) || t.candidate != nil && !restart {
		return nil
	}
	t.leave()
	var err error
	if state == nil {
		if state, err = Read(t.StateDir, t.route); err != nil {
			return err
		}
	}
	if isNew := state == nil || !state.isOf(t.settings); isNew || restart {
		if version == "" && !isNew {
			version = state.Version
		}
		if state, err = begin(t.settings, version, now); err != nil {
			return err
		}
	}
	t.mu.Lock()
	t.state = state
	t.mu.Unlock()
	if state.IsOver() {
		return nil
	}
	served, _, err := t.Versions.Serving(t.route)
	if err != nil {
		return err
	}
	if served == state.Version && state.Model != "" { // it went into service while the experiment did not run
		t.mu.Lock()
		state.Ramp, state.Ended, t.waits = activated(), now.UTC(), ""
		t.mu.Unlock()
		t.save(true)
		return nil
	}
	candidate, err := t.Versions.OpenCandidate(ctx, t.route, state.Version)
	if err != nil {
		return err
	}
	if !state.compares(candidate) {
		t.Logger.Info("experiment begins again: its versions have other models", "route", t.route, "candidate", state.Version)
		if state, err = begin(t.settings, state.Version, now); err != nil {
			return errors.Join(err, candidate.Close())
		}
	}
	t.mu.Lock() // status reads the state
	state.Model, state.Beside, state.Control = candidate.Model, candidate.Beside, candidate.Control
	if experiment.Promote(t.settings.Promote) != experiment.Auto {
		state.Share = t.settings.Share
	}
	t.mu.Unlock()
	if err := t.join(state); err != nil {
		t.Events.Route(t.route).Watch(nil)
		return errors.Join(err, candidate.Close())
	}
	t.candidate = candidate
	t.serve()
	t.save(true)
	t.Logger.Info("experiment runs", "route", t.route, "candidate", state.Version, "kind", t.settings.Kind, "share", state.Share, "since", state.Started)
	return nil
}

// join goes on with a state: it credits the events of sessions that are not counted yet, those on disk
// and those to come.
func (t *trial) join(state *State) error {
	tally := newTally(state.Kind, t.settings.Session, t.settings.Feedback, state.Comparison, state.Counts)
	t.mu.Lock()
	t.state, t.tally, t.waits, t.dirty = state, tally, "", true
	t.mu.Unlock()
	t.Events.Route(t.route).Watch(t)
	began := state.Started.Truncate(time.Millisecond)
	since := latest(began, time.Unix(0, state.Period*int64(state.Session)))
	_, err := events.Read(statedir.Events(t.StateDir, t.route), events.Visitor{
		Since: began,
		Impression: func(m *events.Impression) error {
			switch {
			case !m.Time.Before(since):
				t.Shown(m)
			case !m.Time.Before(began):
				t.mu.Lock()
				tally.remember(m)
				t.mu.Unlock()
			}
			return nil
		},
		Feedback: func(f *events.Feedback) error {
			t.Fed([]events.Feedback{*f})
			return nil
		},
	})
	return err
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// decide counts the sessions that are over, and returns the ramp before and after the decision.
func (t *trial) decide(now time.Time) (before, after experiment.Ramp, err error) {
	version, model, err := t.Versions.Serving(t.route)
	if err != nil {
		return before, after, err
	}
	next, err := t.endSessions(now)
	if err != nil {
		return before, after, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.state
	s.Period, s.Waiting, s.Counts = max(s.Period, next), t.tally.Waiting, t.tally.counts
	before = s.Ramp
	switch {
	case t.asked.what == askedToStop:
		t.asked = asked{}
		after = experiment.Ramp{Stage: experiment.Stopped, Why: []string{"a person stopped it"}}
	case version == s.Version:
		after = activated()
	case version != s.Beside || model != s.Control:
		after = experiment.Ramp{Stage: experiment.Stopped, Why: []string{"another version went into service"}}
	default:
		after = s.Ramp.Next(experiment.Evidence{Decision: s.Test.Decided, Answers: s.Observed.Answers, Breaches: s.breaches(t.settings.Guard)}, experiment.Promote(t.settings.Promote))
	}
	return before, after, nil
}

// endAtOnce is how many sessions are counted while searches wait.
const endAtOnce = 500

// endSessions counts the sessions that are over, which may be hundreds of thousands, and returns the number of the first period
// that is not. Searches wait for no more than endAtOnce of them.
func (t *trial) endSessions(now time.Time) (next int64, err error) {
	t.mu.Lock()
	over, next := t.tally.over(now)
	t.mu.Unlock()
	inOrder(over)
	for some := range slices.Chunk(over, endAtOnce) {
		t.mu.Lock()
		units := t.state.Test.Units
		err := t.tally.end(some)
		t.dirty = t.dirty || t.state.Test.Units != units
		t.mu.Unlock()
		if err != nil {
			return next, err
		}
	}
	return next, nil
}

// activated returns the ramp of an experiment whose candidate a person has put in service.
func activated() experiment.Ramp {
	return experiment.Ramp{Stage: experiment.Promoted, Share: 1, Why: []string{"a person activated the candidate"}}
}

// serve lets both versions answer the present share of the searches.
func (t *trial) serve() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.searched = true
	t.Engine.SetTrial(t.route, t.searches())
}

// searches says which searches the candidate answers too. The caller holds the lock.
func (t *trial) searches() *search.Trial {
	return &search.Trial{
		Name: t.route + "/" + t.state.Version, Version: t.state.Version, Kind: experiment.Kind(t.settings.Kind), Share: t.state.Share,
		Session: t.settings.Session, Patience: t.settings.Guard.LatencyP99, Candidate: t.candidate.Standby, Attempted: t.attempted,
	}
}

// leave takes the candidate out of searches and closes it. The state stays.
func (t *trial) leave() {
	if t.candidate == nil {
		return
	}
	t.Engine.SetTrial(t.route, nil)
	t.Events.Route(t.route).Watch(nil)
	if err := t.candidate.Close(); err != nil {
		t.Logger.Warn("candidate not closed", "route", t.route, "candidate", t.state.Version, "error", err)
	}
	t.candidate = nil
	t.save(true)
	t.mu.Lock()
	t.tally, t.searched = nil, false
	t.mu.Unlock()
}

// saveEvery is how often new counts are saved. Decisions are saved at once.
const saveEvery = 5 * time.Second

// save writes the state: at once if now is set, otherwise if it has changed and saveEvery has passed.
// Searches do not wait for the disk.
func (t *trial) save(now bool) {
	t.mu.Lock()
	if t.state == nil || !t.dirty && !now || !now && time.Since(t.saved) < saveEvery {
		t.mu.Unlock()
		return
	}
	t.saved, t.dirty = time.Now(), false
	state, err := json.Marshal(t.state)
	t.mu.Unlock()
	if err == nil {
		err = statedir.WriteJSON(file(t.StateDir, t.route), json.RawMessage(state))
	}
	if err != nil {
		t.mu.Lock()
		t.dirty = true
		t.mu.Unlock()
		t.Logger.Warn("state of the experiment not written; a restart would lose evidence", "route", t.route, "error", err)
	}
}
