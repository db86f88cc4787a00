package routing

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/recent"
	"github.com/likenessdb/likeness/sidecar/route"
)

// namedStore is a store that only answers for the names and the fields of collections.
type namedStore struct {
	adapters.Store
	names  map[string]adapters.Identity
	errs   map[string]error
	metric adapters.Metric
	asked  int
}

func (s *namedStore) Identify(_ context.Context, name string) (adapters.Identity, error) {
	s.asked++
	return s.names[name], s.errs[name]
}

func (s *namedStore) Describe(ctx context.Context, _ string) (adapters.Description, error) {
	if !adapters.IsAsCaller(ctx) {
		return adapters.Description{}, errors.New("the sidecar's own credentials were used")
	}
	s.asked++
	return adapters.Description{Fields: []adapters.VectorField{{Name: "v", Metric: s.metric}}}, nil
}

// TestFieldsAreReadAgain: the fields of a collection are read with the caller's rights, and cached
// for half a minute.
func TestFieldsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &namedStore{metric: adapters.Cosine}
		rt := &route.Route{Policy: route.Policy{Collection: "c", Vector: "v"}}
		r := &coverage{store: adapters.Abilities{Describe: store}, schemas: recent.Cache[string, adapters.Description]{Keep: schemaFor}, log: slog.New(slog.DiscardHandler)}
		for _, c := range []struct {
			after time.Duration
			asked int
			want  error
		}{{0, 1, nil}, {schemaFor - 1, 1, nil}, {1, 2, Pass("metric")}} {
			time.Sleep(c.after) //nolint:forbidigo // of the bubble: no time passes
			if err := r.checkMetric(t.Context(), rt); !errors.Is(err, c.want) || store.asked != c.asked {
				t.Errorf("%s later: %v, asked %d times", c.after, err, store.asked)
			}
			store.metric = adapters.L2
		}
	})
}

// newWriteNames returns the names of a followed collection "c" of the store. They are read in the background.
func newWriteNames(store adapters.Store) (names *writeNames, end func()) {
	closing, stop := context.WithCancel(context.Background())
	b := &background{closing: closing, end: stop}
	return &writeNames{background: b, ask: func(ctx context.Context) (nameTable, error) {
		return askNames(ctx, adapters.AbilitiesOf(store).Identify, []string{"c"})
	}}, b.close
}

// TestNamesAreReadAgain: the names of followed collections are cached for some seconds, and read
// again after a rename. A rename during the read makes the result useless.
func TestNamesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &namedStore{names: map[string]adapters.Identity{"c": {Collection: "c", Aliases: []string{"old"}}}}
		known, end := newWriteNames(store)
		defer end()
		names := func(want string, asked int) {
			t.Helper()
			table, known := known.get(t.Context())
			if len(table[want]) != 1 || !known || store.asked != asked {
				t.Errorf("%q is not among %v, known: %t, asked %d times, want %d", want, table, known, store.asked, asked)
			}
		}
		names("old", 1)
		store.names["c"] = adapters.Identity{Collection: "c", Aliases: []string{"new"}}
		time.Sleep(namesFor - 1) //nolint:forbidigo // of the bubble: no time passes
		names("old", 1)
		time.Sleep(time.Nanosecond) //nolint:forbidigo // of the bubble: no time passes
		names("new", 2)
		known.renamed()
		names("new", 3)
	})
}

// TestNamesReadBesideARename: names that were read while a rename ended may predate it.
func TestNamesReadBesideARename(t *testing.T) {
	store := &renames{}
	names, end := newWriteNames(store)
	defer end()
	store.names = names
	if table, known := names.get(t.Context()); known {
		t.Errorf("names from before the rename are believed: %v", table)
	}
	if _, known := names.get(t.Context()); !known {
		t.Error("names are not read again")
	}
}

// renames is a store that ends a rename during its first answer.
type renames struct {
	adapters.Store
	names *writeNames
	done  bool
}

func (s *renames) Identify(_ context.Context, name string) (adapters.Identity, error) {
	if !s.done {
		s.done = true
		s.names.renamed()
	}
	return adapters.Identity{Collection: name}, nil
}

// TestNamesOfMissingCollections: a missing collection has only its own name. After any other error
// the names are unknown.
func TestNamesOfMissingCollections(t *testing.T) {
	for _, c := range []struct {
		err   error
		known bool
	}{{nil, true}, {adapters.ErrNotFound, true}, {adapters.ErrUnavailable, false}} {
		store := &namedStore{names: map[string]adapters.Identity{"a": {Collection: "a", Aliases: []string{"x"}}}, errs: map[string]error{"b": c.err}}
		table, err := askNames(t.Context(), store, []string{"a", "b"})
		if (err == nil) != c.known || c.known && (len(table["x"]) != 1 || len(table["b"]) != 1) {
			t.Errorf("%v: %v, %v", c.err, table, err)
		}
	}
}

