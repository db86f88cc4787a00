package rollout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// Activation reports an activation.
type Activation struct {
	Version Info
	// Before names the version that was replaced.
	Before string
	Warm
	Took time.Duration
	// Remembered tells that the activation survives a restart.
	Remembered bool
	// Alias is the alias that points at the version's companion now; "" if the route has none.
	Alias string
}

// RollBack activates the previous version. It returns ErrNoPrevious, or the errors of
// Activate except ErrNotReady: the old version goes back into service even if it cannot
// answer the recent queries.
func (m *Manager) RollBack(ctx context.Context, rt string) (Activation, error) {
	_, made, err := m.active(rt)
	if err != nil {
		return Activation{}, err
	}
	if made.Previous == "" {
		return Activation{}, fmt.Errorf("%w of route %q; see `likeness model list --route %s`", ErrNoPrevious, rt, rt)
	}
	return m.Activate(ctx, rt, made.Previous, true)
}

// Activate puts a version of a route in service. It opens the version's model and table,
// reading the whole table, checks both against the store, tries the version with recent
// queries, and switches. From then on the follower follows the new version. Searches under
// way end with the old version, which stays in service after an error. Only one activation
// of a route runs at a time.
//
// Activating the active version again reads its files anew, unless its table is live. With
// force, Activate switches even if the version answered no query.
//
// It returns route.ErrUnknown, ErrVersion, config.ErrConfig, the errors of the version's
// files, route.ErrSetup, ErrNotReady, ErrClosed, or the store's error.
func (m *Manager) Activate(ctx context.Context, rt, version string, force bool) (Activation, error) {
	began := time.Now()
	unlock, err := m.lockRoute(ctx, rt)
	if err != nil {
		return Activation{}, err
	}
	defer unlock()
	c, err := m.reload()
	if err != nil {
		return Activation{}, err
	}
	if err := m.awaitRetired(ctx, rt); err != nil {
		return Activation{}, err
	}
	v, err := m.Assembly.OpenVersion(c, rt, version)
	if err != nil {
		return Activation{}, err
	}
	out, err := m.switchTo(ctx, c, v, force)
	if err != nil {
		return Activation{}, errors.Join(err, v.Close())
	}
	out.Took = time.Since(began)
	m.Logger.InfoContext(ctx, "version activated", "route", rt, "version", version, "before", out.Before,
		"model", v.Model.Name, "model_version", v.Model.Version, "took", out.Took.String())
	return out, nil
}

// Repair opens the version in service of a broken route, and puts it in service. For a route
// that is not broken it does nothing. Repair returns the errors of choice.InService and of
// Activate.
func (m *Manager) Repair(ctx context.Context, rt string) error {
	if !m.isBroken(rt) {
		return nil
	}
	c, err := m.reload()
	if err != nil {
		return err
	}
	version, _, err := choice.InService(c, rt, "")
	if err != nil {
		return err
	}
	unlock, err := m.lockRoute(ctx, rt)
	if err != nil {
		return err
	}
	defer unlock()
	if !m.isBroken(rt) {
		return nil
	}
	v, err := m.Assembly.OpenVersion(c, rt, version)
	if err != nil {
		return err
	}
	if _, err := m.switchTo(ctx, c, v, true); err != nil {
		return errors.Join(err, v.Close())
	}
	m.Logger.InfoContext(ctx, "route repaired", "route", rt, "version", version, "model", v.Model.Name, "model_version", v.Model.Version)
	return nil
}

// isBroken reports whether the route's files could not be used so far.
func (m *Manager) isBroken(rt string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locks[rt] != nil && m.served[rt] == nil
}

