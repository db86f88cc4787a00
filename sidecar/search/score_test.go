package search_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

func TestScore(t *testing.T) {
	for _, sim := range []*toy{{dim: 6, blocks: 3}, {dim: 6, blocks: 2, grouped: true}} {
		w := newWorld(t, sim, random(1, 60, 6))
		q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
		truth := w.exact(t, q.Vector, nil)
		ids := []rerank.ID{rerank.TextID("nobody")}
		for i := len(truth) - 1; i >= 0; i -= 3 {
			ids = append(ids, truth[i].ID, truth[0].ID)
		}
		scores := map[rerank.ID]float32{}
		for _, row := range truth {
			scores[row.ID] = row.Score
		}
		for _, place := range []route.Placement{route.PlacementTable, route.PlacementStored, route.PlacementDerived} {
			a, err := pipe(t, w.route(place)).Score(context.Background(), search.ScoreRequest{Route: "r", Query: q, IDs: ids, Explain: true})
			must(t, err)
			if len(a.Scores) != len(ids) || len(a.Explanations) != len(ids) || len(a.Missing) != 1 || a.Missing[0] != ids[0] || a.Version != version {
				t.Fatalf("%s: %d scores, %d explanations, missing %v", place, len(a.Scores), len(a.Explanations), a.Missing)
			}
			if distinct := len(slices.Compact(slices.SortedFunc(slices.Values(ids[1:]), rerank.ID.Compare))); a.Certificate.Candidates != distinct {
				t.Errorf("%s: %d items were scored, want each of %d once", place, a.Certificate.Candidates, distinct)
			}
			if !math.IsNaN(float64(a.Scores[0])) {
				t.Errorf("%s: a missing item scores %v", place, a.Scores[0])
			}
			for i, id := range ids[1:] {
				if want := scores[id]; a.Scores[i+1] != want || a.Explanations[i+1].Score != want {
					t.Errorf("%s: %s scores %v, explained %v, want %v", place, id, a.Scores[i+1], a.Explanations[i+1].Score, want)
				}
			}
		}
	}
}

func TestScoreVectors(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 60, 6))
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	a, err := pipe(t, w.route(route.PlacementTable)).Score(context.Background(), search.ScoreRequest{Route: "r", Query: q, Vectors: w.vectors, Explain: true})
	must(t, err)
	for _, row := range w.exact(t, q.Vector, nil) {
		at, _ := row.ID.Uint64()
		if a.Scores[at] != row.Score || a.Explanations[at].Score != row.Score {
			t.Errorf("vector %d scores %v, want %v", at, a.Scores[at], row.Score)
		}
	}
}

// words is an embedder whose texts are names of vectors. The name of a document begins with "document".
type words map[string][]float32

func (w words) Embed(_ context.Context, queries []string, documents ...string) ([][]float32, error) {
	texts := slices.Clone(queries)
	for _, document := range documents {
		texts = append(texts, "document "+document)
	}
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		if vectors[i] = w[text]; vectors[i] == nil {
			return nil, fmt.Errorf("%w: %q", embed.ErrText, text)
		}
	}
	return vectors, nil
}

