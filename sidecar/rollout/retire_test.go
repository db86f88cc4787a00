package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// follower is a Follower that uses a replaced version until the channel let is closed.
type follower struct {
	let      chan struct{}
	refuses  error           // the answer to Replace
	holds    error           // the answer to WaitUnused
	fresh    route.Freshness // of every route
	replaced []string        // models of the routes that it was told to follow

	mu     sync.Mutex
	waited []string // models of the routes that WaitUnused was asked about
}

func newFollower() *follower { return &follower{let: make(chan struct{})} }

func (f *follower) Freshness(*route.Route) route.Freshness { return f.fresh }

func (f *follower) Replace(r *route.Route) error {
	f.replaced = append(f.replaced, r.Model.Name)
	return f.refuses
}

func (f *follower) WaitUnused(ctx context.Context, r *route.Route) error {
	f.mu.Lock()
	f.waited = append(f.waited, r.Model.Name)
	f.mu.Unlock()
	select {
	case <-f.let:
		return f.holds
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askedAbout lists the models of the versions that the follower was asked to let go of.
func (f *follower) askedAbout() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.waited)
}

// managed is a Manager of the world's routes, without a server.
type managed struct {
	*rollout.Manager
	engine   *search.Engine
	switched []string // models of the routes that went into service
}

func (w *world) load(t *testing.T, changes ...string) *config.Config {
	t.Helper()
	c, err := config.Load(config.Source{File: w.path("likeness.yaml"), Environ: []string{}, Set: changes})
	must(t, err)
	return c
}

func (w *world) manage(t *testing.T, f rollout.Follower) *managed {
	t.Helper()
	return w.manageWith(t, rollout.Options{Follower: f})
}

// manageWith fills in the options that all tests share.
func (w *world) manageWith(t *testing.T, o rollout.Options) *managed {
	t.Helper()
	c := w.load(t)
	parts, err := wiring.Open(t.Context(), c, wiring.Part{KeepBroken: true})
	must(t, err)
	t.Cleanup(func() { must(t, parts.Close()) })
	m := &managed{}
	m.engine, err = search.New(parts.Routes, search.Options{})
	must(t, err)
	if err := m.engine.Open(t.Context()); len(parts.Versions) > 0 { // a broken route is opened when it is repaired
		must(t, err)
	}
	o.Engine, o.Assembly, o.Config, o.Logger = m.engine, parts, c, slog.New(slog.DiscardHandler)
	o.Switched = func(r *route.Route) { m.switched = append(m.switched, r.Model.Name) }
	m.Manager, err = rollout.New(o)
	must(t, err)
	return m
}

// isHeld reports whether a replaced version is still open. It first yields to the goroutines that
// close unused versions.
func (m *managed) isHeld(t *testing.T) bool {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- m.Close(t.Context()) }()
	for range 1000 {
		runtime.Gosched()
		select {
		case <-closed:
			return false
		default:
		}
	}
	return true
}

// TestFollowedVersionsStayOpen: a version that was replaced is closed when the follower has let
// go of it, and is not opened again before that.
func TestFollowedVersionsStayOpen(t *testing.T) {
	f := newFollower()
	m := newWorld(t).manage(t, f)
	if _, err := m.Activate(t.Context(), "things", "v2", false); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.switched, []string{"m2"}) || !slices.Equal(f.replaced, []string{"m2"}) {
		t.Errorf("told of the models %q in service and %q to follow, want m2", m.switched, f.replaced)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for waits := false; !waits; { // select may choose the end of the context before the lock
		_, err := m.Activate(ended, "things", "v1", false)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("the version is opened again while the follower uses it: %v", err)
		}
		if waits = strings.Contains(err.Error(), "replaced last"); !waits && !strings.Contains(err.Error(), "another activation") {
			t.Fatalf("the version is opened again while the follower uses it: %v", err)
		}
	}
	if !m.isHeld(t) {
		t.Error("the version was closed while the follower used it")
	}
	close(f.let)
	must(t, m.Close(t.Context()))
	if !slices.Equal(f.askedAbout(), []string{"m1"}) {
		t.Errorf("the follower was asked to let go of %q, want m1", f.askedAbout())
	}
}

// TestSearchesBeforeReloadsHoldTheVersion: the open parts of a version stay open for the searches
// that began before its route's settings changed, once or twice, and before it was replaced.
func TestSearchesBeforeReloadsHoldTheVersion(t *testing.T) {
	for reloads := range 3 {
		w, f := newWorld(t), newFollower()
		close(f.let)
		m := w.manage(t, f)
		_, release, err := m.engine.Hold("things")
		must(t, err)
		for n := range reloads {
			a, err := m.Adjust(t.Context(), w.load(t, fmt.Sprintf("routes.things.max_rounds=%d", n+2)), []string{"things"})
			must(t, err)
			must(t, a.Apply())
		}
		if _, err := m.Activate(t.Context(), "things", "v2", false); err != nil {
			t.Fatal(err)
		}
		if !m.isHeld(t) || len(f.askedAbout()) > 0 {
			t.Errorf("after %d reloads the version was closed while it was searched", reloads)
		}
		release()
		must(t, m.Close(t.Context()))
	}
}
