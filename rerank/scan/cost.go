package scan

import "time"

// maxScreens is the most screens that are compared.
const maxScreens = 2

// retry is the number of chunks after which what did not pay is tried again: the
// threshold rises as a scan goes on.
const retry = 64

// costs are what a job has measured of itself. It decides by them what the next
// chunk is worth; the answer does not depend on it.
type costs struct {
	screens int
	score   cost
	screen  [maxScreens]cost
	chunks  int
}

// cost is the time that items took, and how many of them were left.
type cost struct{ seconds, items, left float64 }

func (c *costs) reset(screens int) { *c = costs{screens: screens} }

// add counts a chunk; what was measured before counts half as much each time.
func (c *cost) add(took time.Duration, items, left int) {
	c.seconds = c.seconds/2 + took.Seconds()
	c.items = c.items/2 + float64(items)
	c.left = c.left/2 + float64(left)
}

func (c *cost) each() float64 { return c.seconds / c.items }

// choose returns the screen that makes an item cheapest, −1 if scoring all does.
func (c *costs) choose() int {
	if c.score.items == 0 {
		return -1
	}
	c.chunks++
	best, least := -1, c.score.each()
	for i := range c.screen[:c.screens] {
		s := &c.screen[i]
		if s.items == 0 || c.chunks%retry == i {
			return i
		}
		if each := s.each() + s.left/s.items*c.score.each(); each < least {
			best, least = i, each
		}
	}
	return best
}
