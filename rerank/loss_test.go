package rerank_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
)

// TestThreshold: nothing outside a list scores more than its last row; a list that
// is empty says nothing unless it is exhausted.
func TestThreshold(t *testing.T) {
	for _, c := range []struct {
		list rerank.List
		want float32
	}{
		{rerank.List{Scores: []float32{3, 2, 1}}, 1},
		{rerank.List{Scores: []float32{3, 2, 1}, Exhausted: true}, -inf},
		{rerank.List{Exhausted: true}, -inf},
		{rerank.List{}, inf},
	} {
		if got := c.list.Threshold(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.list, got, c.want)
		}
	}
}

// TestLossIsGreatest: Loss is the greatest loss and the greatest norm of any row
// that was counted, in any order, merged or not, of the whole row and of each block,
// and no more than a rounding above them. The row that loses most, the longest row
// and the longest packed row are three different ones.
func TestLossIsGreatest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for _, f := range rerank.Formats() {
		p := rerank.Packing{Format: f, Cols: 24, Block: 8}
		rows := [][]float32{
			adversary.ExactlyPacked(rng, p, 16),
			adversary.RoundedDown(rng, p, outwards(p.Cols), 8),
			adversary.RoundedDown(rng, p, make([]float32, p.Cols), 1),
			make([]float32, p.Cols),
		}
		whole, parts := rerank.NewLoss(p), make([]rerank.Loss, len(rows))
		want := make([]rerank.Extent, 1+p.Blocks())
		for _, i := range rng.Perm(len(rows)) {
			x, y := rows[i], packed(p, rows[i])
			parts[i] = rerank.NewLoss(p)
			whole.Add(p, x, y)
			parts[i].Add(p, x, y)
			for b := range want {
				from, to := 0, p.Cols
				if b > 0 {
					from, to = p.Values(b - 1)
				}
				want[b].Lost = max(want[b].Lost, float32(distance(x[from:to], y[from:to])))
				want[b].Norm = max(want[b].Norm, float32(rerank.Norm(x[from:to])), float32(rerank.Norm(y[from:to])))
			}
		}
		for _, merged := range []rerank.Loss{whole, mergedInto(parts[0], parts[1], parts[2], parts[3]), mergedInto(parts[3], parts[1], parts[0])} {
			for b, have := range append([]rerank.Extent{merged.Row}, merged.Blocks...) {
				if !near(have.Lost, want[b].Lost) || !near(have.Norm, want[b].Norm) {
					t.Errorf("%s, extent %d: %+v, want %+v or the next numbers above", f, b, have, want[b])
				}
			}
		}
	}
}

// outwards is a query for which longer rows are better.
func outwards(n int) []float32 {
	u := make([]float32, n)
	for i := range u {
		u[i] = 1
	}
	return u
}

func packed(p rerank.Packing, x []float32) []float32 {
	words, y := make([]uint32, p.RowWords()), make([]float32, p.Cols)
	p.Pack(words, x)
	p.Unpack(y, words, 1)
	return y
}

func mergedInto(first rerank.Loss, others ...rerank.Loss) rerank.Loss {
	first.Blocks = append([]rerank.Extent(nil), first.Blocks...)
	for _, o := range others {
		first.Merge(o)
	}
	return first
}

// near: x is want, or a few float32 above it.
func near(x, want float32) bool { return x >= want && x <= want*(1+0x1p-21) }

// TestLossIsRoundedUp: no float32 of a Loss lies below the float64 that it stands
// for, whichever way the nearest float32 lies.
func TestLossIsRoundedUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	p := rerank.Packing{Format: rerank.FormatFloat32, Cols: 3}
	for range 1000 {
		x, y := make([]float32, 3), make([]float32, 3)
		for i := range x {
			x[i], y[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
		}
		loss := rerank.NewLoss(p)
		loss.Add(p, x, y)
		if d, n := distance(x, y), math.Max(rerank.Norm(x), rerank.Norm(y)); float64(loss.Row.Lost) < d || float64(loss.Row.Norm) < n {
			t.Fatalf("%+v lies below %v or %v", loss.Row, d, n)
		}
	}
}

// TestLossOfOddRows: a row that is not finite has no loss; what it would be
// multiplied with is not finite anyway, and the bound of every other row would be lost.
func TestLossOfOddRows(t *testing.T) {
	for _, odd := range []float32{inf, -inf, float32(math.NaN())} {
		for _, f := range rerank.Formats() {
			p := rerank.Packing{Format: f, Cols: 4, Block: 2}
			loss := rerank.NewLoss(p)
			for _, x := range [][]float32{{1, 2, 3, 4}, {1, odd, 1, 1}} {
				loss.Add(p, x, packed(p, x))
			}
			for _, e := range append([]rerank.Extent{loss.Row}, loss.Blocks...) {
				if !(e.Norm < 6) || !(e.Lost < 1) {
					t.Errorf("%s, beside a row with %v: %+v", f, odd, e)
				}
			}
		}
	}
}
