package gate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// TestAnswersCount: the bytes of an answer count as they arrive, until the call ends. An answer
// longer than the limit of all messages is refused.
func TestAnswersCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(gate.Options{ReceivedBytes: 8 << 20})
		ctx, end := context.WithCancel(t.Context())
		a := g.CountAnswer(ctx)
		for _, grown := range []struct {
			to   int
			held int64
		}{{gate.UncountedBytes, 0}, {100 << 10, 256 << 10}, {256 << 10, 256 << 10}, {257 << 10, 512 << 10}, {8 << 20, 8 << 20}} {
			if err := a.Grow(grown.to); err != nil || g.ReceivedBytes() != grown.held {
				t.Errorf("an answer of %d bytes: %v, %d held, want %d", grown.to, err, g.ReceivedBytes(), grown.held)
			}
		}
		if err := a.Grow(8<<20 + 1); !errors.Is(err, gate.ErrTooLarge) || !strings.Contains(err.Error(), "it has 8388609 bytes, and "+gate.ReceivedSetting+" is 8388608") {
			t.Errorf("an answer of too many bytes: %v", err)
		}
		end()
		synctest.Wait()
		if err := a.Grow(1 << 20); err != nil || g.ReceivedBytes() != 0 {
			t.Errorf("after the call: %v, %d held", err, g.ReceivedBytes())
		}
		ctx, end = context.WithCancel(t.Context())
		a = g.CountAnswer(ctx)
		err := a.Grow(100 << 10)
		end()
		synctest.Wait()
		if err = errors.Join(err, a.Grow(1<<20)); err != nil || g.ReceivedBytes() != 0 {
			t.Errorf("an answer that grows after its call: %v, %d held", err, g.ReceivedBytes())
		}
	})
	if err := gate.New(gate.Options{}).CountAnswer(t.Context()).Grow(1 << 40); err != nil {
		t.Errorf("where bytes are not counted: %v", err)
	}
}

// TestAnswersAreReserved: an answer waits while others take the memory, a caller alone leaves some to others, and one that is too large
// for all of it is refused.
func TestAnswersAreReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 8 << 20
		g := gate.New(gate.Options{ReceivedBytes: most})
		calls, end := context.WithCancel(t.Context())
		reserve := func(caller string, bytes int64) error { return g.Reserve(gate.WithCaller(calls, caller), bytes) }
		if err := reserve("a", most+1); !errors.Is(err, gate.ErrTooLarge) {
			t.Errorf("more than all: %v", err)
		}
		if err := errors.Join(reserve("a", most), reserve("b", most/16), reserve("a", gate.UncountedBytes)); err != nil {
			t.Errorf("a large answer, one of another caller and a short one: %v", err)
		}
		if err := reserve("a", most/2); !errors.Is(err, gate.ErrFull) {
			t.Errorf("another large one: %v", err)
		}
		waited := make(chan error, 1)
		go func() { waited <- g.Reserve(t.Context(), most/2) }()
		synctest.Wait()
		end()
		if err := <-waited; err != nil {
			t.Errorf("after the calls: %v", err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := g.Reserve(ended, most); !errors.Is(err, context.Canceled) {
			t.Errorf("a call that has ended: %v", err)
		}
	})
	if err := gate.New(gate.Options{}).Reserve(t.Context(), 1<<40); err != nil {
		t.Errorf("where bytes are not counted: %v", err)
	}
}
