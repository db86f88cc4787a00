package ranker

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// TestSlots: jobs get slots in the order of their requests. A higher limit serves waiting jobs, and
// a slot offered to a job that has left goes to the next one.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{limit: 1}
		ask := func(ctx context.Context) chan bool {
			got := make(chan bool, 1)
			go func() {
				ok, err := s.acquire(ctx)
				got <- ok && err == nil
			}()
			synctest.Wait()
			return got
		}
		has := func(name string, got chan bool, want bool) {
			t.Helper()
			synctest.Wait()
			select {
			case ok := <-got:
				if !ok || !want {
					t.Errorf("%s got a slot: %v, want %v", name, ok, want)
				}
			default:
				if want {
					t.Errorf("%s waits", name)
				}
			}
		}
		has("the first", ask(t.Context()), true)
		second, third, fourth := ask(t.Context()), ask(t.Context()), ask(t.Context())
		s.release()
		has("the third", third, false)
		has("the second", second, true)
		s.resize(2)
		has("the fourth", fourth, false)
		has("the third, by a higher limit", third, true)

		turn := make(chan bool, 1) // of somebody who leaves while a slot is handed over
		s.waiting = append([]chan bool{turn}, s.waiting...)
		s.release()
		s.leave(turn)
		has("the fourth, in place of one who left", fourth, true)

		ended, cancel := context.WithCancel(t.Context())
		gone := ask(ended)
		cancel()
		if synctest.Wait(); <-gone || len(s.waiting) != 0 {
			t.Errorf("one who left while waiting got a slot, or still waits: %d", len(s.waiting))
		}
		disturbed, also := ask(t.Context()), ask(t.Context())
		s.disturb()
		if synctest.Wait(); <-disturbed || <-also {
			t.Error("a wait that was disturbed ended with a slot")
		}
		s.release()
		s.release()
		has("the next", ask(t.Context()), true)
		has("another", ask(t.Context()), true)
		if s.held != 2 || len(s.waiting) != 0 {
			t.Errorf("%d slots are held, and %d wait", s.held, len(s.waiting))
		}
		if ok, err := s.acquire(ended); ok || !errors.Is(err, context.Canceled) {
			t.Errorf("a call that has ended: %v, %v", ok, err)
		}
	})
}

// TestLimitsLearn: refusals make the batches smaller, and accepted ones make them larger again.
func TestLimitsLearn(t *testing.T) {
	var l limits
	within := func(name string, items, bytes int) {
		t.Helper()
		if i, b := l.within(plugin.Description{}); i != items || b != bytes {
			t.Errorf("%s: batches of %d items and %d bytes, want %d and %d", name, i, b, items, bytes)
		}
	}
	within("nothing is known", 0, 0)
	l.refuse(100, 1000)
	within("the number is tried first", 50, 0)
	l.take(50, 600)
	l.refuse(50, 900)
	within("as many were accepted, so it is the bytes", 50, 600)
	l.refuse(40, 500)
	if i, b := l.within(plugin.Description{}); i != 20 || b != 600 {
		t.Errorf("a scorer that accepts less than before: %d items and %d bytes, want 20 and 600", i, b)
	}
	l.refuseOne(400, true)
	if i, _ := l.within(plugin.Description{}); i != 0 {
		t.Errorf("an item that is too large by itself says nothing about the number: %d", i)
	}
	if i, b := l.within(plugin.Description{MaxItems: 7, MaxBytes: 90}); i != 7 || b != 90 {
		t.Errorf("a declared limit: %d items and %d bytes", i, b)
	}
}

