package guard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/adapters/guard"
	"github.com/likenessdb/likeness/rerank"
)

// scripted is a guarded store whose calls end as a test says, on the clock of its bubble.
type scripted struct {
	adapters.Store
	told   *told
	mu     sync.Mutex
	sent   int
	answer func(ctx context.Context, n int) error // of the n-th call, from 1; nil: the store answers
	bad    func(recorder.Call) bool               // whether answer is for this call; nil: it is for every call
}

func script(t *testing.T, o guard.Options, answer func(ctx context.Context, n int) error) *scripted {
	t.Helper()
	s := &scripted{told: &told{outcomes: map[string]int{}}, answer: answer}
	store := embedded.New()
	vectors := rerank.NewMatrix(4, 1)
	if err := store.Load("c", embedded.Collection{Fields: []embedded.Field{{Vectors: vectors}}}); err != nil {
		t.Fatal(err)
	}
	inner, err := recorder.New(named{store}, &recorder.Recorder{}, recorder.Hooks{Before: func(ctx context.Context, call recorder.Call) error {
		s.mu.Lock()
		s.sent++
		n := s.sent
		s.mu.Unlock()
		if s.bad != nil && !s.bad(call) {
			return nil
		}
		return s.answer(ctx, n)
	}})
	if err != nil {
		t.Fatal(err)
	}
	o.Name = "main"
	s.Store = guard.New(inner.(guard.Server), o)
	s.Store.(interface{ Watch(o guard.Observer) }).Watch(s.told)
	return s
}

func (s *scripted) search(ctx context.Context) error {
	_, err := s.Search(ctx, adapters.SearchRequest{Collection: "c", Probes: []rerank.Probe{{Vector: []float32{1}, Depth: 1}}})
	return err
}

// calls returns how many calls reached the store since the last call of calls.
func (s *scripted) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sent
	s.sent = 0
	return n
}

var errDown = fmt.Errorf("%w: down", adapters.ErrUnavailable)

// waits ends with its context, as a store that answers nothing.
func waits(ctx context.Context, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestWhenAStoreIsLeftAlone: the default is five failures in a row, and one of a read of
// our own; then a call and one of ours are sent after each pause, until one succeeds.
func TestWhenAStoreIsLeftAlone(t *testing.T) {
	for after, want := range map[int]int{0: 6, 1: 2, 3: 4} {
		synctest.Test(t, func(t *testing.T) {
			s := script(t, guard.Options{BreakAfter: after}, func(context.Context, int) error { return errDown })
			for range 20 {
				if err := s.search(t.Context()); !errors.Is(err, adapters.ErrUnavailable) {
					t.Fatal(err)
				}
			}
			if n := s.calls(); n != want {
				t.Errorf("BreakAfter %d: asked %d times, want %d", after, n, want)
			}
			for range 3 { // pauses of half a second, give or take a fifth
				time.Sleep(650 * time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
				for range 5 {
					_ = s.search(t.Context())
				}
				if n := s.calls(); n != 2 {
					t.Errorf("BreakAfter %d: asked %d times after a pause, want twice", after, n)
				}
			}
			s.answer = func(context.Context, int) error { return nil }
			time.Sleep(650 * time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
			for range 5 {
				if err := s.search(t.Context()); err != nil {
					t.Errorf("BreakAfter %d: a store that is back: %v", after, err)
				}
			}
			if n := s.calls(); n != 5 {
				t.Errorf("BreakAfter %d: a store that is back was asked %d times of 5", after, n)
			}
			if all := s.told.broken; slices.Max(all) != 1 || all[len(all)-1] != 0 {
				t.Errorf("BreakAfter %d: broken collections: %v, want one, then none", after, all)
			}
		})
	}
}

// TestWhatCountsAgainstAStore: a call after one that ended like this is sent, or is not.
// A call that a caller gave too little time, or cancelled, says nothing.
func TestWhatCountsAgainstAStore(t *testing.T) {
	cancelled := func(ctx context.Context, s *scripted) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(2*time.Second, cancel)
		_ = s.search(ctx)
	}
	within := func(d time.Duration) func(context.Context, *scripted) {
		return func(ctx context.Context, s *scripted) {
			ctx, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			_ = s.search(ctx)
		}
	}
	fails := func(err error) func(context.Context, int) error {
		return func(context.Context, int) error { return err }
	}
	for name, c := range map[string]struct {
		answer  func(context.Context, int) error
		call    func(context.Context, *scripted)
		counts  bool
		outcome string
	}{
		"unavailable":         {fails(errDown), within(time.Minute), true, guard.Unavailable},
		"rubbish":             {fails(adapters.ErrStore), within(time.Minute), true, guard.Failed},
		"no answer in time":   {waits, within(time.Second), true, guard.Timeout},
		"too little time":     {waits, within(999 * time.Millisecond), false, guard.Timeout},
		"cancelled":           {waits, cancelled, false, guard.Cancelled},
		"refused credentials": {fails(adapters.ErrRefused), within(time.Minute), false, guard.Refused},
		"a wrong request":     {fails(adapters.ErrFilter), within(time.Minute), false, guard.Failed},
		"an answer":           {fails(nil), within(time.Minute), false, guard.OK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := script(t, guard.Options{BreakAfter: 1, BreakFor: time.Hour}, c.answer)
				c.call(t.Context(), s)
				want := 1
				if c.counts { // a read of our own ends like it
					want = 2
				}
				if s.told.outcomes["search "+c.outcome] != want {
					t.Errorf("outcomes %v, want %d %s", s.told.outcomes, want, c.outcome)
				}
				s.answer = fails(nil)
				if err := s.search(t.Context()); (err != nil) != c.counts {
					t.Errorf("the next call: %v", err)
				}
			})
		})
	}
}

