package inner_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/tensor"
)

func random(r *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

const dim = 40

// similarities are one of every kind whose query side is one inner product.
func similarities(t *testing.T, r *rand.Rand) map[string]rerank.Similarity {
	t.Helper()
	must := func(s rerank.Similarity, err error) rerank.Similarity {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	d, err := dot.New(dot.Config{Dim: dim}, nil)
	unit, err2 := dot.New(dot.Config{Dim: dim, Normalise: true}, nil)
	m, err3 := maxsim.New(maxsim.Config{Dim: dim}, nil)
	b, err4 := bilinear.New(bilinear.Config{QueryDim: dim, ItemDim: dim}, tensor.Set{"W": {Shape: []int{dim, dim}, Data: random(r, dim, dim).Data}})
	return map[string]rerank.Similarity{"dot": must(d, err), "cosine": must(unit, err2), "maxsim": must(m, err3), "bilinear": must(b, err4)}
}

// layouts are the ways in which items lie; of max-sim, also with several rows each.
func layouts(r *rand.Rand, grouped bool) map[string]rerank.Items {
	m := random(r, 130, dim)
	for i := range m.Rows {
		rerank.Normalise(m.Row(i))
	}
	rows := make([]int32, 101)
	for i := range rows {
		rows[i] = r.Int32N(130)
	}
	packing := rerank.Packing{Format: rerank.FormatBFloat16, Cols: dim}
	words := make([]uint32, 130*packing.RowWords())
	for i := range m.Rows {
		packing.Pack(words[i*packing.RowWords():][:packing.RowWords()], m.Row(i))
	}
	packed := &rerank.Packed{Packing: packing, Rows: 130, Words: words}
	all := map[string]rerank.Items{
		"in order": {Features: m}, "gathered": {Features: m, Rows: rows}, "packed": {Packed: packed}, "packed, gathered": {Packed: packed, Rows: rows},
	}
	if grouped {
		starts := []int32{1, 2, 5, 5, 9, 70, 71, 74, 100} // one owns none, one more than a block
		all["groups"] = rerank.Items{Features: m, Starts: starts}
		all["groups, gathered"] = rerank.Items{Features: m, Rows: rows, Starts: starts}
		all["groups, packed"] = rerank.Items{Packed: packed, Starts: starts}
	}
	return all
}

// A batch gives every query what Score gives it, within the rounding that Bound
// states, and each item the same bits alone as among others.
func TestScoreBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for kind, plain := range similarities(t, r) {
		for _, k := range kernel.Sets() {
			s := plain.(interface {
				WithKernels(k *kernel.Set) rerank.Similarity
			}).WithKernels(k)
			queries := make([]rerank.Encoded, 35)
			for i := range queries {
				var err error
				if queries[i], err = s.Encode(rerank.Query{Vector: random(r, 1, dim).Data}); err != nil {
					t.Fatal(err)
				}
			}
			for layout, items := range layouts(r, kind == "maxsim") {
				t.Run(kind+" "+k.Name()+" "+layout, func(t *testing.T) { checkBatch(t, s, queries, items) })
			}
		}
	}
}

func checkBatch(t *testing.T, s rerank.Similarity, queries []rerank.Encoded, items rerank.Items) {
	n := items.Len()
	got, alone := make([]float32, len(queries)*n), make([]float32, n)
	if err := s.(rerank.BatchScorer).ScoreBatch(got, queries, items); err != nil {
		t.Fatal(err)
	}
	for q, e := range queries {
		if err := e.Score(alone, items); err != nil {
			t.Fatal(err)
		}
		if q == 0 {
			first := make([]float32, n)
			if err := s.(rerank.BatchScorer).ScoreBatch(first, queries[:1], items); err != nil || !slices.Equal(first, alone) {
				t.Fatalf("a batch of one query scores %v, %v; want %v", first, err, alone)
			}
		}
		bound := e.Bound(nil, nil).Epsilon
		for i, want := range alone {
			if v := got[q*n+i]; !(math.Abs(float64(v-want)) <= 2*float64(bound)) && v != want {
				t.Fatalf("query %d, item %d: %v in a batch, %v alone, bound %v", q, i, v, want, bound)
			}
		}
	}
	if items.Rows == nil || items.Starts != nil {
		return
	}
	few := items
	few.Rows = items.Rows[60:63]
	part := make([]float32, 2*3)
	if err := s.(rerank.BatchScorer).ScoreBatch(part, queries[4:6], few); err != nil {
		t.Fatal(err)
	}
	for i, v := range part {
		if want := got[(4+i/3)*n+60+i%3]; v != want {
			t.Errorf("query %d, item %d: %v in a small batch, %v in a large one", 4+i/3, 60+i%3, v, want)
		}
	}
}

func TestScoreBatchRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 9))
	all := similarities(t, r)
	items := rerank.Items{Features: random(r, 3, dim)}
	e, err := all["dot"].Encode(rerank.Query{Vector: random(r, 1, dim).Data})
	if err != nil {
		t.Fatal(err)
	}
	if err := all["maxsim"].(rerank.BatchScorer).ScoreBatch(make([]float32, 3), []rerank.Encoded{e}, items); !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a query of another similarity: %v, want ErrQuery", err)
	}
	if err := all["dot"].(rerank.BatchScorer).ScoreBatch(make([]float32, 5), []rerank.Encoded{e, e}, items); !errors.Is(err, rerank.ErrItems) {
		t.Errorf("too few places: %v, want ErrItems", err)
	}
	if err := all["dot"].(rerank.BatchScorer).ScoreBatch(nil, nil, items); err != nil {
		t.Errorf("no query: %v", err)
	}
}

// TestExplain: the one term of an inner product is the score.
func TestExplain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	e, err := similarities(t, r)["dot"].Encode(rerank.Query{Vector: random(r, 1, dim).Data})
	if err != nil {
		t.Fatal(err)
	}
	items, scores := rerank.Items{Features: random(r, 3, dim)}, make([]float32, 3)
	explained, err := e.(rerank.Explainer).Explain(items)
	if err := errors.Join(err, e.Score(scores, items)); err != nil {
		t.Fatal(err)
	}
	for i, s := range scores {
		if got := explained[i]; got.Score != s || len(got.Terms) != 1 || got.Terms[0] != (rerank.Term{Dot: s, Logit: s, Gate: 1}) {
			t.Errorf("item %d scores %v, explained by %+v", i, s, got)
		}
	}
}
