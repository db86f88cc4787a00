// Package balance checks at the end of a test that all resources were given back:
// goroutines, turns on the processors, bytes and slots of a gate. A check
// waits for a resource by taking all of it, and never sleeps.
package balance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/sidecar/gate"
)

// patience is how long a check waits for a resource that is still in use before it reports
// a leak. A free resource costs no time.
const patience = 20 * time.Second

// Resource is something that calls take and give back.
type Resource struct {
	Name string
	// Await returns nil as soon as the whole resource is free, or the error of ctx.
	Await func(ctx context.Context) error
}

// Check makes the test fail at its end if a resource is not free, or if a goroutine is
// still running that was not running when Check was called. Call Check before anything is
// started, so that later cleanups of the test run before the check.
func Check(t testing.TB, resources ...Resource) {
	t.Helper()
	running := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if err := Find(resources...); err != nil {
			t.Error(err)
		}
		if err := goleak.Find(running); err != nil {
			t.Error(err)
		}
	})
}

// Now makes the test fail if a resource does not become free soon.
func Now(t testing.TB, resources ...Resource) {
	t.Helper()
	if err := Find(resources...); err != nil {
		t.Error(err)
	}
}

// Find returns an error for every resource that does not become free.
func Find(resources ...Resource) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return find(ctx, resources...)
}

func find(ctx context.Context, resources ...Resource) error {
	var failed []error
	for _, r := range resources {
		if err := r.Await(ctx); err != nil {
			failed = append(failed, fmt.Errorf("%s: not all of it was given back: %w", r.Name, err))
		}
	}
	return errors.Join(failed...)
}

// Turns is free when all turns can be taken at the same time.
func Turns(all *turns.Turns) Resource {
	return Resource{Name: "turns on the processors", Await: func(ctx context.Context) error {
		taken := 0
		defer func() { all.GiveAll(taken) }()
		for range all.Most() {
			if err := all.Take(ctx); err != nil {
				return fmt.Errorf("%d of %d are free: %w", taken, all.Most(), err)
			}
			taken++
		}
		return nil
	}}
}

// Bytes are free when the gate receives two messages that together need all of its bytes: a
// message alone leaves an eighth to other senders.
func Bytes(g *gate.Gate) Resource {
	return Resource{Name: "bytes of messages", Await: func(ctx context.Context) error {
		most, _ := g.MaxMessageBytes(math.MaxInt)
		whole, err := g.Receive(gate.WithSender(ctx, "one"), int64(most), 0)
		if err != nil {
			return fmt.Errorf("%d of %d are taken: %w", g.ReceivedBytes(), most, err)
		}
		rest, err := g.Receive(gate.WithSender(ctx, "other"), int64(most)/8, 0)
		whole.Release()
		if err != nil {
			return fmt.Errorf("%d of %d are taken: %w", g.ReceivedBytes(), most, err)
		}
		rest.Release()
		if used := g.ReceivedBytes(); used != 0 {
			return fmt.Errorf("%d bytes are counted that nobody has", used)
		}
		return nil
	}}
}

// Slots is free when n calls can be inside at the same time. hold makes one call. Once
// admitted, hold must call inside and stay admitted until inside returns.
func Slots(name string, n int, hold func(ctx context.Context, inside func()) error) Resource {
	return Resource{Name: name, Await: func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var entered, ended sync.WaitGroup
		entered.Add(n)
		for range n {
			ended.Go(func() {
				arrived := false
				err := hold(ctx, func() {
					arrived = true
					entered.Done()
					<-ctx.Done()
				})
				if !arrived {
					cancel(errors.Join(errors.New("a call was not let in"), err))
					entered.Done()
				}
			})
		}
		entered.Wait()
		err := context.Cause(ctx)
		cancel(nil)
		ended.Wait()
		return err
	}}
}

// Unmapped is free when the process no longer maps a file with the given name, such as a
// table that was closed and whose snapshots were all released. On systems without /proc,
// nothing is checked.
func Unmapped(path string) Resource {
	return Resource{Name: "memory of " + path, Await: func(context.Context) error {
		maps, err := os.ReadFile("/proc/self/maps")
		if err == nil && strings.Contains(string(maps), path) {
			return errors.New("it is still mapped")
		}
		return nil
	}}
}

// Ended is free when the channel that begin returns is closed, such as the channel that
// closes after the last search of a replaced route.
func Ended(name string, begin func() (<-chan struct{}, error)) Resource {
	return Resource{Name: name, Await: func(ctx context.Context) error {
		ended, err := begin()
		if err != nil {
			return err
		}
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}