// TestOneCallersReadsDoNotBreak: a collection whose reads fail for what one caller sends
// stays in service for the others. One that fails for everybody is left alone.
func TestOneCallersReadsDoNotBreak(t *testing.T) {
	failures := map[string]func(context.Context, int) error{
		"unavailable": func(context.Context, int) error { return errDown },
		"no answer":   waits,
		"rubbish":     func(context.Context, int) error { return fmt.Errorf("%w: rubbish", adapters.ErrStore) },
	}
	search := func(vector float32, depth int, filter string) func(context.Context, *scripted) error {
		return func(ctx context.Context, s *scripted) error {
			_, err := s.Search(ctx, adapters.SearchRequest{Collection: "c", Filter: filter, Probes: []rerank.Probe{{Vector: []float32{vector}, Depth: depth}}})
			return err
		}
	}
	fetch := func(id uint64) func(context.Context, *scripted) error {
		return func(ctx context.Context, s *scripted) error {
			_, err := s.Store.(adapters.Fetcher).Fetch(ctx, adapters.FetchRequest{Collection: "c", IDs: []rerank.ID{rerank.UintID(id)}})
			return err
		}
	}
	match := func(filter string) func(context.Context, *scripted) error {
		return func(ctx context.Context, s *scripted) error {
			_, err := s.Store.(adapters.Matcher).Match(ctx, "c", filter)
			return err
		}
	}
	ofBad := func(call recorder.Call) bool {
		switch r := call.Argument.(type) {
		case adapters.SearchRequest:
			return r.Filter != "" || r.Probes[0].Depth > 1 || r.Probes[0].Vector[0] == 666
		case adapters.FetchRequest:
			return r.IDs[0] == rerank.UintID(666)
		case recorder.Arguments:
			return r.Filter == `{"must":[]}`
		default:
			return false
		}
	}
	for read, c := range map[string]struct {
		bad, honest func(context.Context, *scripted) error
	}{
		"a filter": {search(1, 1, "{}"), search(1, 1, "")},
		"a depth":  {search(1, 2, ""), search(1, 1, "")},
		"a vector": {search(666, 1, ""), search(1, 1, "")},
		"an id":    {fetch(666), fetch(1)},
		"a match":  {match(`{"must":[]}`), match("{}")},
	} {
		for name, failure := range failures {
			for _, everybody := range []bool{false, true} {
				t.Run(fmt.Sprint(read, " ", name, " ", everybody), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := script(t, guard.Options{BreakAfter: 3, BreakFor: time.Hour}, failure)
						if !everybody {
							s.bad = ofBad
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						for range 4 {
							short, cancel := context.WithTimeout(ctx, 2*time.Second)
							if c.bad(short, s) == nil {
								t.Error("a bad read is answered")
							}
							cancel()
						}
						if err := c.honest(ctx, s); (err != nil) != everybody {
							t.Errorf("another caller's read: %v", err)
						}
						if n := s.calls(); everybody && n != 4 || !everybody && n != 6 { // four and one, or three, and one of ours
							t.Errorf("%d calls", n)
						}
						if n := s.told.ended(guard.OK); !everybody && n != 2 {
							t.Errorf("%d calls were answered, want the honest one and ours", n)
						}
					})
				})
			}
		}
	}
}

