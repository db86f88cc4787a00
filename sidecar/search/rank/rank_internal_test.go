package rank

import (
	"context"
	"log/slog"
	"testing"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
)

// described is a ranker with only a description.
type described struct{ ranker.Ranker }

func (described) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{Version: "1"}, nil
}

// supports is a model whose query vectors are scores of support items.
type supports struct{ rerank.SupportAsker }

// TestVectorOfScores: a ranker gets the query's vector, unless the vector consists of scores.
func TestVectorOfScores(t *testing.T) {
	calls := 5
	r := plan.Request{Query: rerank.Query{Vector: []float32{1, 2}, Text: "t"}, Calls: &calls, Rounds: 1}
	for _, ofScores := range []bool{false, true} {
		var v route.View
		v.Checked = &route.Checked{Route: route.Route{}}
		v.Ranker = described{}
		if ofScores {
			v.ModelCan.Supports = supports{}
		}
		s, out, err := Begin(t.Context(), v, r, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if (len(s.query.Vector) == 0) != ofScores || s.query.Text != "t" || s.MadeVector() != ofScores || len(out.Query.Vector) != 2 {
			t.Errorf("a vector of scores (%t): the ranker sees %+v, the search %+v", ofScores, s.query, out.Query)
		}
	}
}

// TestRoundsGoOn: another round can change the answer if fewer rows than requested were scored, or
// if the last round changed it.
func TestRoundsGoOn(t *testing.T) {
	s := &Spending{Ranking: Ranking{Budget: 9}, scores: map[rerank.ID]float32{}, asked: map[rerank.ID]bool{}, gone: map[rerank.ID]bool{}}
	s.candidates = retrieve.NewIDSet(0)
	rounds := func(k int, want ...bool) {
		t.Helper()
		for i, w := range want {
			if more := s.Round(t.Context(), Candidates{}, 0, k); more != w {
				t.Errorf("round %d of %d rows: another can change the answer: %t, want %t", i, k, more, w)
			}
		}
	}
	rounds(2, true, true) // no row was scored
	for n := range uint64(2) {
		id := rerank.UintID(n)
		s.candidates.Add(id, 0)
		s.scores[id] = float32(n)
	}
	rounds(3, true, true) // one row is missing
	rounds(2, false)      // the same two rows
	s.scores[rerank.UintID(0)] = 5
	rounds(2, true, false) // in another order, then unchanged
	s.Calls, s.scores[rerank.UintID(1)] = 9, 7
	rounds(2, false) // no calls are left
}
