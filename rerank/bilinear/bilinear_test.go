package bilinear_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

func readFile(t testing.TB, parts ...string) *safetensors.File {
	t.Helper()
	f, err := safetensors.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func matrix(t testing.TB, f *safetensors.File, name string) rerank.Matrix {
	t.Helper()
	v, ok := f.Tensors[name]
	if !ok {
		t.Fatalf("no tensor %q", name)
	}
	return rerank.Matrix{Rows: v.Shape[0], Cols: len(v.Data) / v.Shape[0], Data: v.Data}
}

func build(t testing.TB, c bilinear.Config, set tensor.Set) *bilinear.Similarity {
	t.Helper()
	s, err := bilinear.New(c, set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encode(t testing.TB, s rerank.Similarity, q []float32) rerank.Encoded {
	t.Helper()
	e, err := s.Encode(rerank.Query{Vector: q})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func scores(t testing.TB, s rerank.Similarity, q []float32, base rerank.Matrix) []float32 {
	t.Helper()
	x := rerank.NewMatrix(base.Rows, s.Spec().Features)
	if err := s.EncodeItems(x, base); err != nil {
		t.Fatal(err)
	}
	dst := make([]float32, base.Rows)
	if err := encode(t, s, q).Score(dst, rerank.Items{Features: x}); err != nil {
		t.Fatal(err)
	}
	return dst
}

func near(t testing.TB, what string, have, want []float32, tolerance float64) {
	t.Helper()
	if len(have) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(have), len(want))
	}
	for i := range have {
		if d := math.Abs(float64(have[i]) - float64(want[i])); !(d <= tolerance) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, have[i], want[i])
		}
	}
}

// probe returns the one probe of a first-stage strategy.
func probe(t testing.TB, e rerank.Encoded, derived bool) rerank.Probe {
	t.Helper()
	for _, strategy := range []rerank.Strategy{rerank.PerEmbedding, rerank.Combined, rerank.Average} {
		probes, err := e.Probes(rerank.Plan{Strategy: strategy, Depth: 3, Derived: derived})
		if err != nil || len(probes) != 1 || probes[0].Target != rerank.TargetScore || probes[0].Scale != 1 || probes[0].Depth != 3 {
			t.Fatalf("%s: %+v, %v; want one probe of the score", strategy, probes, err)
		}
		if strategy == rerank.Average {
			return probes[0]
		}
	}
	return rerank.Probe{}
}

// TestGolden compares every form with the reference values.
func TestGolden(t *testing.T) {
	f := readFile(t, "../../testdata/golden/bilinear/rank8.safetensors")
	queries, documents := matrix(t, f, "queries"), matrix(t, f, "documents")
	full := build(t, bilinear.Config{QueryDim: 48, ItemDim: 48}, tensor.Set{"W": f.Tensors["W"]})
	low := build(t, bilinear.Config{QueryDim: 48, ItemDim: 48, Form: bilinear.LowRank}, tensor.Set{"P": f.Tensors["P"], "Q": f.Tensors["Q"]})
	diagonal := build(t, bilinear.Config{QueryDim: 48, ItemDim: 48, Form: bilinear.Diagonal}, tensor.Set{"w": f.Tensors["wdp_weights"]})
	factors := rerank.NewMatrix(documents.Rows, low.Spec().Features)
	if err := low.EncodeItems(factors, documents); err != nil {
		t.Fatal(err)
	}
	near(t, "document factor", factors.Data, f.Tensors["document_factor"].Data, 1e-5)
	bound := matrix(t, f, "bound")
	for b := range queries.Rows {
		q := queries.Row(b)
		f0, f1 := scores(t, full, q, documents), scores(t, low, q, documents)
		near(t, "full", f0, matrix(t, f, "scores_full").Row(b), 1e-4)
		near(t, "low rank", f1, matrix(t, f, "scores_rank").Row(b), 1e-4)
		near(t, "diagonal", scores(t, diagonal, q, documents), matrix(t, f, "scores_wdp").Row(b), 1e-4)
		near(t, "probe", probe(t, encode(t, full, q), false).Vector, matrix(t, f, "probe_full").Row(b), 1e-5)
		near(t, "factor", probe(t, encode(t, low, q), true).Vector, matrix(t, f, "probe_rank").Row(b), 1e-5)
		for i := range f0 {
			if d := math.Abs(float64(f0[i] - f1[i])); d > float64(bound.Row(b)[i])+1e-4 {
				t.Errorf("query %d, document %d: the ranks differ by %v, above ‖q‖‖d‖σ = %v", b, i, d, bound.Row(b)[i])
			}
		}
	}
	tight := rerank.Matrix{Rows: 1, Cols: 48, Data: f.Tensors["tight_document"].Data}
	q := f.Tensors["tight_query"].Data
	gap := scores(t, full, q, tight)[0] - scores(t, low, q, tight)[0]
	near(t, "the tight pair's difference", []float32{float32(math.Abs(float64(gap)))}, f.Tensors["tight_error"].Data, 1e-5)
}

