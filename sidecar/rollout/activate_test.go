package rollout_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// inService returns the version that the manager has in service.
func (m *managed) inService(t *testing.T) string {
	t.Helper()
	all, err := m.List("things")
	must(t, err)
	i := slices.IndexFunc(all, func(v rollout.Info) bool { return v.Active })
	if i < 0 {
		return ""
	}
	return all[i].Name
}

// route returns the route as it is searched.
func (m *managed) route(t *testing.T) *route.Route {
	t.Helper()
	r, release, err := m.engine.Hold("things")
	must(t, err)
	release()
	return r
}

// remembered returns the version that the state folder names.
func (w *world) remembered(t *testing.T) string {
	t.Helper()
	made, err := choice.Read(w.load(t).StateDir, "things")
	must(t, err)
	return made.Active
}

// TestFailedActivations: after an activation that failed at any step, the previous version is in
// service and remembered, and no part of the new one is open.
func TestFailedActivations(t *testing.T) {
	for name, c := range map[string]struct {
		before func(w *world, f *follower, m *managed, cancel func())
		want   error
	}{
		"the follower refuses": {func(_ *world, f *follower, _ *managed, _ func()) { f.refuses = errors.New("no") }, rollout.ErrNotReady},
		"the sidecar ends":     {func(_ *world, _ *follower, m *managed, _ func()) { _ = m.Close(t.Context()) }, rollout.ErrClosed},
		"the caller leaves":    {func(_ *world, f *follower, _ *managed, cancel func()) { f.fresh = leaving{cancel} }, context.Canceled},
		"the choice cannot be written": {func(w *world, _ *follower, _ *managed, _ func()) {
			must(t, os.MkdirAll(filepath.Join(statedir.Route(w.path("state"), "things"), "version.json", "in the way"), 0o700))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := newWorld(t), newFollower()
			close(f.let)
			m := w.manage(t, f)
			open := w.mapped()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.before(w, f, m, cancel)
			_, err := m.Activate(ctx, "things", "v2", false)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if v := m.inService(t); v != "v1" || len(m.switched) > 0 {
				t.Errorf("%s is in service, told of %q", v, m.switched)
			}
			if c.want != nil {
				if v := w.remembered(t); v == "v2" {
					t.Errorf("%s is remembered", v)
				}
			}
			if n := w.mapped(); n != open {
				t.Errorf("%d files are mapped, %d were before", n, open)
			}
		})
	}
}

// leaving is a Freshness whose caller leaves as soon as it is called.
type leaving struct{ leave func() }

func (l leaving) Fresh() bool                 { l.leave(); return true }
func (l leaving) Horizon() route.Horizon      { l.leave(); return route.Horizon{} }
func (l leaving) Assess() (bool, route.Doubt) { l.leave(); return true, nil }

// TestUnanswered: a version that answers none of the recent queries goes into service only by
// force. Going back to the version before needs no force.
func TestUnanswered(t *testing.T) {
	w := newWorld(t)
	recent := rollout.NewRecent([]string{"things"})
	m := w.manageWith(t, rollout.Options{Recent: recent})
	recent.Searched(t.Context(), "things", search.Request{Route: "things", K: 1 << 20, Query: rerank.Query{Vector: w.queries.Row(0)}}, search.Answer{}, nil)
	if _, err := m.Activate(t.Context(), "things", "v2", false); !errors.Is(err, rollout.ErrNotReady) {
		t.Errorf("a version that answers nothing: %v", err)
	}
	if _, err := m.OpenCandidate(t.Context(), "things", "v2"); !errors.Is(err, rollout.ErrNotReady) {
		t.Errorf("as a candidate: %v", err)
	}
	if changed, err := m.Activated(t.Context(), "things", "v2"); changed || !errors.Is(err, rollout.ErrNotReady) {
		t.Errorf("named in the configuration: changed %t, %v", changed, err)
	}
	a, err := m.Activate(t.Context(), "things", "v2", true)
	if err != nil || a.Before != "v1" || !a.Recent || a.Queries != 1 || a.Failed != 1 || a.Version.Name != "v2" || !a.Remembered {
		t.Errorf("by force: %+v, %v", a, err)
	}
	a, err = m.RollBack(t.Context(), "things")
	if err != nil || a.Version.Name != "v1" || a.Before != "v2" {
		t.Errorf("back: %+v, %v", a, err)
	}
	must(t, m.Close(t.Context()))
}