// TestATrialThatSaysNothing: the call that tries a store again may end in any way, and
// another is sent after the next pause.
func TestATrialThatSaysNothing(t *testing.T) {
	for name, trial := range map[string]func(ctx context.Context, s *scripted){
		"it is cancelled": func(ctx context.Context, s *scripted) {
			s.answer = waits
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			_ = s.search(ctx)
		},
		"it panics": func(ctx context.Context, s *scripted) {
			s.answer = func(context.Context, int) error { panic("a fault") }
			defer func() { _ = recover() }()
			_ = s.search(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := script(t, guard.Options{BreakAfter: 1}, func(context.Context, int) error { return errDown })
				_ = s.search(t.Context())
				time.Sleep(time.Second) //nolint:forbidigo // of the bubble: no time passes
				trial(t.Context(), s)
				if got := s.told.outcomes["search "+guard.Failed]; name == "it panics" && got != 2 {
					t.Errorf("%d calls are told to have failed, want the one that panicked, and ours", got)
				}
				time.Sleep(time.Second) //nolint:forbidigo // of the bubble: no time passes
				s.answer = func(context.Context, int) error { return nil }
				if err := s.search(t.Context()); err != nil {
					t.Errorf("the call after the trial: %v", err)
				}
			})
		})
	}
}

// TestWhatIsSentAgain: a read that failed at the store, once, within the budget and the
// caller's time.
func TestWhatIsSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		budget float64
		err    error
		left   time.Duration
		want   int
	}{
		"a failure":             {1, errDown, time.Minute, 2},
		"without a budget":      {0, errDown, time.Minute, 1},
		"with no time for it":   {1, errDown, 4 * time.Millisecond, 1},
		"a refusal":             {1, adapters.ErrRefused, time.Minute, 1},
		"a deadline":            {1, context.DeadlineExceeded, time.Minute, 1},
		"a failure of the rest": {1, fmt.Errorf("%w: %w", adapters.ErrStore, errors.New("odd")), time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := script(t, guard.Options{RetryBudget: c.budget}, func(context.Context, int) error { return c.err })
				ctx, cancel := context.WithTimeout(t.Context(), c.left)
				defer cancel()
				began := time.Now()
				if err := s.search(ctx); !errors.Is(err, c.err) {
					t.Errorf("%v, want %v", err, c.err)
				}
				if n, retries := s.calls(), int(s.told.retries.Load()); n != c.want || retries != c.want-1 {
					t.Errorf("sent %d times, want %d; told of %d repetitions", n, c.want, retries)
				}
				if c.want == 1 && time.Since(began) > 0 {
					t.Errorf("it took %s though nothing was sent again", time.Since(began))
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // a tenth of the reads
		s := script(t, guard.Options{RetryBudget: 0.1, BreakAfter: 1000}, func(context.Context, int) error { return errDown })
		for range 100 {
			_ = s.search(t.Context())
		}
		if n := s.calls(); n < 105 || n > 110 {
			t.Errorf("100 reads that failed were sent %d times, want 110 at most", n)
		}
	})
	synctest.Test(t, func(t *testing.T) { // what was not sent is not repeated
		s := script(t, guard.Options{RetryBudget: 1, BreakAfter: 2, BreakFor: time.Hour}, func(context.Context, int) error { return errDown })
		_ = s.search(t.Context())
		before := s.told.retries.Load()
		if err := s.search(t.Context()); !errors.Is(err, adapters.ErrUnavailable) || s.told.retries.Load() != before {
			t.Errorf("%v, repeated %d times", err, s.told.retries.Load()-before)
		}
	})
}

