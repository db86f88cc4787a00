package rbe

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
)

// rbeGolden holds the reference results of testdata/golden/rbe.
type rbeGolden struct {
	Greedy struct {
		Chosen    []int        `json:"chosen"`
		Margins   [][2]float64 `json:"gain_and_margin"`
		Objective []float64    `json:"objective"`
	} `json:"l2_greedy"`
	Popular  []int `json:"popular"`
	Diverse  []int `json:"most_diverse"`
	Listwise struct {
		K         int
		AsPrinted float64 `json:"as_printed"`
		ByR       float64 `json:"relevant_by_R"`
	} `json:"listwise"`
	file *safetensors.File
}

func goldenRBE(t *testing.T) rbeGolden {
	t.Helper()
	const dir = "../../../testdata/golden/rbe/"
	text, err := os.ReadFile(dir + "cur.json")
	if err != nil {
		t.Fatal(err)
	}
	var g rbeGolden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	if g.file, err = safetensors.ReadFile(dir + "cur.safetensors"); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g rbeGolden) matrix(name string) rerank.Matrix {
	x := g.file.Tensors[name]
	return rerank.Matrix{Rows: x.Shape[0], Cols: x.Shape[1], Data: x.Data}
}

// relative returns the greatest error of got, divided by the greatest magnitude in want.
func relative(got, want []float32) float64 {
	var worst, scale float64
	for i, w := range want {
		worst, scale = max(worst, math.Abs(float64(got[i]-w))), max(scale, math.Abs(float64(w)))
	}
	return worst / scale
}

func TestSelectionsGolden(t *testing.T) {
	g := goldenRBE(t)
	x := g.matrix("R_items_supportqueries")
	for how, want := range map[Selection][]int{SelectL2Greedy: g.Greedy.Chosen, SelectPopular: g.Popular, SelectDiverse: g.Diverse} {
		got, err := Select(t.Context(), x, len(want), how, 1, nil)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", how, got, err, want)
		}
	}
	greedy, err := newGreedy(t.Context(), x, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	var total float64
	for _, n := range greedy.norm {
		total += n
	}
	for i, want := range g.Greedy.Chosen {
		row, gain := greedy.takeNext()
		total -= gain
		if row != want || !(math.Abs(gain-g.Greedy.Margins[i][0]) <= 1e-5*gain) || !(math.Abs(total-g.Greedy.Objective[i]) <= 1e-5*total) {
			t.Errorf("step %d: row %d, gain %v, left %v; want %d, %v, %v", i, row, gain, total, want, g.Greedy.Margins[i][0], g.Greedy.Objective[i])
		}
	}
}

// TestCURGolden compares the pseudo-inverses, and the model's scores, with the reference's.
func TestCURGolden(t *testing.T) {
	g := goldenRBE(t)
	x, fresh := g.matrix("R_items_supportqueries"), g.matrix("R_items_newqueries")
	a := selectRows(x, g.Greedy.Chosen)
	for _, tc := range []struct {
		lambda float64
		suffix string
	}{{0, ""}, {0.001, "_lambda_0.001"}, {0.1, "_lambda_0.1"}, {10, "_lambda_10"}} {
		p, err := pseudoInverse(a, tc.lambda)
		if err != nil {
			t.Fatal(err)
		}
		if tc.lambda == 0 && relative(p.Data, transpose(g.matrix("pinv")).Data) > 1e-5 {
			t.Errorf("pinv is off by %g", relative(p.Data, transpose(g.matrix("pinv")).Data))
		}
		f := &Fitted{SupportItems: g.Greedy.Chosen, SupportQueries: make([]int, x.Cols)}
		s, err := rbe.New(f.Config(rowID, rowID), tensor.Set{"projection": {Shape: []int{p.Rows, p.Cols}, Data: p.Data}})
		if err != nil {
			t.Fatal(err)
		}
		features := rerank.NewMatrix(x.Rows, p.Rows)
		if err := s.EncodeItems(features, x); err != nil {
			t.Fatal(err)
		}
		if want := g.matrix("item_embeddings" + tc.suffix); relative(features.Data, want.Data) > 1e-5 {
			t.Errorf("λ %g: item embeddings are off by %g", tc.lambda, relative(features.Data, want.Data))
		}
		want := g.matrix("approximation" + tc.suffix)
		for q := range fresh.Cols {
			enc, err := s.Encode(rerank.Query{Vector: transpose(selectRows(fresh, g.Greedy.Chosen)).Row(q)})
			if err != nil {
				t.Fatal(err)
			}
			scores := make([]float32, x.Rows)
			if err := enc.Score(scores, rerank.Items{Features: features}); err != nil || relative(scores, want.Row(q)) > 1e-5 {
				t.Errorf("λ %g, query %d: scores are off by %g, %v", tc.lambda, q, relative(scores, want.Row(q)), err)
			}
		}
	}
}

