//go:build cuda

package cuda

import (
	"fmt"
	"time"

	"gorgonia.org/cu"
)

// mark is a place in the way of a launch.
type mark int

const (
	began  mark = iota
	sent        // the queries are on the device
	scored      // φ of every row is
	ranked
	fetched // the answers are in memory of the host
	marks
)

// clock measures what the device does between marks, if it is on.
type clock struct {
	on     bool
	events [marks]cu.Event
	first  mark // of those that were passed since the last reading
	phases [marks - 1]time.Duration
}

func (c *clock) start() (err error) {
	for i := range c.events {
		if c.events[i], err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return fmt.Errorf("making an event: %w", err)
		}
	}
	return nil
}

// pass is when the stream comes to a mark.
func (c *clock) pass(at mark, s cu.Stream) error {
	if !c.on {
		return nil
	}
	if at == began {
		c.first = began
	}
	return judged("setting a clock", c.events[at].Record(s))
}

// read adds what was between the marks to the phases; the stream has passed them all.
func (c *clock) read() error {
	if !c.on {
		return nil
	}
	for at := c.first; at < fetched; at++ {
		ms, err := c.events[at].Elapsed(c.events[at+1])
		if err != nil {
			return judged("reading a clock", err)
		}
		c.phases[at] += time.Duration(ms * float64(time.Millisecond))
	}
	c.first = sent // what is scored piece by piece is sent once
	return nil
}

// Phases is how long the device took for the last Run, where Options.Clock is set: to
// bring the queries, to score, to rank, and to bring the answers.
func (m *Machine) Phases() [4]time.Duration { return m.clock.phases }
