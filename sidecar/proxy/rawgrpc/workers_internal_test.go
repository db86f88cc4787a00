package rawgrpc

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// TestWorkers checks that functions run at the same time, that goroutines stay for the next
// function, and that none stays behind.
func TestWorkers(t *testing.T) {
	defer goleak.VerifyNone(t)
	leaving := make(chan struct{})
	w := newWorkers(leaving)
	const calls = 2 * maxIdleWorkers
	var all sync.WaitGroup
	meet := make(chan struct{})
	var here atomic.Int32
	all.Add(calls)
	for range calls {
		w.run(func() {
			defer all.Done()
			if here.Add(1) == calls {
				close(meet) // every one of them runs
			}
			<-meet
		})
	}
	all.Wait()
	for len(w.idle) < maxIdleWorkers {
		runtime.Gosched()
	}
	first := make(chan struct{})
	w.run(func() { close(first) })
	<-first
	for len(w.idle) < maxIdleWorkers {
		runtime.Gosched() // whoever ran it waits again
	}
	ran := false
	close(leaving)
	w.run(func() { ran = true })
	w.wait()
	if !ran {
		t.Error("a function after leaving did not run")
	}
}

// TestWorkersKeepGoroutines checks that a function runs where one ran before.
func TestWorkersKeepGoroutines(t *testing.T) {
	defer goleak.VerifyNone(t)
	leaving := make(chan struct{})
	w := newWorkers(leaving)
	before := runtime.NumGoroutine()
	for range 100 {
		done := make(chan struct{})
		w.run(func() { close(done) })
		<-done
		for len(w.idle) == 0 {
			runtime.Gosched()
		}
	}
	if got := runtime.NumGoroutine() - before; got > 2 {
		t.Errorf("%d goroutines for one function at a time, want 1", got)
	}
	close(leaving)
	w.wait()
}