// TestActivated: a reload activates the version that the configuration names, unless it is in
// service.
func TestActivated(t *testing.T) {
	m := newWorld(t).manage(t, nil)
	for _, c := range []struct {
		version string
		changed bool
		fails   bool
	}{{"v1", false, false}, {"v2", true, false}, {"v2", false, false}, {"v9", false, true}} {
		changed, err := m.Activated(t.Context(), "things", c.version)
		if changed != c.changed || (err != nil) != c.fails {
			t.Errorf("%s: changed %t, %v", c.version, changed, err)
		}
	}
	must(t, m.Close(t.Context()))
	if v := m.inService(t); v != "v2" || !slices.Equal(m.switched, []string{"m2"}) {
		t.Errorf("%s is in service, told of %q", v, m.switched)
	}
	var models []string
	for _, one := range m.Models() {
		models = append(models, one.Name)
	}
	if !slices.Contains(models, "m2") {
		t.Errorf("the models in use are %q", models)
	}
}

// TestAdjustments: an adjustment holds the lock of its routes until it is applied or discarded,
// and one that fails holds nothing.
func TestAdjustments(t *testing.T) {
	w := newWorld(t)
	m := w.manage(t, nil)
	served := m.route(t)
	isFree := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // select may choose a free lock although the context has ended
			a, err := m.Adjust(ctx, w.load(t), []string{"things"})
			if err == nil {
				a.Discard()
				return true
			}
			if !strings.Contains(err.Error(), "another activation") {
				return true
			}
		}
		return false
	}
	c := w.load(t, "routes.things.max_rounds=3")
	if _, err := m.Adjust(t.Context(), c, []string{"things", "nothing"}); !errors.Is(err, route.ErrUnknown) || !isFree() {
		t.Errorf("a route that is not there: %v, and the lock is free: %t", err, isFree())
	}
	a, err := m.Adjust(t.Context(), c, []string{"things"})
	must(t, err)
	if isFree() {
		t.Error("a route is changed twice at a time")
	}
	a.Discard()
	a.Discard()
	if !isFree() || len(m.switched) > 0 || m.route(t) != served {
		t.Errorf("a discarded adjustment changed something: told of %q", m.switched)
	}
	a, err = m.Adjust(t.Context(), c, []string{"things"})
	must(t, err)
	must(t, a.Apply())
	if !isFree() { // the next adjustment would wait for ever
		t.Fatal("an adjustment that was applied keeps the route's lock")
	}
	if got := m.route(t); got.MaxRounds != 3 || len(m.switched) != 1 {
		t.Errorf("%d rounds in service, told of %q", got.MaxRounds, m.switched)
	}
	a, err = m.Adjust(t.Context(), c, []string{"things"})
	must(t, err)
	must(t, m.Close(t.Context()))
	if err := a.Apply(); !errors.Is(err, rollout.ErrClosed) || len(m.switched) != 1 {
		t.Errorf("at the end of the sidecar: %v, told of %q", err, m.switched)
	}
}