func random(rng *rand.Rand, shape ...int) tensor.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	return tensor.Tensor{Shape: shape, Data: v}
}

// randomForm returns a model, its tensors and W in float64.
func randomForm(t *testing.T, rng *rand.Rand, form bilinear.Form, normalise bool) (*bilinear.Similarity, func(i, j int) float64) {
	t.Helper()
	n, m, r := 1+rng.IntN(20), 1+rng.IntN(20), 1+rng.IntN(5)
	if form == bilinear.IdentityLowRank || form == bilinear.Diagonal {
		m = n
	}
	set := tensor.Set{}
	var w func(i, j int) float64
	switch form {
	case bilinear.Full:
		set["W"] = random(rng, n, m)
		w = func(i, j int) float64 { return float64(set["W"].Data[i*m+j]) }
	case bilinear.Diagonal:
		set["w"] = random(rng, n)
		w = func(i, j int) float64 {
			if i != j {
				return 0
			}
			return float64(set["w"].Data[i])
		}
	default:
		set["P"], set["Q"] = random(rng, n, r), random(rng, m, r)
		w = func(i, j int) (sum float64) {
			if i == j && form == bilinear.IdentityLowRank {
				sum = 1
			}
			for k := range r {
				sum += float64(set["P"].Data[i*r+k]) * float64(set["Q"].Data[j*r+k])
			}
			return sum
		}
	}
	return build(t, bilinear.Config{QueryDim: n, ItemDim: m, Form: form, Normalise: normalise}, set), w
}

