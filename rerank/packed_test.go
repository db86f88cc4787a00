package rerank_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestPacking packs rows of every format and shape and wants each number back
// within the format's step, and Loss to say what was lost.
func TestPacking(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		p := rerank.Packing{Format: rerank.Formats()[rng.IntN(4)], Cols: 1 + rng.IntN(40)}
		p.Block = rng.IntN(p.Cols + 1)
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		loss, x, y := rerank.NewLoss(p), make([]float32, p.Cols), make([]float32, p.Cols)
		for range 5 {
			for i := range x {
				x[i] = float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(12)-6)))
			}
			words := make([]uint32, p.RowWords())
			if !p.Pack(words, x) {
				t.Fatal("a number is too large")
			}
			p.Unpack(y, words, 1)
			loss.Add(p, x, y)
			checkSteps(t, p, x, y)
			if d := distance(x, y); d > float64(loss.Row.Lost) || rerank.Norm(x) > float64(loss.Row.Norm) || rerank.Norm(y) > float64(loss.Row.Norm) {
				t.Fatalf("%+v lost %v of %v, Loss says %+v", p, d, rerank.Norm(x), loss.Row)
			}
			for b, e := range loss.Blocks {
				from, to := p.Values(b)
				if distance(x[from:to], y[from:to]) > float64(e.Lost) || rerank.Norm(x[from:to]) > float64(e.Norm) {
					t.Fatalf("%+v: block %d lost more than %+v", p, b, e)
				}
			}
		}
	}
}

func distance(x, y []float32) float64 {
	var sum float64
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		sum += d * d
	}
	return math.Sqrt(sum)
}

// checkSteps wants |x − y| ≤ |x|·2⁻⁸ or 2⁻¹¹, or half a step of the block's scale.
func checkSteps(t *testing.T, p rerank.Packing, x, y []float32) {
	t.Helper()
	for b := range p.Blocks() {
		from, to := p.Values(b)
		var top float64
		for _, v := range x[from:to] {
			top = max(top, math.Abs(float64(v)))
		}
		for i := from; i < to; i++ {
			limit := map[rerank.Format]float64{
				rerank.FormatFloat32: 0, rerank.FormatBFloat16: math.Abs(float64(x[i])) / 256,
				rerank.FormatFloat16: math.Abs(float64(x[i]))/2048 + 0x1p-25, rerank.FormatInt8: top / 254 * (1 + 1e-5),
			}[p.Format]
			if !(math.Abs(float64(x[i])-float64(y[i])) <= limit) {
				t.Fatalf("%+v: %v becomes %v", p, x[i], y[i])
			}
		}
	}
}

// TestPackNotFinite: what is not finite stays so, and what becomes so is reported.
func TestPackNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, f := range rerank.Formats() {
		p := rerank.Packing{Format: f, Cols: 3}
		words, y := make([]uint32, p.RowWords()), make([]float32, 3)
		for _, bad := range []float32{nan, inf, -inf} {
			if !p.Pack(words, []float32{1, bad, 2}) {
				t.Errorf("%s: %v is too large", f, bad)
			}
			if p.Unpack(y, words, 1); y[1]-y[1] == 0 {
				t.Errorf("%s: %v becomes %v", f, bad, y[1])
			}
		}
		fits := f == rerank.FormatFloat32 || f == rerank.FormatInt8
		if got := p.Pack(words, []float32{1, math.MaxFloat32, 2}); got != fits {
			t.Errorf("%s: the greatest float32 fits: %t", f, got)
		}
		p.Pack(words, []float32{0, 0, 0})
		if p.Unpack(y, words, 1); y[0] != 0 || y[2] != 0 {
			t.Errorf("%s: zeros become %v", f, y)
		}
	}
	for _, p := range []rerank.Packing{{Format: "int4", Cols: 3}, {Format: rerank.FormatInt8}, {Format: rerank.FormatInt8, Cols: 3, Block: 4}} {
		if p.Check() == nil {
			t.Errorf("%+v is allowed", p)
		}
	}
}

func TestPackedItemsAreChecked(t *testing.T) {
	spec := rerank.Spec{Kind: rerank.KindDot, Features: 3}
	short := &rerank.Packed{Packing: rerank.Packing{Format: rerank.FormatBFloat16, Cols: 3}, Rows: 2, Words: make([]uint32, 3)}
	whole := &rerank.Packed{Packing: short.Packing, Rows: 2, Words: make([]uint32, 4)}
	for name, it := range map[string]rerank.Items{
		"too few words": {Packed: short},
		"row":           {Packed: whole, Rows: []int32{0, 2}},
		"tiles":         {Packed: &rerank.Packed{Packing: short.Packing, Rows: 2, Tiled: true, Words: make([]uint32, 4)}},
	} {
		if err := it.Check(it.Len(), spec); !errors.Is(err, rerank.ErrItems) {
			t.Errorf("%s: err = %v, want ErrItems", name, err)
		}
	}
	if err := (rerank.Items{Packed: whole}).Check(2, spec); err != nil {
		t.Error(err)
	}
}
