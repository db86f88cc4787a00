package relevance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/relevance"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// TestBaseVectors: the base vector of a row has its score for each support query, in their order. With stored scores alone,
// every row that lacks one counts once, in all batches.
func TestBaseVectors(t *testing.T) {
	dir, r := t.TempDir(), newArithmetic()
	queries, rows := questions(3), things(7)
	base := relevance.Base{Asker: open(t, relevance.Options{Ranker: r, Dir: dir}), Questions: queries}
	got, err := base.Vectors(t.Context(), rows)
	if err != nil || base.Unknown != 0 {
		t.Fatalf("%d rows are unknown, %v", base.Unknown, err)
	}
	for x, id := range rows.IDs {
		for q, query := range queries {
			if want := truth(query, id, rows.Payloads[x]); got.Row(x)[q] != want {
				t.Errorf("item %d has %g for query %d, want %g", x, got.Row(x)[q], q, want)
			}
		}
	}
	estimate := base.Estimate()
	items, err := base.Count(&estimate, things(9))
	if err != nil || items.Len() != 9 || estimate.Items != 9 || estimate.Queries != 3 || estimate.Calls != 2*3 || estimate.Kept != 7*3 {
		t.Errorf("%d items are counted as %+v, %v", items.Len(), estimate, err)
	}
	if _, err := base.Count(&estimate, things(2)); err != nil || estimate.Items != 11 || estimate.Calls != 2*3 {
		t.Errorf("with two stored rows more: %+v, %v", estimate, err)
	}
	asked := r.calls
	if err := base.Measure(t.Context(), &estimate, items); err != nil || r.calls == asked || !(estimate.PerSecond > 0) {
		t.Errorf("%d calls measure %+v, %v", r.calls-asked, estimate, err)
	}
	if err := base.Close(); err != nil {
		t.Fatal(err)
	}

	stored := relevance.Base{Asker: open(t, relevance.Options{Ranker: newArithmetic(), Dir: dir, KeptOnly: true}), Questions: questions(4)}
	for range 2 {
		if got, err = stored.Vectors(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	if stored.Unknown != 2*7 || got.Row(6)[3] == got.Row(6)[3] || got.Row(6)[2] != truth(queries[2], rows.IDs[6], rows.Payloads[6]) {
		t.Errorf("%d rows are unknown, want 14; the last is %v", stored.Unknown, got.Row(6))
	}
	rows.Payloads[0] = []byte(`[1]`)
	if _, err := stored.Vectors(t.Context(), rows); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("a payload that is no object: %v", err)
	}
	if _, err := stored.Count(&estimate, rows); !errors.Is(err, adapters.ErrStore) || estimate.Items != 11 {
		t.Errorf("a payload that is no object is counted: %+v, %v", estimate, err)
	}
}

// TestItemsKeepTheirScores: items that are joined from two batches, or picked, still have their own stored scores.
func TestItemsKeepTheirScores(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		r := newArithmetic()
		a := open(t, relevance.Options{Ranker: r, Dir: dir})
		rows := things(6)
		first, second := rows, rows
		first.IDs, first.Payloads, second.IDs, second.Payloads = rows.IDs[:2], rows.Payloads[:2], rows.IDs[2:], rows.Payloads[2:]
		picked := itemsOf(t, a, first).With(itemsOf(t, a, second)).Pick([]int{4, 0, 3})
		if dir != "" {
			fill(t, a, rows, questions(1))
		}
		before, dst := r.calls, rerank.NewMatrix(3, 1)
		if err := a.Fill(t.Context(), dst, picked, questions(1), columns(1)); err != nil {
			t.Fatal(err)
		}
		if asked := r.calls - before; asked != 0 && dir != "" {
			t.Errorf("%d stored scores are asked for again", asked)
		}
		for i, x := range []int{4, 0, 3} {
			if want := truth(questions(1)[0], rows.IDs[x], rows.Payloads[x]); dst.Row(i)[0] != want || picked.ID(i) != rows.IDs[x] {
				t.Errorf("item %d is %v and has %g, want %g", x, picked.ID(i), dst.Row(i)[0], want)
			}
		}
	}
}

