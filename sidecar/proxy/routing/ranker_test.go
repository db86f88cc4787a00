package routing_test

import (
	"context"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/rank"
)

// describedRanker says what it is; the searcher ranks in its stead.
type describedRanker struct {
	ranker.Ranker
	text bool
	err  error
}

func (d describedRanker) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{Text: d.text}, d.err
}

// ranking is a searcher whose route's ranker scored the first hits.
type ranking struct {
	searcher
	scored int
	reason string
}

func (r ranking) Search(ctx context.Context, in search.Request) (search.Answer, error) {
	a, err := r.searcher.Search(ctx, in)
	for i := range min(r.scored, len(a.Hits)) {
		a.Hits[i].Ranked = true
	}
	a.Ranking = &rank.Ranking{Reason: r.reason}
	return a, err
}

// TestRankers: a client of the database gets a ranker's order as far as it goes, never
// rows with another score behind it, and is told where it was cut short.
func TestRankers(t *testing.T) {
	found := plain(3)
	found.Find = func(context.Context, int) ([]rerank.ID, error) { return ids(1, 2), nil }
	for _, c := range []struct {
		name   string
		ranker describedRanker
		search routing.Search
		scored int
		reason string
		want   string

		rescored bool
	}{
		{"ranked", describedRanker{}, plain(3), 20, "", rescoredStatus, true},
		{"cut short behind the page", describedRanker{}, plain(3), 5, rank.CutDeadline, rescoredStatus + "; ranking=partial", true},
		{"cut short within the page", describedRanker{}, plain(3), 2, rank.CutDeadline, "degraded; reason=confirm", false},
		{"more than its calls", describedRanker{}, plain(21), 20, "", "passed; reason=depth", false},
		{"reads words", describedRanker{text: true}, plain(3), 20, "", "passed; reason=ranker", false},
		{"what a prefetch finds", describedRanker{}, found, 20, "", "passed; reason=ranker", false},
		{"down", describedRanker{err: ranker.ErrUnavailable}, plain(3), 20, "", "degraded; reason=ranker_failed", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := ranking{scored: c.scored, reason: c.reason}
			s.rows = 100
			s.route = newRoute(func(r *route.Route) { r.Ranker, r.Calls = c.ranker, 20 })
			o := ask(t.Context(), router(t, s, nil), asks(c.search))
			if o.Status != c.want {
				t.Errorf("%q, want %q", o.Status, c.want)
			}
			if c.rescored && !slices.Equal(o.Answer.ids, ids(1, 2, 3)) {
				t.Errorf("rows %v", o.Answer.ids)
			}
		})
	}
}
