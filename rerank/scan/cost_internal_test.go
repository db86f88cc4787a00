package scan

import "testing"

// TestRefiningIsMeasured: what a screen leaves is screened in full precision while that costs less
// than scoring it, by the measurements of the same screen, and otherwise once in a while.
func TestRefiningIsMeasured(t *testing.T) {
	var c costs
	c.reset(2)
	c.whole = 1
	c.screen[0] = cost{seconds: 0.125, items: 100, left: 50, pieces: 2}
	if got := c.each(0); got != 0.625 {
		t.Errorf("a screen that leaves half costs %v before refining was measured, want 0.625", got)
	}
	for range 2 {
		if !c.refines(0) {
			t.Fatal("refining is not measured")
		}
		c.refine[0].screened(50e9, 100, 25) // half a second an item, and a quarter is left
	}
	if got := c.each(0); !c.refines(0) || got != 0.125+0.5*0.75 {
		t.Errorf("refining for 0.75 of what scoring costs: %t, a screen then costs %v, want 0.5", c.refines(0), got)
	}
	c.refine[0].left = c.refine[0].items * 2 / 5
	refined := 0
	for range 5 * retryRefining {
		if c.refines(0) {
			refined++
		}
	}
	if got := c.each(0); refined != 5 || got != 0.625 {
		t.Errorf("refining for 0.9 of what scoring costs: %d times of %d, a screen costs %v, want 0.625", refined, 5*retryRefining, got)
	}
	if !c.refines(1) {
		t.Error("what one screen leaves says nothing of another")
	}
}
