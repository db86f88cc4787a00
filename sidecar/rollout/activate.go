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

// Activation is what an activation did.
type Activation struct {
	Version Info
	// Before is the version that was served.
	Before string
	Warm
	Took time.Duration
	// Remembered: the choice survives a restart.
	Remembered bool
	Alias      string // that names the version's companion now
}

// RollBack activates the version that was served before. It returns
// ErrNoPrevious, or what Activate returns but for ErrNotReady: going back does
// not depend on the queries of the version that is left.
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

// Activate puts a version of a route in service: it opens the version's model and
// table, which reads all of the table, checks both against the store, tries the
// version with recent queries, and switches; the follower follows it from then on. Searches that are under way end on
// the version before; after an error that one is still served. The active version
// can be activated again, which reads its files anew, unless its table is live. One activation of a route
// runs at a time. force switches even if no recent query could be answered.
//
// It returns route.ErrUnknown, ErrVersion, config.ErrConfig, the errors
// of the version's files, route.ErrSetup, ErrNotReady, ErrClosed, or the store's error.
func (m *Manager) Activate(ctx context.Context, rt, version string, force bool) (Activation, error) {
	began := time.Now()
	end, err := m.begin(ctx, rt)
	if err != nil {
		return Activation{}, err
	}
	defer end()
	c, err := m.reload()
	if err != nil {
		return Activation{}, err
	}
	if err := m.left(ctx, rt); err != nil {
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

// switchTo warms an opened version up and serves it.
func (m *Manager) switchTo(ctx context.Context, c *config.Config, v *wiring.Version, force bool) (out Activation, err error) {
	rt := v.Route.Name
	before, made, err := m.active(rt)
	if err != nil {
		return out, err
	}
	if m.Follower != nil {
		if v.Route.Freshness, err = m.Follower.Freshness(v.Route); err != nil {
			return out, err
		}
	}
	next, err := m.Pipeline.Prepare(ctx, v.Route)
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
		_, alias := pointAlias(ctx, r, before.Route)
		return errors.Join(err, alias)
	}
	if err := chosen.Save(m.Config.StateDir, rt); err != nil {
		return out, undo(fmt.Errorf("the choice cannot be written into state_dir, and nothing was switched: %w", err))
	}
	if err := m.take(next, v, before, chosen); err != nil {
		return out, undo(errors.Join(err, made.Save(m.Config.StateDir, rt)))
	}
	out.Version, out.Before, out.Remembered = infoOf(r, v.Name, v, chosen), before.Name, m.Config.StateDir != ""
	return out, nil
}

// take switches, and closes the version before once nobody uses it.
func (m *Manager) take(next *search.Standby, v, before *wiring.Version, chosen choice.Choice) error {
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
	ended := slices.Concat(m.lanes[v.Route.Name], []<-chan struct{}{next.Switch()})
	delete(m.lanes, v.Route.Name)
	m.served[v.Route.Name], m.choices[v.Route.Name] = v, chosen
	if m.Switched != nil {
		m.Switched(next.Route())
	}
	closed := make(chan struct{})
	m.leaving[v.Route.Name] = closed
	m.retiring.Go(func() {
		defer close(closed)
		m.retire(before, ended)
	})
	return nil
}

// left waits until the version that was served before this one is closed: a table
// that is written is open once, and going back opens it again.
func (m *Manager) left(ctx context.Context, rt string) error {
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

// retire closes a version that was replaced: what a search, or the follower, still
// reads or writes must not go away.
func (m *Manager) retire(v *wiring.Version, ended []<-chan struct{}) {
	for _, lane := range ended {
		<-lane
	}
	var err error
	if m.Follower != nil {
		err = m.Follower.Quiet(context.Background(), v.Route)
	}
	if err == nil {
		err = v.Close()
	}
	if err != nil {
		m.Logger.Warn("the table of a version that was replaced was not closed", "route", v.Route.Name, "version", v.Name, "error", err)
	}
}

// Close takes no more activations and waits until the versions that were replaced
// are closed. No search may be under way. Those that are served are the assembly's to close.
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

// pointAlias makes the route's alias name a version's companion.
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

// Warm says how a version was tried before it went live.
type Warm struct {
	// Queries warmed the version up, Failed of them it could not answer.
	Queries, Failed int
	// Recent: they were the route's own, otherwise made ones.
	Recent bool
}

// What a warm-up takes at most.
const (
	madeQueries = 8
	warmFor     = 10 * time.Second
)

// warm searches the version in waiting, so that its table is in memory, the
// store's caches have seen its companion, and scan_if_faster knows what both ways
// take. It returns ErrNotReady where no query was answered.
func (m *Manager) warm(ctx context.Context, next *search.Standby, force bool) (w Warm, err error) {
	var requests []search.Request
	if m.Recent != nil {
		requests = m.Recent.of(next.Route().Name)
	}
	if next.Route().Ranker != nil {
		requests = vectors(requests)
	}
	w.Recent = len(requests) > 0
	if !w.Recent {
		requests = made(next.Route().Model.Similarity.Spec())
	}
	none := 0
	short, cancel := context.WithTimeout(ctx, warmFor)
	defer cancel()
	var last error
	for _, r := range requests {
		r.Route = next.Route().Name
		if next.Route().Ranker != nil {
			r.Calls, r.Rounds = &none, 0 // its calls cost, and warm nothing here
		}
		began := time.Now()
		a, err := next.Search(short, r)
		if rest(short, 3*time.Since(began)) != nil {
			break
		}
		w.Queries++
		switch {
		case err != nil:
			w.Failed, last = w.Failed+1, err
		case a.Degraded != nil:
			w.Failed, last = w.Failed+1, fmt.Errorf("%w: %s: %s", failure.ErrDegraded, a.Degraded.Reason, a.Degraded.Detail)
		}
	}
	if ctx.Err() != nil {
		return w, ctx.Err()
	}
	if w.Queries > 0 && w.Failed == w.Queries && !force {
		return w, fmt.Errorf("%w: it answered none of %d queries; the last: %w; nothing was switched, --force switches all the same", ErrNotReady, w.Queries, last)
	}
	return w, nil
}

// vectors are the requests that can be answered without a ranker.
func vectors(requests []search.Request) []search.Request {
	return slices.DeleteFunc(requests, func(r search.Request) bool { return len(r.Query.Vector) == 0 })
}

// rest waits between two searches of the warm-up, so that it takes a quarter of its
// time: the searches of callers come first.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// made are queries of random numbers.
func made(s rerank.Spec) []search.Request {
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
