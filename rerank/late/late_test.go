package late_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/rerank/table"
)

func random(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

func build(t testing.TB, c late.Config) *late.Similarity {
	t.Helper()
	s, err := late.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encode(t testing.TB, s rerank.Similarity, vectors rerank.Matrix) rerank.Encoded {
	t.Helper()
	e, err := s.Encode(rerank.Query{Vectors: vectors})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// encodeItems returns feature rows of random vectors.
func encodeItems(t testing.TB, s rerank.Similarity, base rerank.Matrix) rerank.Matrix {
	t.Helper()
	features := rerank.NewMatrix(base.Rows, base.Cols)
	if err := s.EncodeItems(features, base); err != nil {
		t.Fatal(err)
	}
	return features
}

// wide returns the vectors in float64, divided by their norms if normalise is set.
func wide(m rerank.Matrix, normalise bool) [][]float64 {
	out := make([][]float64, m.Rows)
	for r := range out {
		norm := 1.0
		if normalise {
			norm = rerank.Norm(m.Row(r))
		}
		for _, x := range m.Row(r) {
			out[r] = append(out[r], float64(x)/norm)
		}
	}
	return out
}

// maxSim is the definition, in float64: Σ_i max_j ⟨q_i, x_j⟩, and the j of each i.
func maxSim(queries, item [][]float64) (sum float64, met []int) {
	for _, q := range queries {
		best, at := math.Inf(-1), -1
		for j, x := range item {
			var dot float64
			for k, v := range q {
				dot += v * x[k]
			}
			if dot > best {
				best, at = dot, j
			}
		}
		sum, met = sum+best, append(met, at)
	}
	return sum, met
}

// TestScore compares φ with its definition, on every set of kernels: queries of 1 to 512 vectors and
// items of 1 to 1,024, by rows and by row numbers, alone and in a batch. Bound's ε holds, and
// ScoreWide's.
func TestScore(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sizes := []int32{1, 3, 1024, 200, 16, 385, 2}
	starts := []int32{0}
	for _, n := range sizes {
		starts = append(starts, starts[len(starts)-1]+n)
	}
	base := random(rng, int(starts[len(sizes)]), 5)
	reversed := make([]int32, base.Rows)
	for i := range reversed {
		reversed[i] = int32(base.Rows - 1 - i)
	}
	for _, normalise := range []bool{false, true} {
		plain := build(t, late.Config{Dim: 5, Normalise: normalise})
		features := encodeItems(t, plain, base)
		for _, k := range kernel.Sets() {
			s := plain.WithKernels(k)
			for _, count := range []int{1, 2, 17, 512} {
				queries := random(rng, count, 5)
				e := encode(t, s, queries)
				for name, items := range map[string]rerank.Items{
					"rows": {Features: features, Starts: starts}, "row numbers": {Features: features, Rows: reversed, Starts: starts},
				} {
					dst, inFloat64 := make([]float32, len(sizes)), make([]float64, len(sizes))
					if err := e.Score(dst, items); err != nil {
						t.Fatal(err)
					}
					epsilon, err := e.ScoreWide(inFloat64, items)
					if err != nil {
						t.Fatal(err)
					}
					near := float64(e.Bound(nil, nil).Epsilon)
					for i, n := range sizes {
						own := rerank.NewMatrix(int(n), 5)
						for r := range own.Rows {
							from := int(starts[i]) + r
							if items.Rows != nil {
								from = int(items.Rows[from])
							}
							copy(own.Row(r), base.Row(from))
						}
						want, _ := maxSim(wide(queries, normalise), wide(own, normalise))
						if off := math.Abs(inFloat64[i] - want); !(off <= epsilon) {
							t.Errorf("%s, %d query vectors, %s: item %d scores %v in float64, want %v within %v", k.Name(), count, name, i, inFloat64[i], want, epsilon)
						}
						if off := math.Abs(float64(dst[i]) - want); !(off <= near+epsilon) || near > 1e-3*float64(count) {
							t.Errorf("%s, %d query vectors, %s: item %d scores %v, want %v within %v", k.Name(), count, name, i, dst[i], want, near)
						}
					}
				}
			}
		}
	}
}

// TestBatch: queries of different lengths, more vectors together than one call takes, score as they
// do alone.
func TestBatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	s := build(t, late.Config{Dim: 6, Normalise: true})
	items := rerank.Items{Features: encodeItems(t, s, random(rng, 150, 6)), Starts: make([]int32, 0, 76)}
	for r := int32(0); r <= 150; r += 2 {
		items.Starts = append(items.Starts, r)
	}
	var queries []rerank.Encoded
	for _, n := range []int{300, 2, 300, 512, 5} {
		queries = append(queries, encode(t, s, random(rng, n, 6)))
	}
	n := items.Len()
	together := make([]float32, len(queries)*n)
	if err := s.ScoreBatch(together, queries, items); err != nil {
		t.Fatal(err)
	}
	for q, e := range queries {
		alone := make([]float32, n)
		if err := e.Score(alone, items); err != nil {
			t.Fatal(err)
		}
		for i, v := range alone {
			if v != together[q*n+i] {
				t.Errorf("query %d, item %d: %v alone, %v in the batch", q, i, v, together[q*n+i])
			}
		}
	}
	other := encode(t, build(t, late.Config{Dim: 6}), random(rng, 1, 6))
	if err := s.ScoreBatch(together[:n], []rerank.Encoded{other}, items); !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a query of another similarity: %v", err)
	}
}

// TestPacked: rows in a reduced format score what the rounded rows say, and no further from the
// unrounded ones than RoundingError and ε.
func TestPacked(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	s := build(t, late.Config{Dim: 24, Normalise: true})
	starts, ids := []int32{0}, []rerank.ID{}
	for i := range 40 {
		starts, ids = append(starts, starts[i]+1+rng.Int32N(20)), append(ids, rerank.UintID(uint64(i)))
	}
	features := encodeItems(t, s, random(rng, int(starts[40]), 24))
	e := encode(t, s, random(rng, 9, 24))
	want := make([]float64, 40)
	if _, err := e.ScoreWide(want, rerank.Items{Features: features, Starts: starts}); err != nil {
		t.Fatal(err)
	}
	for _, format := range rerank.Formats() {
		for _, layout := range []table.Layout{table.LayoutRows, table.LayoutTiles} {
			tab, err := table.FromMemory(table.Meta{Kind: "late", Format: format, Layout: layout}, ids, features, starts)
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]float32, 40)
			if err := e.Score(dst, tab.All()); err != nil {
				t.Fatal(err)
			}
			lost := float64(rerank.EncodedAbilitiesOf(e).Round.RoundingError(tab.Loss()))
			epsilon := float64(e.Bound(nil, nil).Epsilon)
			worst := 0.0
			for i, v := range dst {
				worst = max(worst, math.Abs(float64(v)-want[i]))
			}
			if worst > lost+epsilon || format == rerank.FormatInt8 && worst < lost/1000 {
				t.Errorf("%s, %s: off by %v, bound %v + %v", format, layout, worst, lost, epsilon)
			}
		}
	}
}

