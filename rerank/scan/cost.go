package scan

import "time"

// maxScreens is the most screens that are compared.
const maxScreens = 2

// retry is the number of chunks after which what did not pay, by not too much, is
// tried again: the threshold rises as a scan goes on, and quickest at its beginning,
// where it is also tried after 2, 4 and 8.
const retry = 16

// costs are what a job has measured of itself. It decides by them what the next
// chunk is worth; the answer does not depend on it.
type costs struct {
	screens int
	score   cost
	screen  [maxScreens]cost
	chunks  int
}

// cost is what an item took in the quickest chunk, and how many items were left of
// late. The quickest: another may have been interrupted.
type cost struct{ seconds, items, left float64 }

func (c *costs) reset(screens int) { *c = costs{screens: screens} }

// add counts a chunk; of what was left before, each counts half as much.
func (c *cost) add(took time.Duration, items, left int) {
	if each := took.Seconds() / float64(items); c.items == 0 || each < c.seconds {
		c.seconds = each
	}
	c.items = c.items/2 + float64(items)
	c.left = c.left/2 + float64(left)
}

// choose returns the screen that makes an item cheapest, −1 if scoring all does.
func (c *costs) choose() int {
	if c.score.items == 0 {
		return -1
	}
	c.chunks++
	best, least := -1, c.score.seconds
	for i := range c.screen[:c.screens] {
		s := &c.screen[i]
		if s.items == 0 {
			return i
		}
		each := s.seconds + s.left/s.items*c.score.seconds
		if each < 2*least && (c.chunks%retry == i || c.chunks&(c.chunks-1) == 0) {
			return i
		}
		if each < least {
			best, least = i, each
		}
	}
	return best
}
