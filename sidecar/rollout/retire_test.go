package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// busy is a Follower that uses a replaced version until let is closed.
type busy struct{ let chan struct{} }

func (busy) Freshness(*route.Route) route.Freshness { return nil }
func (busy) Replace(*route.Route) error             { return nil }

func (b busy) Quiet(ctx context.Context, _ *route.Route) error {
	select {
	case <-b.let:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
	c := w.load(t)
	parts, err := wiring.Open(t.Context(), c, wiring.Part{})
	must(t, err)
	t.Cleanup(func() { must(t, parts.Close()) })
	m := &managed{}
	m.engine, err = search.New(parts.Routes, search.Options{})
	must(t, err)
	must(t, m.engine.Open(t.Context()))
	m.Manager, err = rollout.New(rollout.Options{
		Engine: m.engine, Assembly: parts, Config: c, Follower: f, Logger: slog.New(slog.DiscardHandler),
		Switched: func(r *route.Route) { m.switched = append(m.switched, r.Model.Name) },
	})
	must(t, err)
	return m
}

// isHeld reports whether a version that was replaced is still open.
func (m *managed) isHeld(t *testing.T) bool {
	t.Helper()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 { // another goroutine closes what nobody holds
		if m.Close(now) == nil {
			return false
		}
	}
	return true
}

// TestFollowedVersionsStayOpen: a version that was replaced is closed when the follower has let
// go of it, and is not opened again before that.
func TestFollowedVersionsStayOpen(t *testing.T) {
	f := busy{make(chan struct{})}
	m := newWorld(t).manage(t, f)
	if _, err := m.Activate(t.Context(), "things", "v2", false); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.switched, []string{"m2"}) {
		t.Errorf("told of the models %q in service, want m2", m.switched)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Activate(short, "things", "v1", false); !errors.Is(err, context.Canceled) {
		t.Errorf("the version is opened again while the follower uses it: %v", err)
	}
	if !m.isHeld(t) {
		t.Error("the version was closed while the follower used it")
	}
	close(f.let)
	must(t, m.Close(t.Context()))
}

// TestSearchesBeforeReloadsHoldTheVersion: what a version has open stays open for the searches
// that began before its route's settings changed, once or twice, and before it was replaced.
func TestSearchesBeforeReloadsHoldTheVersion(t *testing.T) {
	for reloads := range 3 {
		w := newWorld(t)
		m := w.manage(t, nil)
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
		if !m.isHeld(t) {
			t.Errorf("after %d reloads the version was closed while it was searched", reloads)
		}
		release()
		must(t, m.Close(t.Context()))
	}
}
