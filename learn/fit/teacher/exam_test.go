package teacher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// products is a similarity whose score is the inner product. probes says which probes it has.
type products struct {
	rerank.Similarity
	single bool
	probes func(q []float32, p rerank.Plan) ([]rerank.Probe, error)
}

func (s products) Spec() rerank.Spec { return rerank.Spec{SingleInnerProduct: s.single} }

func (s products) Encode(q rerank.Query) (rerank.Encoded, error) {
	return productsQuery{of: s, vector: q.Vector}, nil
}

type productsQuery struct {
	rerank.Encoded
	of     products
	vector []float32
}

func (q productsQuery) Probes(p rerank.Plan) ([]rerank.Probe, error) { return q.of.probes(q.vector, p) }

func (q productsQuery) Score(dst []float32, items rerank.Items) error {
	for i := range dst {
		r := i
		if items.Rows != nil {
			r = int(items.Rows[i])
		}
		dst[i] = float32(linalg.Dot(q.vector, items.Features.Row(r)))
	}
	return nil
}

// negated derives two fields: "none" of zeros, and "negated" of the negated features.
type negated struct {
	rerank.Deriver
	failure error
}

func (negated) Fields() []rerank.Field {
	return []rerank.Field{{Name: "none", Dim: 1}, {Name: "negated", Dim: 3}}
}

func (n negated) Derive(dst rerank.Matrix, field string, items rerank.Items) error {
	if field == "negated" {
		linalg.AddScaled(dst.Data, items.Features.Data, -1)
	}
	return n.failure
}

// taughtBy returns a teacher of 20 items and 19 queries: more than two batches.
func taughtBy(s products) *Teacher {
	rng := rand.New(rand.NewPCG(1, 2))
	items := fittest.NormalMatrix(rng, 20, 3)
	return &Teacher{Similarity: s, Items: items, Encoded: rerank.Items{Features: items}, Queries: fittest.NormalMatrix(rng, 19, 3)}
}

// rankRows ranks some rows for a query by the definition.
func rankRows(t *Teacher, query int32, rows []int32, n int) []int32 {
	rows = slices.Clone(rows)
	score := func(x int32) float64 { return linalg.Dot(t.Queries.Row(int(query)), t.Items.Row(int(x))) }
	slices.SortFunc(rows, func(a, b int32) int { return cmp.Compare(score(b), score(a)) })
	return rows[:min(n, len(rows))]
}