// switchTo warms an open version up and puts it in service.
func (m *Manager) switchTo(ctx context.Context, c *config.Config, v *wiring.Version, force bool) (out Activation, err error) {
	rt := v.Route.Name
	before, made, err := m.active(rt)
	if err != nil {
		return out, err
	}
	if m.Follower != nil {
		v.Route.Freshness = m.Follower.Freshness(v.Route)
	}
	next, err := m.Engine.Prepare(ctx, v.Route)
	if err != nil {
		return out, err
	}
	if out.Warm, err = m.warm(ctx, next, force); err != nil {
		return out, err
	}
	r := c.Routes[rt]
	if out.Alias, err = pointAlias(ctx, r, v.Route); err != nil {
		return out, err
	}
	chosen := made.Next(v.Name, v.Model.Version, r.Active, time.Now())
	undo := func(err error) error {
		if before == nil {
			return err
		}
		_, alias := pointAlias(ctx, r, before.Route)
		return errors.Join(err, alias)
	}
	if err := chosen.Save(m.Config.StateDir, rt); err != nil {
		return out, undo(fmt.Errorf("the choice cannot be written into state_dir, so the route was not switched: %w", err))
	}
	if err := m.switchRoute(next, v, before, chosen); err != nil {
		return out, undo(errors.Join(err, made.Save(m.Config.StateDir, rt)))
	}
	out.Version, out.Remembered = infoOf(r, v.Name, v, chosen), m.Config.StateDir != ""
	if before != nil {
		out.Before = before.Name
	}
	return out, nil
}

// switchRoute switches the route, and closes the old version, if there is one, when nobody
// uses it any more.
func (m *Manager) switchRoute(next *search.Standby, v, before *wiring.Version, chosen choice.Choice) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	if m.Follower != nil {
		if err := m.Follower.Replace(v.Route); err != nil {
			return fmt.Errorf("%w: %w", ErrNotReady, err)
		}
	}
	ended := slices.Concat(m.takeDraining(v.Route.Name), []<-chan struct{}{next.Switch()})
	m.served[v.Route.Name], m.choices[v.Route.Name] = v, chosen
	if m.Switched != nil {
		m.Switched(next.Route())
	}
	if before == nil {
		return nil
	}
	closed := make(chan struct{})
	m.leaving[v.Route.Name] = closed
	m.retiring.Go(func() {
		defer close(closed)
		m.retire(before, ended)
	})
	return nil
}

// takeDraining removes and returns the channels of the searches with earlier settings of the version in service.
func (m *Manager) takeDraining(rt string) []<-chan struct{} {
	ended := m.draining[rt]
	delete(m.draining, rt)
	return ended
}

// awaitRetired waits until the version that was replaced last is closed. Going back to it opens its
// files again, and a live table can be open only once.
func (m *Manager) awaitRetired(ctx context.Context, rt string) error {
	m.mu.Lock()
	closed := m.leaving[rt]
	m.mu.Unlock()
	if closed == nil {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the version of route %q that was replaced last is still searched: %w", rt, ctx.Err())
	}
}

// retire closes a version that was replaced, after the last search and the follower have
// let go of it.
func (m *Manager) retire(v *wiring.Version, ended []<-chan struct{}) {
	for _, searches := range ended {
		<-searches
	}
	var err error
	if m.Follower != nil {
		err = m.Follower.WaitUnused(context.Background(), v.Route)
	}
	if err == nil {
		err = v.Close()
	}
	if err != nil {
		m.Logger.Warn("replaced version not closed", "route", v.Route.Name, "version", v.Name, "error", err)
	}
}

// Close refuses further activations, and waits until all replaced versions are closed. No
// search may be under way. Closing the assembly closes the versions in service.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.retiring.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a version that was replaced is still held: %w", ctx.Err())
	}
}

// pointAlias points the route's companion alias at the companion of a version. It returns
// "" if there is no alias or no companion.
func pointAlias(ctx context.Context, r config.Route, to *route.Route) (alias string, err error) {
	if r.CompanionAlias == "" || to.Companion == "" {
		return "", nil
	}
	aliaser := adapters.AbilitiesOf(to.Store).Alias
	if aliaser == nil {
		return "", fmt.Errorf("%w: %w: store %q has no aliases; remove companion_alias of route %q", route.ErrSetup, adapters.ErrUnsupported, to.StoreName, to.Name)
	}
	if err := aliaser.SwitchAlias(ctx, r.CompanionAlias, to.Companion); err != nil {
		return "", fmt.Errorf("companion_alias of route %q: %w", to.Name, err)
	}
	return r.CompanionAlias, nil
}

