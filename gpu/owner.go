package gpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/plugin/device"
)

// owner is the goroutine that calls a machine. It takes turns between what is
// loaded, a piece at a time, and launches.
type owner struct {
	queue    *queue
	commands chan *command
	failed   chan struct{} // closed by fail
	stuck    chan struct{} // closed when the machine does not come back
	patience time.Duration // with it; set when the machine is open
	ended    chan struct{} // the machine is closed
	closed   error         // of Close; read after ended
	sizes    sizes         // set when the machine is open

	once  sync.Once
	cause atomic.Pointer[error]
}

// command is a piece of loading.
type command struct {
	ctx  context.Context //nolint:containedctx // of the call that waits for it
	run  func(Machine) error
	done chan error
}

// sizes are what a Machine says without its device.
type sizes interface {
	ModelBytes(n *Network) int64
	TableBytes(n *Network, capacity int) int64
}

func newOwner(q *queue) *owner {
	return &owner{queue: q, commands: make(chan *command), failed: make(chan struct{}), stuck: make(chan struct{}), ended: make(chan struct{})}
}

// fail ends the use of the machine; the first reason counts.
func (o *owner) fail(err error) {
	o.once.Do(func() {
		o.cause.Store(&err)
		close(o.failed)
	})
}

func (o *owner) err() error {
	if e := o.cause.Load(); e != nil {
		return *e
	}
	return nil
}

// do has a piece of work done by the owner, and returns its error, that of ctx, or
// device.ErrUnavailable. What run refers to is the caller's again then.
func (o *owner) do(ctx context.Context, run func(Machine) error) error {
	c := &command{ctx, run, make(chan error, 1)}
	select {
	case o.commands <- c:
	case <-ctx.Done():
		return ctx.Err()
	case <-o.failed:
		return o.err()
	}
	select {
	case err := <-c.done: // the owner answers every command that it took
		return err
	case <-o.stuck:
		return o.err()
	}
}

// watched lets the machine work, and ends its use, and the calls that wait for it, where it does
// not come back: what runs on a device ends by itself or with its process.
func (o *owner) watched(work string, batch []*search, run func() error) error {
	late := time.AfterFunc(o.patience, func() {
		o.fail(fmt.Errorf("%w: %s has not come back after %s; the device is given up, and needs a fresh process", device.ErrUnavailable, work, o.patience))
		o.queue.close(o.err())
		for _, s := range batch {
			s.finish(device.Best{}, o.err())
		}
		close(o.stuck)
	})
	defer late.Stop()
	return run()
}

// run owns the machine until it fails.
func (o *owner) run(open func() (Machine, error), ready func(Facts), started chan<- error) {
	defer close(o.ended)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and with it the context's hold on it
	m, err := open()
	if err != nil {
		o.fail(fmt.Errorf("%w: %w", device.ErrUnavailable, err))
		started <- o.err()
		return
	}
	defer func() { o.closed = m.Close() }()
	facts, err := m.Facts()
	if err != nil {
		o.fail(fmt.Errorf("%w: %w", device.ErrUnavailable, err))
		started <- o.err()
		return
	}
	o.sizes = m
	ready(facts)
	started <- nil
	for o.err() == nil {
		o.turn(m)
	}
	o.queue.close(o.err())
}

// turn does one command, if there is one, and one launch.
func (o *owner) turn(m Machine) {
	select {
	case c := <-o.commands:
		o.command(m, c)
	default:
	}
	batch, wait := o.queue.next(time.Now())
	if len(batch) > 0 {
		o.launch(m, batch)
		return
	}
	var timer <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		timer = t.C
	}
	select {
	case c := <-o.commands:
		o.command(m, c)
	case <-o.queue.kick:
	case <-timer:
	case <-o.failed:
	}
}

func (o *owner) command(m Machine, c *command) {
	err := c.ctx.Err()
	if err == nil {
		err = o.checkLost(o.watched("a piece of loading", nil, func() error { return c.run(m) }))
	}
	c.done <- err
}

// checkLost ends the use of a machine that is lost.
func (o *owner) checkLost(err error) error {
	if errors.Is(err, ErrLost) {
		o.fail(fmt.Errorf("%w: %w", device.ErrUnavailable, err))
		return o.err()
	}
	return err
}

// launch runs the next step of searches of one table.
func (o *owner) launch(m Machine, batch []*search) {
	began := time.Now()
	jobs := make([]Job, len(batch))
	for i, s := range batch {
		jobs[i] = s.job()
	}
	var found []Survivors
	err := o.watched(fmt.Sprintf("a launch of %d queries", len(jobs)), batch, func() (err error) {
		found, err = m.Run(jobs)
		return err
	})
	if err = o.checkLost(err); err == nil && len(found) != len(jobs) {
		err = fmt.Errorf("%w: %d answers of %d jobs", device.ErrFailed, len(found), len(jobs))
	}
	o.queue.recordLaunch(time.Since(began), len(batch))
	for i, s := range batch {
		switch {
		case err != nil:
			s.finish(device.Best{}, asDeviceError(err))
		default:
			if s.step(found[i]) {
				o.queue.requeue(s)
			}
		}
	}
}

// asDeviceError makes an error of a machine one of a device.
func asDeviceError(err error) error {
	for _, known := range []error{device.ErrUnavailable, device.ErrMemory, device.ErrFailed} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", device.ErrFailed, err)
}
