package ranker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// ordered answers with its scores in an order of its own.
type ordered struct {
	order func(scores []float32)
	fails []error // of the first calls
	most  int     // items of a call
	items int     // of all
}

func (ordered) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{Version: "1", MaxItems: 8}, nil
}

func (o *ordered) Score(_ context.Context, _ plugin.Query, items []plugin.Item) ([]float32, error) {
	o.most, o.items = max(o.most, len(items)), o.items+len(items)
	if len(o.fails) > 0 {
		err := o.fails[0]
		o.fails = o.fails[1:]
		return nil, err
	}
	scores := make([]float32, len(items))
	for i := range items {
		n, _ := items[i].ID.Uint64()
		scores[i] = float32(n * n % 101)
	}
	o.order(scores)
	return scores, nil
}

// TestTwice: scores in an order other than the items' are detected by asking for one item twice,
// within the limits and without being counted.
func TestTwice(t *testing.T) {
	items := make([]plugin.Item, 30)
	for i := range items {
		items[i].ID = rerank.UintID(uint64(i))
	}
	for name, c := range map[string]struct {
		order func([]float32)
		want  error
	}{
		"as asked": {func([]float32) {}, nil},
		"rounded":  {func(s []float32) { s[len(s)-1] += 1e-3 }, nil},
		"sorted":   {slices.Sort[[]float32], ranker.ErrAnswer},
		"reversed": {slices.Reverse[[]float32], ranker.ErrAnswer},
		"shifted":  {func(s []float32) { copy(s, append(slices.Clone(s[1:]), s[0])) }, ranker.ErrAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			s := &ordered{order: c.order}
			r, err := ranker.New(s, ranker.Options{Name: "r", Twice: true}).Rank(t.Context(), plugin.Query{}, items)
			if !errors.Is(err, c.want) || s.most > 8 || s.most < 2 {
				t.Fatalf("%v, want %v; %d items at once", err, c.want, s.most)
			}
			if want := float32(29 * 29 % 101); err == nil && (r.Calls != 30 || fmt.Sprint(r.Scores[29]) != fmt.Sprint(want)) {
				t.Errorf("%d calls, the last score is %v, want %v", r.Calls, r.Scores[29], want)
			}
		})
	}
}

// TestRankWithin: a repeated call counts, unless the scorer was absent for the first one, and no
// call is made beyond the budget.
func TestRankWithin(t *testing.T) {
	items := make([]plugin.Item, 30)
	for i := range items {
		items[i].ID = rerank.UintID(uint64(i))
	}
	for name, c := range map[string]struct {
		fails error
		calls int
		want  error
		seen  int
	}{
		"late":      {context.DeadlineExceeded, 32, ranker.ErrUnavailable, 32},
		"not there": {plugin.ErrUnavailable, 30, nil, 38},
	} {
		t.Run(name, func(t *testing.T) {
			s := &ordered{order: func([]float32) {}, fails: []error{c.fails}}
			r, err := ranker.New(s, ranker.Options{Name: "r", Parallel: 1, RetryBudget: 1}).RankWithin(t.Context(), plugin.Query{}, items, c.calls)
			if !errors.Is(err, c.want) || r.Calls > c.calls || s.items > c.seen {
				t.Errorf("%d calls of %d, %d seen, %v", r.Calls, c.calls, s.items, err)
			}
			scored := 0
			for _, score := range r.Scores {
				if score == score {
					scored++
				}
			}
			if scored < 22 || (scored == 30) != (err == nil) {
				t.Errorf("%d of 30 items scored, %v", scored, err)
			}
		})
	}
}
