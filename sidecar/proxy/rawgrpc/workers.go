package rawgrpc

import "sync"

// maxIdleWorkers limits the goroutines that wait for a function.
const maxIdleWorkers = 64

// workers runs functions in goroutines. A goroutine whose function has returned waits for
// another one, because the stack of a new goroutine would have to grow in every call. A
// workers is safe for concurrent use.
type workers struct {
	functions chan func()     // received by waiting goroutines
	leaving   <-chan struct{} // once closed, goroutines end instead of waiting
	idle      chan struct{}   // holds an element for each waiting goroutine
	working   sync.WaitGroup
}

func newWorkers(leaving <-chan struct{}) *workers {
	return &workers{functions: make(chan func()), leaving: leaving, idle: make(chan struct{}, maxIdleWorkers)}
}

// run lets a goroutine run f, and does not wait for it.
func (w *workers) run(f func()) {
	select {
	case w.functions <- f:
	default: // no goroutine waits
		w.working.Go(func() { w.work(f) })
	}
}

// work runs f, and then the functions that run sends it.
func (w *workers) work(f func()) {
	for {
		f()
		select {
		case w.idle <- struct{}{}:
		default: // enough goroutines wait
			return
		}
		select {
		case f = <-w.functions:
			<-w.idle
		case <-w.leaving:
			return
		}
	}
}

// wait waits until all functions have returned. The channel of newWorkers has to be closed.
func (w *workers) wait() { w.working.Wait() }