// TestNamesOfRoutedCollections: a name stands for the collection whose route names it. If names
// cannot be read, the last ones stay; if the database refuses to tell them, the route's own name
// counts.
func TestNamesOfRoutedCollections(t *testing.T) {
	last := map[string]Target{"a": {Routed: "c", Own: "was"}, "z": {Routed: "d", Own: "d"}}
	for name, c := range map[string]struct {
		names map[string]adapters.Identity
		err   error // of every collection
		want  map[string]Target
	}{
		"aliases": {
			map[string]adapters.Identity{"c": {Collection: "c", Aliases: []string{"a"}}, "d": {Collection: "d"}}, nil,
			map[string]Target{"c": {Routed: "c", Own: "c"}, "a": {Routed: "c", Own: "c"}, "d": {Routed: "d", Own: "d"}},
		},
		"a route of the alias": {
			map[string]adapters.Identity{"c": {Collection: "c", Aliases: []string{"d"}}, "d": {Collection: "c", Aliases: []string{"d"}}}, nil,
			map[string]Target{"c": {Routed: "c", Own: "c"}, "d": {Routed: "d", Own: "c"}},
		},
		"a route of an earlier alias": {
			map[string]adapters.Identity{"c": {Collection: "d", Aliases: []string{"c"}}, "d": {Collection: "d", Aliases: []string{"c"}}}, nil,
			map[string]Target{"c": {Routed: "c", Own: "d"}, "d": {Routed: "d", Own: "d"}},
		},
		"a route of the alias alone": {
			map[string]adapters.Identity{"c": {Collection: "c"}, "d": {Collection: "x", Aliases: []string{"d", "y"}}}, nil,
			map[string]Target{"c": {Routed: "c", Own: "c"}, "d": {Routed: "d", Own: "x"}, "y": {Routed: "d", Own: "x"}},
		},
		"not there":     {map[string]adapters.Identity{}, nil, map[string]Target{"c": {Routed: "c", Own: "c"}, "d": {Routed: "d", Own: "d"}}},
		"down":          {nil, adapters.ErrUnavailable, last},
		"not told":      {nil, adapters.ErrRefused, map[string]Target{"a": last["a"], "z": last["z"], "c": {Routed: "c", Own: "c"}, "d": {Routed: "d", Own: "d"}}},
		"not supported": {nil, adapters.ErrUnsupported, map[string]Target{"a": last["a"], "z": last["z"], "c": {Routed: "c", Own: "c"}, "d": {Routed: "d", Own: "d"}}},
	} {
		store := &namedStore{names: c.names, errs: map[string]error{"c": c.err, "d": c.err}}
		n := &Names{collections: map[string][]string{"c": {"c"}, "d": {"d"}}, identifier: store, log: slog.New(slog.DiscardHandler)}
		got := n.readTargets(t.Context(), last)
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		for n, want := range c.want {
			if got[n] != want {
				t.Errorf("%s: %q is %+v, want %+v", name, n, got[n], want)
			}
		}
	}
}

// counting is a context that never ends, and counts the functions registered for its end.
type counting struct {
	context.Context
	done    chan struct{}
	waiting int
}

func (c *counting) Done() <-chan struct{} { return c.done }

// AfterFunc is called by context.AfterFunc.
func (c *counting) AfterFunc(func()) (stop func() bool) {
	c.waiting++
	return func() bool {
		c.waiting--
		return true
	}
}

// TestARaceIsLetGo: background work ends with its call until it is let go, always with the router,
// and shortly after it was let go. Then the router holds nothing of it.
func TestARaceIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing := &counting{Context: context.Background(), done: make(chan struct{})}
		r := &background{closing: closing}
		call, leave := context.WithCancel(t.Context())
		own, letGo := r.tether(call)
		if closing.waiting != 1 || own.Err() != nil {
			t.Errorf("the router's end ends %d", closing.waiting)
		}
		letGo()
		leave()
		time.Sleep(linger - 1) //nolint:forbidigo // of the bubble: no time passes
		if synctest.Wait(); own.Err() != nil {
			t.Errorf("it ended with its call, which had let it go: %v", own.Err())
		}
		time.Sleep(time.Nanosecond) //nolint:forbidigo // of the bubble: no time passes
		if synctest.Wait(); !errors.Is(own.Err(), context.DeadlineExceeded) || closing.waiting != 0 {
			t.Errorf("after a moment: %v, the router's end ends %d", own.Err(), closing.waiting)
		}
		ending, end := context.WithCancel(context.Background())
		r = &background{closing: ending}
		own, letGo = r.tether(t.Context())
		defer letGo()
		end()
		if synctest.Wait(); !errors.Is(own.Err(), context.Canceled) {
			t.Errorf("after the router's end: %v", own.Err())
		}
	})
}
