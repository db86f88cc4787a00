//go:build cuda

package cuda

import (
	"fmt"
	"time"

	"gorgonia.org/cu"
)

// clock measures what the device does between two events of the stream.
type clock struct {
	from, to cu.Event
	last     time.Duration
}

func (c *clock) start() (err error) {
	if c.from, err = cu.MakeEvent(cu.DefaultEvent); err == nil {
		c.to, err = cu.MakeEvent(cu.DefaultEvent)
	}
	if err != nil {
		return fmt.Errorf("making an event: %w", err)
	}
	return nil
}

// read sets last; the stream has passed both events.
func (c *clock) read() error {
	ms, err := c.from.Elapsed(c.to)
	c.last = time.Duration(ms * float64(time.Millisecond))
	return judged("reading a clock", err)
}

// Elapsed is how long the device took for the last launch of Run, from the first
// kernel to the last: of its last piece, where there were several.
func (m *Machine) Elapsed() time.Duration { return m.clock.last }
