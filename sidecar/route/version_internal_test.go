package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// TestWhatAChangedCollectionForgets: a search that finds the collection to be another has the route checked
// against its store again.
func TestWhatAChangedCollectionForgets(t *testing.T) {
	for _, err := range []error{adapters.ErrNotFound, adapters.ErrField, adapters.ErrDimension, adapters.ErrMetric, adapters.ErrFilter, errors.New("other")} {
		v := &Version{}
		v.checked.Store(&Checked{})
		v.Forget(fmt.Errorf("search: %w", err))
		changed := !errors.Is(err, adapters.ErrFilter) && err.Error() != "other"
		if forgotten := v.checked.Load() == nil; forgotten != changed {
			t.Errorf("%v: forgotten %t, want %t", err, forgotten, changed)
		}
	}
}

// TestPinnedVersions: each search of a batch holds the version, and so does the batch, until all are over.
func TestPinnedVersions(t *testing.T) {
	v := &Version{ended: make(chan struct{})}
	v.holds.Store(1)
	p, s := &pins{}, newSlot(v)
	for want := int64(3); want <= 4; want++ {
		if p.hold(s); v.holds.Load() != want {
			t.Errorf("%d hold the version, want %d", v.holds.Load(), want)
		}
	}
	v.Release()
	v.Release()
	if p.release(); v.holds.Load() != 1 {
		t.Errorf("%d hold the version after the batch, want the slot alone", v.holds.Load())
	}
}

// TestOneCallerAsksTheStore: callers that wait while another has the route checked take what it found.
func TestOneCallerAsksTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &Version{unchecked: &checking{}, asking: make(chan struct{}, 1)}
		v.asking <- struct{}{} // another caller asks
		var got *Checked
		go func() { got, _ = v.Check(t.Context()) }()
		synctest.Wait()
		found := &Checked{StoreAsked: true}
		v.checked.Store(found)
		<-v.asking
		if synctest.Wait(); got != found {
			t.Errorf("a caller that waited got %p, want what was found meanwhile, %p", got, found)
		}
	})
}

// fieldStore describes one vector field of each collection, and counts how often.
type fieldStore struct {
	fields  map[string]adapters.VectorField // by collection
	expires bool
	err     error
	asked   int
}

func (s *fieldStore) Describe(_ context.Context, collection string) (adapters.Description, error) {
	s.asked++
	return adapters.Description{Fields: []adapters.VectorField{s.fields[collection]}, Expires: s.expires}, s.err
}

func (s *fieldStore) Identify(_ context.Context, collection string) (adapters.Identity, error) {
	return adapters.Identity{Collection: collection}, nil
}

