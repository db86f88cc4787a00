package balance

import (
	"context"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/sidecar/gate"
)

// over is a context that has ended: a check finds at once what it would wait for.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func wants(t *testing.T, err error, says string) {
	t.Helper()
	switch {
	case says == "" && err != nil:
		t.Error(err)
	case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
		t.Errorf("%v, want %q", err, says)
	}
}

// TestTheCheckFails: one missing turn, byte or slot is found, and checking free ones changes
// nothing.
func TestTheCheckFails(t *testing.T) {
	all := turns.New(3)
	for range 2 {
		wants(t, Find(Turns(all)), "")
	}
	_ = all.Try()
	wants(t, find(over(), Turns(all)), "2 of 3 are free")

	budget := gate.New(gate.Options{ReceivedBytes: 1 << 20})
	for range 2 {
		wants(t, Find(Bytes(budget)), "")
	}
	grant, err := budget.Receive(t.Context(), 64<<10, 0)
	wants(t, err, "")
	wants(t, find(over(), Bytes(budget)), "65536 of 1048576 are taken")
	grant.Release()

	room := make(chan struct{}, 5)
	slots := Slots("slots", 5, func(_ context.Context, inside func()) error {
		select {
		case room <- struct{}{}:
			inside()
			<-room
		default:
		}
		return nil
	})
	for range 2 {
		wants(t, Find(slots), "")
	}
	room <- struct{}{}
	wants(t, Find(slots), "a call was not let in")

	wants(t, find(over(), Ended("route", func() (<-chan struct{}, error) { return make(chan struct{}), nil })), "route: not all of it was given back")
	done := make(chan struct{})
	close(done)
	wants(t, Find(Ended("route", func() (<-chan struct{}, error) { return done, nil })), "")
}

// failing notes that a test would fail.
type failing struct {
	testing.TB
	cleanups []func()
	errors   int
}

func (f *failing) Helper()           {}
func (f *failing) Error(...any)      { f.errors++ }
func (f *failing) Cleanup(do func()) { f.cleanups = append(f.cleanups, do) }

// TestGoroutines: one that a test leaves behind fails it, one from before does not.
func TestGoroutines(t *testing.T) {
	before, left := make(chan struct{}), make(chan struct{})
	running := make(chan struct{})
	go func() {
		close(running)
		<-before
	}()
	<-running
	f := &failing{TB: t}
	Check(f)
	go func() { <-left }()
	f.cleanups[0]()
	if f.errors != 1 {
		t.Errorf("%d errors for a goroutine that is left", f.errors)
	}
	close(left)
	f.cleanups[0]()
	if f.errors != 1 {
		t.Errorf("%d errors when it has ended", f.errors-1)
	}
	close(before)
}
