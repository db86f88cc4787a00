package calibrate

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/sidecar/route"
)

// building is a store that builds the index of a collection for a time.
type building struct {
	collection string
	ready      time.Time
	err        error
}

func (b building) Describe(_ context.Context, collection string) (adapters.Description, error) {
	if collection == b.collection && time.Now().Before(b.ready) {
		return adapters.Description{Rows: 7, Indexing: "3 of 7 rows"}, b.err
	}
	return adapters.Description{Rows: 7}, b.err
}

// TestSearchedCollections: the index of a companion matters as much as the collection's own.
func TestSearchedCollections(t *testing.T) {
	for companion, want := range map[string][]string{"": {"c"}, "w": {"c", "w"}} {
		rt := &route.Route{Policy: route.Policy{Collection: "c"}}
		if rt.Companion = companion; !slices.Equal(searchedCollections(rt), want) {
			t.Errorf("companion %q: %v", companion, searchedCollections(rt))
		}
	}
}

// TestACalibrationWaitsForTheIndex: of the collection and its companion, with progress, no longer than it may, and not at all
// where the store builds none.
func TestACalibrationWaitsForTheIndex(t *testing.T) {
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		store    building
		wait     time.Duration
		indexing string
		took     time.Duration
		err      error
	}{
		"no index is built":  {building{collection: "c"}, time.Minute, "", 0, nil},
		"of the collection":  {building{"c", time.Time{}.Add(9500 * time.Millisecond), nil}, time.Minute, "", 10 * time.Second, nil},
		"of the companion":   {building{"w", time.Time{}.Add(3 * time.Second), nil}, time.Minute, "", 3 * time.Second, nil},
		"of another":         {building{"x", time.Time{}.Add(time.Hour), nil}, time.Minute, "", 0, nil},
		"longer than it may": {building{"w", time.Time{}.Add(time.Hour), nil}, 5 * time.Second, `collection "w": 3 of 7 rows`, 5 * time.Second, nil},
		"without waiting":    {building{"c", time.Time{}.Add(time.Hour), nil}, 0, `collection "c": 3 of 7 rows`, 0, nil},
		"an error":           {building{"c", time.Time{}, lost}, time.Minute, "", 0, lost},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, steps := time.Now(), 0
			c.store.ready = began.Add(c.store.ready.Sub(time.Time{}))
			progress := func(string, int) func(int) { return func(n int) { steps += n } }
			rows, indexing, err := awaitIndex(t.Context(), c.store, []string{"c", "w"}, c.wait, progress)
			if took := time.Since(began); indexing != c.indexing || !errors.Is(err, c.err) || err == nil && rows != 7 || took != c.took || steps != int(took/time.Second) {
				t.Errorf("%s: %q, %v after %v and %d steps; want %q, %v after %v", name, indexing, err, took, steps, c.indexing, c.err, c.took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second/2, func() { cancel(lost) })
		if _, _, err := awaitIndex(ctx, building{"c", time.Now().Add(time.Hour), nil}, []string{"c"}, time.Minute, nil); !errors.Is(err, lost) {
			t.Errorf("cancelled: %v", err)
		}
	})
}
