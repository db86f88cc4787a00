package bilinear_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/internal/race"
	"github.com/likenessdb/likeness/learn/fit"
	fitbilinear "github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// agreement is a case of the structured agreement task (bilinear similarities,
// section 4): documents 0 and 1 agree with the query on a pair of features, 2 and
// 3 do not.
type agreement struct {
	Pair      [2]int
	Query     []float32
	Documents [][]float32
}

func agreements(t *testing.T) (n int, cases []agreement) {
	t.Helper()
	text, err := os.ReadFile("../../../testdata/golden/bilinear/structured_agreement.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		N     int
		Cases []agreement
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	return golden.N, golden.Cases
}

// solves says whether both documents that agree score above both that do not.
func (a agreement) solves(t *testing.T, s *bilinear.Similarity) bool {
	t.Helper()
	scores := score(t, s, a.Query, matrix(a.Documents))
	return min(scores[0], scores[1]) > max(scores[2], scores[3])
}

func matrix(rows [][]float32) rerank.Matrix {
	return rerank.Matrix{Rows: len(rows), Cols: len(rows[0]), Data: slices.Concat(rows...)}
}

// score is φ of a query and every row of items, as the sidecar computes it.
func score(t *testing.T, s *bilinear.Similarity, query []float32, items rerank.Matrix) []float32 {
	t.Helper()
	encoded, err := s.Encode(rerank.Query{Vector: query})
	if err != nil {
		t.Fatal(err)
	}
	features := rerank.NewMatrix(items.Rows, s.Spec().Features)
	if err := s.EncodeItems(features, items); err != nil {
		t.Fatal(err)
	}
	scores := make([]float32, items.Rows)
	if err := encoded.Score(scores, rerank.Items{Features: features}); err != nil {
		t.Fatal(err)
	}
	return scores
}

func model(t *testing.T, c bilinear.Config, tensors tensor.Set) *bilinear.Similarity {
	t.Helper()
	s, err := bilinear.New(c, tensors)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cube returns every vector of n features of ±1.
func cube(n int) rerank.Matrix {
	m := rerank.NewMatrix(1<<n, n)
	for r := range m.Rows {
		for i := range n {
			m.Row(r)[i] = float32(1 - 2*(r>>i&1))
		}
	}
	return m
}

// agreeing returns the rows of the cube that agree with a query on a pair of features.
func agreeing(items rerank.Matrix, query []float32, pair [2]int) []int32 {
	var rows []int32
	for x := range items.Rows {
		if row := items.Row(x); row[pair[0]] == query[pair[0]] && row[pair[1]] == query[pair[1]] {
			rows = append(rows, int32(x))
		}
	}
	return rows
}

func options(form bilinear.Form, rank int) fitbilinear.Options {
	o := fitbilinear.DefaultOptions()
	o.Form, o.Rank, o.Normalise, o.Cold, o.HeldOut = form, rank, false, fit.ColdIgnore, 0.2
	return o
}

// For every pair of features a form of rank 2, learned from the cases that agree on it, ranks every
// case correctly.
func TestRankTwoSolvesStructuredAgreement(t *testing.T) {
	if race.Enabled {
		t.Skip("off under the race detector; run without it")
	}
	n, cases := agreements(t)
	items, fits := cube(n), map[[2]int]*bilinear.Similarity{}
	for i, a := range cases {
		s := fits[a.Pair]
		if s == nil {
			d := fit.Data{Items: items, Queries: items}
			for q := range items.Rows {
				d.Relevant = append(d.Relevant, agreeing(items, items.Row(q), a.Pair))
			}
			fitted, err := fitbilinear.Fit(t.Context(), d, options(bilinear.LowRank, 2))
			if err != nil {
				t.Fatal(err)
			}
			s = model(t, fitted.Config, fitted.Tensors)
			fits[a.Pair] = s
		}
		if !a.solves(t, s) {
			t.Errorf("case %d, pair %v: a form of rank 2 ranks a document that disagrees first", i, a.Pair)
		}
	}
	if len(fits) != n*(n-1)/2 {
		t.Errorf("the cases have %d pairs, want %d", len(fits), n*(n-1)/2)
	}
}

// No weighted inner product solves every pair (theorem 2, part ii): neither one
// that is fitted to all of them nor any of many others.
func TestNoWeightedInnerProductSolvesStructuredAgreement(t *testing.T) {
	n, cases := agreements(t)
	items := cube(n)
	d := fit.Data{Items: items, Queries: rerank.Matrix{Cols: n}}
	for i := range n {
		for j := range i {
			for q := range items.Rows {
				d.Queries.Data = append(d.Queries.Data, items.Row(q)...)
				d.Queries.Rows++
				d.Relevant = append(d.Relevant, agreeing(items, items.Row(q), [2]int{j, i}))
			}
		}
	}
	fitted, err := fitbilinear.Fit(t.Context(), d, options(bilinear.Diagonal, 0))
	if err != nil {
		t.Fatal(err)
	}
	weights := [][]float32{fitted.Tensors["w"].Data}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		w := make([]float32, n)
		for i := range w {
			w[i] = float32(rng.NormFloat64())
		}
		weights = append(weights, w)
	}
	for _, w := range weights {
		s := model(t, bilinear.Config{QueryDim: n, ItemDim: n, Form: bilinear.Diagonal}, tensor.Set{"w": {Shape: []int{n}, Data: w}})
		if !slices.ContainsFunc(cases, func(a agreement) bool { return !a.solves(t, s) }) {
			t.Errorf("the weights %v solve every pair", w)
		}
	}
}

// The reported bound holds on every pair: |φ − φ_r| ≤ ‖q‖‖x‖σ_{r+1} (section 5,
// theorem 3, for W − I).
func TestReportedBoundHoldsOnEveryPair(t *testing.T) {
	const dim, rows = 16, 60
	rng := rand.New(rand.NewPCG(7, 7))
	d := fit.Data{Items: rerank.NewMatrix(rows, dim), Queries: rerank.NewMatrix(10*rows, dim)}
	for i := range d.Items.Data {
		d.Items.Data[i] = float32(rng.NormFloat64())
	}
	for q := range d.Queries.Rows {
		for i, v := range d.Items.Row(q % rows) {
			d.Queries.Row(q)[i] = v*float32(1-2*(i%2)) + float32(rng.NormFloat64()) // every other axis is turned
		}
		d.Relevant = append(d.Relevant, []int32{int32(q % rows)})
	}
	o := options(bilinear.Full, 0)
	fitted, err := fitbilinear.Fit(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	if fitted.Report.Spectrum == nil {
		t.Fatal("a full fit reports no spectrum")
	}
	whole := model(t, fitted.Config, fitted.Tensors)
	for _, r := range fitted.Report.Spectrum.Ranks {
		p, q := components(t, fitted.Tensors["W"].Data, dim, r.Rank)
		cut := model(t, bilinear.Config{QueryDim: dim, ItemDim: dim, Form: bilinear.IdentityLowRank},
			tensor.Set{"P": {Shape: []int{dim, r.Rank}, Data: p}, "Q": {Shape: []int{dim, r.Rank}, Data: q}})
		for row := range d.Queries.Rows {
			query := d.Queries.Row(row)
			a, b := score(t, whole, query, d.Items), score(t, cut, query, d.Items)
			for x := range a {
				off := math.Abs(float64(a[x]) - float64(b[x]))
				if norms := rerank.Norm(query) * rerank.Norm(d.Items.Row(x)); off > norms*(r.Bound+1e-5) {
					t.Fatalf("rank %d: query %d and item %d are off by %g, the bound is %g", r.Rank, row, x, off, norms*r.Bound)
				}
			}
		}
	}
}

// components returns the first singular components of W − I, as P and Q of I + PQᵀ.
func components(t *testing.T, w []float32, dim, rank int) (p, q []float32) {
	t.Helper()
	difference := mat.NewDense(dim, dim, nil)
	for i, v := range w {
		difference.Set(i/dim, i%dim, float64(v))
	}
	for i := range dim {
		difference.Set(i, i, difference.At(i, i)-1)
	}
	var svd mat.SVD
	if !svd.Factorize(difference, mat.SVDThin) { //nolint:misspell // gonum's name
		t.Fatal("no singular values")
	}
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	for i := range dim {
		for k := range rank {
			p = append(p, float32(u.At(i, k)*svd.Values(nil)[k]))
			q = append(q, float32(v.At(i, k)))
		}
	}
	return p, q
}
