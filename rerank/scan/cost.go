package scan

import "time"

// maxScreens limits how many screen levels are compared.
const maxScreens = 3

// Trials measure what each screen level costs. At the start of a job every level is tried
// twice, on `trial` items each. Later, whenever the number of pieces is a power of two or a
// multiple of retry, one level that is not far from the best is tried again: the threshold
// rises during a scan, fastest at the start, so a level's worth changes. Scoring without a
// screen is measured again too, because its first measurement includes cold memory and
// caches.
const (
	trial = 2 * minChunk
	retry = 16
	// few pieces say little about a level: each of them may have prepared the queries on another
	// processor.
	few = 4
	// retryRefining is how often, of the pieces that are not screened in full precision, one is.
	retryRefining = 64
	// worthRefining is the greatest share of the scoring that a screen in full precision may cost.
	worthRefining = 0.8
)

// costs holds the run times that a job has measured. The job uses them to choose the
// cheapest way to process the next items. They never change the answer.
type costs struct {
	screens int
	whole   float64 // seconds per item, if all items are scored
	wholes  int     // number of pieces in which all items were scored
	rest    float64 // seconds per scored item, if a screen left only a few
	screen  [maxScreens]cost
	refine  [maxScreens]refinement
	pieces  int // number of pieces that were not trials
	turn    int // the way tried last: 0 for scoring all, i+1 for screen i
	due     bool
}

// cost is the measured cost of a screen level. seconds is the time per item of its fastest
// piece; others may have been interrupted, and the first one prepares the query. items and
// left are recent counts of screened items and of items that the screen could not rule out.
type cost struct {
	seconds, items, left float64
	pieces               int
}

// refinement is the measured cost of screening in full precision what a screen level left.
// skipped counts the pieces that did without.
type refinement struct {
	cost
	skipped int
}

func (c *costs) reset(screens int) { *c = costs{screens: screens} }

// quickest returns the smaller of least and the measured time per item. least is 0 before
// the first measurement.
func quickest(least float64, took time.Duration, items int) float64 {
	if each := took.Seconds() / float64(items); least == 0 || each < least {
		return each
	}
	return least
}

// screened records a screened piece. Older counts lose half of their weight with every
// piece.
func (c *cost) screened(took time.Duration, items, left int) {
	c.seconds = quickest(c.seconds, took, items)
	c.pieces++
	c.items = c.items/2 + float64(items)
	c.left = c.left/2 + float64(left)
}

// scored records the time of scoring items, after the given screen, or without one if
// screen is −1.
func (c *costs) scored(screen int, took time.Duration, items int) {
	switch {
	case items < minChunk/2: // too few: overhead dominates
	case screen < 0:
		c.whole = quickest(c.whole, took, items)
		c.wholes++
	default:
		c.rest = quickest(c.rest, took, items)
	}
}

// choose returns the screen with the least expected cost per item, or −1 to score all
// items, and whether the choice is a trial.
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
			if i := c.turn - 1; i != best && (c.each(i) < 3*least || i >= 0 && c.screen[i].pieces < few) {
				return i, true
			}
		}
	}
	c.pieces++
	c.due = c.pieces%retry == 0 || c.pieces&(c.pieces-1) == 0
	return best, false
}

// each returns the expected seconds per item with the given screen, or, for −1, for scoring
// all items.
func (c *costs) each(screen int) float64 {
	if screen < 0 {
		return c.whole
	}
	left := c.score()
	if c.isWorthRefining(screen) {
		left = c.refine[screen].each(left)
	}
	return c.screen[screen].each(left)
}

// score returns the seconds that scoring an item takes.
func (c *costs) score() float64 { return max(c.rest, c.whole) }

// refines reports whether to screen in full precision what the given screen left.
func (c *costs) refines(screen int) bool {
	r := &c.refine[screen]
	if r.pieces < 2 || c.isWorthRefining(screen) {
		return true
	}
	r.skipped++
	return r.skipped%retryRefining == 0
}

// isWorthRefining reports whether a screen in full precision of what the given screen left was
// measured, and costs clearly less than scoring it.
func (c *costs) isWorthRefining(screen int) bool {
	r := &c.refine[screen]
	return r.pieces > 1 && r.each(c.score()) < worthRefining*c.score()
}

// each returns the expected seconds per item, given the seconds for an item that is left.
func (c *cost) each(left float64) float64 { return c.seconds + c.left/c.items*left }
