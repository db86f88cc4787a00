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

// owner is the goroutine that makes all calls to a machine. It alternates between pieces of
// loading and launches.
type owner struct {
	queue    *queue
	commands chan *command
	failed   chan struct{} // closed by fail
	stuck    chan struct{} // closed when a call of the machine does not return in time
	patience time.Duration // limit for one call of the machine; set when the machine is open
	ended    chan struct{} // closed when the machine is closed
	closed   error         // result of Machine.Close; read after ended
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

// sizes are the methods of a Machine that do not use the device.
type sizes interface {
	ModelBytes(n *Network) int64
	TableBytes(n *Network, capacity int) int64
}

func newOwner(q *queue) *owner {
	return &owner{queue: q, commands: make(chan *command), failed: make(chan struct{}), stuck: make(chan struct{}), ended: make(chan struct{})}
}

// fail ends the use of the machine. Only the first reason is kept.
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

// do runs a function on the owner and returns its error, the error of ctx, or
// device.ErrUnavailable. When do returns, the function has ended or will never start,
// unless the machine is stuck.
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
	case err := <-c.done: // the owner answers every command that it accepted
		return err
	case <-o.stuck:
		return o.err()
	}
}

// watched calls run. If run does not return within the owner's patience, watched gives up
// the machine and ends the calls that wait for it: work on a device ends by itself or with
// its process.
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

// run owns the machine until it fails or is closed.
func (o *owner) run(open func() (Machine, error), ready func(Facts), started chan<- error) {
	defer close(o.ended)
	runtime.LockOSThread() // never unlocked: the thread, and its binding to the context, end with the goroutine
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

// turn runs one command, if one is waiting, and one launch. If there is no launch, it waits
// for work.
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

// checkLost gives up the machine if err says that it is lost.
func (o *owner) checkLost(err error) error {
	if errors.Is(err, ErrLost) {
		o.fail(fmt.Errorf("%w: %w", device.ErrUnavailable, err))
		return o.err()
	}
	return err
}

// launch runs the next step of searches that share a table.
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
	if errors.Is(err, ErrRefused) { // all searches of a launch have the same table
		t := batch[0].table
		err = t.device.refuse(t.modelVersion, err)
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

// asDeviceError converts an error of a machine to an error of package device.
func asDeviceError(err error) error {
	for _, known := range []error{device.ErrUnavailable, device.ErrMemory, device.ErrFailed} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", device.ErrFailed, err)
}