// TestRepair: a broken route is repaired once, by a version that is closed if it fails. It may
// answer none of the recent queries: the route answers none anyway.
func TestRepair(t *testing.T) {
	w, f, recent := newWorld(t), newFollower(), rollout.NewRecent([]string{"things"})
	close(f.let)
	must(t, os.Rename(w.path("v1.table"), w.path("hidden")))
	m := w.manageWith(t, rollout.Options{Follower: f, Recent: recent})
	recent.Searched(t.Context(), "things", search.Request{Route: "things", K: 1 << 20, Query: rerank.Query{Vector: w.queries.Row(0)}}, search.Answer{}, nil)
	if err := m.Repair(t.Context(), "things"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("while the file is missing: %v", err)
	}
	must(t, os.Rename(w.path("hidden"), w.path("v1.table")))
	open := w.mapped()
	f.refuses = errors.New("no")
	if err := m.Repair(t.Context(), "things"); !errors.Is(err, rollout.ErrNotReady) || w.mapped() != open {
		t.Errorf("nobody follows it: %v, %d files are mapped, %d were before", err, w.mapped(), open)
	}
	f.refuses = nil
	for range 2 {
		must(t, m.Repair(t.Context(), "things"))
		if v := m.inService(t); v != "v1" || !slices.Equal(m.switched, []string{"m1"}) {
			t.Errorf("%s is in service, told of %q", v, m.switched)
		}
	}
	if err := m.Repair(t.Context(), "nothing"); err != nil {
		t.Errorf("a route that is not there is not broken: %v", err)
	}
	must(t, m.Close(t.Context()))
}

// TestTheFirstVersionIsRemembered: the version that was in service at the start is one that was
// served, also after the configuration has named another one.
func TestTheFirstVersionIsRemembered(t *testing.T) {
	w := newWorld(t)
	for _, c := range [][2]string{{"v1", ""}, {"v2", "v0"}} {
		active, previous := c[0], c[1]
		if previous != "" {
			must(t, choice.Choice{Active: previous, Configured: previous, History: []choice.Served{{Version: previous}}}.Save(w.load(t).StateDir, "things"))
		}
		w.configure(t, strings.Replace(configuration, "active: v1", "active: "+active, 1))
		m := w.manage(t, nil)
		all, err := m.List("things")
		must(t, err)
		for _, v := range all {
			if (v.Activated.IsZero() || v.ModelVersion == "") != (v.Name != active) {
				t.Errorf("%s is in service: %+v", active, v)
			}
		}
		must(t, m.Close(t.Context()))
		if _, err := m.RollBack(t.Context(), "things"); errors.Is(err, rollout.ErrNoPrevious) != (previous == "") {
			t.Errorf("%s is in service: rolling back: %v", active, err)
		}
	}
}

// TestADamagedChoice: it stops a sidecar, and not the activation that repairs a broken route.
func TestADamagedChoice(t *testing.T) {
	w := newWorld(t)
	must(t, os.Rename(w.path("v1.table"), w.path("hidden")))
	m := w.manage(t, nil)
	file := filepath.Join(statedir.Route(w.load(t).StateDir, "things"), "version.json")
	must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must(t, os.WriteFile(file, []byte("{"), 0o600))
	if _, err := m.List("things"); err != nil {
		t.Errorf("listing: %v", err)
	}
	a, err := m.Activate(t.Context(), "things", "v2", false)
	if err != nil || a.Before != "" || w.remembered(t) != "v2" {
		t.Errorf("activating: %+v, %v", a, err)
	}
	must(t, m.Close(t.Context()))
}

// TestCollectSaysWhatStays: a table that cannot be removed is reported, and not called removed.
func TestCollectSaysWhatStays(t *testing.T) {
	w := newWorld(t)
	w.configure(t, strings.Replace(configuration, "active: v1", "active: v1\n    keep_versions: 2", 1))
	m := w.manage(t, nil)
	for _, version := range []string{"v2", "v3"} {
		_, err := m.Activate(t.Context(), "things", version, false)
		must(t, err)
	}
	must(t, m.Close(t.Context()))
	must(t, os.Remove(w.path("v1.table")))
	must(t, os.MkdirAll(w.path("v1.table/in the way"), 0o700))
	found, err := m.Collect(t.Context(), "things", true)
	if err == nil || len(found) != 1 || found[0].Removed || found[0].Version != "v1" {
		t.Errorf("%+v, %v", found, err)
	}
}
