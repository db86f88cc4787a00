// Package balance checks at the end of a test that everything that was taken is back:
// goroutines, turns on the processors, bytes and slots of a gate. A
// check waits for the resource itself, by taking all of it, and never sleeps.
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

// patience is how long a check waits for what is still on its way back. A resource that
// is lost is reported after so long; one that is free costs no time.
const patience = 20 * time.Second

// Resource is something that calls take and give back.
type Resource struct {
	Name string
	// Await returns nil as soon as all of the resource is free, or the error of ctx.
	Await func(ctx context.Context) error
}

// Check has the test fail at its end if a resource is not free then, or if a goroutine
// runs that did not run when Check was called. Call it before anything is started: what
// the test cleans up later is cleaned up before the check.
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

// Now has the test fail if a resource is not free now, or soon.
func Now(t testing.TB, resources ...Resource) {
	t.Helper()
	if err := Find(resources...); err != nil {
		t.Error(err)
	}
}

// Find returns an error for every resource that is not free.
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

// Turns are free when every one of them can be taken at the same time.
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

// Bytes are free when the gate receives a message of as many bytes as it lets in.
func Bytes(g *gate.Gate) Resource {
	return Resource{Name: "bytes of messages", Await: func(ctx context.Context) error {
		most, _ := g.MaxMessageBytes(math.MaxInt)
		grant, err := g.Receive(ctx, int64(most), 0)
		if err != nil {
			return fmt.Errorf("%d of %d are taken: %w", g.ReceivedBytes(), most, err)
		}
		grant.Release()
		if used := g.ReceivedBytes(); used != 0 {
			return fmt.Errorf("%d bytes are counted that nobody has", used)
		}
		return nil
	}}
}

// Slots are free when n calls can be inside at the same time. hold makes one call, which
// calls inside when it was let in and has to stay there until inside returns.
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

// Unmapped is free when the process maps no file of that name any more, as those of a
// table that was closed and of which no search holds a snapshot. Where the system does
// not tell, nothing is checked.
func Unmapped(path string) Resource {
	return Resource{Name: "memory of " + path, Await: func(context.Context) error {
		maps, err := os.ReadFile("/proc/self/maps")
		if err == nil && strings.Contains(string(maps), path) {
			return errors.New("it is still mapped")
		}
		return nil
	}}
}

// Ended is free when the channel that begin returns is closed, as the one that ends with
// the last search of a route that was replaced.
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
