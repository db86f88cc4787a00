//go:build cuda

package cuda

import (
	"fmt"
	"time"

	"gorgonia.org/cu"
)

// mark is a point in the course of a launch.
type mark int

const (
	began  mark = iota
	sent        // the queries are on the device
	scored      // all rows are scored
	ranked
	fetched // the answers are in host memory
	marks
)

// clock measures the device's time between marks, if it is on.
type clock struct {
	on     bool
	events [marks]cu.Event
	first  mark // the first mark that was passed since the last reading
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

// pass records when the stream reaches a mark.
func (c *clock) pass(at mark, s cu.Stream) error {
	if !c.on {
		return nil
	}
	if at == began {
		c.first = began
	}
	return judged("setting a clock", c.events[at].Record(s))
}

// read adds the times between the marks to the phases. The stream must have passed all
// marks.
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
	c.first = sent // a table that is scored in pieces receives its queries once
	return nil
}

// Phases returns how long the device spent on each phase of the last Run, if Options.Clock
// is set: receiving the queries, scoring, ranking, and returning the answers.
func (m *Machine) Phases() [4]time.Duration { return m.clock.phases }
