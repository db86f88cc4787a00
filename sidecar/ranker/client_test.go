package ranker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

var query = plugin.Query{Text: "where is my card"}

// TestAnyScorer sends concurrent requests to scorers with various limits that fail at random. Each
// item gets its own score, the counted calls were sent, no limit is exceeded, and an item without a
// score has a reason. A leaked goroutine would end the bubble in a deadlock.
func TestAnyScorer(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { anyScorer(t, rand.New(rand.NewPCG(seed, 8))) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func anyScorer(t *testing.T, r *rand.Rand) {
	s := &scorer{
		description: plugin.Description{Version: "1", MaxItems: r.IntN(40), Parallel: r.IntN(5), Text: r.IntN(2) == 0},
		takesItems:  r.IntN(30),
		start:       time.Duration(r.IntN(20)) * time.Millisecond,
		each:        time.Duration(r.IntN(3)) * time.Millisecond,
	}
	payload := r.IntN(200)
	if r.IntN(2) == 0 {
		s.description.MaxBytes = 200 + r.IntN(4000)
	}
	if r.IntN(2) == 0 {
		s.takesBytes = r.IntN(5 * (payload + 20))
	}
	failures := []error{plugin.ErrUnavailable, plugin.ErrAnswer, errors.New("bug"), context.DeadlineExceeded}
	share, luck := []float64{0, .05, .5, 1}[r.IntN(4)], rand.New(rand.NewPCG(r.Uint64(), 1))
	var mu sync.Mutex
	s.fail = func(int, []plugin.Item) error {
		mu.Lock()
		defer mu.Unlock()
		if luck.Float64() < share {
			return failures[luck.IntN(len(failures))]
		}
		return nil
	}
	o := ranker.Options{Name: "any", MaxItems: r.IntN(50), Parallel: r.IntN(4), RetryBudget: r.Float64(), Timeout: 200 * time.Millisecond}
	if r.IntN(2) == 0 {
		o.BreakAfter = 1 << 20
	}
	c := ranker.New(s, o)
	var calls sync.Map
	var requests sync.WaitGroup
	for i := range 1 + r.IntN(6) {
		items, deadline := itemsOf(r.IntN(150), payload), time.Duration(1+r.IntN(400))*time.Millisecond
		requests.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			q := plugin.Query{Text: fmt.Sprint("query ", i)}
			result, err := c.Rank(ctx, q, items)
			calls.Store(i, result.Calls)
			n := scored(t, q, items, result.Scores)
			if err == nil && n < len(items) && s.takesBytes == 0 && s.description.MaxBytes == 0 {
				t.Errorf("%d of %d items have scores, without an error", n, len(items))
			}
			if err != nil && n == len(items) && n > 0 {
				t.Errorf("all %d items have scores, and an error: %v", n, err)
			}
		})
	}
	requests.Wait()
	total := 0
	calls.Range(func(_, n any) bool { total += n.(int); return true })
	if own := s.items - total; own < 0 || own > len(s.sizes)/2 || own > 0 && o.BreakAfter > 0 { // one for each failure, of an item scored before
		t.Errorf("the results say %d calls, the scorer saw %d items", total, s.items)
	}
	parallel := max(s.description.Parallel, 1)
	if o.Parallel > 0 {
		parallel = min(parallel, o.Parallel)
	}
	if s.most > parallel {
		t.Errorf("%d calls at a time, the limit is %d", s.most, parallel)
	}
	for _, limit := range []int{s.description.MaxItems, o.MaxItems} {
		if limit > 0 && len(s.sizes) > 0 && slices.Max(s.sizes) > limit {
			t.Errorf("a call of %d items, the limit is %d", slices.Max(s.sizes), limit)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, test := range map[string]struct {
		answer func(call int, scores []float32) []float32
		fail   error
		query  plugin.Query
		want   error
		scores int
		calls  int
	}{
		"one score less":    {answer: func(_ int, s []float32) []float32 { return s[1:] }, want: ranker.ErrAnswer, calls: 1},
		"one score more":    {answer: func(_ int, s []float32) []float32 { return append(s, 1) }, want: ranker.ErrAnswer, calls: 1},
		"an infinite score": {answer: func(_ int, s []float32) []float32 { s[2] = inf; return s }, want: ranker.ErrAnswer, calls: 1},
		"minus infinity":    {answer: func(_ int, s []float32) []float32 { s[0] = -inf; return s }, want: ranker.ErrAnswer, calls: 1},
		"NaN is no score":   {answer: func(_ int, s []float32) []float32 { s[3] = nan; return s }, scores: 9, calls: 1},
		"a query it cannot read is not asked again": {fail: ranker.ErrQuery, want: ranker.ErrQuery, calls: 1},
		"a bug of the scorer's":                     {fail: errors.New("index out of range"), want: ranker.ErrAnswer, calls: 1},
		"unavailable is asked again":                {fail: ranker.ErrUnavailable, want: ranker.ErrUnavailable, calls: 2},
		"no text":                                   {query: plugin.Query{Vector: []float32{1}}, want: ranker.ErrQuery},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scorer{description: plugin.Description{Version: "1", Text: true}, answer: test.answer}
				if test.fail != nil {
					s.fail = func(int, []plugin.Item) error { return test.fail }
				}
				q := query
				if test.query.Vector != nil {
					q = test.query
				}
				items := itemsOf(10, 0)
				r, err := ranker.New(s, ranker.Options{Name: "x", RetryBudget: .1}).Rank(t.Context(), q, items)
				if !errors.Is(err, test.want) {
					t.Fatalf("error %v, want %v", err, test.want)
				}
				if n := scored(t, q, items, r.Scores); n != test.scores || s.calls != test.calls || r.Calls != 10*test.calls {
					t.Errorf("%d scores after %d calls of %d items, want %d after %d", n, s.calls, r.Calls, test.scores, test.calls)
				}
			})
		})
	}
}

func TestOneBatchFailsAndTheOthersStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scorer{description: plugin.Description{Version: "1", MaxItems: 10, Parallel: 2},
			fail: func(call int, _ []plugin.Item) error {
				if call == 2 {
					return fmt.Errorf("%w: a score of another universe", plugin.ErrAnswer)
				}
				return nil
			}}
		items := itemsOf(40, 0)
		r, err := ranker.New(s, ranker.Options{}).Rank(t.Context(), query, items)
		if n := scored(t, query, items, r.Scores); n != 30 || !errors.Is(err, ranker.ErrAnswer) || r.Calls != 40 {
			t.Errorf("%d scores, %d calls, %v; want 30, 40, %v", n, r.Calls, err, ranker.ErrAnswer)
		}
	})
}

// TestHalves finds an undeclared limit, keeps to it, and later tries more.
func TestHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scorer{description: plugin.Description{Version: "1"}, takesItems: 24}
		c := ranker.New(s, ranker.Options{})
		items := itemsOf(256, 0)
		rank := func() (calls int) {
			before := s.calls
			r, err := c.Rank(t.Context(), query, items)
			if n := scored(t, query, items, r.Scores); n != len(items) || err != nil {
				t.Fatalf("%d scores, %v", n, err)
			}
			return s.calls - before
		}
		if n := rank(); n != 4+16 { // 256, 128, 64, 32; sixteen of 16
			t.Errorf("%d calls at first, want 20", n)
		}
		if n := rank(); n > 16 {
			t.Errorf("%d calls once the limit is known, want 16", n)
		}
		for range 20 {
			rank()
		}
		if n := rank(); n > 13 { // batches grew beyond 16
			t.Errorf("%d calls after the limit was tried upward, want 11 to 13", n)
		}
		s.takesItems = 8 // a restart with other settings
		rank()
		if n := rank(); n > 2*256/8 {
			t.Errorf("%d calls after the limit fell to 8, want 64 at most", n)
		}
	})
}

func TestAnItemTooLargeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scorer{description: plugin.Description{Version: "1"}, takesBytes: 4096}
		c := ranker.New(s, ranker.Options{})
		items := itemsOf(64, 20)
		items[0].Payload = make([]byte, 5000)
		r, err := c.Rank(t.Context(), query, items)
		if n := scored(t, query, items, r.Scores); n != 63 || err != nil || !math.IsNaN(float64(r.Scores[0])) {
			t.Fatalf("%d scores, %v; want all but the first", n, err)
		}
		before := s.calls
		if _, err := c.Rank(t.Context(), query, items[1:]); err != nil || s.calls-before > 2 {
			t.Errorf("%d calls for the others, want 2: one item says nothing of their number (%v)", s.calls-before, err)
		}
		s.takesBytes = 10 // the query would be too large
		before = s.calls
		if _, err := c.Rank(t.Context(), query, items[1:]); !errors.Is(err, ranker.ErrTooLarge) || s.calls-before > 16 {
			t.Errorf("%v after %d calls, want %v soon", err, s.calls-before, ranker.ErrTooLarge)
		}
	})
}

