package mol

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// ScoreWide implements rerank.Encoded.
func (e *encoded) ScoreWide(dst []float64, items rerank.Items) (epsilon float64, err error) {
	if err := items.Check(len(dst), e.s.spec); err != nil {
		return 0, err
	}
	w := newWideItem(e)
	row := make([]float32, e.s.spec.Features)
	for i := range dst {
		dst[i] = w.score(items.Row(int(rowNumber(items, i)), row))
		if !math.IsNaN(dst[i]) && !math.IsInf(dst[i], 0) {
			epsilon = max(epsilon, e.roundingOf(inFloat64, w.extents))
		}
	}
	return epsilon, nil
}

// wideItem computes φ of one item after the other in float64.
type wideItem struct {
	e                     *encoded
	logits, gates, hidden []float64
	extents               extents // of the last item
}

func newWideItem(e *encoded) *wideItem {
	pairs := e.c.pairs()
	return &wideItem{e: e, logits: make([]float64, pairs), gates: make([]float64, pairs), hidden: make([]float64, e.s.byPair.hidden())}
}

// score returns φ of a feature row, and sets extents. It is NaN if the row is not finite.
func (w *wideItem) score(row []float32) float64 {
	c := w.e.c
	w.extents = extents{}
	var squares float64
	for j := range c.PairsItem {
		g := row[j*c.Dim:][:c.Dim]
		norm := rerank.Norm(g)
		w.extents.component, squares = max(w.extents.component, norm), squares+norm*norm
		for i := range c.PairsQuery {
			w.logits[i*c.PairsItem+j] = kernel.DotWide(w.e.components.Row(i), g) / c.Temperature
		}
	}
	w.extents.components = math.Sqrt(squares)
	w.computeGates(row[c.PairsItem*c.Dim:])
	return w.mix()
}

// computeGates sets gates to the inputs of the softmax. item is the item's part of the gates.
func (w *wideItem) computeGates(item []float32) {
	s, x := w.e.s, &w.extents
	layer := w.logits
	x.logits = normWide(w.logits)
	if s.byPair.hidden() > 0 {
		s.byPair.first.applyWide(w.hidden, w.logits)
		x.hiddenInput = normWide(w.hidden)
		siluWide(w.hidden)
		x.hidden = normWide(w.hidden)
		layer = w.hidden
	}
	clear(w.gates)
	if s.byPair.exists() {
		s.byPair.second.applyWide(w.gates, layer)
	}
	for l, v := range item {
		x.item = max(x.item, math.Abs(float64(v)))
		if s.c.Combination == GLUSiLU {
			w.gates[l] += float64(w.e.gate[l]) * float64(v)
		} else {
			w.gates[l] += float64(v)
		}
	}
	if s.c.Combination == GLUSiLU {
		siluWide(w.gates)
		return
	}
	for l, v := range w.e.gate {
		w.gates[l] += float64(v)
	}
}

// mix returns Σ softmax(gates)·logits.
func (w *wideItem) mix() float64 {
	x, top, lowest, highest := &w.extents, math.Inf(-1), math.Inf(1), math.Inf(-1)
	for l, z := range w.gates {
		top, lowest, highest = max(top, z), min(lowest, w.logits[l]), max(highest, w.logits[l])
	}
	var sum, score float64
	for l, z := range w.gates {
		w.gates[l] = math.Exp(z - top)
		sum += w.gates[l]
		score += w.gates[l] * w.logits[l]
	}
	score /= sum
	x.top, x.span = max(highest, -lowest), highest-lowest
	x.deviation = 0
	for l, weight := range w.gates {
		x.deviation += weight / sum * math.Abs(w.logits[l]-score)
	}
	return score
}

// applyWide writes W·x + b to dst in float64.
func (l *linear) applyWide(dst, x []float64) {
	for r := range l.w.Rows {
		var s0, s1, s2, s3 float64 // four sums, so that additions do not wait for each other
		row, k := l.w.Row(r), 0
		for ; k+4 <= len(row); k += 4 {
			s0 += float64(row[k]) * x[k]
			s1 += float64(row[k+1]) * x[k+1]
			s2 += float64(row[k+2]) * x[k+2]
			s3 += float64(row[k+3]) * x[k+3]
		}
		for ; k < len(row); k++ {
			s0 += float64(row[k]) * x[k]
		}
		dst[r] = s0 + s1 + s2 + s3
	}
	for r, b := range l.bias {
		dst[r] += float64(b)
	}
}

func siluWide(v []float64) {
	for i, x := range v {
		v[i] = x / (1 + math.Exp(-x))
	}
}

func normWide(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}