// TestAFieldIsConfirmed: the store describes the field of a route again after a while, and at once
// where a search goes to another collection. A field that differs makes the next search check the
// route again, also on a route that scans, whose requests can name another strategy. An error leaves the
// route as it is.
func TestAFieldIsConfirmed(t *testing.T) {
	flat := adapters.VectorField{Name: "v", Dim: 4, Metric: adapters.InnerProduct, FullPrecision: true, AlwaysExact: true}
	indexed, rounded := flat, flat
	indexed.AlwaysExact, rounded.Datatype = false, adapters.UInt8
	for name, c := range map[string]struct {
		strategy   rerank.Strategy
		collection string
		alias      string // by which the route names the collection "c"
		later      time.Duration
		now        adapters.VectorField
		expires    bool
		err        error
		asked      int
		kept       bool
	}{
		"rows expire":                {now: flat, expires: true, later: describedFor, asked: 1},
		"lately":                     {now: indexed, later: describedFor - 1, kept: true},
		"unchanged":                  {now: flat, later: describedFor, asked: 1, kept: true},
		"another index":              {now: indexed, later: describedFor, asked: 1},
		"another datatype":           {now: rounded, later: describedFor, asked: 1},
		"another collection, alike":  {collection: "green", now: flat, asked: 1, kept: true},
		"another collection, unlike": {collection: "green", now: indexed, asked: 1},
		"by its own name":            {collection: "c", now: indexed, kept: true},
		"by an alias":                {alias: "a", now: indexed, kept: true},
		"of a route that scans":      {strategy: rerank.Scan, now: indexed, later: describedFor, asked: 1},
		"not told":                   {now: indexed, later: describedFor, err: adapters.ErrRefused, asked: 1, kept: true},
		"gone":                       {now: indexed, later: describedFor, err: adapters.ErrNotFound, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &fieldStore{fields: map[string]adapters.VectorField{"c": c.now, "green": c.now}, expires: c.expires, err: c.err}
				unchecked := &checking{Checked: Checked{Route: Route{StoreCan: adapters.AbilitiesOf(store)}, Spec: rerank.Spec{ItemDim: 4}}}
				unchecked.Collection, unchecked.Vector, unchecked.Placement, unchecked.Strategy = "c", "v", PlacementStored, c.strategy
				v, checked := &Version{unchecked: unchecked, asking: make(chan struct{}, 1)}, unchecked.Checked
				checked.Field, checked.OwnName, checked.Collection = flat, "c", cmp.Or(c.alias, "c")
				v.checked.Store(&checked)
				v.described.Store(&description{"c", time.Now()})
				time.Sleep(c.later) //nolint:forbidigo // of the bubble: no time passes
				for range 2 {
					v.ConfirmField(t.Context(), c.collection)
				}
				want := c.asked
				if c.err != nil && c.kept {
					want *= 2 // it stays unconfirmed
				}
				if kept := v.checked.Load() != nil; store.asked != want || kept != c.kept {
					t.Errorf("asked %d times, want %d; kept %t", store.asked, want, kept)
				}
			})
		})
	}
}

// TestOneCallerConfirms: while one caller asks for the field of the same collection, the others go
// on; for another collection they wait.
func TestOneCallerConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fieldStore{fields: map[string]adapters.VectorField{"green": {Name: "v", Metric: adapters.Cosine}}}
		c := &Checked{Route: Route{StoreCan: adapters.AbilitiesOf(store)}}
		c.Collection, c.Placement = "c", PlacementStored
		v := &Version{unchecked: &checking{Checked: *c}, asking: make(chan struct{}, 1)}
		v.checked.Store(c)
		v.described.Store(&description{collection: "c"})
		v.asking <- struct{}{} // another caller asks
		if v.ConfirmField(t.Context(), ""); store.asked != 0 {
			t.Error("two callers asked at a time")
		}
		done := false
		go func() {
			v.ConfirmField(t.Context(), "green")
			done = true
		}()
		if synctest.Wait(); done {
			t.Error("the field of another collection was not waited for")
		}
		<-v.asking
		if synctest.Wait(); !done || store.asked != 1 || v.checked.Load() != nil {
			t.Errorf("after that: done %t, asked %d times, kept %t", done, store.asked, v.checked.Load() != nil)
		}
	})
}

// silentStore never answers.
type silentStore struct{ fieldStore }

func (s *silentStore) Describe(ctx context.Context, _ string) (adapters.Description, error) {
	<-ctx.Done()
	return adapters.Description{}, ctx.Err()
}

// TestASilentStoreConfirmsNothing: a search does not spend all its time on a store that does not describe
// the field, and keeps the route.
func TestASilentStoreConfirmsNothing(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{time.Hour: confirmFor, time.Second: time.Second / 2} {
		synctest.Test(t, func(t *testing.T) {
			c := &Checked{Route: Route{StoreCan: adapters.AbilitiesOf(&silentStore{})}}
			c.Collection, c.Placement = "c", PlacementStored
			v := &Version{unchecked: &checking{Checked: *c}, asking: make(chan struct{}, 1)}
			v.checked.Store(c)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			began := time.Now()
			if v.ConfirmField(ctx, ""); time.Since(began) != want || v.checked.Load() != c { // by the bubble's clock
				t.Errorf("of %s it waited %s, want %s; kept %t", timeout, time.Since(began), want, v.checked.Load() == c)
			}
		})
	}
}