// TestForms compares random models with float64 in both placements. It holds the errors of scores
// and lists to Bound's ε, which covers the store and the kernel alone: the float64 values use the
// numbers that the model itself computed.
func TestForms(t *testing.T) {
	for seed := range uint64(80) {
		for _, form := range []bilinear.Form{bilinear.Full, bilinear.LowRank, bilinear.IdentityLowRank, bilinear.Diagonal} {
			rng := rand.New(rand.NewPCG(seed, 1))
			s, w := randomForm(t, rng, form, seed%2 == 0)
			spec := s.Spec()
			q := random(rng, spec.QueryDim).Data
			base := rerank.Matrix{Rows: 9, Cols: spec.ItemDim, Data: random(rng, 9, spec.ItemDim).Data}
			have := scores(t, s, q, base)
			if spec.Normalise {
				rerank.Normalise(q)
				for i := range base.Rows {
					rerank.Normalise(base.Row(i))
				}
			}
			stored := probe(t, encode(t, s, q), false)
			for i := range base.Rows {
				var want, size, listed float64
				for a, x := range q {
					for b, y := range base.Row(i) {
						want += float64(x) * w(a, b) * float64(y)
						size += math.Abs(float64(x) * w(a, b) * float64(y))
					}
				}
				for b, y := range base.Row(i) {
					listed += float64(stored.Vector[b]) * float64(y)
				}
				if !(math.Abs(float64(have[i])-want) <= 1e-5*(size+1)) || !(math.Abs(listed-want) <= 1e-5*(size+1)) {
					t.Fatalf("seed %d, %s: score %v, by the probe %v, want %v", seed, form, have[i], listed, want)
				}
				e := encode(t, s, q)
				score, product := scoreOf(t, s, e, base.Row(i))
				if off, epsilon := math.Abs(float64(score)-product), float64(e.Bound(nil, nil).Epsilon); off > epsilon {
					t.Fatalf("seed %d, %s: the score %v is off by %v, ε is %v", seed, form, score, off, epsilon)
				}
				// A store's own rounding, as adapters state it, and none in fact.
				list := rerank.List{Scores: []float32{float32(listed)}, Epsilon: float32(kernel.Gamma(spec.ItemDim+1) * rerank.Norm(stored.Vector) * rerank.Norm(base.Row(i)))}
				if off, epsilon := math.Abs(float64(score)-listed), float64(e.Bound([]rerank.Probe{stored}, []rerank.List{list}).Epsilon); off > epsilon {
					t.Fatalf("seed %d, %s: the list's score %v is off by %v, ε is %v", seed, form, listed, off, epsilon)
				}
				if have[i] > spec.MaxScore {
					t.Fatalf("seed %d, %s: score %v above MaxScore %v", seed, form, have[i], spec.MaxScore)
				}
			}
		}
	}
}

// scoreOf scores one base vector, and returns ⟨u, features⟩ in float64 beside.
func scoreOf(t *testing.T, s rerank.Similarity, e rerank.Encoded, base []float32) (score float32, product float64) {
	t.Helper()
	row, out := rerank.NewMatrix(1, s.Spec().Features), make([]float32, 1)
	if err := s.EncodeItems(row, rerank.Matrix{Rows: 1, Cols: len(base), Data: base}); err != nil {
		t.Fatal(err)
	}
	if err := e.Score(out, rerank.Items{Features: row}); err != nil {
		t.Fatal(err)
	}
	return out[0], adversary.Dot(e.(rerank.Operator).Operands().Vectors.Data, row.Data)
}

// TestBoundTerms: the kernel's ε covers rows as long as the form can make them, and a low-rank
// form's pull-back onto the stored vector is rounded once more.
func TestBoundTerms(t *testing.T) {
	const n, rank = 12, 3
	rng := rand.New(rand.NewPCG(4, 1))
	p, q := random(rng, n, rank), random(rng, n, rank)
	for i := range q.Data { // one rank: its norms are known
		q.Data[i] = 0.5
	}
	factorNorm := 0.5 * math.Sqrt(n*rank)
	query := random(rng, n).Data
	for form, c := range map[bilinear.Form]struct {
		tensor.Set
		norm, pulled float64
	}{
		bilinear.Full:            {tensor.Set{"W": random(rng, n, n)}, 1, 1},
		bilinear.Diagonal:        {tensor.Set{"w": random(rng, n)}, 1, 1},
		bilinear.IdentityLowRank: {tensor.Set{"P": p, "Q": q}, 1, 1},
		bilinear.LowRank:         {tensor.Set{"P": p, "Q": q}, factorNorm, 2},
	} {
		s := build(t, bilinear.Config{QueryDim: n, ItemDim: n, Form: form, Normalise: true}, c.Set)
		e := encode(t, s, query)
		u := e.(rerank.Operator).Operands().Vectors.Data
		adversary.Exactly(t, string(form)+", kernel", float64(e.Bound(nil, nil).Epsilon), kernel.Gamma(len(u)+2)*rerank.Norm(u)*c.norm*(1+1e-6))
		list := []rerank.List{{Scores: []float32{0}, Epsilon: 1e6}} // against which the kernel's is nothing
		adversary.Exactly(t, string(form)+", list", float64(e.Bound([]rerank.Probe{probe(t, e, false)}, list).Epsilon), c.pulled*1e6)
	}
}

