package scan

import "time"

// maxScreens is the most screens that are compared.
const maxScreens = 3

// A screen is tried on the first items of a chunk: each twice at first, and then one that
// is not far from the best, at every power of two of the chunks and every retry-th.
// For the threshold rises as a scan goes on, and quickest at its beginning. So is scoring
// all: its first measurement is of memory and caches that nothing was read from before.
const (
	trial = 2 * minChunk
	retry = 16
)

// costs are what a job has measured of itself. It decides by them what the next
// items are worth; the answer does not depend on it.
type costs struct {
	screens int
	whole   float64 // seconds an item, where all are scored
	wholes  int     // pieces where they were
	rest    float64 // and where a screen left few
	screen  [maxScreens]cost
	pieces  int // that were not trials
	turn    int // what was tried last, 0 being to score all
	due     bool
}

// cost is what screening an item took in the quickest piece, and how many items
// were left of late. The quickest: another may have been interrupted, and the first
// prepares the query.
type cost struct {
	seconds, items, left float64
	pieces               int
}

func (c *costs) reset(screens int) { *c = costs{screens: screens} }

// quickest is the least of seconds an item, 0 being none yet.
func quickest(least float64, took time.Duration, items int) float64 {
	if each := took.Seconds() / float64(items); least == 0 || each < least {
		return each
	}
	return least
}

// screened counts a piece; of what was left before, each counts half as much.
func (c *cost) screened(took time.Duration, items, left int) {
	c.seconds = quickest(c.seconds, took, items)
	c.pieces++
	c.items = c.items/2 + float64(items)
	c.left = c.left/2 + float64(left)
}

// scored counts the scoring of items, behind a screen or without.
func (c *costs) scored(screen int, took time.Duration, items int) {
	switch {
	case items < minChunk/2: // most of it is not the items
	case screen < 0:
		c.whole = quickest(c.whole, took, items)
		c.wholes++
	default:
		c.rest = quickest(c.rest, took, items)
	}
}

// choose returns the screen that makes an item cheapest, −1 if scoring all does, and
// whether it is only tried.
func (c *costs) choose() (screen int, trial bool) {
	if c.wholes < 2 {
		return -1, c.wholes > 0
	}
	for i := range c.screen[:c.screens] {
		if c.screen[i].pieces < 2 {
			return i, true
		}
	}
	best, least := -1, c.whole
	for i := range c.screen[:c.screens] {
		if each := c.each(i); each < least {
			best, least = i, each
		}
	}
	if c.due {
		c.due = false
		for range c.screens + 1 {
			c.turn = (c.turn + 1) % (c.screens + 1)
			if i := c.turn - 1; i != best && c.each(i) < 3*least {
				return i, true
			}
		}
	}
	c.pieces++
	c.due = c.pieces%retry == 0 || c.pieces&(c.pieces-1) == 0
	return best, false
}

// each is what an item costs with a screen, or where all are scored.
func (c *costs) each(screen int) float64 {
	if screen < 0 {
		return c.whole
	}
	s := &c.screen[screen]
	return s.seconds + s.left/s.items*max(c.rest, c.whole)
}
