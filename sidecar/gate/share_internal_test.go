package gate

import "testing"

// TestCallersWithSearchesStay: a caller whose search takes long keeps its share, and one that is idle loses it.
func TestCallersWithSearchesStay(t *testing.T) {
	s := &shares{}
	for _, caller := range []string{"long", "idle"} {
		if _, ok := s.enter(caller, 0, 0, fixedLimit{}); !ok {
			t.Fatal(caller)
		}
	}
	s.leave("idle")
	if s.sweep(2 * activeTime); s.callers["long"] == nil || s.callers["idle"] != nil {
		t.Errorf("after a while: %v", s.callers)
	}
}