// TestMaxScoreIsReached: the greatest score that a form claims is nearly reached by
// one of its queries and items, whatever the signs of its weights.
func TestMaxScoreIsReached(t *testing.T) {
	ones := tensor.Tensor{Shape: []int{2, 2}, Data: []float32{-1, 1, 1, -1}} // norm 2, of (1, −1) and (−1, 1)
	column := tensor.Tensor{Shape: []int{2, 1}, Data: []float32{1, -1}}
	for form, c := range map[bilinear.Form]struct {
		tensor.Set
		want float64
	}{
		bilinear.Full:            {tensor.Set{"W": ones}, -2},
		bilinear.Diagonal:        {tensor.Set{"w": {Shape: []int{2}, Data: []float32{-3, -3}}}, -3},
		bilinear.LowRank:         {tensor.Set{"P": column, "Q": column}, 2},
		bilinear.IdentityLowRank: {tensor.Set{"P": column, "Q": column}, 3},
	} {
		s := build(t, bilinear.Config{QueryDim: 2, ItemDim: 2, Form: form, Normalise: true}, c.Set)
		q := []float32{1, -1}
		best := scores(t, s, q, rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{float32(math.Copysign(1, c.want)), float32(-math.Copysign(1, c.want))}})[0]
		adversary.Attained(t, string(form), float64(best), float64(s.Spec().MaxScore))
	}
	wide := build(t, bilinear.Config{QueryDim: 1, ItemDim: 4, Normalise: true}, tensor.Set{"W": {Shape: []int{1, 4}, Data: []float32{1, 1, 1, 1}}})
	adversary.Attained(t, "one row of a full form", float64(scores(t, wide, []float32{1}, rerank.Matrix{Rows: 1, Cols: 4, Data: []float32{1, 1, 1, 1}})[0]), float64(wide.Spec().MaxScore))
}

// TestMaxScoreHasRoomForRounding: vectors that float32 normalises can be longer than 1, and their scores greater than the norm
// of W.
func TestMaxScoreHasRoomForRounding(t *testing.T) {
	s := build(t, bilinear.Config{QueryDim: 3, ItemDim: 3, Form: bilinear.Diagonal, Normalise: true}, tensor.Set{"w": {Shape: []int{3}, Data: []float32{1, 1, 1}}})
	rng, longer := rand.New(rand.NewPCG(7, 1)), 0
	for range 200 {
		x := random(rng, 1, 3).Data
		score := scores(t, s, x, rerank.Matrix{Rows: 1, Cols: 3, Data: x})[0]
		if score > s.Spec().MaxScore {
			t.Errorf("%v scores %.9g against itself, more than %.9g", x, score, s.Spec().MaxScore)
		}
		if score > 1 {
			longer++
		}
	}
	if longer == 0 {
		t.Error("no score is above 1; the data shows nothing")
	}
}

func TestDeriver(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	full, _ := randomForm(t, rng, bilinear.Full, false)
	if len(full.Fields()) != 0 {
		t.Errorf("a full form derives %v", full.Fields())
	}
	if _, err := encode(t, full, make([]float32, full.Spec().QueryDim)).Probes(rerank.Plan{Strategy: rerank.Average, Derived: true}); !errors.Is(err, rerank.ErrStrategy) {
		t.Errorf("a derived probe of a full form: %v", err)
	}
	low, _ := randomForm(t, rng, bilinear.LowRank, true)
	features := rerank.Matrix{Rows: 3, Cols: low.Spec().Features, Data: random(rng, 3, low.Spec().Features).Data}
	field, again := rerank.NewMatrix(3, features.Cols), rerank.NewMatrix(3, features.Cols)
	if err := low.Derive(field, bilinear.Factor, rerank.Items{Features: features}); err != nil {
		t.Fatal(err)
	}
	if err := low.Features(again, []rerank.Matrix{field}); err != nil {
		t.Fatal(err)
	}
	near(t, "features", again.Data, features.Data, 0)
	for _, err := range []error{
		low.Derive(field, "c0", rerank.Items{Features: features}), low.Derive(rerank.NewMatrix(2, features.Cols), bilinear.Factor, rerank.Items{Features: features}), low.Features(again, nil),
	} {
		if !errors.Is(err, rerank.ErrItems) {
			t.Errorf("%v, want ErrItems", err)
		}
	}
}

