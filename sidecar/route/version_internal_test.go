package route

import (
	"errors"
	"fmt"
	"testing"

	"github.com/likenessdb/likeness/adapters"
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
