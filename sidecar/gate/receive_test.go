package gate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
)

const kib = 1 << 10

// taken is what a Take will have returned.
type taken struct {
	grant *gate.Grant
	err   error
	done  bool
}

// take begins a Take, and returns when it has ended or waits.
func take(ctx context.Context, b *gate.Gate, n, held int64) *taken {
	out := &taken{}
	go func() {
		out.grant, out.err = b.Receive(ctx, n, held)
		out.done = true
	}()
	synctest.Wait()
	return out
}

// Messages are let in while there is room; then they wait, and those that came first
// are let in first, even if a later one would fit.
func TestTakeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gateOf(1000 * kib)
		var in []*taken
		for range 4 { // a quarter each: not large
			in = append(in, take(t.Context(), b, 250*kib, kib))
		}
		for i, g := range in {
			if !g.done || g.err != nil {
				t.Fatalf("message %d waits: %v", i, g.err)
			}
		}
		first := take(t.Context(), b, 240*kib, kib)
		second := take(t.Context(), b, 20*kib, kib)
		if first.done || second.done || b.ReceivedBytes() != 1000*kib {
			t.Fatalf("there is no room: %+v %+v, %d bytes", first, second, b.ReceivedBytes())
		}
		in[0].grant.Shrink(220 * kib) // 30 KiB: room for the second alone
		synctest.Wait()
		if first.done || second.done {
			t.Fatal("one is let in past the first that waits")
		}
		in[0].grant.Release()
		synctest.Wait()
		if !first.done || second.done || b.ReceivedBytes() != 990*kib {
			t.Fatalf("%+v, %+v, %d bytes", first, second, b.ReceivedBytes())
		}
		in[1].grant.Release()
		in[1].grant.Release() // once more does nothing
		synctest.Wait()
		if !second.done || b.ReceivedBytes() != 760*kib {
			t.Fatalf("%+v, %d bytes", second, b.ReceivedBytes())
		}
	})
}

// Messages of more than a quarter of the budget come one at a time, so that small ones
// have room beside them.
func TestLargeOnesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gateOf(1000 * kib)
		one := take(t.Context(), b, 400*kib, kib)
		two := take(t.Context(), b, 400*kib, kib)
		small := take(t.Context(), b, 20*kib, kib)
		if !one.done || two.done || !small.done {
			t.Fatalf("%+v, %+v, %+v", one, two, small)
		}
		one.grant.Shrink(100 * kib) // unpacked, it is small
		synctest.Wait()
		if !two.done || b.ReceivedBytes() != 520*kib {
			t.Fatalf("%+v, %d bytes", two, b.ReceivedBytes())
		}
	})
}

// Who goes away while waiting takes nothing, and gives its turn back.
func TestTakeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gateOf(1000 * kib)
		whole := take(t.Context(), b, 1000*kib, kib)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		room := take(ctx, b, 20*kib, kib)
		turn := take(ctx, b, 500*kib, kib)
		time.Sleep(time.Minute) //nolint:forbidigo // of the bubble: no time passes
		synctest.Wait()
		for _, g := range []*taken{room, turn} {
			if !g.done || !errors.Is(g.err, context.DeadlineExceeded) {
				t.Errorf("%+v", g)
			}
		}
		whole.grant.Release()
		if again := take(t.Context(), b, 1000*kib, kib); !again.done || again.err != nil {
			t.Errorf("all is free: %+v", again)
		}
	})
}

// What waits may hold half of the budget in windows; more is refused at once.
func TestTakeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gateOf(1000 * kib)
		whole := take(t.Context(), b, 1000*kib, kib)
		waits := take(t.Context(), b, 500*kib, 400*kib)
		full := take(t.Context(), b, 500*kib, 101*kib)
		if waits.done || !errors.Is(full.err, gate.ErrFull) || !strings.Contains(full.err.Error(), gate.ReceivedSetting) {
			t.Errorf("%+v, %+v", waits, full)
		}
		fits := take(t.Context(), b, 500*kib, 100*kib)
		if fits.done {
			t.Errorf("half may wait: %+v", fits)
		}
		large := take(t.Context(), b, 1001*kib, kib)
		if !errors.Is(large.err, gate.ErrTooLarge) || !strings.Contains(large.err.Error(), gate.ReceivedSetting) {
			t.Errorf("%+v", large)
		}
		whole.grant.Release()
		synctest.Wait()
		waits.grant.Release()
		synctest.Wait()
		fits.grant.Release()
		if b.ReceivedBytes() != 0 {
			t.Errorf("%d bytes are taken", b.ReceivedBytes())
		}
	})
}

// What is here already is counted beyond what there is, and messages wait until it is gone.
func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gateOf(1000 * kib)
		request := take(t.Context(), b, 200*kib, kib)
		answer := b.Hold(1500 * kib)
		if request.err != nil || b.ReceivedBytes() != 1700*kib {
			t.Fatalf("%v, %d bytes", request.err, b.ReceivedBytes())
		}
		next := take(t.Context(), b, 20*kib, kib)
		request.grant.Release()
		synctest.Wait()
		if next.done {
			t.Error("a message is let in beside an answer that takes all")
		}
		answer.Release()
		answer.Release()
		synctest.Wait()
		if !next.done || next.err != nil || b.ReceivedBytes() != 20*kib {
			t.Errorf("%+v, %d bytes", next, b.ReceivedBytes())
		}
		if g := b.Hold(gate.UncountedBytes); g != nil || b.ReceivedBytes() != 20*kib {
			t.Errorf("a small answer is counted: %d bytes", b.ReceivedBytes())
		}
	})
}

// Without a budget everything is let in, and nothing is counted.
func TestNoBudget(t *testing.T) {
	b := gateOf(0)
	g, err := b.Receive(t.Context(), 1<<40, 0)
	g.Shrink(1)
	g.Release()
	b.Hold(1 << 40).Release()
	most, setting := b.MaxMessageBytes(7)
	if g != nil || err != nil || b.ReceivedBytes() != 0 || most != 7 || setting != gate.MessageSetting {
		t.Errorf("%v, %v, %d, %d, %s", g, err, b.ReceivedBytes(), most, setting)
	}
}

// The smaller of the two settings bounds a message, and is the one that is named.
func TestMost(t *testing.T) {
	b := gateOf(100)
	for limit, want := range map[int]string{50: gate.MessageSetting, 100: gate.MessageSetting, 101: gate.ReceivedSetting} {
		if most, setting := b.MaxMessageBytes(limit); most != min(limit, 100) || setting != want {
			t.Errorf("limit %d: %d, %s", limit, most, setting)
		}
	}
}

// TestAMessageIsNotKeptBackByOneThatWasGivenUp: a message that fits is let in as soon as the
// larger message before it is given up.
func TestAMessageIsNotKeptBackByOneThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateOf(1000 * kib)
		for range 3 {
			if in := take(t.Context(), g, 250*kib, kib); !in.done {
				t.Fatal("there is room, and a message waits")
			}
		}
		if in := take(t.Context(), g, 230*kib, kib); !in.done {
			t.Fatal("there is room, and a message waits")
		}
		ctx, giveUp := context.WithCancel(t.Context())
		large := take(ctx, g, 200*kib, kib)
		small := take(t.Context(), g, 20*kib, kib)
		if large.done || small.done {
			t.Fatalf("without room, or past one that waits, let in: %+v %+v", large, small)
		}
		giveUp()
		synctest.Wait()
		if !errors.Is(large.err, context.Canceled) || !small.done || small.err != nil {
			t.Errorf("given up: %+v; behind it: %+v", large, small)
		}
	})
}
