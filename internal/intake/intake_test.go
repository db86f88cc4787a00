package intake_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/internal/intake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kib = 1 << 10

// taken is what a Take will have returned.
type taken struct {
	grant *intake.Grant
	err   error
	done  bool
}

// take begins a Take, and returns when it has ended or waits.
func take(ctx context.Context, b *intake.Budget, n, held int64) *taken {
	out := &taken{}
	go func() {
		out.grant, out.err = b.Take(ctx, n, held)
		out.done = true
	}()
	synctest.Wait()
	return out
}

// Messages are let in while there is room; then they wait, and those that came first
// are let in first, even if a later one would fit.
func TestTakeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := intake.New(1000 * kib)
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
		if first.done || second.done || b.Used() != 1000*kib {
			t.Fatalf("there is no room: %+v %+v, %d bytes", first, second, b.Used())
		}
		in[0].grant.Shrink(220 * kib) // 30 KiB: room for the second alone
		synctest.Wait()
		if first.done || second.done {
			t.Fatal("one is let in past the first that waits")
		}
		in[0].grant.Release()
		synctest.Wait()
		if !first.done || second.done || b.Used() != 990*kib {
			t.Fatalf("%+v, %+v, %d bytes", first, second, b.Used())
		}
		in[1].grant.Release()
		in[1].grant.Release() // once more does nothing
		synctest.Wait()
		if !second.done || b.Used() != 760*kib {
			t.Fatalf("%+v, %d bytes", second, b.Used())
		}
	})
}

// Messages of more than a quarter of the budget come one at a time, so that small ones
// have room beside them.
func TestLargeOnesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := intake.New(1000 * kib)
		one := take(t.Context(), b, 400*kib, kib)
		two := take(t.Context(), b, 400*kib, kib)
		small := take(t.Context(), b, 20*kib, kib)
		if !one.done || two.done || !small.done {
			t.Fatalf("%+v, %+v, %+v", one, two, small)
		}
		one.grant.Shrink(100 * kib) // unpacked, it is small
		synctest.Wait()
		if !two.done || b.Used() != 520*kib {
			t.Fatalf("%+v, %d bytes", two, b.Used())
		}
	})
}

// Who goes away while waiting takes nothing, and gives its turn back.
func TestTakeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := intake.New(1000 * kib)
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
		b := intake.New(1000 * kib)
		whole := take(t.Context(), b, 1000*kib, kib)
		waits := take(t.Context(), b, 500*kib, 400*kib)
		full := take(t.Context(), b, 500*kib, 101*kib)
		if waits.done || !errors.Is(full.err, intake.ErrFull) || !strings.Contains(full.err.Error(), intake.Setting) {
			t.Errorf("%+v, %+v", waits, full)
		}
		fits := take(t.Context(), b, 500*kib, 100*kib)
		if fits.done {
			t.Errorf("half may wait: %+v", fits)
		}
		large := take(t.Context(), b, 1001*kib, kib)
		if !errors.Is(large.err, intake.ErrTooLarge) || !strings.Contains(large.err.Error(), intake.Setting) {
			t.Errorf("%+v", large)
		}
		whole.grant.Release()
		synctest.Wait()
		waits.grant.Release()
		synctest.Wait()
		fits.grant.Release()
		if b.Used() != 0 {
			t.Errorf("%d bytes are taken", b.Used())
		}
	})
}

// What is here already is counted beyond what there is, and messages wait until it is gone.
func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := intake.New(1000 * kib)
		request := take(t.Context(), b, 200*kib, kib)
		answer := b.Count(1500 * kib)
		if request.err != nil || b.Used() != 1700*kib {
			t.Fatalf("%v, %d bytes", request.err, b.Used())
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
		if !next.done || next.err != nil || b.Used() != 20*kib {
			t.Errorf("%+v, %d bytes", next, b.Used())
		}
		if g := b.Count(intake.Free); g != nil || b.Used() != 20*kib {
			t.Errorf("a small answer is counted: %d bytes", b.Used())
		}
	})
}

// Without a budget everything is let in, and nothing is counted.
func TestNoBudget(t *testing.T) {
	b := intake.New(0)
	g, err := b.Take(t.Context(), 1<<40, 0)
	g.Shrink(1)
	g.Release()
	b.Count(1 << 40).Release()
	most, setting := b.Most(7)
	if g != nil || err != nil || b.Used() != 0 || most != 7 || setting != intake.MessageSetting {
		t.Errorf("%v, %v, %d, %d, %s", g, err, b.Used(), most, setting)
	}
}

// The smaller of the two settings bounds a message, and is the one that is named.
func TestMost(t *testing.T) {
	b := intake.New(100)
	for limit, want := range map[int]string{50: intake.MessageSetting, 100: intake.MessageSetting, 101: intake.Setting} {
		if most, setting := b.Most(limit); most != min(limit, 100) || setting != want {
			t.Errorf("limit %d: %d, %s", limit, most, setting)
		}
	}
}
