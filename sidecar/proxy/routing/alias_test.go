package routing_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestAnAliasThatIsSwitched switches an alias between the steps of a call. An answer was ranked and
// confirmed on the collection that the alias stood for when it was last read; every other call goes
// to the database.
func TestAnAliasThatIsSwitched(t *testing.T) {
	rescored, passed := rescoredStatus, "passed; reason=alias"
	for _, c := range []struct {
		name    string
		before  func(s *switched) // once the name was read
		ranking func(s *switched)
		want    string
	}{
		{"not switched", nil, nil, rescored},
		{"switched before the call", func(s *switched) { s.to("d") }, nil, passed},
		{"switched while it is ranked", nil, func(s *switched) { s.to("d") }, passed},
		{"switched before the call and back while it is ranked", func(s *switched) { s.to("d") }, func(s *switched) { s.to("c") }, passed},
		{"removed", nil, func(s *switched) { s.to("") }, passed},
		{"there and back while it is ranked", nil, func(s *switched) { s.to("d"); s.to("c") }, rescored},
		{"not readable", nil, func(s *switched) { s.failed.Store(true) }, passed},
	} {
		store := newSwitched("c")
		var asked []string
		here := searcher{route: newRoute(func(r *route.Route) { r.Store = store }), rows: 9, search: func(context.Context) error {
			if c.ranking != nil {
				c.ranking(store)
			}
			return nil
		}, asked: func(r search.Request) { asked = append(asked, r.Collection) }}
		r := router(t, here, nil)
		target, ok := r.Names.Target(t.Context(), "a")
		if !ok || target != (routing.Target{Name: "a", Routed: "c", Own: "c"}) {
			t.Fatalf("%s: the alias is %+v", c.name, target)
		}
		if c.before != nil {
			c.before(store)
		}
		o := askOf(t.Context(), r, target, asks(plain(3)))
		if o.Status != c.want || o.Answered != (c.want == rescored) {
			t.Errorf("%s: %+v, want %q", c.name, o, c.want)
		}
		if c.before == nil && !slices.Equal(asked, []string{""}) || c.before != nil && len(asked) > 0 {
			t.Errorf("%s: collections %q were searched", c.name, asked)
		}
		if c.want == rescored {
			continue
		}
		if store.failed.Load() {
			continue
		}
		if target, ok := r.Names.Target(t.Context(), "a"); ok {
			t.Errorf("%s: afterwards the alias is still %+v", c.name, target)
		}
	}
}

// TestARouteOfAnAlias: a route that names its collection by an alias searches and confirms the
// alias's collection by that collection's own name. When the alias is switched, the follower of the
// old collection's data is told of a write to any row.
func TestARouteOfAnAlias(t *testing.T) {
	store := newSwitched("c1")
	var asked []string
	here := searcher{route: newRoute(func(r *route.Route) { r.Store, r.Collection = store, "a" }), rows: 9,
		asked: func(r search.Request) { asked = append(asked, r.Collection) }}
	follow := &told{}
	r, err := routing.New(here, routing.Options{Store: "s", Logger: quiet, Follower: follow})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	answer := func() string {
		t.Helper()
		target, ok := r.Names.Target(t.Context(), "a")
		if !ok || target.Routed != "a" {
			t.Fatalf("%+v", target)
		}
		return askOf(t.Context(), r, target, asks(plain(3))).Status
	}
	if got := answer(); got != rescoredStatus {
		t.Errorf("status %q", got)
	}
	store.to("c2")
	if got := answer(); got != "passed; reason=alias" {
		t.Errorf("just after the switch: status %q", got)
	}
	if got := answer(); got != rescoredStatus {
		t.Errorf("after the switch: status %q", got)
	}
	if !slices.Equal(asked, []string{"c1", "c2"}) {
		t.Errorf("searched %q", asked)
	}
	if len(follow.writes) != 1 || follow.writes[0].Collection != "a" || !follow.writes[0].All || follow.ended != 1 {
		t.Errorf("the follower was told of %+v, and that %d ended", follow.writes, follow.ended)
	}
}

// TestNamesThatCannotBeRead: a search by a routed name with an unknown meaning is left to the
// database. The last known meaning suffices, since it is checked.
func TestNamesThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSwitched("c1")
		store.failed.Store(true)
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Store, r.Collection = store, "a" }), rows: 9}, nil)
		answer := func(want string) {
			t.Helper()
			target, ok := r.Names.Target(t.Context(), "a")
			if got := askOf(t.Context(), r, target, asks(plain(3))).Status; !ok || got != want {
				t.Errorf("status %q of %+v, want %q", got, target, want)
			}
			<-time.After(6 * time.Second)
		}
		answer("passed; reason=alias")
		store.failed.Store(false)
		answer(rescoredStatus)
		store.failed.Store(true)
		answer("passed; reason=alias") // it cannot be checked
		store.to("c2")
		store.failed.Store(false)
		answer(rescoredStatus)
	})
}

// told is a follower that records its calls.
type told struct {
	writes []journal.Write
	ended  int
}

func (*told) Blocked(string) bool { return false }

func (*told) Covers(string) bool { return true }

func (*told) Doubt(string) func(*journal.Write) { return func(*journal.Write) {} }

func (f *told) Begin(_ context.Context, w journal.Write) func(bool, []rerank.ID) {
	f.writes = append(f.writes, w)
	return func(bool, []rerank.ID) { f.ended++ }
}

// TestIgnores: a name is ignored only while it is known that it has no route.
func TestIgnores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Store = newSwitched("c") }), rows: 9}, nil)
		if r.Names.Ignores("elsewhere") || r.Names.Ignores("c") || !r.Names.Ignores("") {
			t.Error("before names were read, only what has no name is ignored")
		}
		if _, ok := r.Names.Target(t.Context(), "elsewhere"); ok {
			t.Fatal("a collection without a route has one")
		}
		if !r.Names.Ignores("elsewhere") || r.Names.Ignores("c") || r.Names.Ignores("a") {
			t.Error("a name without a route is not ignored, or one with a route is")
		}
		time.Sleep(time.Minute) //nolint:forbidigo // of the bubble: no time passes
		if r.Names.Ignores("elsewhere") {
			t.Error("old names are believed")
		}
	})
}