// TestExplain: each query vector names the item's vector that it met, and the terms add up.
func TestExplain(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	s := build(t, late.Config{Dim: 4, Normalise: true})
	base, queries := random(rng, 12, 4), random(rng, 3, 4)
	items := rerank.Items{Features: encodeItems(t, s, base), Starts: []int32{0, 5, 12}}
	got, err := rerank.EncodedAbilitiesOf(encode(t, s, queries)).Explain.Explain(items)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range got {
		_, met := maxSim(wide(queries, true), wide(base.Slice(int(items.Starts[i]), int(items.Starts[i+1])), true))
		var sum float64
		for q, term := range x.Terms {
			sum += float64(term.Gate * term.Logit)
			if term.QueryComponent != q || term.ItemComponent != met[q] {
				t.Errorf("item %d: vector %d of the query met %d, want %d", i, q, term.ItemComponent, met[q])
			}
		}
		if len(x.Terms) != 3 || !(math.Abs(sum-float64(x.Score)) <= 1e-6) {
			t.Errorf("item %d: %d terms add up to %v, the score is %v", i, len(x.Terms), sum, x.Score)
		}
	}
}

// TestNotFinite: an item with a vector that is not finite has a score that is not finite, and its
// neighbours do not.
func TestNotFinite(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	s := build(t, late.Config{Dim: 4})
	e := encode(t, s, random(rng, 3, 4))
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		features := random(rng, 600, 4)
		features.Row(301)[2] = float32(bad)
		items := rerank.Items{Features: features, Starts: []int32{0, 300, 302, 600}}
		dst, exact := make([]float32, 3), make([]float64, 3)
		if err := e.Score(dst, items); err != nil {
			t.Fatal(err)
		}
		if _, err := e.ScoreWide(exact, items); err != nil {
			t.Fatal(err)
		}
		for i := range dst {
			if finite := dst[i]-dst[i] == 0; finite != (i != 1) || finite != (exact[i]-exact[i] == 0) {
				t.Errorf("%v: item %d scores %v and %v", bad, i, dst[i], exact[i])
			}
		}
	}
}

