package routing_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
)

func TestTheOriginalLeavesInTime(t *testing.T) {
	for _, c := range []struct {
		name                      string
		budget, deadline, timeout time.Duration // 0: none
		passed                    []time.Duration
		want                      time.Duration // until the original leaves
	}{
		{"a budget, nothing known of the database", 100 * time.Millisecond, 0, 0, nil, 75 * time.Millisecond},
		{"a deadline", 0, time.Second, 0, nil, 750 * time.Millisecond},
		{"a timeout in the request", 0, 0, 2 * time.Second, nil, 1500 * time.Millisecond},
		{"the shortest counts", 100 * time.Millisecond, time.Second, 2 * time.Second, nil, 75 * time.Millisecond},
		{"the database takes 10 ms", 100 * time.Millisecond, 0, 0, times(30, 10*time.Millisecond), 90 * time.Millisecond},
		{"a slow database", 100 * time.Millisecond, 0, 0, times(30, time.Second), 50 * time.Millisecond},
		{"few times tell nothing", 100 * time.Millisecond, 0, 0, times(5, time.Millisecond), 75 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := router(t, searcher{route: newRoute(func(r *route.Route) { r.LatencyBudget = c.budget }), rows: 9, search: untilCancelled}, nil)
			for _, took := range c.passed {
				r.Passed(took)
			}
			ctx, cancel := t.Context(), func() {}
			if c.deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
			}
			defer cancel()
			began := time.Now()
			if o := ask(ctx, r, exchange{asked: routing.Asked{Searches: []routing.Search{plain(3)}, Timeout: c.timeout}}); o.Status != "degraded; reason=deadline" || time.Since(began) != c.want {
				t.Errorf("%s: %+v after %v", c.name, o, time.Since(began))
			}
		})
	}
}

func untilCancelled(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func after(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func times(n int, d time.Duration) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = d
	}
	return out
}

// The first complete answer wins a race. The loser may run for a moment, and is then cancelled.
func TestTheFirstCompleteAnswerWins(t *testing.T) {
	const budget = 100 * time.Millisecond // the original leaves at 75 ms
	broken := errors.New("down")
	for _, c := range []struct {
		name             string
		eager            bool
		rescored, direct time.Duration
		directErr        error
		status           string
		own              bool
		took             time.Duration
		raced            string
	}{
		{"rescored before the original leaves", false, 50 * time.Millisecond, time.Second, nil, rescoredStatus, false, 50 * time.Millisecond, ""},
		{"rescored while it is under way", false, 80 * time.Millisecond, time.Second, nil, rescoredStatus, false, 80 * time.Millisecond, "late lost"},
		{"the database first", false, time.Second, 10 * time.Millisecond, nil, "degraded; reason=deadline", true, 85 * time.Millisecond, "late won"},
		{"the database is down, rescoring is not", false, 90 * time.Millisecond, time.Millisecond, broken, rescoredStatus, false, 90 * time.Millisecond, "late lost"},
		{"eager and rescored", true, 50 * time.Millisecond, time.Second, nil, rescoredStatus, false, 50 * time.Millisecond, "eager lost"},
		{"eager and the database", true, 50 * time.Millisecond, 10 * time.Millisecond, nil, "degraded; reason=deadline", true, 10 * time.Millisecond, "eager won"},
	} {
		synctest.Test(t, func(t *testing.T) {
			record := &recorder{}
			r := router(t, searcher{route: newRoute(func(r *route.Route) {
				r.LatencyBudget = budget
				if c.eager {
					r.Fallback = config.FallbackEager
				}
			}), rows: 9, search: after(c.rescored)}, record)
			for range 20 { // earns the right to one race
				ask(t.Context(), r, exchange{asked: routing.Asked{Searches: []routing.Search{plain(3)}}, original: func(context.Context) answer { return answer{own: true} }})
			}
			synctest.Wait() // the losers of those races are done
			for what := range record.counts {
				delete(record.counts, what)
			}
			x := asks(plain(3))
			x.original = func(ctx context.Context) answer {
				if after(c.direct)(ctx) != nil {
					return answer{own: true, err: ctx.Err()}
				}
				return answer{own: true, ids: ids(5), err: c.directErr}
			}
			began := time.Now()
			o := ask(t.Context(), r, x)
			if !o.Answered || o.Status != c.status || o.Answer.own != c.own || time.Since(began) != c.took {
				t.Errorf("%s: %+v after %v", c.name, o, time.Since(began))
			}
			if c.raced != "" && record.of(c.raced) != 1 || len(record.counts) > 2 {
				t.Errorf("%s: counted %v", c.name, record.counts)
			}
			_ = r.Close()
			if waited := time.Since(began) - c.took; waited > 100*time.Millisecond {
				t.Errorf("%s: the loser ran on for %v", c.name, waited)
			}
		})
	}
}

