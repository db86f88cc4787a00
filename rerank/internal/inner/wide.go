package inner

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// ScoreWide implements rerank.Encoded.
func (p *Product) ScoreWide(dst []float64, items rerank.Items) (epsilon float64, err error) {
	if err := items.Check(len(dst), p.Spec); err != nil {
		return 0, err
	}
	w := wide{p: p, items: items, row: make([]float32, p.Spec.Features)}
	for i := range dst {
		from, to := i, i+1
		if items.Starts != nil {
			from, to = int(items.Starts[i]), int(items.Starts[i+1])
		}
		best, check := math.Inf(-1), 0.0 // check is NaN if a row's score is not finite
		for r := from; r < to; r++ {
			x := w.score(r)
			best, check = max(best, x), check+x*0
		}
		dst[i] = best + check
	}
	return w.epsilon(), nil
}

// wide computes scores in float64.
type wide struct {
	p       *Product
	items   rerank.Items
	row     []float32 // the row that was unpacked last
	longest float64   // greatest norm of a row with a finite score
}

// score returns φ of the row with number r in the items' order.
func (w *wide) score(r int) float64 {
	if w.items.Rows != nil {
		r = int(w.items.Rows[r])
	}
	row := w.items.Row(r, w.row)
	var sum float64
	for k, u := range w.p.U {
		sum += float64(u) * float64(row[k])
	}
	if x := float64(w.p.Scale) * sum; x-x == 0 {
		w.longest = max(w.longest, rerank.Norm(row))
		return x
	}
	return math.NaN()
}

// epsilon bounds the error of the scores: γ of the sum and of the scale, and four
// roundings to float32 of each element of U and of the rows, which their norms may have
// divided.
func (w *wide) epsilon() float64 {
	const unit, encoding = 0x1p-53, 4 * 0x1p-24
	n := float64(len(w.p.U) + 4)
	return (n*unit/(1-n*unit) + encoding) * math.Abs(float64(w.p.Scale)) * rerank.Norm(w.p.U) * w.longest
}