func TestOverflow(t *testing.T) {
	s := build(t, bilinear.Config{QueryDim: 1, ItemDim: 1}, tensor.Set{"W": {Shape: []int{1, 1}, Data: []float32{2}}})
	if _, err := s.Encode(rerank.Query{Vector: []float32{math.MaxFloat32}}); !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a query that W makes infinite: %v, want ErrQuery", err)
	}
}

func TestRefusals(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	w := random(rng, 3, 4)
	for want, c := range map[string]struct {
		bilinear.Config
		tensor.Set
	}{
		"query_embedding_dim is 0":      {bilinear.Config{ItemDim: 4}, tensor.Set{"W": w}},
		"item_embedding_dim is -1":      {bilinear.Config{QueryDim: 3, ItemDim: -1}, tensor.Set{"W": w}},
		`form "half" is none`:           {bilinear.Config{QueryDim: 3, ItemDim: 4, Form: "half"}, tensor.Set{"W": w}},
		"have 3 and 4":                  {bilinear.Config{QueryDim: 3, ItemDim: 4, Form: bilinear.Diagonal}, tensor.Set{"W": w}},
		`"W" has shape [3 4], want [4`:  {bilinear.Config{QueryDim: 4, ItemDim: 3}, tensor.Set{"W": w}},
		`"P" is missing`:                {bilinear.Config{QueryDim: 3, ItemDim: 4, Form: bilinear.LowRank}, tensor.Set{"W": w}},
		`"Q" has shape [3 4], want [4`:  {bilinear.Config{QueryDim: 3, ItemDim: 4, Form: bilinear.LowRank}, tensor.Set{"P": w, "Q": w}},
		`"P" of shape [3 4] has no pla`: {bilinear.Config{QueryDim: 3, ItemDim: 4}, tensor.Set{"W": w, "P": w}},
		`"P" has shape [3 0], want`:     {bilinear.Config{QueryDim: 3, ItemDim: 4, Form: bilinear.LowRank}, tensor.Set{"P": {Shape: []int{3, 0}}}},
	} {
		if _, err := bilinear.New(c.Config, c.Set); !errors.Is(err, rerank.ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("want ErrModel with %q, have: %v", want, err)
		}
	}
}

// TestBanking77Questions compares the top ten of every query with a known answer:
// all scores, and so the ids where scores are apart.
func TestBanking77Questions(t *testing.T) {
	dir := "../../examples/models/banking77-questions-bilinear"
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c bilinear.Config
	raw = []byte(strings.Replace(string(raw), `"both sides to unit length"`, "true", 1)) // what an import does
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	s := build(t, c, readFile(t, dir, "model.safetensors").Tensors)
	base, queries := vectors(t, "train_vectors.npy"), vectors(t, "test_vectors.npy")
	out := readFile(t, dir, "expected.safetensors")
	ids, want := out.Ints["top10_ids"].Data, matrix(t, out, "top10_scores")
	features := rerank.NewMatrix(base.Rows, base.Cols)
	if err := s.EncodeItems(features, base); err != nil {
		t.Fatal(err)
	}
	have := make([]float32, base.Rows)
	for b := range want.Rows {
		if err := encode(t, s, queries.Row(6*b)).Score(have, rerank.Items{Features: features}); err != nil {
			t.Fatal(err)
		}
		top := rerank.NewTopK(10)
		for i, v := range have {
			top.Push(rerank.Scored{ID: rerank.UintID(uint64(i)), Score: v, Index: i})
		}
		for i, row := range top.Sorted() {
			near(t, "score", []float32{row.Score, have[ids[b*10+i]]}, []float32{want.Row(b)[i], want.Row(b)[i]}, 1e-5)
		}
	}
}

