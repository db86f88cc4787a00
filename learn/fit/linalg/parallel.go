package linalg

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Parallel calls f for consecutive blocks of the numbers from 0 to n, on every core.
// It returns when all calls have. What f does with a number must not depend on the
// block in which the number comes.
func Parallel(n, block int, f func(from, to int)) {
	workers := min(runtime.GOMAXPROCS(0), (n+block-1)/block)
	if workers <= 1 {
		f(0, n)
		return
	}
	var next atomic.Int64
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for {
				from := int(next.Add(int64(block))) - block
				if from >= n {
					return
				}
				f(from, min(from+block, n))
			}
		})
	}
	running.Wait()
}

// ParallelErr is Parallel for an f that can fail. It returns one of the errors.
func ParallelErr(n, block int, f func(from, to int) error) error {
	var once sync.Once
	var failed error
	Parallel(n, block, func(from, to int) {
		if err := f(from, to); err != nil {
			once.Do(func() { failed = err })
		}
	})
	return failed
}