// TestScoreDocuments: documents are ids of the collection, also where they are written as text, or
// texts, and their scores come in the order of the request.
func TestScoreDocuments(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 60, 6))
	query := random(2, 1, 6).Row(0)
	scores := map[rerank.ID]float32{}
	for _, row := range w.exact(t, query, nil) {
		scores[row.ID] = row.Score
	}
	p := pipe(t, w.route(route.PlacementStored, func(r *route.Route) {
		r.Embedder = words{"what": query, "document eleven": w.vectors.Row(11), "document twelve": w.vectors.Row(12)}
	}))
	must(t, p.Open(t.Context()))
	documents := []search.Document{{Text: "twelve"}, {ID: rerank.UintID(3)}, {Text: "5"}, {Text: "eleven"}, {Text: "550e8400-e29b-41d4-a716-446655440000"}}
	for _, q := range []rerank.Query{{Text: "what"}, {Vector: query}} {
		a, err := p.Score(t.Context(), search.ScoreRequest{Route: "r", Query: q, Documents: documents, Explain: true})
		must(t, err)
		for i, at := range []uint64{12, 3, 5, 11} {
			if want := scores[rerank.UintID(at)]; a.Scores[i] != want || a.Explanations[i].Score != want {
				t.Errorf("document %d scores %v, explained %v, want %v", i, a.Scores[i], a.Explanations[i].Score, want)
			}
		}
		if len(a.Scores) != 5 || !math.IsNaN(float64(a.Scores[4])) || len(a.Missing) != 1 || a.Certificate.Status != rerank.StatusExact || a.Certificate.Candidates != 5 || a.Embed <= 0 {
			t.Errorf("scores %v, missing %v, certificate %+v", a.Scores, a.Missing, a.Certificate)
		}
	}
	for name, c := range map[string]struct {
		r    search.ScoreRequest
		want error
	}{
		"a text that is refused":  {search.ScoreRequest{Query: rerank.Query{Text: "what"}, Documents: []search.Document{{Text: "x"}}}, embed.ErrText},
		"a query that is refused": {search.ScoreRequest{Query: rerank.Query{Text: "x"}, Documents: documents}, embed.ErrText},
		"documents beside ids":    {search.ScoreRequest{Query: rerank.Query{Text: "what"}, Documents: documents, IDs: []rerank.ID{rerank.UintID(1)}}, plan.ErrRequest},
	} {
		c.r.Route = "r"
		if _, err := p.Score(t.Context(), c.r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	plain := pipe(t, w.route(route.PlacementStored))
	if _, err := plain.Score(t.Context(), search.ScoreRequest{Route: "r", Query: rerank.Query{Vector: query}, Documents: documents}); !errors.Is(err, plan.ErrRequest) {
		t.Errorf("a text without an embedder: %v", err)
	}
}

func TestBadScoreRequests(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(1, 50, 4))
	p := pipe(t, w.route(route.PlacementStored, func(r *route.Route) {
		r.Store = &decorated{Store: w.store, before: failing(adapters.ErrUnavailable, "describe", "fetch")}
	}))
	q := rerank.Query{Vector: []float32{1, 2, 3, 4}}
	id := []rerank.ID{rerank.UintID(1)}
	for name, c := range map[string]struct {
		r    search.ScoreRequest
		want error
	}{
		"route":        {search.ScoreRequest{Route: "x", Query: q, IDs: id}, route.ErrUnknown},
		"nothing":      {search.ScoreRequest{Query: q}, plan.ErrRequest},
		"both":         {search.ScoreRequest{Query: q, IDs: id, Vectors: random(1, 1, 4)}, plan.ErrRequest},
		"dimension":    {search.ScoreRequest{Query: q, Vectors: random(1, 1, 3)}, plan.ErrRequest},
		"not filled":   {search.ScoreRequest{Query: q, Vectors: rerank.Matrix{Rows: 2, Cols: 4}}, plan.ErrRequest},
		"no id":        {search.ScoreRequest{Query: q, IDs: []rerank.ID{{}}}, plan.ErrRequest},
		"not a number": {search.ScoreRequest{Query: q, Vectors: rerank.Matrix{Rows: 1, Cols: 4, Data: []float32{1, 2, 3, float32(math.NaN())}}}, rerank.ErrQuery},
		"query":        {search.ScoreRequest{Query: rerank.Query{Vector: make([]float32, 2)}, IDs: id}, rerank.ErrQuery},
		"store down":   {search.ScoreRequest{Query: q, IDs: id}, adapters.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			if c.r.Route == "" {
				c.r.Route = "r"
			}
			if a, err := p.Score(context.Background(), c.r); !errors.Is(err, c.want) || len(a.Scores) > 0 {
				t.Errorf("%d scores, error %v; want %v", len(a.Scores), err, c.want)
			}
		})
	}
}

// TestScoreWithoutStore: what the table does not have is missing.
func TestScoreWithoutStore(t *testing.T) {
	w := newWorld(t, &toy{dim: 4, blocks: 2}, random(1, 50, 4))
	p := pipe(t, w.route(route.PlacementTable, func(r *route.Route) { r.Store, r.Strategy = nil, rerank.Scan }))
	a, err := p.Score(context.Background(), search.ScoreRequest{
		Route: "r", Query: rerank.Query{Vector: []float32{1, 2, 3, 4}}, IDs: []rerank.ID{rerank.UintID(3), rerank.UintID(300)},
	})
	must(t, err)
	if len(a.Missing) != 1 || a.Missing[0] != rerank.UintID(300) || math.IsNaN(float64(a.Scores[0])) {
		t.Errorf("scores %v, missing %v", a.Scores, a.Missing)
	}
}