func vectors(t *testing.T, name string) rerank.Matrix {
	t.Helper()
	m, err := npy.Open(filepath.Join("../../examples/data/banking77", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m.Matrix
}

func FuzzNew(f *testing.F) {
	f.Add(uint64(1), "full", 3, 4, 2)
	f.Add(uint64(1), "low_rank", 3, 4, 0)
	f.Add(uint64(1), "diagonal", 3, 3, -1)
	f.Fuzz(func(t *testing.T, seed uint64, form string, n, m, r int) {
		if n > 64 || m > 64 || r > 64 || n < 0 || m < 0 || r < 0 {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		set := tensor.Set{"W": random(rng, n, m)}
		switch bilinear.Form(form) {
		case bilinear.LowRank, bilinear.IdentityLowRank:
			set = tensor.Set{"P": random(rng, n, r), "Q": random(rng, m, r)}
		case bilinear.Diagonal:
			set = tensor.Set{"w": random(rng, n)}
		}
		s, err := bilinear.New(bilinear.Config{QueryDim: n, ItemDim: m, Form: bilinear.Form(form), Normalise: r%2 == 0}, set)
		if err != nil {
			if !errors.Is(err, rerank.ErrModel) {
				t.Fatal(err)
			}
			return
		}
		for i, v := range scores(t, s, random(rng, n).Data, rerank.Matrix{Rows: 11, Cols: m, Data: random(rng, 11, m).Data}) {
			if v-v != 0 {
				t.Fatalf("item %d scores %v", i, v)
			}
		}
	})
}

// TestEncodeBatch: several queries encoded at once give what each gives alone, to the bit.
func TestEncodeBatch(t *testing.T) {
	for seed := range uint64(20) {
		for _, form := range []bilinear.Form{bilinear.Full, bilinear.LowRank, bilinear.IdentityLowRank, bilinear.Diagonal} {
			rng := rand.New(rand.NewPCG(seed, 2))
			s, _ := randomForm(t, rng, form, seed%2 == 0)
			checkEncodeBatch(t, s, rng)
		}
	}
	for _, width := range []int{16, 32, 64, 112} { // whole lanes
		rng := rand.New(rand.NewPCG(uint64(width), 2))
		s := build(t, bilinear.Config{QueryDim: 40, ItemDim: width, Normalise: true}, tensor.Set{"W": random(rng, 40, width)})
		for _, k := range kernel.Sets() {
			checkEncodeBatch(t, s.WithKernels(k), rng)
		}
	}
}

func checkEncodeBatch(t *testing.T, s rerank.Similarity, rng *rand.Rand) {
	t.Helper()
	queries := make([]rerank.Query, 1+rng.IntN(9))
	for i := range queries {
		queries[i].Vector = random(rng, s.Spec().QueryDim).Data
	}
	batch, err := rerank.EncodeAll(s, rerank.AbilitiesOf(s).EncodeBatch, queries)
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range queries {
		alone := encode(t, s, q.Vector)
		near(t, "probe", probe(t, batch[i], false).Vector, probe(t, alone, false).Vector, 0)
		near(t, "u", batch[i].(rerank.Operator).Operands().Vectors.Data, alone.(rerank.Operator).Operands().Vectors.Data, 0)
	}
	queries[len(queries)-1].Vector = make([]float32, s.Spec().QueryDim+1)
	if _, err := rerank.EncodeAll(s, rerank.AbilitiesOf(s).EncodeBatch, queries); !errors.Is(err, rerank.ErrQuery) || !strings.Contains(err.Error(), fmt.Sprintf("query %d: ", len(queries)-1)) {
		t.Errorf("a query of another length: %v, want ErrQuery with its number", err)
	}
}
