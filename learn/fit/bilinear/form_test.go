package bilinear

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"

	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/samples"
)

// prepare prepares random data.
func prepare(t *testing.T, queries, items, dim int) *samples.Log {
	t.Helper()
	l, err := samples.Prepare(fittest.RandomData(queries, items, dim), true)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Every gradient against central differences along random directions, for every
// form, for the softmax over all items and the sampled one, with fewer items
// than pairs and more.
func TestGradients(t *testing.T) {
	for _, kind := range []bilinear.Form{bilinear.Full, bilinear.LowRank, bilinear.IdentityLowRank, bilinear.Diagonal} {
		for _, items := range []int{6, 30} {
			for _, limit := range []int{100, 2} {
				t.Run(fmt.Sprintf("%s, %d items, all up to %d", kind, items, limit), func(t *testing.T) {
					checkGradient(t, kind, items, limit)
				})
			}
		}
	}
}

func checkGradient(t *testing.T, kind bilinear.Form, items, limit int) {
	t.Helper()
	p := prepare(t, 40, items, 8)
	rng := rand.New(rand.NewPCG(5, 6))
	w := fittest.NormalMatrix(rng, 8, 8) // a start other than the identity, for forms that can have one
	f := newForm(kind, 3, p, 1, start{&w})
	for _, v := range f.params() { // away from the start, where some gradients are zero
		linalg.AddScaled(v, fittest.NormalMatrix(rng, 1, len(v)).Data, 0.3)
	}
	queries := []int32{0, 1, 2, 3, 4, 5, 6, 7}
	batch := p.Pairs(queries, nil)
	o := DefaultOptions()
	o.Batch, o.Softmax, o.Draws = 12, limit, 3
	tr := newLearner(p, f, batch, setting{pull: 0.05, scale: 3, rate: 1}, 1, o)
	loss := func() float64 {
		tr.batches.Random = rand.New(rand.NewPCG(9, 9)) // the same sample each time
		return tr.computeGradients(batch)
	}
	for range 4 {
		var directions [][]float32
		var want float64
		loss()
		for i, v := range f.params() {
			d := fittest.NormalMatrix(rng, 1, len(v)).Data
			directions = append(directions, d)
			want += linalg.Dot(f.grads()[i], d)
		}
		const h = 1e-2
		move := func(by float64) {
			for i, v := range f.params() {
				linalg.AddScaled(v, directions[i], by)
			}
		}
		move(h)
		up := loss()
		move(-2 * h)
		down := loss()
		move(h)
		if got := (up - down) / (2 * h); !(math.Abs(got-want) <= 2e-3*(1+math.Abs(want))) {
			t.Errorf("the gradient along a direction is %.6f, by differences %.6f", want, got)
		}
	}
}

// The pull is ‖W − W₀‖² whatever the form, where W₀ is the start.
func TestPullIsTheDistanceToTheStart(t *testing.T) {
	p := prepare(t, 20, 10, 8)
	rng := rand.New(rand.NewPCG(7, 8))
	far := fittest.NormalMatrix(rng, 8, 8)
	for _, tc := range []struct {
		kind  bilinear.Form
		start start
	}{
		{bilinear.Full, start{}}, {bilinear.LowRank, start{}}, {bilinear.IdentityLowRank, start{}}, {bilinear.Diagonal, start{}},
		{bilinear.Full, start{&far}}, {bilinear.LowRank, start{&far}},
	} {
		f := newForm(tc.kind, 3, p, 1, tc.start)
		for _, v := range f.params() {
			linalg.AddScaled(v, fittest.NormalMatrix(rng, 1, len(v)).Data, 0.5)
		}
		eye, w := rerank.NewMatrix(8, 8), rerank.NewMatrix(8, 8)
		for i := range 8 {
			eye.Data[9*i] = 1
		}
		f.probe(w, eye)
		linalg.AddScaled(w.Data, tc.start.value(8).Data, -1)
		if got, want := f.addPull(2), 2*linalg.Dot(w.Data, w.Data); !(math.Abs(got-want) <= 1e-4*want) {
			t.Errorf("%s: pull is %g, want %g", tc.kind, got, want)
		}
	}
}