// The loser of a race ends with its deadline exceeded, from which the admission learns. If the
// client leaves, it ends cancelled.
func TestWhatLosesIsLate(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan error, 1)
			r := router(t, searcher{route: newRoute(func(r *route.Route) { r.LatencyBudget = 100 * time.Millisecond }), rows: 9, search: func(ctx context.Context) error {
				inner, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				ended <- untilCancelled(inner)
				return inner.Err()
			}}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if leaves {
				time.AfterFunc(10*time.Millisecond, cancel)
			}
			ask(ctx, r, asks(plain(3)))
			if err, want := <-ended, map[bool]error{false: context.DeadlineExceeded, true: context.Canceled}[leaves]; !errors.Is(err, want) {
				t.Errorf("the client leaves: %v; rescoring ends with %v", leaves, err)
			}
		})
	}
}

// If rescoring is always slightly late, at most every twentieth search requests the database's
// answer in vain. The others get the database's answer instead of the rescored one.
func TestExtraLoadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &recorder{}
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.LatencyBudget = 100 * time.Millisecond }), rows: 9, search: after(80 * time.Millisecond)}, record)
		x := asks(plain(3))
		x.original = func(ctx context.Context) answer { return answer{own: true, err: untilCancelled(ctx)} }
		const searches = 1000
		for range searches {
			began := time.Now()
			ask(t.Context(), r, x)
			if took := time.Since(began); took < 75*time.Millisecond { // a call that was cut off tells nothing of the database's time
				t.Fatalf("the original left after %v", took)
			}
		}
		if lost := record.of("late lost"); lost < searches/20-1 || lost > searches/20 || record.of("late withheld") != searches-lost {
			t.Errorf("counted %v", record.counts)
		}
	})
}

// Without a deadline and a budget, no original is sent before a failure.
func TestTheFirstFailureSendsTheOriginal(t *testing.T) {
	fail := errors.New("scorer")
	for _, c := range []struct {
		name    string
		search  func(context.Context) error
		failure route.FailurePolicy
		read    error
		status  string
		refused bool
	}{
		{"failed", func(context.Context) error { return fail }, "", nil, "degraded; reason=failed", false},
		{"overload", func(context.Context) error { return gate.ErrOverload }, "", nil, "degraded; reason=overload", false},
		{"store down", func(context.Context) error { return adapters.ErrUnavailable }, "", nil, "degraded; reason=unavailable", false},
		{"the model is gone", func(context.Context) error { return route.ErrUnknown }, "", nil, "degraded; reason=failed", false},
		{"the client went away", func(context.Context) error { return context.Canceled }, "", nil, "degraded; reason=canceled", false},
		{"panic", func(context.Context) error { panic("boom") }, "", nil, "degraded; reason=panic", false},
		{"filter", func(context.Context) error { return adapters.ErrFilter }, "", nil, "passed; reason=filter", false},
		{"not read", nil, "", routing.Pass("hybrid"), "passed; reason=hybrid", false},
		{"fail closed", func(context.Context) error { return failure.ErrDegraded }, route.FailClosed, nil, "degraded; reason=failed", true},
	} {
		for _, budget := range []time.Duration{0, time.Second} {
			r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Failure, r.LatencyBudget = c.failure, budget }), rows: 9, search: c.search}, nil)
			x := asks(plain(3))
			x.read = c.read
			if o := ask(t.Context(), r, x); o.Answered || o.Status != c.status || (o.Refused != "") != c.refused {
				t.Errorf("%s: %+v", c.name, o)
			}
		}
	}
}

// TestPanicsOfTheConfirmingRead: they fail the call alone, also where it is answered in a goroutine of its own.
func TestPanicsOfTheConfirmingRead(t *testing.T) {
	for _, budget := range []time.Duration{0, time.Second} {
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.LatencyBudget = budget }), rows: 9}, nil)
		x := asks(plain(3))
		x.shown = func(rerank.ID) bool { panic("planted") }
		if o := ask(t.Context(), r, x); o.Answered || o.Status != "degraded; reason=panic" {
			t.Errorf("with a budget of %s: %+v", budget, o)
		}
	}
}

