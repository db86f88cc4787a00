package route

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

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

// TestOneCallerAsksTheStore: callers that wait while another has the route checked take what it found.
func TestOneCallerAsksTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &Version{unchecked: &Checked{}, asking: make(chan struct{}, 1)}
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
