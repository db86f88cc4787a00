package companion

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
)

// questions returns the shipped full-gate MoL with every n-th question as an item, and the others as queries.
func questions(t *testing.T, n int) (*model.Model, fit.Data) {
	t.Helper()
	m, err := model.Open("../../../examples/models/banking77-questions-mol")
	if err != nil {
		t.Fatal(err)
	}
	all, err := npy.Open("../../../examples/data/banking77/train_vectors.npy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = all.Close() })
	var d fit.Data
	for r := range all.Rows {
		to := &d.Queries
		if r%n == 0 {
			to = &d.Items
		}
		*to = rerank.Matrix{Rows: to.Rows + 1, Cols: all.Cols, Data: append(to.Data, all.Row(r)...)}
	}
	d.Queries = d.Queries.Slice(0, min(d.Queries.Rows, 2200))
	return m, d
}

// TestFindsWhatAMixtureRanksFirst: one inner product finds the best ten of a full-gate MoL, and the model that carries the
// companion derives the vectors and sends the probe that the fit measured.
func TestFindsWhatAMixtureRanksFirst(t *testing.T) {
	m, d := questions(t, 10)
	o := DefaultOptions()
	o.Dim, o.Anchors, o.Hidden, o.Depths = 128, 1500, 128, []int{20, 50, 100}
	found, err := Fit(t.Context(), m.Similarity, d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", found.Report)
	r := found.Report
	recall := r.Find(rerank.Companion, "").Recall
	if r.Dim != 128 || recall[0] < 0.965 || recall[1] < 0.99 || recall[2] < 0.995 {
		t.Errorf("recall %v at %v", recall, r.Depths)
	}
	p := m.Parameters()
	maps.Copy(p.Tensors, found.Tensors)
	with, err := model.New(p)
	if err != nil {
		t.Fatal(err)
	}
	s := with.Similarity
	items := d.Items.Slice(0, 70)
	features := rerank.NewMatrix(items.Rows, s.Spec().Features)
	derived := rerank.NewMatrix(items.Rows, r.Dim)
	if err := s.EncodeItems(features, items); err != nil {
		t.Fatal(err)
	}
	if err := rerank.AbilitiesOf(s).Derive.Derive(derived, companion.Field, rerank.Items{Features: features}); err != nil {
		t.Fatal(err)
	}
	var sum, squares, products, scoreSquares float64
	for q := range 50 {
		e, err := s.Encode(rerank.Query{Vector: d.Queries.Row(q)})
		if err != nil {
			t.Fatal(err)
		}
		probes, err := e.Probes(rerank.Plan{Strategy: rerank.Companion, Depth: 7, Derived: true})
		if err != nil || len(probes) != 1 || probes[0].Field != companion.Field || probes[0].Depth != 7 || probes[0].Target != rerank.TargetNone {
			t.Fatalf("probes %+v, %v", probes, err)
		}
		scores := make([]float32, items.Rows)
		if err := e.Score(scores, rerank.Items{Features: features}); err != nil {
			t.Fatal(err)
		}
		threshold := best(scores, 10).Threshold()
		companion.Target(scores, threshold, float32(o.Leak))
		var mean float64
		for _, v := range scores {
			mean += float64(v) / float64(len(scores))
		}
		var products70 []float64
		var productMean float64
		for x := range items.Rows {
			v := linalg.Dot(probes[0].Vector, derived.Row(x))
			products70, productMean = append(products70, v), productMean+v/float64(items.Rows)
		}
		for x, v := range scores {
			a, b := float64(v)-mean, products70[x]-productMean
			sum, squares, products, scoreSquares = sum+1, squares+b*b, products+a*b, scoreSquares+a*a
		}
	}
	if correlation := products / math.Sqrt(squares*scoreSquares); correlation < 0.9 {
		t.Errorf("inner products of the model's own vectors correlate by %.3f with its scores", correlation)
	}
	e, err := s.Encode(rerank.Query{Vector: d.Queries.Row(0)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Probes(rerank.Plan{Strategy: rerank.Companion, Depth: 7}); !errors.Is(err, rerank.ErrStrategy) || !strings.Contains(err.Error(), "likeness index") {
		t.Errorf("a search of the stored vectors: %v", err)
	}
}

// TestReducedRank: with all directions, the vectors solve the ridge regression of each item.
func TestReducedRank(t *testing.T) {
	const n, m, items = 60, 9, 40
	rng := rand.New(rand.NewPCG(1, 2))
	p, y := fittest.NormalMatrix(rng, n, m), fittest.NormalMatrix(rng, n, items)
	o := DefaultOptions()
	o.Ridge = 0.05
	a, trace := mat.NewSymDense(m, nil), 0.0
	rhs := mat.NewDense(m, items, nil)
	for i := range m {
		for j := range m {
			var sum float64
			for r := range n {
				sum += float64(p.Row(r)[i]) * float64(p.Row(r)[j])
			}
			a.SetSym(i, j, sum)
			if i == j {
				trace += sum
			}
		}
		for x := range items {
			for r := range n {
				rhs.Set(i, x, rhs.At(i, x)+float64(p.Row(r)[i])*float64(y.Row(r)[x]))
			}
		}
	}
	for i := range m {
		a.SetSym(i, i, a.At(i, i)+o.Ridge*trace/m)
	}
	var want mat.Dense
	if err := want.Solve(a, rhs); err != nil {
		t.Fatal(err)
	}
	for _, dim := range []int{m, 100, m - 1} {
		o.Dim = dim
		v, err := reducedRank(t.Context(), p, y, o)
		if err != nil {
			t.Fatal(err)
		}
		var worst float64
		for range 20 {
			row := fittest.NormalMatrix(rng, 1, m).Data
			psi := make([]float64, v.Rows)
			for i := range psi {
				psi[i] = linalg.Dot(row, v.Row(i))
			}
			for x := range items {
				var got, exact float64
				for r := range n {
					var own float64
					for i := range psi {
						own += psi[i] * linalg.Dot(p.Row(r), v.Row(i))
					}
					got += own * float64(y.Row(r)[x])
				}
				for i := range m {
					exact += float64(row[i]) * want.At(i, x)
				}
				worst = max(worst, math.Abs(got-exact))
			}
		}
		if isWhole := dim >= m; v.Rows != min(dim, m) || isWhole != (worst < 1e-3) {
			t.Errorf("%d of %d directions: %d rows, %g from the regression", dim, m, v.Rows, worst)
		}
	}
}

// TestFewQueries: a companion has no more numbers than queries that place its items.
func TestFewQueries(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	v, err := reducedRank(t.Context(), fittest.NormalMatrix(rng, 4, 9), fittest.NormalMatrix(rng, 4, 30), DefaultOptions())
	if err != nil || v.Rows != 4 || v.Cols != 9 {
		t.Errorf("%d rows of %d numbers, %v, by four queries", v.Rows, v.Cols, err)
	}
}

// TestLeadingDirections: with fewer directions than features, those of the most variance are taken.
func TestLeadingDirections(t *testing.T) {
	g, y := rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 1}}, rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{3, 0}}
	if u := leading(g, y, 1); !(math.Abs(math.Abs(u.At(0, 0))-1) <= 1e-6) || !(math.Abs(u.At(1, 0)) <= 1e-6) {
		t.Errorf("the direction is (%g, %g), want the first axis", u.At(0, 0), u.At(1, 0))
	}
}

func TestRefuses(t *testing.T) {
	m, d := questions(t, 5)
	plain, err := dot.New(dot.Config{Dim: d.Items.Cols}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		s      rerank.Similarity
		change func(*fit.Data, *Options)
		want   error
	}{
		"an inner product": {t.Context(), plain, func(*fit.Data, *Options) {}, fit.ErrData},
		"no queries":       {t.Context(), m.Similarity, func(d *fit.Data, _ *Options) { d.Queries.Rows, d.Queries.Data = 0, nil }, fit.ErrData},
		"other items":      {t.Context(), m.Similarity, func(d *fit.Data, _ *Options) { d.Items = rerank.NewMatrix(9, 3) }, fit.ErrData},
		"no numbers":       {t.Context(), m.Similarity, func(_ *fit.Data, o *Options) { o.Dim = 0 }, fit.ErrOption},
		"a leak of 2":      {t.Context(), m.Similarity, func(_ *fit.Data, o *Options) { o.Leak = 2 }, fit.ErrOption},
		"cancelled":        {cancelled, m.Similarity, func(*fit.Data, *Options) {}, context.Canceled},
	} {
		data, o := d, DefaultOptions()
		c.change(&data, &o)
		if _, err := Fit(c.ctx, c.s, data, o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLeak: more of the best items is found if the others count less.
func TestLeak(t *testing.T) {
	m, d := questions(t, 10)
	o := DefaultOptions()
	o.Dim, o.Anchors, o.Hidden, o.Focus, o.Depths = 64, 1500, 64, 30, []int{10}
	recall := map[float64]float64{}
	for _, o.Leak = range []float64{0.3, 1} {
		found, err := Fit(t.Context(), m.Similarity, d, o)
		if err != nil {
			t.Fatal(err)
		}
		recall[o.Leak] = found.Report.Find(rerank.Companion, "").Recall[0]
	}
	if t.Logf("recall by leak: %v", recall); recall[0.3] < recall[1]+0.02 {
		t.Errorf("recall by leak: %v", recall)
	}
}
