//go:build !unix

package bench

import "time"

// processorTime returns elapsed time, which is an upper bound of the unknown CPU time.
func processorTime() clock {
	last := time.Now()
	return func() time.Duration {
		spent := time.Since(last)
		last = time.Now()
		return spent
	}
}
