package distilled

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/distilled"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/tensor"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/teacher"
)

// teacherMoL is a full-gate MoL of random weights.
func teacherMoL(t *testing.T, dim int, change func(*mol.Config)) rerank.Similarity {
	t.Helper()
	const d, pairs, width = 4, 4, 8
	rng := rand.New(rand.NewPCG(31, 32))
	c := mol.Config{
		QueryDim: dim, ItemDim: dim, Dim: d, PairsQuery: 2, PairsItem: 2, Temperature: 0.05, L2Norm: true, Eps: 1e-6,
		GatingQueryHidden: width, GatingItemHidden: width, GatingPairHidden: width, Combination: mol.GLUSiLU, Normalise: true,
	}
	set := tensor.Set{}
	add := func(name string, shape ...int) {
		m := fittest.NormalMatrix(rng, shape[0], shape[len(shape)-1])
		if len(shape) == 1 {
			m = fittest.NormalMatrix(rng, 1, shape[0])
		}
		set[name] = tensor.Tensor{Shape: shape, Data: m.Data}
	}
	for _, side := range []string{"query", "item"} {
		prefix := "_" + side + "_embeddings_fn._" + side + "_emb_proj_module.1"
		add(prefix+".weight", 2*d, dim)
		add(prefix+".bias", 2*d)
	}
	add("_gating_fn._query_only_partial_module.0.weight", width, dim)
	add("_gating_fn._query_only_partial_module.0.bias", width)
	add("_gating_fn._query_only_partial_module.2.weight", pairs, width)
	add("_gating_fn._item_only_partial_module.1.weight", width, dim)
	add("_gating_fn._item_only_partial_module.1.bias", width)
	add("_gating_fn._item_only_partial_module.3.weight", pairs, width)
	add("_gating_fn._qi_partial_module.1.weight", width, pairs)
	add("_gating_fn._qi_partial_module.1.bias", width)
	add("_gating_fn._qi_partial_module.3.weight", pairs, width)
	add("_gating_fn._qi_partial_module.3.bias", pairs)
	if change != nil {
		change(&c)
	}
	s, err := mol.New(c, set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func bilinearOf(t *testing.T, w rerank.Matrix, unit bool) rerank.Similarity {
	t.Helper()
	s, err := bilinear.New(bilinear.Config{QueryDim: w.Rows, ItemDim: w.Cols, Normalise: unit},
		tensor.Set{"W": {Shape: []int{w.Rows, w.Cols}, Data: w.Data}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func lessonData(queries, items, dim int) fit.Data {
	rng := rand.New(rand.NewPCG(33, 34))
	return fit.Data{Items: fittest.NormalMatrix(rng, items, dim), Queries: fittest.NormalMatrix(rng, queries, dim)}
}

func quick() Options {
	o := DefaultOptions()
	o.Rounds, o.Hidden, o.List, o.Depths, o.K, o.Batch = 3, 16, 32, []int{40, 20}, 5, 32
	return o
}

// Every gradient against central differences along random directions, for both
// heads, for the softmax over all items and the sampled one.
func TestProbeGradients(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	items, queries := fittest.NormalMatrix(rng, 40, 7), fittest.NormalMatrix(rng, 20, 6)
	l := &lessons{items: items, queries: queries, temperature: 0.7}
	for q := range int32(20) {
		scores := fittest.NormalMatrix(rng, 1, 40).Data
		l.train, l.lists = append(l.train, q), append(l.lists, teacher.Rank(scores, nil, 9))
	}
	for _, hidden := range []int{0, 5} {
		for _, softmax := range []int{100, 10} {
			h := newHead(fittest.NormalMatrix(rng, 6, 7), hidden, 1)
			for _, layer := range h.layers() { // away from the start, where some gradients are zero
				linalg.AddScaled(layer.value.Data, fittest.NormalMatrix(rng, 1, len(layer.value.Data)).Data, 0.3)
			}
			o := quick()
			o.Softmax, o.Draws = softmax, 6
			d := newLearner(l, h, o)
			batch := []int{3, 1, 4, 15, 9}
			loss := func() float64 { return d.computeGradients(batch, rand.New(rand.NewPCG(9, 9))) }
			for range 4 {
				checkDirection(t, rng, h, loss)
			}
		}
	}
}

func checkDirection(t *testing.T, rng *rand.Rand, h *head, loss func() float64) {
	t.Helper()
	loss()
	var directions [][]float32
	var want float64
	for _, layer := range h.layers() {
		d := fittest.NormalMatrix(rng, 1, len(layer.value.Data)).Data
		directions = append(directions, d)
		want += linalg.Dot(layer.grad.Data, d)
	}
	move := func(by float64) {
		for i, layer := range h.layers() {
			linalg.AddScaled(layer.value.Data, directions[i], by)
		}
	}
	const step = 3e-3
	move(step)
	up := loss()
	move(-2 * step)
	down := loss()
	move(step)
	if got := (up - down) / (2 * step); !(math.Abs(got-want) <= 5e-3*(1+math.Abs(want))) {
		t.Errorf("hidden %d: the gradient along a direction is %.6f, by differences %.6f", h.first.value.Rows, want, got)
	}
}

// A probe of a MoL finds more than the first stages that need no training, and
// the model that carries it gives it out.
func TestDistilLearns(t *testing.T) {
	fittest.SkipUnderRace(t)
	m := teacherMoL(t, 12, nil)
	d := lessonData(1500, 600, 12)
	for _, softmax := range []int{1 << 15, 100} { // all items, sampled ones
		o := quick()
		o.Rounds, o.Hidden, o.Softmax, o.Draws = 6, 64, softmax, 128
		found, err := Fit(t.Context(), m, d, o)
		if err != nil {
			t.Fatal(err)
		}
		r := found.Report
		recall := map[string]float64{}
		for _, s := range r.Stages {
			recall[s.Name()] = s.Recall[1]
		}
		if !slices.Equal(r.Depths, []int{20, 40}) || r.Stages[0].Head != HeadLinear || r.Stages[1].Head != HeadResidual {
			t.Errorf("reported %+v", r)
		}
		if linear, residual := recall["distilled linear"], recall["distilled residual"]; linear < 3*recall["stored"] || residual < 1.3*recall["average"] || residual < linear {
			t.Errorf("softmax to %d: recall@5 at 40 of 600 candidates: %v", softmax, recall)
		}
		p, err := distilled.Read(found.Tensors, 12, 12)
		if err != nil || !slices.Equal(p.Names(), []string{HeadResidual, HeadLinear}) || p.MeanItem() == nil {
			t.Errorf("the tensors are not those of probes: %v", err)
		}
	}
}

// The written tensors are the probe that was judged, whatever the scale of the
// queries.
func TestDistilledTensors(t *testing.T) {
	m := teacherMoL(t, 12, func(c *mol.Config) { c.Normalise = false })
	d := lessonData(300, 200, 12)
	for i := range d.Queries.Data {
		d.Queries.Data[i] *= 50
	}
	o := quick()
	found, err := Fit(t.Context(), m, d, o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := distilled.Read(found.Tensors, 12, 12)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFitter(m, d, o)
	if err != nil {
		t.Fatal(err)
	}
	x, err := teacher.NewExam(t.Context(), f.teacher, f.lessons.items, f.heldOut, 5, o.Depths, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	var stages []string
	for _, s := range found.Report.Stages {
		stages = append(stages, s.Name())
	}
	if want := []string{"distilled linear", "distilled residual", string(rerank.Average), string(rerank.PerEmbedding), string(rerank.StoredSearch)}; !slices.Equal(stages, want) {
		t.Errorf("the stages %q are measured, want %q", stages, want)
	}
	for i, head := range []string{HeadLinear, HeadResidual} {
		if kept, judged := judge.Mean(found.Report.Stages[i].Recall, nil), found.Report.Heads[i].Recall; !(math.Abs(kept-judged) <= 1e-9) {
			t.Errorf("%s: the best round finds %g, the probe that was kept %g", head, judged, kept)
		}
		u := rerank.NewMatrix(len(f.heldOut), 12)
		for r, q := range f.heldOut {
			probe, err := p.Probe(d.Queries.Row(int(q)), rerank.Plan{Head: head, Depth: 1})
			if err != nil {
				t.Fatal(err)
			}
			copy(u.Row(r), probe.Vector)
		}
		have, want := x.Vectors(rerank.FirstStage{}, u).Recall, found.Report.Stages[i].Recall
		for k := range want {
			if !(math.Abs(have[k]-want[k]) <= 1e-9) {
				t.Errorf("%s: the tensors find %v, reported %v", head, have, want)
			}
		}
	}
	mean := found.Tensors[distilled.MeanItem].Data
	for i, v := range meanOfRows(d.Items) {
		if mean[i] != v {
			t.Errorf("mean item %v, want %v", mean, meanOfRows(d.Items))
			break
		}
	}
}

// A similarity that is one inner product is its own linear probe, on unit vectors
// and on others, square or not.
func TestDistilExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(35, 36))
	for _, unit := range []bool{true, false} {
		w := fittest.NormalMatrix(rng, 12, 9)
		d := lessonData(100, 200, 12)
		d.Items = fittest.NormalMatrix(rng, 200, 9)
		found, err := Fit(t.Context(), bilinearOf(t, w, unit), d, quick())
		if err != nil {
			t.Fatal(err)
		}
		r := found.Report
		for i, v := range found.Tensors["probe.linear.W"].Data {
			if !(math.Abs(float64(v-w.Data[i])) <= 1e-6) {
				t.Fatalf("unit %t: W[%d] is %g, want %g", unit, i, v, w.Data[i])
			}
		}
		if r.Heads[0].Start != "exact" || r.Stages[0].Recall[0] < 1-1e-9 || !strings.HasPrefix(r.Recommendation, "Keep the strategy average") {
			t.Errorf("reported %+v", r)
		}
	}
	plain, err := dot.New(dot.Config{Dim: 12}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := quick()
	o.Heads = []string{HeadResidual}
	found, err := Fit(t.Context(), plain, lessonData(60, 50, 12), o)
	if err != nil {
		t.Fatal(err)
	}
	if w := found.Tensors["probe.residual.W"]; len(found.Tensors) != 2 || w.Data[0] != 1 || w.Data[1] != 0 {
		t.Errorf("the residual head of a dot product is %v", found.Tensors)
	}
}

func TestDistilSameSeedSameProbes(t *testing.T) {
	m, d := teacherMoL(t, 12, nil), lessonData(200, 150, 12)
	for _, softmax := range []int{1 << 15, 50} {
		o := quick()
		o.Softmax, o.Draws = softmax, 32
		var first *Fitted
		for _, cores := range []int{1, 2, 4} {
			before := runtime.GOMAXPROCS(cores)
			found, err := Fit(t.Context(), m, d, o)
			runtime.GOMAXPROCS(before)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = found
			} else if !reflect.DeepEqual(first, found) {
				t.Errorf("softmax to %d: %d cores give other probes or another report", softmax, cores)
			}
		}
		o.Seed = 2
		if other, err := Fit(t.Context(), m, d, o); err != nil || reflect.DeepEqual(first.Tensors, other.Tensors) {
			t.Errorf("another seed gives the same probes (%v)", err)
		}
	}
}

// A fit that is interrupted after any round keeps the best so far, and goes on to
// the same probes as an undisturbed one.
func TestDistilResumes(t *testing.T) {
	m, d := teacherMoL(t, 12, nil), lessonData(200, 150, 12)
	for _, softmax := range []int{1 << 15, 50} {
		o := quick()
		o.Softmax, o.Draws = softmax, 32
		want, err := Fit(t.Context(), m, d, o)
		if err != nil {
			t.Fatal(err)
		}
		for stop := 1; stop <= 5; stop++ {
			checkpoint := &fittest.Checkpoint{}
			o.Checkpoint = checkpoint
			ctx, cancel := context.WithCancel(t.Context())
			left := stop
			o.Note = func(string) {
				if left--; left == 0 {
					cancel()
				}
			}
			part, err := Fit(ctx, m, d, o)
			if !errors.Is(err, context.Canceled) || part == nil || !part.Report.Interrupted || len(part.Report.Heads) != (stop+2)/3 {
				t.Fatalf("stopped after %d rounds: %v, %+v", stop, err, part)
			}
			o.Note = nil
			if got, err := Fit(t.Context(), m, d, o); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("softmax to %d: resumed after %d rounds, the probes are others (%v)", softmax, stop, err)
			}
			other := o
			other.Seed++
			if _, err := Fit(t.Context(), m, d, other); !errors.Is(err, fit.ErrCheckpoint) {
				t.Errorf("softmax to %d: after %d rounds another seed goes on: %v", softmax, stop, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := Fit(ctx, m, d, quick()); found != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("before the first round: %v, %v", found, err)
	}
}

func TestDistilRefuses(t *testing.T) {
	m := teacherMoL(t, 12, nil)
	nan := float32(math.NaN())
	for want, change := range map[string]func(d *fit.Data, o *Options){
		"the model takes 12":   func(d *fit.Data, _ *Options) { *d = lessonData(50, 50, 11) },
		"queries[3][2] is NaN": func(d *fit.Data, _ *Options) { d.Queries.Row(3)[2] = nan },
		"items[4][0] is NaN":   func(d *fit.Data, _ *Options) { d.Items.Row(4)[0] = nan },
		"three at least":       func(d *fit.Data, _ *Options) { d.Items = d.Items.Slice(0, 2) },
		"bring more queries":   func(d *fit.Data, _ *Options) { d.Queries = d.Queries.Slice(0, 1) },
		"every row needs":      func(d *fit.Data, _ *Options) { d.Items.Data = d.Items.Data[:100] },
		"needs the time":       func(_ *fit.Data, o *Options) { o.SplitBy = fit.ByTime },
		`head "deep"`:          func(_ *fit.Data, o *Options) { o.Heads = []string{"deep"} },
		"no head":              func(_ *fit.Data, o *Options) { o.Heads = nil },
		"k 0":                  func(_ *fit.Data, o *Options) { o.K = 0 },
		"rate -1":              func(_ *fit.Data, o *Options) { o.Rate = -1 },
		"depths [0]":           func(_ *fit.Data, o *Options) { o.Depths = []int{0} },
		"times of 1 queries":   func(d *fit.Data, _ *Options) { d.Times = []int64{1} },
		"of 0 queries":         func(d *fit.Data, _ *Options) { clear(d.Queries.Data) },
	} {
		d, o := lessonData(50, 50, 12), quick()
		change(&d, &o)
		_, err := Fit(t.Context(), m, d, o)
		if !(errors.Is(err, fit.ErrData) || errors.Is(err, fit.ErrOption)) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want one with %q", err, want)
		}
	}
}

// Odd data is learned from as far as it goes.
func TestDistilOddData(t *testing.T) {
	m := teacherMoL(t, 12, nil)
	for name, change := range map[string]func(d *fit.Data){
		"equal items": func(d *fit.Data) { copy(d.Items.Data[600:], d.Items.Data[:600]) },
		"one item": func(d *fit.Data) {
			for r := range d.Items.Rows {
				copy(d.Items.Row(r), d.Items.Row(0))
			}
		},
		"zero vectors": func(d *fit.Data) { clear(d.Items.Row(3)); clear(d.Queries.Row(5)) },
		"two queries": func(d *fit.Data) {
			for r := range d.Queries.Rows {
				copy(d.Queries.Row(r), d.Queries.Row(r%2))
			}
		},
		"three items": func(d *fit.Data) { d.Items = d.Items.Slice(0, 3) },
	} {
		d := lessonData(100, 100, 12)
		change(&d)
		o := quick()
		o.HeldOut = 0.4
		found, err := Fit(t.Context(), m, d, o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := distilled.Read(found.Tensors, 12, 12); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "zero vectors" && found.Report.ZeroQueries != 1 {
			t.Errorf("counted %d zero queries", found.Report.ZeroQueries)
		}
	}
}

// The temperature makes the perplexity what was asked for, whatever the scale.
func TestTemperature(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, scale := range []float64{1e-3, 1, 1e4} {
		var lists []teacher.Ranked
		for range 50 {
			scores := fittest.NormalMatrix(rng, 1, 200).Data
			for i := range scores {
				scores[i] *= float32(scale)
			}
			lists = append(lists, teacher.Rank(scores, nil, 100))
		}
		at := findTemperature(lists, 20)
		var sum float64
		for _, l := range lists {
			w := make([]float32, len(l.Rows))
			writeWeights(w, l, at)
			for _, p := range w {
				if p > 0 {
					sum -= float64(p) * math.Log(float64(p)) / 50
				}
			}
		}
		if !(math.Abs(math.Exp(sum)-20) <= 0.01) {
			t.Errorf("scale %g: perplexity %g at %g, want 20", scale, math.Exp(sum), at)
		}
	}
}
