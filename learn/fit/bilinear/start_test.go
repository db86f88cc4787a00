package bilinear_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	fitbilinear "github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/mol"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// signs returns random vectors of the hypercube.
func signs(rng *rand.Rand, rows, n int) rerank.Matrix {
	m := rerank.NewMatrix(rows, n)
	for i := range m.Data {
		m.Data[i] = float32(1 - 2*rng.IntN(2))
	}
	return m
}

// interactions is a task of fixed interactions (section 4): a document is right if its features
// Items agree with the query's features Query. With Query equal to Items it is the paper's task
// for one pair.
type interactions struct{ Query, Items [2]int }

func (in interactions) agree(query, document []float32) bool {
	return query[in.Query[0]] == document[in.Items[0]] && query[in.Query[1]] == document[in.Items[1]]
}

// log returns queries and all the documents of a collection that agree with each.
func (in interactions) log(rng *rand.Rand, n int) fit.Data {
	d := fit.Data{Items: signs(rng, 80, n), Queries: signs(rng, 200, n)}
	d.Relevant = make([][]int32, d.Queries.Rows)
	for q := range d.Relevant {
		for x := range d.Items.Rows {
			if in.agree(d.Queries.Row(q), d.Items.Row(x)) {
				d.Relevant[q] = append(d.Relevant[q], int32(x))
			}
		}
	}
	return d
}

// solved returns the share of 1,000 random cases in which both of two opposite documents that
// agree come before their negations, which disagree on both features.
func (in interactions) solved(t *testing.T, s *bilinear.Similarity, rng *rand.Rand, n int) float64 {
	t.Helper()
	const cases = 1000
	right := 0
	for range cases {
		query, documents := signs(rng, 1, n), signs(rng, 4, n)
		for i := range n {
			documents.Row(1)[i] = -documents.Row(0)[i]
		}
		for k, i := range in.Items {
			documents.Row(0)[i], documents.Row(1)[i] = query.Data[in.Query[k]], query.Data[in.Query[k]]
		}
		for i := range n {
			documents.Row(2)[i], documents.Row(3)[i] = -documents.Row(0)[i], -documents.Row(1)[i]
		}
		scores := score(t, s, query.Row(0), documents)
		if min(scores[0], scores[1]) > max(scores[2], scores[3]) {
			right++
		}
	}
	return float64(right) / cases
}

// With the default number of rounds a full form learns fixed interactions, also those of
// different features of the two sides. There no weighted inner product ranks better than
// chance.
func TestFullSolvesFixedInteractions(t *testing.T) {
	const n = 10
	for name, tc := range map[string]struct {
		task         interactions
		diagonalMost float64
	}{
		"the same features": {interactions{[2]int{0, 3}, [2]int{0, 3}}, 1},
		"other features":    {interactions{[2]int{0, 3}, [2]int{4, 7}}, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			d := tc.task.log(rng, n)
			solved := func(form bilinear.Form) float64 {
				o := options(form, 0)
				o.Pulls = o.Pulls[:1]
				fitted, err := fitbilinear.Fit(t.Context(), d, o)
				if err != nil {
					t.Fatal(err)
				}
				return tc.task.solved(t, model(t, fitted.Config, fitted.Tensors), rng, n)
			}
			if full := solved(bilinear.Full); full != 1 {
				t.Errorf("the full form solves %.3f, want 1.000", full)
			}
			if diagonal := solved(bilinear.Diagonal); diagonal > tc.diagonalMost {
				t.Errorf("the diagonal form solves %.3f, want %.3f at most", diagonal, tc.diagonalMost)
			}
		})
	}
}

// mappedData returns a log in which a query is a random linear map of its item, with noise.
func mappedData(seed uint64, queryDim, itemDim int) fit.Data {
	const items, queries = 180, 720
	rng := rand.New(rand.NewPCG(3, 4)) // the same items and map under every seed
	d := fit.Data{Items: fittest.NormalMatrix(rng, items, itemDim), Queries: rerank.NewMatrix(queries, queryDim)}
	through := fittest.NormalMatrix(rng, queryDim, itemDim)
	rng = rand.New(rand.NewPCG(seed, 5))
	for q := range queries {
		x := q % items
		for i := range queryDim {
			var sum float32
			for k, v := range d.Items.Row(x) {
				sum += through.Row(i)[k] * v
			}
			d.Queries.Row(q)[i] = sum + 3*float32(rng.NormFloat64())
		}
		d.Relevant = append(d.Relevant, []int32{int32(x)})
	}
	return d
}

// firsts returns the share of the queries whose item has the best score.
func firsts(t *testing.T, s *bilinear.Similarity, d fit.Data) float64 {
	t.Helper()
	right := 0
	for q := range d.Queries.Rows {
		best := 0
		scores := score(t, s, d.Queries.Row(q), d.Items)
		for x, v := range scores {
			if v > scores[best] {
				best = x
			}
		}
		if int32(best) == d.Relevant[q][0] {
			right++
		}
	}
	return float64(right) / float64(d.Queries.Rows)
}

// Where queries and items lie in other coordinates, or in others of another dimension, the fit
// starts at the least-squares map between them and finds the items of new queries.
func TestFitFarFromTheIdentity(t *testing.T) {
	for name, tc := range map[string]struct {
		queryDim, itemDim int
		form              bilinear.Form
		reduce            int
	}{
		"mapped":             {48, 48, bilinear.Full, 0},
		"48 x 64":            {48, 64, bilinear.Full, 0},
		"64 x 48 cut":        {64, 48, bilinear.Full, 40},
		"48 x 64 of rank 40": {48, 64, bilinear.LowRank, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := fitbilinear.DefaultOptions()
			o.Form, o.Rank, o.Reduce, o.Pulls = tc.form, 40, tc.reduce, []float64{1e-5}
			fitted, err := fitbilinear.Fit(t.Context(), mappedData(1, tc.queryDim, tc.itemDim), o)
			if err != nil {
				t.Fatal(err)
			}
			if fitted.Report.Start != fitbilinear.FromLeastSquares {
				t.Errorf("the fit starts at the %s", fitted.Report.Start)
			}
			s := model(t, fitted.Config, fitted.Tensors)
			if found := firsts(t, s, mappedData(2, tc.queryDim, tc.itemDim)); found < 0.97 {
				t.Errorf("%.3f of new queries find their item first, want 0.97; %+v", found, fitted.Report.Logged)
			}
		})
	}
}

// A fit that starts at the inner product says that it needs one.
func TestOtherFitsNeedAnInnerProduct(t *testing.T) {
	d := mappedData(1, 48, 64)
	if _, err := fitbilinear.Fit(t.Context(), d, options(bilinear.Diagonal, 0)); !errors.Is(err, fit.ErrOption) {
		t.Errorf("a diagonal form of 48 x 64: %v", err)
	}
	if _, err := mol.Fit(t.Context(), d, mol.DefaultOptions()); !errors.Is(err, fit.ErrData) {
		t.Errorf("a MoL of 48 x 64: %v", err)
	}
}