// TestAnAnswerAtTheLastMoment: an answer that was there before the caller's time ended is the caller's.
func TestAnAnswerAtTheLastMoment(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	x := asks(plain(3))
	x.shown = func(rerank.ID) bool { cancel(); return true }
	if o := ask(ctx, router(t, searcher{route: newRoute(nil), rows: 9}, nil), x); !o.Answered || o.Status != rescoredStatus || !slices.Equal(o.Answer.ids, ids(1, 2, 3)) {
		t.Errorf("%+v", o)
	}
}

func TestEveryOutcomeIsCounted(t *testing.T) {
	record := &recorder{}
	r := router(t, searcher{route: newRoute(nil), rows: 9}, record)
	ask(t.Context(), r, asks(plain(3)))
	ask(t.Context(), r, asks(routing.Search{Vector: "other", Query: []float32{1}, Limit: 1}))
	ask(t.Context(), r, asks(plain(11)))
	ask(t.Context(), r, asks())
	for _, want := range []string{"rescored ", "passed vector", "passed depth", "passed batch"} {
		if record.of(want) != 1 {
			t.Errorf("%s: counted %d times; all: %v", want, record.of(want), record.counts)
		}
	}
}

// Over a table that may be older than the database, more hits are ranked than requested, and more
// again while the database returns too few.
func TestHitsThatAreGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		rows   int
		shown  func(rerank.ID) bool
		status string
		want   []rerank.ID
	}{
		{"all there", 90, nil, rescoredStatus, ids(1, 2, 3)},
		{"some gone", 90, func(id rerank.ID) bool { return id != rerank.UintID(2) }, rescoredStatus, ids(1, 3, 4)},
		{"so many gone that it asks again", 90, func(id rerank.ID) bool { n, _ := id.Uint64(); return n > 20 }, rescoredStatus, ids(21, 22, 23)},
		{"nearly all gone", 90, func(id rerank.ID) bool { return id == rerank.UintID(1) }, "degraded; reason=confirm", nil},
		{"few, and all there", 2, nil, rescoredStatus, ids(1, 2)},
		{"few, and one gone", 2, func(id rerank.ID) bool { return id == rerank.UintID(1) }, "degraded; reason=confirm", nil},
	} {
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Placement = route.PlacementTable }), rows: c.rows}, nil)
		x := asks(plain(3))
		x.shown = c.shown
		if o := ask(t.Context(), r, x); o.Status != c.status || !slices.Equal(o.Answer.ids, c.want) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

func TestThresholds(t *testing.T) {
	above := func(f float32) routing.Search { s := plain(5); s.Threshold = &f; return s }
	for _, c := range []struct {
		name   string
		score  config.ScoreKind
		optIn  []string
		search routing.Search
		shown  func(rerank.ID) bool
		status string
		want   []rerank.ID
	}{
		{"it means the store's score", config.ScoreLearned, nil, above(97), nil, "passed; reason=score-threshold", nil},
		{"the learned score", config.ScoreLearned, []string{"score-threshold"}, above(97), nil, rescoredStatus, ids(1, 2, 3)},
		{"no learned score", config.ScoreLearned, []string{"score-threshold"}, above(1000), nil, rescoredStatus, nil},
		{"the store's score cuts", config.ScoreStore, nil, above(97), func(id rerank.ID) bool { n, _ := id.Uint64(); return n%2 == 0 }, rescoredStatus, ids(2, 4, 6, 8, 10)},
		{"too few are above it", config.ScoreStore, nil, above(97), func(id rerank.ID) bool { return id == rerank.UintID(7) }, "degraded; reason=confirm", nil},
	} {
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Score, r.OptIn = c.score, c.optIn }), rows: 1000}, nil)
		x := asks(c.search)
		x.shown = c.shown
		if o := ask(t.Context(), r, x); o.Status != c.status || !slices.Equal(o.Answer.ids, c.want) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

func TestOptIn(t *testing.T) {
	s := plain(3)
	s.Needs = []string{"indexed-only", "consistency"}
	for want, optIn := range map[string][]string{
		"passed; reason=indexed-only": nil,
		"passed; reason=consistency":  {"indexed-only"},
		rescoredStatus:                {"consistency", "indexed-only"},
	} {
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.OptIn = optIn }), rows: 9}, nil)
		if o := ask(t.Context(), r, asks(s)); o.Status != want {
			t.Errorf("opted in to %q: %q", optIn, o.Status)
		}
	}
}