// TestQueries: what a query may be.
func TestQueries(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	s := build(t, late.Config{Dim: 4, Normalise: true})
	cancelling := rerank.Matrix{Rows: 2, Cols: 4, Data: []float32{1, 0, 0, 0, -1, 0, 0, 0}}
	infinite := random(rng, 2, 4)
	infinite.Data[5] = float32(math.Inf(1))
	for name, c := range map[string]struct {
		q    rerank.Query
		fits bool
	}{
		"the most vectors":      {rerank.Query{Vectors: random(rng, rerank.MaxQueryVectors, 4)}, true},
		"one too many":          {rerank.Query{Vectors: random(rng, rerank.MaxQueryVectors+1, 4)}, false},
		"one":                   {rerank.Query{Vector: []float32{1, 2, 3, 4}}, true},
		"both":                  {rerank.Query{Vector: []float32{1, 2, 3, 4}, Vectors: random(rng, 1, 4)}, false},
		"none":                  {rerank.Query{}, false},
		"another dimension":     {rerank.Query{Vectors: random(rng, 2, 5)}, false},
		"too few numbers":       {rerank.Query{Vectors: rerank.Matrix{Rows: 2, Cols: 4, Data: make([]float32, 7)}}, false},
		"not finite":            {rerank.Query{Vectors: infinite}, false},
		"zeros":                 {rerank.Query{Vectors: rerank.NewMatrix(2, 4)}, false},
		"they cancel":           {rerank.Query{Vectors: cancelling}, true},
		"a zero beside another": {rerank.Query{Vectors: rerank.Matrix{Rows: 2, Cols: 4, Data: []float32{0, 0, 0, 0, 0, 1, 0, 0}}}, true},
	} {
		e, err := s.Encode(c.q)
		if c.fits != (err == nil) || err != nil && !errors.Is(err, rerank.ErrQuery) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		probes, err := e.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 7})
		if err != nil || len(probes) != 1 || probes[0].Depth != 7 || !(math.Abs(rerank.Norm(probes[0].Vector)-1) <= 1e-6) {
			t.Errorf("%s: probes %v, %v", name, probes, err)
		}
	}
	e := encode(t, s, cancelling)
	for _, strategy := range rerank.Strategies() {
		if _, err := e.Probes(rerank.Plan{Strategy: strategy}); err != nil && !errors.Is(err, rerank.ErrStrategy) {
			t.Errorf("%s: %v", strategy, err)
		}
	}
}

// TestBound: a normalised model bounds φ by the number of query vectors; an exhausted list leaves
// nothing out.
func TestBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	e := encode(t, build(t, late.Config{Dim: 4, Normalise: true}), random(rng, 3, 4))
	if b := e.Bound(nil, nil); b.Max < 3 || b.Max > 3.001 || !(b.Epsilon > 0) || b.Epsilon > 1e-5 {
		t.Errorf("three vectors: %+v", b)
	}
	if b := e.Bound(nil, []rerank.List{{Exhausted: true}}); !math.IsInf(float64(b.Max), -1) {
		t.Errorf("an exhausted list: %+v", b)
	}
	if b := encode(t, build(t, late.Config{Dim: 4}), random(rng, 3, 4)).Bound(nil, nil); !math.IsInf(float64(b.Max), 1) {
		t.Errorf("vectors of any length: %+v", b)
	}
}

// TestMean: the item's vector of the first stage is the mean of its vectors, with norm 1.
func TestMean(t *testing.T) {
	items := rerank.Items{Features: rerank.Matrix{Rows: 3, Cols: 2, Data: []float32{3, 0, 0, 4, 0, -2}}, Starts: []int32{0, 2, 3}}
	dst := rerank.NewMatrix(2, 2)
	late.Mean(dst, items)
	for i, want := range []float32{0.6, 0.8, 0, -1} {
		if !(math.Abs(float64(dst.Data[i]-want)) <= 1e-6) {
			t.Errorf("%v", dst.Data)
		}
	}
}

func BenchmarkScore(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	s := build(b, late.Config{Dim: 384, Normalise: true})
	features := encodeItems(b, s, random(rng, 500*300, 384))
	starts, ids := make([]int32, 501), make([]rerank.ID, 500)
	for i := range ids {
		starts[i+1], ids[i] = int32(300*(i+1)), rerank.UintID(uint64(i))
	}
	e := encode(b, s, random(rng, 32, 384))
	dst := make([]float32, 500)
	for _, format := range rerank.Formats() {
		tab, err := table.FromMemory(table.Meta{Kind: "late", Format: format}, ids, features, starts)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(string(format), func(b *testing.B) {
			for b.Loop() {
				if err := e.Score(dst, tab.All()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