// TestRequestsAtATime: a ranker gets as many requests at a time as it takes, one if it does not say, and every request is
// reported with its number of items. A ranker without a limit gets 256 items in a request.
func TestRequestsAtATime(t *testing.T) {
	for _, c := range []struct{ parallel, most, want, items int }{{3, 4, 3, 40}, {0, 4, 1, 8}, {1, 0, 1, 600}} {
		synctest.Test(t, func(t *testing.T) {
			r := &waiting{arithmetic: newArithmetic()}
			r.Parallel, r.MaxItems = c.parallel, c.most
			a := open(t, relevance.Options{Ranker: r})
			var mu sync.Mutex
			var told []int
			a.Tell(func(n int) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, n)
			})
			fill(t, a, things(c.items), questions(1))
			if r.most != c.want {
				t.Errorf("%d requests at a time, want %d", r.most, c.want)
			}
			slices.Sort(told)
			sum := 0
			for _, n := range told {
				sum += n
			}
			if most := c.most; sum != c.items || most > 0 && told[len(told)-1] != most || most == 0 && told[len(told)-1] != 256 {
				t.Errorf("requests of %v items are reported", told)
			}
			if e := a.Estimate(); e.ParallelRequests != c.want {
				t.Errorf("the estimate is of %d requests at a time, want %d", e.ParallelRequests, c.want)
			}
		})
	}
}

// waiting is a ranker that takes a second for a request, and counts the requests at a time.
type waiting struct {
	*arithmetic
	now  atomic.Int64
	most int
}

func (w *waiting) Rank(ctx context.Context, q plugin.Query, items []plugin.Item) (ranker.Result, error) {
	w.mu.Lock()
	w.most = max(w.most, int(w.now.Add(1)))
	w.mu.Unlock()
	defer w.now.Add(-1)
	<-time.After(time.Second)
	return w.arithmetic.Rank(ctx, q, items)
}

// TestProbeWalksThroughTheItems: the calls that measure a ranker ask for other items with each query, so that what the
// ranker remembers of an item does not make it look fast.
func TestProbeWalksThroughTheItems(t *testing.T) {
	r := newArithmetic()
	r.Parallel = 1
	var first []string
	r.seen = func(q plugin.Query, items []plugin.Item) { first = append(first, fmt.Sprint(q.Text, " ", items[0].ID)) }
	a := open(t, relevance.Options{Ranker: r})
	e := a.Estimate()
	items := itemsOf(t, a, things(10))
	if err := a.Probe(t.Context(), &e, items, questions(20), columns(20)); err != nil {
		t.Fatal(err)
	}
	if len(first) != 8 || first[0] != "0 0" || first[1] != "q1 4" || first[2] != "qq2 1" {
		t.Errorf("asked first of %v", first)
	}
	if e.Seconds != 0 { // no calls were counted
		t.Errorf("no calls take %g s", e.Seconds)
	}
	broken := errors.New("broken")
	r.fail = func(plugin.Query, int) error { return broken }
	if err := a.Probe(t.Context(), &e, items, questions(1), columns(1)); !errors.Is(err, broken) {
		t.Errorf("a ranker that fails: %v", err)
	}
}

// TestPatience: a run waits a minute for a ranker that is down, if its options do not say how long, also for its description.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, r := time.Now(), &starting{arithmetic: newArithmetic()}
		r.ready = began.Add(50 * time.Second)
		a := open(t, relevance.Options{Ranker: r})
		if took := time.Since(began); took < 50*time.Second || a.Description().Version != "1" {
			t.Errorf("%+v after %v", a.Description(), took)
		}
		r.ready = time.Now().Add(2 * time.Minute)
		began = time.Now()
		if _, err := relevance.New(t.Context(), relevance.Options{Ranker: r}); !errors.Is(err, ranker.ErrUnavailable) || time.Since(began) > time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// starting is a ranker that is not there before a time.
type starting struct {
	*arithmetic
	ready time.Time
}

func (s *starting) Describe(ctx context.Context) (plugin.Description, error) {
	if time.Now().Before(s.ready) {
		return plugin.Description{}, ranker.ErrUnavailable
	}
	return s.arithmetic.Describe(ctx)
}

// TestUnchecked: an answer without a version is taken, and so is a whole payload if the ranker reads it.
func TestUnchecked(t *testing.T) {
	r := newArithmetic()
	r.PayloadFields, r.Payload = nil, true
	var got plugin.Item
	r.seen = func(_ plugin.Query, items []plugin.Item) { got = items[0] }
	c := cut{r, func(r ranker.Result) (ranker.Result, error) {
		r.Version = ""
		return r, nil
	}}
	a := open(t, relevance.Options{Ranker: c})
	if payload, fields, vector := a.Reads(); !payload || fields != nil || vector {
		t.Errorf("it reads %t %q %t", payload, fields, vector)
	}
	fill(t, a, things(1), questions(1))
	if string(got.Payload) != `{"n":0,"other":"<x>"}` || got.Vector != nil {
		t.Errorf("the ranker gets %+v", got)
	}
}