// TestExact: a search that asks for exact results is answered only by a route whose first
// stage is exact.
func TestExact(t *testing.T) {
	for exact, want := range map[bool]string{false: "passed; reason=exact", true: rescoredStatus} {
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.ExactSearch = exact }), rows: 9}, nil)
		s := plain(3)
		s.Exact = true
		if o := ask(t.Context(), r, asks(s)); o.Status != want {
			t.Errorf("exact_search %t: %q, want %q", exact, o.Status, want)
		}
	}
}

// A search of partitions is answered if the route covers all of them, and its first stage can
// distinguish them.
func TestPartitions(t *testing.T) {
	narrow := func(r *route.Route) { r.Partitions = []string{"b", "a"} }
	scans := func(r *route.Route) { r.Strategy = rerank.Scan }
	derived := func(r *route.Route) { r.Companion = "d" }
	for _, c := range []struct {
		name     string
		change   func(*route.Route)
		asked    []string
		rescored bool
		searched []string // by the route; none stands for those that it is narrowed to
	}{
		{"those of the route", narrow, []string{"a", "b"}, true, nil},
		{"one of them", narrow, []string{"a"}, true, []string{"a"}},
		{"one more", narrow, []string{"a", "b", "c"}, false, nil},
		{"all of a narrow route", narrow, nil, false, nil},
		{"some of a whole route", nil, []string{"a"}, true, []string{"a"}},
		{"some of a scan", scans, []string{"a"}, false, nil},
		{"all of a scan", scans, nil, true, nil},
		{"some of a companion", derived, []string{"a"}, false, nil},
		{"some beside a companion", func(r *route.Route) { r.Companion, r.Strategy = "d", rerank.Distilled }, []string{"a"}, true, []string{"a"}},
		{"those of a narrow route of a companion", func(r *route.Route) { r.Companion, r.Partitions = "d", []string{"a"} }, []string{"a"}, true, nil},
	} {
		var searched []string
		asked := func(r search.Request) { searched = r.Partitions }
		r := router(t, searcher{route: newRoute(c.change), rows: 9, asked: asked}, nil)
		s := plain(3)
		s.Partitions = c.asked
		want := "passed; reason=partitions"
		if c.rescored {
			want = rescoredStatus
		}
		if o := ask(t.Context(), r, asks(s)); o.Status != want {
			t.Errorf("%s: %q", c.name, o.Status)
		}
		if !slices.Equal(searched, c.searched) {
			t.Errorf("%s: partitions %q are searched, want %q", c.name, searched, c.searched)
		}
	}
}

func TestRamp(t *testing.T) {
	const queries = 2000
	side := func(passing, query int, filter string, limit uint64) bool {
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Ramp = 100 - passing }), rows: 9}, nil)
		s := plain(limit)
		s.Query, s.Filter = []float32{float32(query)}, filter
		o := ask(t.Context(), r, asks(s))
		if !o.Answered && o.Status != "passed; reason=ramp" {
			t.Fatalf("%+v", o)
		}
		return o.Answered
	}
	taken, moved := 0, 0
	for q := range queries {
		in := side(75, q, "", 3)
		if in {
			taken++
			if !side(50, q, "", 3) {
				t.Fatal("a ramp that rises loses a query")
			}
		}
		if in != side(75, q, "", 9) {
			t.Fatal("another limit is on the other side")
		}
		if in != side(75, q, "filter", 3) {
			moved++
		}
	}
	if share := float64(taken) / queries; share < 0.22 || share > 0.28 || moved == 0 {
		t.Errorf("%.3f of the queries are rescored at 25 %%; %d moved by a filter", share, moved)
	}
	if side(100, 1, "", 3) || !side(0, 1, "", 3) {
		t.Error("0 % and 100 %")
	}
}

func TestShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &recorder{}
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Shadow.Share = 1 }), rows: 9}, record)
		for _, own := range [][]rerank.ID{ids(1, 2, 3), ids(3, 1, 9), ids(7, 8, 9)} {
			x := asks(plain(3))
			x.original = func(context.Context) answer { return answer{own: true, ids: own} }
			if o := ask(t.Context(), r, x); !o.Answer.own || o.Status != "shadow; route=r" {
				t.Errorf("%+v", o)
			}
		}
		failing := asks(plain(3))
		failing.original = func(context.Context) answer { return answer{own: true, err: errors.New("down")} }
		ask(t.Context(), r, failing)
		synctest.Wait() // until all is compared
		// RBO_ext by hand: the lists 3 1 9 and 1 2 3 share 0, 1 and 2 items in their first 1, 2 and
		// 3.
		const p = 0.9
		partly := fmt.Sprintf("r 0.667 %.3f true", 2.0/3*p*p*p+(1-p)/p*(p*p/2+p*p*p*2/3))
		for _, want := range []string{"r 1.000 1.000 false", partly, "r 0.000 0.000 true", "r not compared: answer"} {
			if record.of(want) != 1 {
				t.Errorf("%q is not among %v", want, record.counts)
			}
		}
	})
}