// TestBatchesGrowAgain: a larger batch is tried after some full batches, later after each refusal.
// Two batches that are refused at the same time count once.
func TestBatchesGrowAgain(t *testing.T) {
	b := bound{}
	full := func() (n int) {
		for before := b.learned; b.learned == before; n++ {
			b.take(before)
		}
		return n
	}
	b.refuse(100)
	b.refuse(100) // was on its way when the first was refused
	if n := full(); n != firstPatience || b.learned != 56 {
		t.Errorf("after %d full batches the bound is %d, want %d and 56", n, b.learned, firstPatience)
	}
	b.refuse(56)
	if n := full(); n != 2*firstPatience {
		t.Errorf("after another refusal the bound grows after %d full batches, want %d", n, 2*firstPatience)
	}
}

// TestSame: two scores of one item are the same if they differ by no more than rounding, relative
// to the spread of the scores around them.
func TestSame(t *testing.T) {
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		x, y float32
		all  []float32
		want bool
	}{
		"equal":             {1, 1, []float32{1, 1}, true},
		"both no number":    {nan, nan, []float32{nan, nan}, true},
		"one no number":     {nan, 1, []float32{nan, 1}, false},
		"rounding":          {1, 1 + 1e-6, []float32{0, 1, 1 + 1e-6, 2}, true},
		"another":           {1, 1.5, []float32{0, 1, 1.5, 2}, false},
		"no spread to tell": {1, 2, []float32{1, 2}, false},
		"beside no numbers": {1, 1 + 1e-6, []float32{0, nan, 1, 1 + 1e-6, 2}, true},
	} {
		if got := same(c.x, c.y, c.all); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestTheSample is the smallest query and item that were scored, with memory of its own.
func TestTheSample(t *testing.T) {
	c := New(nil, Options{})
	keep := func(id uint64, payload int) {
		c.keepSample(plugin.Query{}, plugin.Item{ID: rerank.UintID(id), Payload: make([]byte, payload, 1<<20)}, 0)
	}
	if keep(1, maxSampleBytes); c.sample != nil {
		t.Error("a large item is kept")
	}
	keep(2, 100)
	keep(3, 101)
	if keep(4, 99); c.sample.item.ID != rerank.UintID(4) || cap(c.sample.item.Payload) > 200 {
		t.Errorf("item %s is kept, with %d bytes", c.sample.item.ID, cap(c.sample.item.Payload))
	}
	if keep(5, 99); c.sample.item.ID != rerank.UintID(4) {
		t.Errorf("item %s replaced one of its size", c.sample.item.ID)
	}
}

// TestEvenSize: items are divided into as few batches as fit, of similar size.
func TestEvenSize(t *testing.T) {
	for _, c := range [][3]int{{10, 10, 10}, {11, 10, 6}, {20, 10, 10}, {21, 10, 7}, {1, 10, 1}, {5, 1, 1}} {
		if got := evenSize(c[0], c[1]); got != c[2] {
			t.Errorf("%d items in batches of at most %d begin with %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// TestFill: a batch has as many items as its bytes allow, but at least one, unless the scorer
// declared that it takes no such item.
func TestFill(t *testing.T) {
	items := []plugin.Item{{Payload: []byte("a")}, {Payload: []byte("b")}, {Payload: []byte("c")}}
	one := itemSize(&items[0])
	for name, c := range map[string]struct {
		most, declared   int
		want, wantedSize int
	}{
		"no limit":                {0, 0, 3, 100 + 3*one},
		"room for all":            {100 + 3*one, 0, 3, 100 + 3*one},
		"room for two":            {100 + 3*one - 1, 0, 2, 100 + 2*one},
		"a learned limit":         {100, 0, 1, 100 + one},
		"a declared limit":        {100, 100, 0, 100},
		"one of a declared limit": {100 + one, 100 + one, 1, 100 + one},
	} {
		j := &job{items: items, querySize: 100, description: plugin.Description{MaxBytes: c.declared}}
		if n, size := j.fill(0, 3, c.most); n != c.want || size != c.wantedSize {
			t.Errorf("%s: %d items in %d bytes, want %d in %d", name, n, size, c.want, c.wantedSize)
		}
	}
}
