//go:build !unix

package bench

import "time"

// processorTime is not known here: elapsed time is an upper bound of it.
func processorTime() clock {
	last := time.Now()
	return func() time.Duration {
		spent := time.Since(last)
		last = time.Now()
		return spent
	}
}
