package mol

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

var _ rerank.Rounder = (*encoded)(nil)

// siluSlope exceeds the greatest derivative of x·sigmoid(x), 1.0998….
const siluSlope = 1.1

// RoundingError implements rerank.Rounder. A hat marks values computed from the packed item
// x̂. With the logits over τ, λ,
//
//	φ̂ − φ = Σ π̂·(λ̂ − λ) + Σ (π̂ − π)·λ.
//
// The first sum is at most the greatest |λ̂_ij − λ_ij| ≤ ‖f_i‖·‖ĝ_j − g_j‖/τ. If no input
// of the softmax moves by more than γ, then Σ |π̂ − π| ≤ 2·tanh(γ/2), so the second sum is
// at most tanh(γ/2) times the range of λ, which is 2·max‖f_i‖·max‖g_j‖/τ. γ combines the
// rounding of the item's part of the gates with ‖λ̂ − λ‖ times the slopes of the logits'
// part. The bound is sound, but loose if the gates depend on the logits.
func (e *encoded) RoundingError(l rerank.Loss) float32 {
	c := e.c
	inverse := 1 / c.Temperature
	var query, item, first, squares float64
	for i := range c.PairsQuery {
		f := rerank.Norm(e.components.Row(i))
		query = max(query, f)
		for j := range c.PairsItem {
			moved := f * e.c.lost(l, j) * inverse
			first = max(first, moved)
			squares += moved * moved
		}
	}
	for j := range c.PairsItem {
		item = max(item, e.c.norm(l, j))
	}
	extent := 2 * query * item * inverse
	bound := first + math.Tanh(e.gateShift(l, math.Sqrt(squares))/2)*extent
	return float32(min(bound, extent) * (1 + 1e-6))
}

// lost bounds the rounding error of block b of a feature row.
func (c *Config) lost(l rerank.Loss, b int) float64 {
	if l.Block != c.Dim || b >= len(l.Blocks) {
		return float64(l.Row.Lost)
	}
	return float64(l.Blocks[b].Lost)
}

// blockNorm bounds the norm of block b of a feature row, packed or not.
func (c *Config) blockNorm(l rerank.Loss, b int) float64 {
	norm := float64(l.Row.Norm)
	if l.Block == c.Dim && b < len(l.Blocks) {
		norm = min(norm, float64(l.Blocks[b].Norm))
	}
	return norm
}

// norm bounds the norm of component b of an item, packed or not.
func (c *Config) norm(l rerank.Loss, b int) float64 {
	norm := c.blockNorm(l, b)
	if c.hasUnitComponents() {
		norm = min(norm, 1+1e-5+c.lost(l, b))
	}
	return norm
}

// length bounds the norm of component j of an item, packed or not.
func (c *Config) length(loss rerank.Loss, j int) float64 {
	if length := c.blockNorm(loss, j); !math.IsInf(length, 1) {
		return length
	}
	return c.norm(loss, j) // not measured
}

// gateShift returns γ: how far an input of the softmax can move if the logits move by a
// vector of norm at most logits.
func (e *encoded) gateShift(l rerank.Loss, logits float64) float64 {
	s, worst := e.s, 0.0
	for p := range s.c.pairs() {
		var item, pair float64
		if s.byItem.exists() {
			item = s.c.lost(l, s.c.PairsItem+p/s.c.Dim)
		}
		if s.slopes != nil {
			pair = s.slopes[p] * logits
		}
		if s.c.Combination == GLUSiLU {
			worst = max(worst, siluSlope*(math.Abs(float64(e.gate[p]))*item+pair))
		} else {
			worst = max(worst, item+pair)
		}
	}
	return worst
}

// outputSlopes bounds, for every output of the network, how far it moves when the logits
// move by a vector of norm 1. It returns nil if the network does not exist.
func (m *mlp) outputSlopes() []float64 {
	if !m.exists() {
		return nil
	}
	slopes := make([]float64, m.second.w.Rows)
	first := kernel.SpectralNorm(m.first.w)
	for r := range slopes {
		row := m.second.w.Row(r)
		slopes[r] = rerank.Norm(row)
		if m.first.w.Rows == 0 {
			continue
		}
		var sum float64
		for k, v := range row {
			sum += math.Abs(float64(v)) * rerank.Norm(m.first.w.Row(k))
		}
		slopes[r] = siluSlope * min(slopes[r]*first, sum)
	}
	return slopes
}
