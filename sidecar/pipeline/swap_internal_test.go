package pipeline

import "testing"

// TestHoldAllocatesNothing: a search pays two atomic operations for its route
// being replaceable.
func TestHoldAllocatesNothing(t *testing.T) {
	l := &lane{static: &opened{Route: Route{Name: "r"}}, ended: make(chan struct{})}
	l.holds.Store(1)
	p := &Pipeline{slots: map[string]*slot{"r": newSlot(l)}}
	if n := testing.AllocsPerRun(100, func() {
		l, err := p.find(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		l.release()
		if _, err := p.Route("r"); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
