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