// Warm reports how a version was tried before it went into service.
type Warm struct {
	// Queries is the number of trial queries, Failed the number that got no answer.
	Queries, Failed int
	// Recent tells that the queries were recent ones of the route, and not made up.
	Recent bool
}

// Limits of a warm-up.
const (
	madeQueries = 8
	warmFor     = 10 * time.Second
)

// warm searches a version that waits to go into service. This loads its table into memory
// and its companion into the store's caches, and measures both ways for scan_if_faster. warm
// returns ErrNotReady if no query was answered.
func (m *Manager) warm(ctx context.Context, next *search.Standby, force bool) (w Warm, err error) {
	var recent []search.Request
	if m.Recent != nil {
		recent = m.Recent.requests(next.Route().Name)
	}
	requests, isRecent := trialQueries(next.Route(), recent)
	w.Recent = isRecent
	short, cancel := context.WithTimeout(ctx, warmFor)
	defer cancel()
	last := w.try(short, requests, next.Search)
	if ctx.Err() != nil {
		return w, ctx.Err()
	}
	return w, w.check(last, force)
}

// try searches one request after the other until ctx ends, with pauses so that the searches take a quarter of the
// time: the searches of callers come first. It counts the searches, and returns the error of the last that failed.
func (w *Warm) try(ctx context.Context, requests []search.Request, find func(context.Context, search.Request) (search.Answer, error)) (last error) {
	for _, r := range requests {
		began := time.Now()
		a, err := find(ctx, r)
		if pause(ctx, 3*time.Since(began)) != nil {
			return last
		}
		w.Queries++
		if err := trialFailure(a, err); err != nil {
			w.Failed, last = w.Failed+1, err
		}
	}
	return last
}

// trialQueries returns the searches with which a version is tried: recent searches of its route
// that it can answer, or else made-up ones. They call no ranker, since calls are expensive and
// warm nothing up.
func trialQueries(rt *route.Route, recent []search.Request) (requests []search.Request, isRecent bool) {
	if rt.Ranker != nil {
		recent = withVectors(recent)
	}
	requests, isRecent = recent, len(recent) > 0
	if !isRecent {
		requests = madeUpQueries(rt.Model.Similarity.Spec())
	}
	none := 0
	for i := range requests {
		r := &requests[i]
		r.Route = rt.Name
		if rt.Ranker != nil {
			r.Calls, r.Rounds = &none, 0
		}
	}
	return requests, isRecent
}

// trialFailure returns why a trial query counts as failed, nil if it was answered. An answer in
// the store's own order is no answer of the version.
func trialFailure(a search.Answer, err error) error {
	if err == nil && a.Degraded != nil {
		err = fmt.Errorf("%w: %s: %s", failure.ErrDegraded, a.Degraded.Reason, a.Degraded.Detail)
	}
	return err
}

// check returns ErrNotReady if no query was answered, unless force is set. last is the error of
// the last query that failed.
func (w Warm) check(last error, force bool) error {
	if w.Queries == 0 || w.Failed < w.Queries || force {
		return nil
	}
	return fmt.Errorf("%w: it answered none of %d queries, the last with %w; the route was not switched; --force switches all the same", ErrNotReady, w.Queries, last)
}

// withVectors returns the requests that can be answered without a ranker.
func withVectors(requests []search.Request) []search.Request {
	return slices.DeleteFunc(requests, func(r search.Request) bool { return len(r.Query.Vector) == 0 })
}

// pause waits for d, or returns the error of ctx when that ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// madeUpQueries returns queries of random numbers.
func madeUpQueries(s rerank.Spec) []search.Request {
	rng := rand.New(rand.NewPCG(1, 1))
	out := make([]search.Request, madeQueries)
	for i := range out {
		q := rerank.Query{Vector: make([]float32, s.QueryDim), HasUserID: s.UserIDs}
		for j := range q.Vector {
			q.Vector[j] = float32(rng.NormFloat64())
		}
		rerank.Normalise(q.Vector)
		out[i] = search.Request{Query: q, K: 10}
	}
	return out
}