// Comparisons delay no request, and only a few run at a time.
func TestShadowNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &recorder{}
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Shadow.Share = 1 }), rows: 9, search: untilCancelled}, record)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		for range 20 {
			ask(ctx, r, asks(plain(3)))
		}
		cancel() // the callers are gone, what is compared is not
		if time.Since(began) != 0 || record.of("r not compared: busy") != 12 {
			t.Errorf("%v, %v", time.Since(began), record.counts)
		}
	})
}

// TestShadowsEnd: a comparison that has ended makes room for the next.
func TestShadowsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &recorder{}
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Shadow.Share = 1 }), rows: 9}, record)
		x := asks(plain(3))
		x.original = func(context.Context) answer { return answer{own: true, ids: ids(1, 2, 3)} }
		for range 40 {
			ask(t.Context(), r, x)
			synctest.Wait()
		}
		if record.of("r 1.000 1.000 false") != 40 {
			t.Errorf("of 40 answers, one after the other, were compared: %v", record.counts)
		}
	})
}

// TestShadowsOutliveTheirCalls: a comparison goes on when its caller is gone, and only first
// pages are compared.
func TestShadowsOutliveTheirCalls(t *testing.T) {
	for offset, want := range map[uint64]int{0: 1, 2: 0} {
		synctest.Test(t, func(t *testing.T) {
			record := &recorder{}
			r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Shadow.Share = 1 }), rows: 9, search: after(time.Second)}, record)
			s := plain(3)
			s.Offset = offset
			x := asks(s)
			x.original = func(context.Context) answer { return answer{own: true, ids: ids(1, 2, 3)} }
			ctx, leave := context.WithCancel(t.Context())
			ask(ctx, r, x)
			leave()
			<-time.After(2 * time.Second)
			record.mu.Lock()
			defer record.mu.Unlock()
			delete(record.counts, "shadow ")
			if record.counts["r 1.000 1.000 false"] != want || len(record.counts) != want {
				t.Errorf("of a page at %d: %v", offset, record.counts)
			}
		})
	}
}

// TestTheDatabaseIsAskedOnce: if the original had to be sent first, to find out whether the
// database accepts the caller, it is not sent again when rescoring is late.
func TestTheDatabaseIsAskedOnce(t *testing.T) {
	for _, eager := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			search := func(context.Context) error { return nil }
			r := router(t, searcher{route: newRoute(func(r *route.Route) {
				r.LatencyBudget = 100 * time.Millisecond
				if eager {
					r.Fallback = config.FallbackEager
				}
			}), rows: 9, search: func(ctx context.Context) error { return search(ctx) }}, nil)
			for range 100 { // earns the right to a race
				ask(t.Context(), r, asks(plain(3)))
			}
			synctest.Wait() // the losers of those races are done
			search = untilCancelled
			originals := 0
			x := asks(plain(3))
			x.original = func(context.Context) answer {
				originals++
				return answer{own: true, ids: ids(5)}
			}
			stranger := metadata.AppendToOutgoingContext(t.Context(), "api-key", "new")
			o := routing.Answer(stranger, r, routing.Target{Name: "c", Routed: "c", Own: "c"}, x)
			if originals != 1 || !o.Answered || !o.Answer.own || o.Status != "degraded; reason=deadline" {
				t.Errorf("eager %t: asked %d times, %+v", eager, originals, o)
			}
		})
	}
}

// TestWhatASearchIsAsked: each field of a client's search that a route can honour reaches the
// engine, with the engine's fallback and confirmation switched off.
func TestWhatASearchIsAsked(t *testing.T) {
	var got search.Request
	s := searcher{route: newRoute(nil), rows: 9, asked: func(r search.Request) { got = r }}
	r := router(t, s, nil)
	x := asks(routing.Search{Vector: "v", Query: []float32{7}, Limit: 3, Offset: 2, Filter: "filter", Partitions: []string{"part"}})
	if o := ask(t.Context(), r, x); o.Answer.own || o.Answer.err != nil {
		t.Fatalf("%+v", o)
	}
	want := search.Request{
		Route: "r", Query: rerank.Query{Vector: []float32{7}}, K: 5, Filter: "filter", NoFallback: true, Confirms: true,
		Partitions: []string{"part"}, MaxRank: 10,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the engine was asked %+v, want %+v", got, want)
	}
}

