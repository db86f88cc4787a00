package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
)

const kib = 1 << 10

// taken is the expected result of a Take.
type taken struct {
	grant *gate.Grant
	err   error
	done  bool
}

// take begins a Take, and returns once it has ended or waits.
func take(ctx context.Context, b *gate.Gate, n, held int64) *taken {
	out := &taken{}
	go func() {
		out.grant, out.err = b.Receive(ctx, n, held)
		out.done = true
	}()
	synctest.Wait()
	return out
}

// from returns a context whose messages count for a host.
func from(t *testing.T, host string) context.Context {
	t.Helper()
	return gate.WithSender(t.Context(), host+":1")
}

// TestTakeInOrder: messages of several senders are let in while there is room. Afterwards the
// oldest comes first, even if a later one would fit, unless that one is small enough for the
// reserve.
func TestTakeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gateOf(1000 * kib)
		var in []*taken
		for _, host := range []string{"a", "b", "c"} {
			in = append(in, take(from(t, host), b, 250*kib, kib))
		}
		for i, g := range in {
			if !g.done || g.err != nil {
				t.Fatalf("message %d waits: %v", i, g.err)
			}
		}
		first := take(from(t, "d"), b, 240*kib, kib)
		second := take(from(t, "e"), b, 130*kib, kib)
		small := take(from(t, "f"), b, 125*kib, kib)
		late := take(from(t, "g"), b, 20*kib, kib)
		if first.done || second.done || !small.done || late.done || b.ReceivedBytes() != 875*kib {
			t.Fatalf("%+v %+v %+v %+v, %d bytes", first, second, small, late, b.ReceivedBytes())
		}
		in[0].grant.Shrink(220 * kib) // makes room for the second alone
		synctest.Wait()
		if first.done || second.done || late.done {
			t.Fatal("one is let in past the first that waits")
		}
		in[0].grant.Release()
		in[0].grant.Release() // once more does nothing
		synctest.Wait()
		if !first.done || !second.done || late.done || b.ReceivedBytes() != (500+240+130+125)*kib {
			t.Fatalf("%+v %+v %+v, %d bytes", first, second, late, b.ReceivedBytes())
		}
		small.grant.Release()
		synctest.Wait()
		if !late.done || b.ReceivedBytes() != (500+240+130+20)*kib {
			t.Fatalf("%+v, %d bytes", late, b.ReceivedBytes())
		}
	})
}

// TestALargeMessageLeavesRoom: a message of the maximum length leaves an eighth of the bytes to
// small messages of others.
func TestALargeMessageLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gateOf(1000 * kib)
		large := take(from(t, "a"), b, 1000*kib, kib)
		second := take(from(t, "b"), b, 400*kib, kib)
		small := take(from(t, "c"), b, 100*kib, kib)
		own := take(from(t, "a"), b, 20*kib, kib)
		if !large.done || second.done || !small.done || own.done {
			t.Fatalf("%+v, %+v, %+v, %+v", large, second, small, own)
		}
		large.grant.Shrink(100 * kib) // unpacked, it is small
		synctest.Wait()
		if !second.done || !own.done || b.ReceivedBytes() != 620*kib {
			t.Fatalf("%+v, %+v, %d bytes", second, own, b.ReceivedBytes())
		}
	})
}

// TestASenderThatStallsLeavesRoom: a sender whose announced messages do not arrive, however many
// they are, holds at most half of the bytes, and half of the bytes for waiting messages. The next
// sender gets half of the rest, and so on. Senders are told apart by host, not by connection, and
// callers by name whatever their host.
func TestASenderThatStallsLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gateOf(1000 * kib)
		send := func(context func(n int) context.Context) (in, wait, full int) {
			for n := range 40 {
				switch g := take(context(n), b, 50*kib, 50*kib); {
				case !g.done:
					wait++
				case g.err == nil:
					in++
				case errors.Is(g.err, gate.ErrFull):
					full++
				}
			}
			return in, wait, full
		}
		for i, want := range [][3]int{{10, 5, 25}, {5, 2, 33}, {2, 1, 37}} {
			in, wait, full := send(func(n int) context.Context {
				address := fmt.Sprintf("host%d:%d", i, n)
				if i == 1 {
					return gate.WithCaller(gate.WithSender(t.Context(), fmt.Sprint("host", n)), "caller")
				}
				return gate.WithSender(t.Context(), address)
			})
			if got := [3]int{in, wait, full}; got != want {
				t.Errorf("sender %d: %d messages let in, waiting, refused; want %d", i, got, want)
			}
		}
	})
}

// A sender that leaves while its message waits takes no room, and gives its turn back.
func TestTakeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gateOf(1000 * kib)
		whole := take(from(t, "a"), b, 1000*kib, kib)
		ctx, cancel := context.WithTimeout(from(t, "b"), time.Minute)
		defer cancel()
		room := take(ctx, b, 130*kib, kib)
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

// TestTakeRefuses: waiting messages may hold half of the bytes in their windows. More are refused
// at once.
func TestTakeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gateOf(1000 * kib)
		whole := take(from(t, "a"), b, 1000*kib, kib)
		waits := take(from(t, "b"), b, 500*kib, 400*kib)
		full := take(from(t, "c"), b, 500*kib, 101*kib)
		if waits.done || !errors.Is(full.err, gate.ErrFull) || !strings.Contains(full.err.Error(), gate.ReceivedSetting) {
			t.Errorf("%+v, %+v", waits, full)
		}
		fits := take(from(t, "c"), b, 300*kib, 100*kib)
		if fits.done {
			t.Errorf("half may wait: %+v", fits)
		}
		large := take(from(t, "d"), b, 1001*kib, kib)
		if !errors.Is(large.err, gate.ErrTooLarge) || !strings.Contains(large.err.Error(), gate.ReceivedSetting) {
			t.Errorf("%+v", large)
		}
		whole.grant.Release()
		synctest.Wait()
		waits.grant.Release()
		fits.grant.Release()
		if b.ReceivedBytes() != 0 {
			t.Errorf("%d bytes are taken", b.ReceivedBytes())
		}
	})
}

// Bytes that have arrived already are counted even beyond the limit, and messages wait until they
// are gone.
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

// Without a budget every message is let in, and nothing is counted.
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

// The smaller of two settings limits a message, and the error names it.
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
		for _, host := range []string{"a", "b", "c"} {
			if in := take(from(t, host), g, 250*kib, kib); !in.done {
				t.Fatal("there is room, and a message waits")
			}
		}
		if in := take(from(t, "d"), g, 125*kib, kib); !in.done { // all but the reserve
			t.Fatal("there is room, and a message waits")
		}
		if in := take(from(t, "e"), g, 60*kib, kib); !in.done { // from the reserve
			t.Fatal("there is a reserve, and a message waits")
		}
		ctx, giveUp := context.WithCancel(from(t, "f"))
		large := take(ctx, g, 200*kib, kib)
		small := take(from(t, "f"), g, 20*kib, kib)
		if large.done || small.done {
			t.Fatalf("without room, or past one of the sender that waits, let in: %+v %+v", large, small)
		}
		giveUp()
		synctest.Wait()
		if !errors.Is(large.err, context.Canceled) || !small.done || small.err != nil {
			t.Errorf("given up: %+v; behind it: %+v", large, small)
		}
	})
}