// TestTurns: a request of one batch is answered while a request of hundreds is running.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scorer{description: plugin.Description{Version: "1", MaxItems: 1, Parallel: 2}, start: 10 * time.Millisecond}
		c := ranker.New(s, ranker.Options{})
		var all sync.WaitGroup
		all.Go(func() { _, _ = c.Rank(t.Context(), query, itemsOf(400, 0)) })
		synctest.Wait()
		start := time.Now()
		_, err := c.Rank(t.Context(), query, itemsOf(4, 0))
		if took := time.Since(start); took > 60*time.Millisecond || err != nil {
			t.Errorf("four calls took %s (%v), want 50 ms: every second slot is theirs", took, err)
		}
		all.Wait()
		if took := time.Since(start); took > 2100*time.Millisecond {
			t.Errorf("all took %s, want 2.02 s: no slot is left empty", took)
		}
	})
}

// TestDeadline: batches are cut to the size that can be answered in time, answers are kept, and
// hopeless batches are not sent.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scorer{description: plugin.Description{Version: "1", MaxItems: 20, Parallel: 1}, start: 10 * time.Millisecond, each: 2 * time.Millisecond}
		c := ranker.New(s, ranker.Options{})
		items := itemsOf(200, 0)
		for n := range 20 { // it learns
			if _, err := c.Rank(t.Context(), query, items[:n+1]); err != nil {
				t.Fatal(err)
			}
		}
		for _, left := range []int{5, 15, 60, 130, 333} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(left)*time.Millisecond)
			before := s.items
			r, err := c.Rank(ctx, query, items)
			n := scored(t, query, items, r.Scores)
			if !errors.Is(err, context.DeadlineExceeded) || n != s.items-before {
				t.Errorf("%d ms: %d items sent, %d came back (%v)", left, s.items-before, n, err)
			}
			if least := int(float64(left-10-10)/2*.6) - 10; n < least {
				t.Errorf("%d ms: %d came back, want %d at least", left, n, least)
			}
			cancel()
		}
		s.start, s.each = time.Millisecond, 0 // a faster one
		if _, err := c.Rank(t.Context(), query, items[:20]); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Millisecond)
		defer cancel()
		if r, err := c.Rank(ctx, query, items[:20]); scored(t, query, items[:20], r.Scores) != 20 {
			t.Errorf("what was learned long ago still holds: %v", err)
		}
	})
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watch{}
		s := &scorer{description: plugin.Description{Version: "1"}, fail: func(int, []plugin.Item) error { return plugin.ErrUnavailable }}
		c := ranker.New(s, ranker.Options{BreakAfter: 3, BreakFor: time.Second, Observer: w})
		for range 100 {
			if _, err := c.Rank(t.Context(), query, itemsOf(4, 0)); !errors.Is(err, ranker.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if s.calls != 3 || !w.broken {
			t.Fatalf("%d calls of a ranker that fails, want 3; broken %t", s.calls, w.broken)
		}
		pass(1300 * time.Millisecond) // one probe, which fails
		for range 10 {
			_, _ = c.Rank(t.Context(), query, itemsOf(4, 0))
		}
		if n := s.calls; n > 4 {
			t.Errorf("%d calls after the pause, want 4", n)
		}
		s.fail = nil
		pass(1300 * time.Millisecond)
		s.start = 50 * time.Millisecond
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { _, _ = c.Rank(t.Context(), query, itemsOf(4, 0)) })
		}
		all.Wait()
		if _, err := c.Rank(t.Context(), query, itemsOf(4, 0)); err != nil || w.broken {
			t.Errorf("after it came back: %v; broken %t", err, w.broken)
		}
		if w.reasons[ranker.Broken] == 0 {
			t.Error("nothing tells of the items that were not asked for")
		}
	})
}

// TestOneCallersItemsDoNotBreak: a ranker that fails for what one caller sends stays in service for the others. One that fails for
// everybody is left alone.
func TestOneCallersItemsDoNotBreak(t *testing.T) {
	bad := itemsOf(1, 10)
	for name, failure := range map[string]error{
		"unavailable": plugin.ErrUnavailable, "rubbish": plugin.ErrAnswer, "bug": errors.New("bug"), "no answer": context.DeadlineExceeded,
	} {
		for _, everybody := range []bool{false, true} {
			t.Run(fmt.Sprint(name, everybody), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &scorer{description: plugin.Description{Version: "1"}}
					c := ranker.New(s, ranker.Options{BreakAfter: 3, BreakFor: time.Hour})
					ask := func(items []plugin.Item) error {
						_, err := c.Rank(t.Context(), query, items)
						return err
					}
					if err := ask(itemsOf(4, 0)); err != nil {
						t.Fatal(err)
					}
					s.fail = func(_ int, items []plugin.Item) error {
						if everybody || len(items[0].Payload) > 0 {
							return failure
						}
						return nil
					}
					for range 4 {
						if ask(bad) == nil {
							t.Error("a bad item has a score")
						}
					}
					if err := ask(itemsOf(4, 0)); (err != nil) != everybody {
						t.Errorf("another caller's items: %v", err)
					}
					want, state := 7, "closed" // the first, four bad ones, one of an item scored before, and the last
					if everybody {
						want, state = 5, "open"
					}
					if s.calls != want || c.Breaker() != state {
						t.Errorf("the breaker is %s after %d calls, want %s after %d", c.Breaker(), s.calls, state, want)
					}
				})
			})
		}
	}
}

