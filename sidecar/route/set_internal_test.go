package route

import "testing"

// TestHoldAllocatesNothing: a search pays two atomic operations for its route
// being replaceable.
func TestHoldAllocatesNothing(t *testing.T) {
	l := &Version{unchecked: &checking{Checked: Checked{Route: Route{Policy: Policy{Name: "r"}}}}, ended: make(chan struct{})}
	l.holds.Store(1)
	p := &Set{slots: map[string]*slot{"r": newSlot(l)}}
	if n := testing.AllocsPerRun(100, func() {
		l, err := p.Find(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
		if _, err := p.Route("r"); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