// Equal support items share their weight, as in the reference.
func TestDuplicateSupportGolden(t *testing.T) {
	g := goldenRBE(t)
	x, c := g.matrix("R_items_supportqueries"), g.Greedy.Chosen
	p, err := pseudoInverse(selectRows(x, []int{c[0], c[0], c[1]}), 0)
	if err != nil {
		t.Fatal(err)
	}
	items := rerank.NewMatrix(x.Rows, 3)
	linalg.Multiply(items, x, false, p, true)
	if want := g.matrix("duplicate_support_item_embeddings"); relative(items.Data, want.Data) > 1e-5 {
		t.Errorf("item embeddings are off by %g", relative(items.Data, want.Data))
	}
}

func rowID(row int) rerank.ID { return rerank.UintID(uint64(row)) }

// The listwise loss as the paper prints it, and as it means it.
func TestListwiseGolden(t *testing.T) {
	g := goldenRBE(t)
	truth := transpose(g.matrix("R_items_newqueries"))
	var bounds []float64
	for q := range truth.Rows {
		sorted := slices.Clone(truth.Row(q))
		slices.Sort(sorted)
		bounds = append(bounds, quantile(sorted, 1-float64(g.Listwise.K)/float64(truth.Cols)))
	}
	for _, tc := range []struct {
		name  string
		truth rerank.Matrix
		want  float64
	}{{"by R", truth, g.Listwise.ByR}, {"as printed", g.matrix("approximation"), g.Listwise.AsPrinted}} {
		approximate := g.matrix("approximation")
		approximate.Data = slices.Clone(approximate.Data)
		if got := listwiseGain(approximate, tc.truth, bounds, 1); !(math.Abs(got-tc.want) <= 1e-5) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// The gradients of both losses agree with finite differences.
func TestRBELossGradients(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	scores, truth := fittest.NormalMatrix(rng, 3, 7), fittest.NormalMatrix(rng, 3, 7)
	bounds := []float64{0.5, 0, -0.5}
	for name, loss := range map[string]func(m rerank.Matrix) float64{
		"softmax":  func(m rerank.Matrix) float64 { return softmaxLoss(m, truth, 0.7) },
		"listwise": func(m rerank.Matrix) float64 { return -listwiseGain(m, truth, bounds, 0.7) },
	} {
		at := func(i int, by float32) float64 {
			m := rerank.Matrix{Rows: 3, Cols: 7, Data: slices.Clone(scores.Data)}
			m.Data[i] += by
			return loss(m)
		}
		gradient := rerank.Matrix{Rows: 3, Cols: 7, Data: slices.Clone(scores.Data)}
		loss(gradient)
		for i, got := range gradient.Data {
			if want := (at(i, 1e-2) - at(i, -1e-2)) / 2e-2; !(math.Abs(float64(got)-want) <= 1e-3) {
				t.Errorf("%s: gradient %d is %v, want %v", name, i, got, want)
			}
		}
	}
}

// explained returns scores of items by queries: a matrix of the given rank, plus noise.
func explained(items, queries, rank int, noise float32) rerank.Matrix {
	rng := rand.New(rand.NewPCG(3, uint64(rank)))
	a, b, e := fittest.NormalMatrix(rng, items, rank), fittest.NormalMatrix(rng, queries, rank), fittest.NormalMatrix(rng, items, queries)
	out := rerank.NewMatrix(items, queries)
	linalg.Multiply(out, a, false, b, true)
	for i, v := range e.Data {
		out.Data[i] += noise * v
	}
	return out
}

// A fit survives items whose scores are all zero, equal to another item's, or linearly dependent. No
// selection that looks at scores chooses them, and they get the scores that they have.
func TestRBESurvivesDegenerateItems(t *testing.T) {
	scores := explained(40, 60, 4, 0)
	clear(scores.Row(3))
	copy(scores.Row(5), scores.Row(6))
	o := DefaultOptions()
	o.Supports, o.Compare, o.Judged = 12, true, []HitPair{{5, 5}}
	fitted, err := Fit(t.Context(), scores, o)
	if err != nil {
		t.Fatal(err)
	}
	r := fitted.Report
	if len(fitted.SupportItems) != 4 || len(r.Warnings) != 1 || r.ZeroItems != 1 || slices.Contains(fitted.SupportItems, 3) {
		t.Errorf("%d supports %v, %+v", len(fitted.SupportItems), fitted.SupportItems, r.Warnings)
	}
	for _, c := range append(r.Compared, Compared{Select: "chosen", Quality: r.Chosen}) {
		if c.Error > 1e-3 || c.HitRates[0].Mean < 0.999 {
			t.Errorf("%s: %+v", c.Select, c.Quality)
		}
	}
	if len(r.Compared) != len(Selections()) {
		t.Errorf("%d selections compared", len(r.Compared))
	}
}

// The greedy selection, which updates its sums, chooses the same items as the definition.
func TestGreedyIsTheDefinition(t *testing.T) {
	x := explained(60, 30, 10, 0.3)
	got, err := Select(t.Context(), x, 8, SelectL2Greedy, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	var chosen []int
	for range 8 {
		best, at := math.Inf(1), -1
		for i := range x.Rows {
			if slices.Contains(chosen, i) {
				continue
			}
			p, err := pseudoInverse(selectRows(x, append(slices.Clone(chosen), i)), 0)
			if err != nil {
				t.Fatal(err)
			}
			items := rerank.NewMatrix(x.Rows, p.Rows)
			linalg.Multiply(items, x, false, p, true)
			approximate := rerank.NewMatrix(x.Rows, x.Cols)
			linalg.Multiply(approximate, items, false, selectRows(x, append(slices.Clone(chosen), i)), false)
			if e := rootMeanSquareError(approximate, x); e < best {
				best, at = e, i
			}
		}
		chosen = append(chosen, at)
	}
	if !slices.Equal(got, chosen) {
		t.Errorf("%v, by the definition %v", got, chosen)
	}
}

// curved returns scores that no inner product of short vectors reproduces, so that perceptrons can gain.
func curved(items, queries int) rerank.Matrix {
	m := explained(items, queries, 3, 0)
	for i, v := range m.Data {
		m.Data[i] = float32(math.Tanh(float64(v))) + float32(math.Exp(-float64(v)*float64(v)))
	}
	return m
}

func neuralRBE() Options {
	o := DefaultOptions()
	o.Supports, o.Hidden, o.Out, o.Rounds, o.Rate, o.Batch, o.Judged = 6, 32, 16, 30, 3e-3, 16, []HitPair{{10, 10}}
	return o
}

// Perceptrons learn, by either loss, and the model scores as the fit judged.
func TestNeuralRBE(t *testing.T) {
	scores := curved(120, 300)
	for _, loss := range []Loss{LossSoftmax, LossListwise} {
		o := neuralRBE()
		o.Loss, o.Top = loss, 10
		fitted, err := Fit(t.Context(), scores, o)
		if err != nil {
			t.Fatal(err)
		}
		r := fitted.Report
		if loss == LossSoftmax && (r.Rounds == 0 || r.Chosen.HitRates[0].Mean < r.CUR.HitRates[0].Mean) {
			t.Errorf("%s: %+v", loss, r)
		}
		if len(r.History) < r.Rounds || slices.ContainsFunc(r.History, func(r Round) bool { return r.Loss == 0 }) {
			t.Errorf("%s: the history %+v of %d rounds", loss, r.History, r.Rounds)
		}
		if r.Rounds == 0 {
			continue
		}
		s, err := rbe.New(fitted.Config(rowID, rowID), fitted.Tensors)
		if err != nil {
			t.Fatal(err)
		}
		checkRBEModel(t, s, scores, fitted, o)
	}
}

// checkRBEModel compares the hit rate of the model with the report's.
func checkRBEModel(t *testing.T, s *rbe.Similarity, scores rerank.Matrix, fitted *Fitted, o Options) {
	t.Helper()
	base := selectColumns(scores, fitted.SupportQueries)
	features := rerank.NewMatrix(base.Rows, s.Spec().Features)
	if err := s.EncodeItems(features, base); err != nil {
		t.Fatal(err)
	}
	heldOut := o.splitQueries(scores.Cols).heldOut
	truth := transpose(selectColumns(scores, heldOut))
	approximate := rerank.NewMatrix(len(heldOut), base.Rows)
	asked := (&fitter{scores: scores}).supportScores(fitted.SupportItems, heldOut)
	for q := range heldOut {
		query, err := s.Ask(t.Context(), func(_ context.Context, items []rerank.ID, _ rerank.Query) ([]float32, error) {
			if len(items) != len(fitted.SupportItems) || items[0] != rowID(fitted.SupportItems[0]) {
				t.Errorf("asked for %v", items)
			}
			return asked.Row(q), nil
		}, rerank.Query{Vector: (&fitter{options: o}).queryFeatures(heldOut).Row(q)})
		if err != nil {
			t.Fatal(err)
		}
		enc, err := s.Encode(query)
		if err != nil {
			t.Fatal(err)
		}
		if err := enc.Score(approximate.Row(q), rerank.Items{Features: features}); err != nil {
			t.Fatal(err)
		}
	}
	got, want := hitRates(approximate, truth, o.Judged)[0].Mean, fitted.Report.Chosen.HitRates[0].Mean
	if !(math.Abs(got-want) <= 0.01) {
		t.Errorf("the model's hit rate is %v, the report's %v", got, want)
	}
}

// A fit that was interrupted and resumed gives the same model as an undisturbed one.
func TestRBEResumes(t *testing.T) {
	scores, o := curved(60, 120), neuralRBE()
	o.Rounds = 6
	want, err := Fit(t.Context(), scores, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o.Checkpoint, o.Note = &fittest.Checkpoint{}, func(line string) {
		if strings.HasPrefix(line, "round 3") {
			cancel()
		}
	}
	if _, err := Fit(ctx, scores, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	o.Note = nil
	got, err := Fit(t.Context(), scores, o)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got.Report, want.Report)
	}
}

func TestRBERefuses(t *testing.T) {
	good := explained(20, 30, 3, 0)
	for name, change := range map[string]func(m *rerank.Matrix, o *Options){
		"one item":    func(m *rerank.Matrix, _ *Options) { *m = m.Slice(0, 1) },
		"no supports": func(_ *rerank.Matrix, o *Options) { o.Supports = 0 },
		"selection":   func(_ *rerank.Matrix, o *Options) { o.Select = "best" },
		"loss":        func(_ *rerank.Matrix, o *Options) { o.Loss = "mse" },
		"lambda":      func(_ *rerank.Matrix, o *Options) { o.Lambda = -1 },
		"held out":    func(_ *rerank.Matrix, o *Options) { o.HeldOut = 1 },
		"hidden":      func(_ *rerank.Matrix, o *Options) { o.Hidden = 8 },
		"rate":        func(_ *rerank.Matrix, o *Options) { o.Rate = 0 },
		"features of others": func(_ *rerank.Matrix, o *Options) {
			o.Hidden, o.Out, o.QueryFeatures = 4, 4, rerank.NewMatrix(29, 2)
		},
		"features without perceptrons": func(_ *rerank.Matrix, o *Options) { o.QueryFeatures = rerank.NewMatrix(30, 2) },
		"not finite":                   func(m *rerank.Matrix, _ *Options) { m.Data[7] = float32(math.NaN()) },
		"all zero":                     func(m *rerank.Matrix, _ *Options) { clear(m.Data) },
	} {
		m, o := rerank.Matrix{Rows: good.Rows, Cols: good.Cols, Data: slices.Clone(good.Data)}, DefaultOptions()
		change(&m, &o)
		if _, err := Fit(t.Context(), m, o); !errors.Is(err, fit.ErrOption) && !errors.Is(err, fit.ErrData) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRBEAsked: scores that a fit does not ask for do not change its result.
func TestRBEAsked(t *testing.T) {
	scores := rerank.NewMatrix(30, 40)
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range scores.Data {
		scores.Data[i] = float32(rng.NormFloat64())
	}
	for name, change := range map[string]func(o *Options) int{
		"a sample of the queries": func(o *Options) int { o.SupportQueries = 10; return 22 },
		"nothing judges":          func(o *Options) int { o.SupportQueries, o.HeldOut = 10, 0; return 10 },
		"perceptrons":             func(o *Options) int { o.SupportQueries, o.Hidden, o.Out, o.Rounds = 10, 4, 2, 2; return 40 },
		"all":                     func(*Options) int { return 40 },
	} {
		o := DefaultOptions()
		o.Supports = 5
		want := change(&o)
		asked := o.AskedQueries(scores.Cols)
		part := rerank.NewMatrix(scores.Rows, scores.Cols)
		for r := range scores.Rows {
			for _, c := range asked {
				part.Row(r)[c] = scores.Row(r)[c]
			}
		}
		full, err := Fit(t.Context(), scores, o)
		if err != nil {
			t.Fatal(name, err)
		}
		some, err := Fit(t.Context(), part, o)
		if err != nil || len(asked) != want || !reflect.DeepEqual(full, some) {
			t.Errorf("%s: %d queries are asked, want %d; %v\n%+v\n%+v", name, len(asked), want, err, full, some)
		}
	}
	o := DefaultOptions()
	o.HeldOut, o.Compare = 0, true
	if _, err := Fit(t.Context(), scores, o); !errors.Is(err, fit.ErrOption) {
		t.Errorf("%v, want fit.ErrOption", err)
	}
}

// TestEqualHitsAreEqualRates: rounds that find equally many hits, for whichever queries, have equal rates.
// Adding up fractions in another order could round to another sum and prefer one of them.
func TestEqualHitsAreEqualRates(t *testing.T) {
	pair := HitPair{P: 10, T: 10}
	one, other := newHitRate(pair, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 10), newHitRate(pair, []int{7, 3, 0, 0, 0, 0, 0, 0, 0, 0}, 10)
	if one.Mean != other.Mean || one.Mean != 0.1 {
		t.Errorf("ten hits of ten queries are %v and %v, want .1", one.Mean, other.Mean)
	}
	// Shares of .7, .3 and eight times 0: the variance of a query is (.36 + .04 + 8·.01)/9, and that of the mean a tenth.
	if half := 1.96 * math.Sqrt(0.48/9/10); one.Low != 0.1 || one.High != 0.1 || other.Low != 0 || !(math.Abs(other.High-0.1-half) <= 1e-12) {
		t.Errorf("intervals %v to %v and %v to %v, want .1 and 0 to %v", one.Low, one.High, other.Low, other.High, 0.1+half)
	}
}

// TestOwnSupports: the caller's support items are taken as they are, in their order, and refused where
// they are no items.
func TestOwnSupports(t *testing.T) {
	scores := rerank.NewMatrix(30, 20)
	for i := range scores.Data {
		scores.Data[i] = float32((i*i + 7*i) % 23)
	}
	o := DefaultOptions()
	o.Judged = []HitPair{{P: 5, T: 5}}
	for name, c := range map[string]struct {
		own  []int
		how  Selection
		want error
	}{
		"own":             {[]int{7, 3, 29}, SelectOwn, nil},
		"named twice":     {[]int{7, 7}, SelectOwn, fit.ErrOption},
		"no such item":    {[]int{30}, SelectOwn, fit.ErrOption},
		"none":            {nil, SelectOwn, fit.ErrOption},
		"and a selection": {[]int{7}, SelectRandom, fit.ErrOption},
	} {
		o.Own, o.Select, o.Supports = c.own, c.how, max(1, len(c.own))
		fitted, err := Fit(t.Context(), scores, o)
		if !errors.Is(err, c.want) || err == nil && (!slices.Equal(fitted.SupportItems, c.own) || fitted.Report.SupportItems != len(c.own)) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestSupportsOfCategories: each category gives its most popular item before any gives another, and
// items without a category give none.
func TestSupportsOfCategories(t *testing.T) {
	scores := rerank.NewMatrix(7, 20)
	for x, mean := range []float32{9, 8, 7, 3, 2, 1, 10} {
		for q := range scores.Cols {
			scores.Row(x)[q] = mean + float32((x*x+3*q)%5)/100
		}
	}
	o := DefaultOptions()
	o.Judged, o.Select, o.Compare = []HitPair{{P: 5, T: 5}}, SelectCategory, true
	o.Categories = []string{"book", "book", "book", "film", "film", "song", ""}
	for supports, want := range map[int][]int{2: {0, 3}, 3: {0, 3, 5}, 5: {0, 3, 5, 1, 4}, 100: {0, 3, 5, 1, 4, 2}} {
		o.Supports = supports
		fitted, err := Fit(t.Context(), scores, o)
		if err != nil || !slices.Equal(fitted.SupportItems, want) {
			t.Errorf("%d supports: %v, %v, want %v", supports, fitted.SupportItems, err, want)
		}
		if r := fitted.Report.Compared; len(r) != len(Selections())+1 || r[len(r)-1].Select != SelectCategory {
			t.Errorf("compared: %+v", r)
		}
	}
	o.Categories = o.Categories[:6]
	if _, err := Fit(t.Context(), scores, o); !errors.Is(err, fit.ErrOption) {
		t.Errorf("six categories of seven items: %v", err)
	}
	o.Categories = nil
	if _, err := Fit(t.Context(), scores, o); !errors.Is(err, fit.ErrOption) {
		t.Errorf("no categories: %v", err)
	}
}

// TestMergingIsTheDefinition: clusters merged along chains of nearest neighbours are those that
// merging the cheapest pair of all makes.
func TestMergingIsTheDefinition(t *testing.T) {
	const rows, m = 60, 7
	x := fittest.NormalMatrix(rand.New(rand.NewPCG(8, 8)), rows, 5)
	groups := make([][]int, rows)
	for r := range groups {
		groups[r] = []int{r}
	}
	spread := func(rows []int) (sum float64) {
		centre := meanRow(selectRows(x, rows))
		for _, r := range rows {
			sum += squaredDistance(x.Row(r), centre)
		}
		return sum
	}
	for len(groups) > m {
		best, a, b := math.Inf(1), 0, 0
		for i := range groups {
			for j := range i {
				if cost := spread(slices.Concat(groups[i], groups[j])) - spread(groups[i]) - spread(groups[j]); cost < best {
					best, a, b = cost, i, j
				}
			}
		}
		groups[b] = slices.Concat(groups[b], groups[a])
		groups = slices.Delete(groups, a, a+1)
	}
	c, err := clusterByMerging(t.Context(), x, m, func(int) {})
	if err != nil || c.count != m {
		t.Fatalf("%d clusters, %v", c.count, err)
	}
	for _, g := range groups {
		for _, r := range g {
			if c.labels[r] != c.labels[g[0]] {
				t.Errorf("rows %d and %d are of one cluster, found in %d and %d", g[0], r, c.labels[g[0]], c.labels[r])
			}
		}
	}
}

// TestClusteringsFindClusters: every selection by clusters takes one item of each well-separated
// group.
func TestClusteringsFindClusters(t *testing.T) {
	const groups = 6
	rng := rand.New(rand.NewPCG(2, 9))
	centres := fittest.NormalMatrix(rng, groups, 20)
	x := rerank.NewMatrix(150, 20)
	for r := range x.Rows {
		for i, v := range centres.Row(r % groups) {
			x.Row(r)[i] = 10*v + float32(rng.NormFloat64())
		}
	}
	for _, how := range []Selection{SelectKMeans, SelectBisecting, SelectMinibatch, SelectAgglomerative, SelectDiverse} {
		for seed := range uint64(3) {
			rows, err := Select(t.Context(), x, groups, how, seed, nil)
			if err != nil {
				t.Fatal(how, err)
			}
			found := map[int]bool{}
			for _, r := range rows {
				found[r%groups] = true
			}
			if len(found) != groups {
				t.Errorf("%s, seed %d: %v are of %d groups", how, seed, rows, len(found))
			}
		}
	}
	if rows, err := Select(t.Context(), x, 3, SelectFirst, 1, nil); err != nil || !slices.Equal(rows, []int{0, 1, 2}) {
		t.Errorf("first: %v, %v", rows, err)
	}
}

// TestQueryFeatures: a model whose perceptrons read the query's own vector scores as the fit judged.
func TestQueryFeatures(t *testing.T) {
	const items, queries, dim, supports = 120, 300, 4, 6
	rng := rand.New(rand.NewPCG(4, 9))
	a, own := fittest.NormalMatrix(rng, items, dim), fittest.NormalMatrix(rng, queries, dim)
	scores := rerank.NewMatrix(items, queries)
	linalg.Multiply(scores, a, false, own, true)
	for i := range scores.Data {
		scores.Data[i] += 0.7 * float32(rng.NormFloat64())
	}
	for i := range own.Data {
		own.Data[i] *= 1000 // of another size than the scores
	}
	o := neuralRBE()
	o.Supports, o.QueryFeatures = supports, own
	fitted, err := Fit(t.Context(), scores, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := rbe.New(fitted.Config(rowID, rowID), fitted.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	if fitted.Report.Rounds == 0 || s.QueryFeatures() != dim || s.Spec().QueryDim != supports+dim || len(s.Supports()) != supports {
		t.Errorf("%d rounds, %d features, queries of %d numbers", fitted.Report.Rounds, s.QueryFeatures(), s.Spec().QueryDim)
	}
	checkRBEModel(t, s, scores, fitted, o)
	_, err = s.Ask(t.Context(), func(_ context.Context, items []rerank.ID, _ rerank.Query) ([]float32, error) {
		return make([]float32, len(items)), nil
	}, rerank.Query{})
	if !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a query without features: %v, want ErrQuery", err)
	}
}

// TestASampleIsAgglomerated: of a large collection a sample is looked at, and its own rows are chosen.
func TestASampleIsAgglomerated(t *testing.T) {
	const clusters, each = 4, 50
	scores := rerank.NewMatrix(1+clusters*each, 2) // row 0 is far from all
	scores.Row(0)[0] = -1e3
	for i := range clusters * each {
		scores.Row(1 + i)[1] = float32(100*(i/each)) + float32(i%each)/1e3
	}
	chosen, err := selectAgglomerated(t.Context(), scores, clusters+1, 150, rand.New(rand.NewPCG(1, 3)), nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]bool{}
	for _, row := range chosen {
		found[(row+each-1)/each] = true
	}
	if len(chosen) != clusters+1 || !found[1] || !found[2] || !found[3] || !found[4] {
		t.Errorf("rows %v are of %d clusters, want one of each", chosen, len(found))
	}
}

// TestReportWithoutPerceptrons: the quality of the approximation is that of the model.
func TestReportWithoutPerceptrons(t *testing.T) {
	scores := rerank.NewMatrix(30, 20)
	for i := range scores.Data {
		scores.Data[i] = float32((i*i + 7*i) % 23)
	}
	o := DefaultOptions()
	o.Supports, o.Select = 4, SelectFirst
	fitted, err := Fit(t.Context(), scores, o)
	if err != nil {
		t.Fatal(err)
	}
	if r := fitted.Report; len(r.CUR.HitRates) != len(o.Judged) || !reflect.DeepEqual(r.Chosen, r.CUR) || r.Rounds != 0 || r.Items != 30 || r.Queries != 20 || r.HeldOutQueries != 6 || r.SupportQueries != 14 {
		t.Errorf("%+v", r)
	}
}