// TestALateCallDoesNotBreak: a call that its caller's deadline ends does not end the question that tells whether the ranker works.
func TestALateCallDoesNotBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{description: plugin.Description{Version: "1"}, do: func(ctx context.Context, items []plugin.Item) error {
			if len(items[0].Payload) > 0 {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
		c := ranker.New(g, ranker.Options{BreakAfter: 1, BreakFor: time.Hour})
		if _, err := c.Rank(t.Context(), query, itemsOf(1, 0)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Rank(ctx, query, itemsOf(1, 10)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("an item that takes too long: %v", err)
		}
		if _, err := c.Rank(t.Context(), query, itemsOf(1, 0)); err != nil {
			t.Errorf("another item: %v; the breaker is %s", err, c.Breaker())
		}
	})
}

// TestAProbeThatIsGivenUp: if its caller leaves, a probe ends with it, and the ranker is probed
// again.
func TestAProbeThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scorer{description: plugin.Description{Version: "1"}, fail: func(int, []plugin.Item) error { return plugin.ErrUnavailable }}
		c := ranker.New(s, ranker.Options{BreakAfter: 1, BreakFor: time.Second})
		if _, err := c.Rank(t.Context(), query, itemsOf(1, 0)); !errors.Is(err, ranker.ErrUnavailable) {
			t.Fatal(err)
		}
		s.set(func() { s.fail, s.start = nil, time.Hour })
		pass(1300 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		time.AfterFunc(time.Microsecond, cancel)
		if _, err := c.Rank(ctx, query, itemsOf(1, 0)); !errors.Is(err, context.Canceled) {
			t.Fatalf("the caller of the probe left: %v", err)
		}
		s.set(func() { s.start = 0 })
		pass(1300 * time.Millisecond)
		if _, err := c.Rank(t.Context(), query, itemsOf(1, 0)); err != nil {
			t.Errorf("after the pause: %v; the breaker is %s", err, c.Breaker())
		}
	})
}

// TestHang: calls that wait for a hanging ranker end as soon as the ranker is given up.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scorer{description: plugin.Description{Version: "1", Parallel: 4}, start: time.Hour}
		c := ranker.New(s, ranker.Options{Timeout: time.Second, BreakAfter: 4, BreakFor: 10 * time.Second})
		start := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { _, _ = c.Rank(t.Context(), query, itemsOf(1, 0)) })
		}
		all.Wait()
		if took := time.Since(start); took > 2100*time.Millisecond || s.calls > 8 {
			t.Errorf("fifty requests ended after %s and %d calls, want 2 s and 8 at most", took, s.calls)
		}
	})
}

// TestRetryBudget: retries do not multiply an outage.
func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := false
		s := &scorer{description: plugin.Description{Version: "1", Parallel: 8}}
		s.fail = func(int, []plugin.Item) error {
			if down {
				return plugin.ErrUnavailable
			}
			return nil
		}
		c := ranker.New(s, ranker.Options{RetryBudget: .1, BreakAfter: 1 << 20})
		ask := func() {
			for range 1000 {
				_, _ = c.Rank(t.Context(), query, itemsOf(1, 0))
				pass(time.Millisecond)
			}
		}
		ask()
		down, s.calls = true, 0
		ask()
		if s.calls < 1050 || s.calls > 1300 {
			t.Errorf("%d calls for 1,000 that fail, of 2,000 in ten seconds: want 1,050 to 1,200", s.calls)
		}
		s.calls = 0
		pass(time.Minute)
		ask()
		if s.calls > 1101 {
			t.Errorf("%d calls in an outage for 1,000, want 1,100 at most", s.calls)
		}
	})
}

type later struct{ wait time.Duration }

func (l later) Error() string             { return "too many requests" }
func (l later) Unwrap() error             { return plugin.ErrUnavailable }
func (l later) RetryAfter() time.Duration { return l.wait }

func TestAskedToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scorer{description: plugin.Description{Version: "1"}, fail: func(call int, _ []plugin.Item) error {
			if call == 1 {
				return later{2 * time.Second}
			}
			return nil
		}}
		c := ranker.New(s, ranker.Options{RetryBudget: 1})
		start := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Rank(t.Context(), query, itemsOf(3, 0)); err != nil || time.Since(start) < 2*time.Second {
				t.Errorf("%v after %s", err, time.Since(start))
			}
		})
		synctest.Wait()
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := c.Rank(ctx, query, itemsOf(3, 0)); !errors.Is(err, ranker.ErrUnavailable) || time.Since(start) > 0 {
				t.Errorf("with a second left: %v after %s, want to know at once", err, time.Since(start))
			}
		})
		all.Wait()
		if s.calls != 2 {
			t.Errorf("%d calls, want 2", s.calls)
		}
		s.fail = func(int, []plugin.Item) error { return later{-1} }
		if _, err := c.Rank(t.Context(), query, itemsOf(3, 0)); !errors.Is(err, ranker.ErrUnavailable) || s.calls != 3 {
			t.Errorf("%v after %d calls, want no second one", err, s.calls)
		}
	})
}

func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scorer{description: plugin.Description{Version: "1", MaxItems: 10}}
		c := ranker.New(s, ranker.Options{})
		rank := func(n int) (ranker.Result, error) { return c.Rank(t.Context(), query, itemsOf(n, 0)) }
		for range 3 {
			if r, err := rank(20); err != nil || r.Version != "1" || s.described != 1 {
				t.Fatalf("version %q, described %d times, %v", r.Version, s.described, err)
			}
		}
		s.set(func() { s.description.Version = "2" })
		if r, err := rank(20); err != nil || r.Version != "2" || s.described != 2 {
			t.Errorf("a new version between two requests: %q, described %d times, %v", r.Version, s.described, err)
		}
		calls := s.calls
		s.version = func(call int) string {
			if call == calls+2 {
				s.description.Version = "3"
			}
			return s.description.Version
		}
		items := itemsOf(30, 0)
		r, err := c.Rank(t.Context(), query, items)
		if n := scored(t, query, items, r.Scores); n != 10 || r.Version != "2" || !errors.Is(err, ranker.ErrAnswer) {
			t.Errorf("a new version within a request: %d scores of %q, %v; want ten of \"2\"", n, r.Version, err)
		}
		s.version = func(int) string { return "4" }
		if _, err := rank(5); !errors.Is(err, ranker.ErrAnswer) {
			t.Errorf("answers of a version that is not described: %v", err)
		}
		s.version = nil
		s.set(func() { s.description.Version, s.description.PayloadFields = "5", []string{"text"} })
		if _, err := rank(5); !errors.Is(err, ranker.ErrAnswer) {
			t.Errorf("a version that reads what it was not sent: %v", err)
		}
		if r, err := rank(5); err != nil || r.Version != "5" {
			t.Errorf("once it is known: %q, %v", r.Version, err)
		}
	})
}

func TestDescribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scorer{description: plugin.Description{Version: "1", MaxItems: 100, Parallel: 8}, down: true}
		c := ranker.New(s, ranker.Options{Name: "x", MaxItems: 50, Parallel: 4})
		if _, err := c.Describe(t.Context()); !errors.Is(err, ranker.ErrUnavailable) {
			t.Errorf("before it is up: %v", err)
		}
		if _, err := c.Describe(t.Context()); !errors.Is(err, ranker.ErrUnavailable) || s.described != 1 {
			t.Errorf("a moment later: %v, described %d times", err, s.described)
		}
		pass(time.Second)
		s.down = false
		if d, err := c.Describe(t.Context()); err != nil || d.MaxItems != 50 || d.Parallel != 4 {
			t.Errorf("narrowed: %+v, %v", d, err)
		}
		// It is lost and comes back as another.
		s.fail = func(int, []plugin.Item) error { return plugin.ErrUnavailable }
		_, _ = c.Rank(t.Context(), query, itemsOf(1, 0))
		s.fail, s.description.Version = nil, "2"
		if d, err := c.Describe(t.Context()); err != nil || d.Version != "2" {
			t.Errorf("after a restart: %+v, %v", d, err)
		}
		for _, bad := range []plugin.Description{{MaxItems: -1}, {Parallel: -2}, {Cost: math.NaN()}, {MaxBytes: -1}} {
			if _, err := ranker.New(&scorer{description: bad}, ranker.Options{}).Describe(t.Context()); !errors.Is(err, ranker.ErrAnswer) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	})
}