// TestRankings: each query has its own ranking of all items, or of its own list, and every query is reported.
func TestRankings(t *testing.T) {
	taught, done := taughtBy(products{}), 0
	count := func(n int) { done += n }
	queries := fittest.AllRows(19)
	slices.Reverse(queries)
	all := fittest.AllRows(20)
	whole, err := taught.RankAll(t.Context(), queries, 4, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	lists := make([][]int32, len(queries))
	for i := range lists {
		lists[i] = slices.Concat(all[i:], all[:i])[:7]
	}
	some, err := taught.Rescore(t.Context(), queries[:8], lists[:8], 4, count) // one batch, so that nothing counts at the same time
	if err != nil {
		t.Fatal(err)
	}
	if done != 8 {
		t.Errorf("%d queries are reported, want 8", done)
	}
	for i, q := range queries {
		if want := rankRows(taught, q, all, 4); !slices.Equal(whole[i].Rows, want) {
			t.Errorf("query %d ranks %v, want %v", q, whole[i].Rows, want)
		}
		if i >= len(some) {
			continue
		}
		if want := rankRows(taught, q, lists[i], 4); !slices.Equal(some[i].Rows, want) {
			t.Errorf("query %d ranks %v of its list, want %v", q, some[i].Rows, want)
		}
		if want := float32(linalg.Dot(taught.Queries.Row(int(q)), taught.Items.Row(int(some[i].Rows[2])))); some[i].Scores[2] != want {
			t.Errorf("query %d gives its third item the score %g, want %g", q, some[i].Scores[2], want)
		}
	}
}

// TestProductsInBlocks: the answers to a query are compared with its own ranking, in whichever block it comes.
func TestProductsInBlocks(t *testing.T) {
	taught := taughtBy(products{})
	x, err := NewExam(t.Context(), taught, taught.Items, fittest.AllRows(19), 3, []int{3, 5}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	x.blockScores = 1 // blocks of eight queries
	got := x.Vectors(rerank.FirstStage{Head: "a"}, taught.Queries)
	if !slices.EqualFunc(got.Recall, []float64{1, 1}, isNear) || got.Searches != 1 || got.Head != "a" {
		t.Errorf("the similarity's own vectors find %+v", got)
	}
}

func isNear(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

// TestWhereStrategiesSearch: a strategy searches the companion if there is one, unless the similarity is one inner product. A
// strategy that the similarity lacks is left out, and another error ends the exam.
func TestWhereStrategiesSearch(t *testing.T) {
	// The negated query finds the best items in the negated field; two such probes find them too.
	both := func(q []float32, p rerank.Plan) ([]rerank.Probe, error) {
		if p.Depth != 5 || p.Strategy != rerank.Average {
			return nil, fmt.Errorf("%w: depth %d", rerank.ErrStrategy, p.Depth)
		}
		if !p.Derived {
			return []rerank.Probe{{Vector: q}}, nil
		}
		opposite := make([]float32, len(q))
		linalg.AddScaled(opposite, q, -1)
		return []rerank.Probe{{Field: "negated", Vector: opposite}, {Field: "negated", Vector: opposite}}, nil
	}
	only := func(derived bool) func([]float32, rerank.Plan) ([]rerank.Probe, error) {
		return func(q []float32, p rerank.Plan) ([]rerank.Probe, error) {
			if p.Derived != derived {
				return nil, rerank.ErrStrategy
			}
			return both(q, p)
		}
	}
	broken := errors.New("broken")
	exam := func(single bool, d rerank.Deriver, probes func([]float32, rerank.Plan) ([]rerank.Probe, error)) ([]rerank.FirstStage, error) {
		t.Helper()
		taught := taughtBy(products{single: single, probes: probes})
		taught.Abilities.Derive = d
		x, err := NewExam(t.Context(), taught, taught.Items, []int32{4, 2}, 3, []int{3, 5}, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		return x.Strategies(rerank.PerEmbedding, rerank.Average)
	}
	for name, c := range map[string]struct {
		single   bool
		derives  rerank.Deriver
		probes   func([]float32, rerank.Plan) ([]rerank.Probe, error)
		searches int // in the companion if 2; 0: the strategy is left out
	}{
		"no companion":                       {false, nil, both, 1},
		"a companion":                        {false, negated{}, both, 2},
		"one inner product":                  {true, negated{}, both, 1},
		"stored vectors only":                {false, negated{}, only(false), 1},
		"one inner product of the companion": {true, negated{}, only(true), 2},
		"a companion that is not derived":    {false, nil, only(true), 0},
	} {
		got, err := exam(c.single, c.derives, c.probes)
		if err != nil || len(got) != min(c.searches, 1) {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		if c.searches > 0 && (got[0].Strategy != rerank.Average || got[0].Searches != c.searches || got[0].Companion != (c.searches == 2) || !isNear(got[0].Recall[0], 1)) {
			t.Errorf("%s: %+v, want %d searches", name, got[0], c.searches)
		}
	}
	if got, err := exam(false, negated{failure: broken}, both); !errors.Is(err, broken) {
		t.Errorf("a field that cannot be derived: %+v, %v", got, err)
	}
	calls := 0
	for failing := range 3 {
		calls = 0
		got, err := exam(false, nil, func(q []float32, p rerank.Plan) ([]rerank.Probe, error) {
			if p.Strategy == rerank.Average {
				if calls++; calls > failing {
					return nil, broken
				}
			}
			return both(q, p)
		})
		if !errors.Is(err, broken) {
			t.Errorf("probes that fail after %d calls: %+v, %v", failing, got, err)
		}
	}
	silent := func([]float32, rerank.Plan) ([]rerank.Probe, error) { return nil, nil }
	if got, err := exam(false, nil, silent); err != nil || len(got) != 2 || got[0].Searches != 0 || got[0].Companion || got[0].Recall[0] != 0 {
		t.Errorf("without probes: %+v, %v", got, err)
	}
	unknown := func([]float32, rerank.Plan) ([]rerank.Probe, error) { return []rerank.Probe{{Field: "unknown"}}, nil }
	if got, err := exam(false, negated{}, unknown); err != nil || len(got) != 0 {
		t.Errorf("a field that the similarity does not derive: %+v, %v", got, err)
	}
}

// TestNewEncodesItems: the teacher keeps all that a query needs, and refuses items that cannot be encoded.
func TestNewEncodesItems(t *testing.T) {
	d := fit.Data{
		Items: rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{3, 5}}, ItemStarts: []int32{0, 2},
		Queries: rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{1, 2}}, QueryStarts: []int32{0, 2}, UserIDs: []int64{7},
	}
	got, err := New(doubling{}, d)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Encoded.Features.Data, []float32{6, 10}) || !slices.Equal(got.Encoded.Starts, d.ItemStarts) || !slices.Equal(got.Items.Data, d.Items.Data) {
		t.Errorf("items %+v, encoded as %+v", got.Items, got.Encoded)
	}
	if !slices.Equal(got.Queries.Data, d.Queries.Data) || !slices.Equal(got.QueryStarts, d.QueryStarts) || !slices.Equal(got.Users, d.UserIDs) {
		t.Errorf("queries %+v, %v, of users %v", got.Queries, got.QueryStarts, got.Users)
	}
	if _, err := New(doubling{failure: rerank.ErrItems}, d); !errors.Is(err, fit.ErrData) || !errors.Is(err, rerank.ErrItems) {
		t.Errorf("items that cannot be encoded: %v", err)
	}
}

// unscorable is a similarity that cannot score.
type unscorable struct {
	rerank.Similarity
	failure error
}

func (u unscorable) Encode(q rerank.Query) (rerank.Encoded, error) {
	if q.Vector[0] == 0 {
		return nil, u.failure
	}
	return unscorableQuery{failure: u.failure}, nil
}

type unscorableQuery struct {
	rerank.Encoded
	failure error
}

func (u unscorableQuery) Score([]float32, rerank.Items) error { return u.failure }

// TestScoresThatFail end a ranking, and so do a query that cannot be encoded, the caller and the context.
func TestScoresThatFail(t *testing.T) {
	broken := errors.New("broken")
	taught := taughtBy(products{})
	taught.Similarity = unscorable{failure: broken}
	if _, err := taught.RankAll(t.Context(), []int32{1}, 2, func(int) {}); !errors.Is(err, broken) {
		t.Errorf("of all items: %v", err)
	}
	if _, err := taught.Rescore(t.Context(), []int32{1}, [][]int32{{0, 2}}, 2, func(int) {}); !errors.Is(err, broken) {
		t.Errorf("of some items: %v", err)
	}
	if _, err := NewExam(t.Context(), taught, taught.Items, []int32{1}, 2, []int{3}, func(int) {}); !errors.Is(err, broken) {
		t.Errorf("of an exam: %v", err)
	}
	taught.Queries.Row(2)[0] = 0 // it cannot be encoded
	err := taught.EachScored(t.Context(), []int32{2}, func(int) {}, func(int, rerank.Encoded, []float32) error { return nil })
	if !errors.Is(err, fit.ErrData) || !errors.Is(err, broken) {
		t.Errorf("of a query: %v", err)
	}
	taught = taughtBy(products{})
	if err := taught.EachScored(t.Context(), []int32{1}, func(int) {}, func(int, rerank.Encoded, []float32) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("of the caller: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := taught.RankAll(ended, []int32{1}, 2, func(int) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
}

// doubling is a similarity that encodes an item as its doubled vector.
type doubling struct {
	rerank.Similarity
	failure error
}

func (doubling) Spec() rerank.Spec { return rerank.Spec{Features: 1} }

func (d doubling) EncodeItems(dst, items rerank.Matrix) error {
	linalg.AddScaled(dst.Data, items.Data, 2)
	return d.failure
}