// TestTheFasterOfTwo: a search that is slow, fails or panics is answered by its
// repetition, whose end ends the other.
func TestTheFasterOfTwo(t *testing.T) {
	takes := func(ctx context.Context, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for name, first := range map[string]func(ctx context.Context) error{
		"slow":     func(ctx context.Context) error { return takes(ctx, time.Second) },
		"an error": func(ctx context.Context) error { time.Sleep(20 * time.Millisecond); return errDown },   //nolint:forbidigo // of the bubble: no time passes
		"a panic":  func(ctx context.Context) error { time.Sleep(20 * time.Millisecond); panic("a fault") }, //nolint:forbidigo // of the bubble: no time passes
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended atomic.Bool
				s := script(t, guard.Options{HedgeAfter: 10 * time.Millisecond}, func(ctx context.Context, n int) error {
					if n == 1 {
						defer ended.Store(true)
						return first(ctx)
					}
					time.Sleep(50 * time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
					return nil
				})
				began := time.Now()
				if err := s.search(t.Context()); err != nil || time.Since(began) != 60*time.Millisecond {
					t.Errorf("%v after %s, want the second answer", err, time.Since(began))
				}
				if synctest.Wait(); !ended.Load() {
					t.Error("the slower search goes on")
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := script(t, guard.Options{HedgeAfter: time.Hour}, func(context.Context, int) error { panic("a fault") })
		if err := s.search(t.Context()); !errors.Is(err, adapters.ErrStore) || !strings.Contains(err.Error(), "a fault") {
			t.Errorf("a panic: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a twentieth of the searches, and one at least
		s := script(t, guard.Options{HedgeAfter: 10 * time.Millisecond}, func(ctx context.Context, _ int) error { return takes(ctx, 20*time.Millisecond) })
		for range 100 {
			_ = s.search(t.Context())
		}
		if n := s.calls(); n <= 100 || n > 106 {
			t.Errorf("100 slow searches were sent %d times", n)
		}
	})
}

// TestAScanGoesOnOnlyWhereItStopped: behind the batches that came, and never after its
// caller ended it.
func TestAScanGoesOnOnlyWhereItStopped(t *testing.T) {
	scan := func(ctx context.Context, s *scripted, yield func(adapters.Rows, string) error) error {
		return s.Store.(adapters.Scanner).Scan(ctx, adapters.ScanRequest{Collection: "c", Batch: 1}, yield)
	}
	synctest.Test(t, func(t *testing.T) {
		s := script(t, guard.Options{RetryBudget: 1}, func(context.Context, int) error { return nil })
		batches := 0
		err := scan(t.Context(), s, func(adapters.Rows, string) error {
			batches++
			return errDown // an error of the caller, which reads like one of the store
		})
		if !errors.Is(err, adapters.ErrUnavailable) || batches != 1 || s.calls() != 1 {
			t.Errorf("%v after %d batches, want the caller's error after one", err, batches)
		}
	})
}