// TestVersionsAreAskedForIDs: the engine returns versions if the answer consists of them; not for
// an answer that shows more, is by an alias, or has the database's scores.
func TestVersionsAreAskedForIDs(t *testing.T) {
	for name, c := range map[string]struct {
		idsOnly, storeScores bool
		target               string
		want                 bool
	}{
		"ids only":         {idsOnly: true, target: "c", want: true},
		"payload":          {target: "c"},
		"alias":            {idsOnly: true, target: "a"},
		"database's score": {idsOnly: true, storeScores: true, target: "c"},
	} {
		var got search.Request
		rt := newRoute(func(r *route.Route) {
			r.Store = described{aliases: []string{"a"}}
			if c.storeScores {
				r.Score = config.ScoreStore
			}
		})
		r := router(t, searcher{route: rt, rows: 9, asked: func(r search.Request) { got = r }}, nil)
		s := plain(3)
		s.IDsOnly = c.idsOnly
		if o := askOf(t.Context(), r, routing.Target{Name: c.target, Routed: "c", Own: "c"}, asks(s)); o.Answer.own || got.Versions != c.want {
			t.Errorf("%s: %+v, versions asked for: %t, want %t", name, o, got.Versions, c.want)
		}
	}
}

func TestSwitch(t *testing.T) {
	r := router(t, searcher{route: newRoute(nil), rows: 9}, nil)
	if err := r.Switch("other", true); !errors.Is(err, routing.ErrNoRoute) {
		t.Errorf("error %v", err)
	}
	for _, name := range []string{"r", ""} {
		for off, want := range map[bool]string{true: "passed; reason=off", false: rescoredStatus} {
			if err := r.Switch(name, off); err != nil || r.Off()["r"] != off {
				t.Errorf("%v, %v", r.Off(), err)
			}
			if o := ask(t.Context(), r, asks(plain(3))); o.Status != want {
				t.Errorf("off %v: %q", off, o.Status)
			}
		}
	}
}

func TestAliases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &described{aliases: []string{"a"}}
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Store = store })}, nil)
		is := func(name, want string) {
			t.Helper()
			if target, ok := r.Names.Target(t.Context(), name); target.Routed != want || target.Own != want || ok != (want != "") {
				t.Errorf("%s is %+v", name, target)
			}
		}
		is("c", "c")
		is("a", "c")
		is("b", "")
		store.aliases = []string{"b"}
		is("a", "c")
		<-time.After(6 * time.Second)
		is("a", "")
		is("b", "c")
	})
}

// TestPagesBehindTheList: the database answers a page that ends after the last row of a ranked
// list.
func TestPagesBehindTheList(t *testing.T) {
	r := router(t, searcher{route: newRoute(nil), rows: 99}, nil) // of depth 10
	for _, c := range []struct {
		limit, offset uint64
		passes        bool
	}{{10, 0, false}, {2, 8, false}, {1, 9, false}, {11, 0, true}, {3, 8, true}, {5, 10, true}, {1 << 63, 1 << 63, true}} {
		s := plain(c.limit)
		s.Offset = c.offset
		if o := ask(t.Context(), r, asks(s)); (o.Status == "passed; reason=depth") != c.passes {
			t.Errorf("limit %d and offset %d: %+v", c.limit, c.offset, o)
		}
	}
}

// TestRankedInTime: a search that knows by when its rows have to be ranked, and uses all that time, is
// rescored within the latency budget.
func TestRankedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 100 * time.Millisecond
		r := router(t, searcher{route: newRoute(func(r *route.Route) { r.LatencyBudget = budget }), rows: 9, asked: func(asked search.Request) {
			by := time.Until(asked.AnswerBy)
			if asked.AnswerBy.IsZero() {
				by = budget
			}
			time.Sleep(by) //nolint:forbidigo // of the bubble: no time passes
		}}, nil)
		began := time.Now()
		o := ask(t.Context(), r, asks(plain(3)))
		if took := time.Since(began); !strings.HasPrefix(o.Status, rescoredStatus) || took < budget/4 || took > budget*3/4 {
			t.Errorf("%s after %s", o.Status, took)
		}
		_ = r.Close()
	})
}
