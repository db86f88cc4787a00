package kernels

import (
	"errors"
	"fmt"
	"math"
)

// Shape is what a MoL's kernels depend on: P_Q, P_X, D and the width of the gates'
// hidden layer, 0 for none.
type Shape struct{ PairsQuery, PairsItem, Dim, Hidden int }

func (s Shape) pairs() int { return s.PairsQuery * s.PairsItem }

func (s Shape) String() string {
	return fmt.Sprintf("%dx%dx%dx%d", s.PairsQuery, s.PairsItem, s.Dim, s.Hidden)
}

// warpItems is how many items a warp scores at once.
const warpItems = 32

// tensor is how a shape's kernels were generated: blocks of items·queries warps, each
// of which takes 32 items and groups of queries in turn. A group is as many queries as
// have eight components.
type tensor struct {
	items, queries int
	resident       int // blocks that a multiprocessor holds at once
	stages         int // of the pipeline that brings items
	streamed       int // columns a stage, if a component is brought piece by piece; else 0
	groups         int // of queries that a warp of a streamed kernel takes at once
}

// generated lists the shapes with tensor-core kernels, beside cuda/shapes.cu.
var generated = map[Shape]struct{ scan, rescore tensor }{
	{8, 8, 32, 128}:  {tensor{items: 2, queries: 4, resident: 1, stages: 2}, tensor{items: 2, queries: 1, resident: 2, stages: 1}},
	{8, 4, 64, 128}:  {tensor{items: 2, queries: 4, resident: 1, stages: 2}, tensor{items: 4, queries: 1, resident: 2, stages: 1}},
	{8, 4, 128, 128}: {tensor{items: 2, queries: 4, resident: 1, stages: 1}, tensor{items: 2, queries: 1, resident: 2, stages: 1}},
	{4, 4, 64, 128}:  {tensor{items: 2, queries: 4, resident: 1, stages: 2}, tensor{items: 4, queries: 1, resident: 2, stages: 1}},
	{4, 4, 768, 128}: {
		tensor{items: 1, queries: 8, resident: 1, stages: 2, streamed: 64, groups: 2},
		tensor{items: 2, queries: 1, resident: 2, stages: 2, streamed: 64, groups: 1},
	},
}

// Tensor reports whether there are tensor-core kernels of the shape.
func (s Shape) Tensor() bool {
	_, ok := generated[s]
	return ok
}

// Shapes are those with tensor-core kernels, in no order.
func Shapes() []Shape {
	all := make([]Shape, 0, len(generated))
	for s := range generated {
		all = append(all, s)
	}
	return all
}

// WeightsBytes is the size of what Weights writes: half of First, and Second, in float16,
// then half of First's bias in float32.
func (s Shape) WeightsBytes() int { return 2*2*s.Hidden*s.pairs() + 4*s.Hidden }

// WeightsArgs of mol_weights, which packs a model's layers.
type WeightsArgs struct {
	First, Bias           uint64 // float32 [Hidden][pairs], [Hidden]
	Second                uint64 // float32 [pairs][Hidden]; its bias is the queries'
	Out                   uint64 // WeightsBytes
	PairsQuery, PairsItem uint64
	Hidden                uint64
}

// List implements Arguments.
func (a WeightsArgs) List() []uint64 {
	return []uint64{a.First, a.Bias, a.Second, a.Out, a.PairsQuery, a.PairsItem, a.Hidden}
}

// Weights is the launch of mol_weights.
func (s Shape) Weights() Launch {
	return Launch{Name: "mol_weights", GridX: ceil(s.Hidden*s.pairs(), copyBlock), GridY: 1, Block: copyBlock}
}

// QueriesBytes is the size of the components of queries in float16: whole groups.
func (s Shape) QueriesBytes(queries int) int {
	return 2 * s.Dim * ceil(queries*s.PairsQuery, 8) * 8
}

// QueriesArgs of mol_queries, which narrows the components of queries.
type QueriesArgs struct {
	Components uint64 // float32 [Rows][Dim]
	Out        uint64 // float16 [PaddedRows][Dim]: QueriesBytes; rows behind the last are 0
	Rows       uint64 // queries·P_Q
	PaddedRows uint64
	Dim        uint64
}

// List implements Arguments.
func (a QueriesArgs) List() []uint64 {
	return []uint64{a.Components, a.Out, a.Rows, a.PaddedRows, a.Dim}
}

// Queries is the launch of mol_queries, and its PaddedRows.
func (s Shape) Queries(queries int) (launch Launch, padded int) {
	padded = ceil(queries*s.PairsQuery, 8) * 8
	return Launch{Name: "mol_queries", GridX: ceil(padded*s.Dim, copyBlock), GridY: 1, Block: copyBlock}, padded
}

// How far the tensor-core kernels' functions can be off, beside what rounding operands
// to float16 and adding in float32 take; README.md says where from.
const (
	// HiddenError times |x| is the most that the hidden layer's x·sigmoid(x) is off.
	HiddenError = 0x1p-12
	// GateError is the relative error of a gate's x·sigmoid(x), and of its exponential.
	GateError = 0x1p-17
)

// Limits say how far above its score φ̂ by TensorArgs an item's φ can lie. With λ̂ the
// logits over τ that were computed, π̂ the gates, n = ‖λ̂‖ and e = Each + EachNorm·n,
//
//	φ ≤ φ̂ + Base + (All + AllNorm·n)·exp(1.5·e + e²/24)·(‖π̂⊙(λ̂−φ̂)‖ + 2⁻¹⁶·n)
//	φ ≤ n + Base
//
// A query has its own; package bound makes them.
type Limits struct{ Base, All, AllNorm, Each, EachNorm float32 }

// LimitsPairs is the most pairs for which 2⁻¹⁶·n is more than float32 sums take of φ̂.
const LimitsPairs = 120

// Numbers are those of a query in the array of TensorArgs.
func (l *Limits) Numbers() [5]float32 {
	return [5]float32{l.Base, l.All, l.AllNorm, l.Each, l.EachNorm}
}

// Upper is the lesser of the two bounds, as the kernels compute it; where φ̂ is not finite, φ̂.
func (l *Limits) Upper(score, norm, spread float64) float32 {
	if score-score != 0 {
		return float32(score)
	}
	e := float64(l.Each) + float64(l.EachNorm)*norm
	growth := math.Exp(e * (1.5 + e/24))
	above := score + float64(l.Base) + (float64(l.All)+float64(l.AllNorm)*norm)*growth*(spread+0x1p-16*norm)
	if most := 1.0001*norm + float64(l.Base); !(above <= most) {
		above = most
	}
	return float32(above)
}

// TensorArgs of mol_scan_* and mol_rescore_*: φ with products of float16, sums in
// float32, and the special functions of the hardware; with Limits upper bounds of φ.
type TensorArgs struct {
	Halves, Gates uint64 // of the table; Gates 0: items have no part of the gates
	Weights       uint64 // of mol_weights
	Components    uint64 // of mol_queries
	Bias, Factor  uint64 // float32 [Queries][pairs]; Factor only with Gates
	Limits        uint64 // float32 [Queries][5], Limits.Numbers; 0: none
	Pairs
	SiLU uint64 // 1: glu_silu, 0: none
}

// List implements Arguments.
func (a TensorArgs) List() []uint64 {
	l := []uint64{a.Halves, a.Gates, a.Weights, a.Components, a.Bias, a.Factor, a.Limits}
	return append(append(l, a.list()...), a.SiLU)
}

// What a row of halves and one of gates is longer in shared memory, in bytes, so that
// rows begin in different banks.
const (
	skew     = 16
	gateSkew = 32
)

// shared is the dynamic shared memory for some queries, as cuda/tensor.cuh lays it out.
func (s Shape) shared(t tensor, queries int) int {
	pairs, tile := s.pairs(), warpItems*t.items
	weights := s.Hidden*(2*pairs+skew) + pairs*(2*s.Hidden+skew) + 4*s.Hidden
	gates := tile * (4*pairs + gateSkew)
	slots := ceil(queries*s.PairsQuery, 8) * 8 / s.PairsQuery
	perQuery := slots * 2 * 4 * pairs // bias and factor
	if t.streamed > 0 {
		rows := tile*s.PairsItem + 8*t.queries*t.groups
		return weights + gates + perQuery + t.stages*rows*(2*t.streamed+skew)
	}
	items := tile * (2*s.PairsItem*s.Dim + skew)
	return weights + perQuery + t.stages*(items+gates) + ceil(queries*s.PairsQuery, 8)*8*(2*s.Dim+skew)
}

// ScanQueries is the most queries of a launch of Scan on a device whose blocks have
// some shared memory: 0 where one query or Rescore does not fit, else at most 32.
func (s Shape) ScanQueries(shared int) int {
	g, ok := generated[s]
	if !ok || s.shared(g.rescore, 1) > shared {
		return 0
	}
	for n := 32; n > 0; n-- {
		if s.shared(g.scan, n) <= shared {
			return n
		}
	}
	return 0
}

// Scan is the launch for rows of a table and up to ScanQueries queries, on a device of
// some multiprocessors. The shape has Tensor. One group of queries takes the kernel of
// Rescore, in which all warps share it.
func (s Shape) Scan(rows, queries, multiprocessors int) Launch {
	name, t := "mol_scan_", generated[s].scan
	if queries*s.PairsQuery <= 8 {
		name, t = "mol_rescore_", generated[s].rescore
	}
	return Launch{
		Name: name + s.String(), GridX: min(ceil(rows, warpItems*t.items), max(1, t.resident*multiprocessors)), GridY: 1,
		Block: 32 * t.items * t.queries, Shared: s.shared(t, queries),
	}
}

// Rescore is the launch of the shape's mol_rescore for queries with rows of their
// own, longest at most. The shape has Tensor.
func (s Shape) Rescore(longest, queries, multiprocessors int) Launch {
	t := generated[s].rescore
	each := max(1, t.resident*multiprocessors/max(1, queries)) // blocks a query, all of them at once
	return Launch{
		Name:  "mol_rescore_" + s.String(),
		GridX: min(ceil(longest, warpItems*t.items), each), GridY: max(1, queries),
		Block: 32 * t.items * t.queries, Shared: s.shared(t, 1),
	}
}

// ErrShape: a MoL has too many pairs for the shared memory of a block.
var ErrShape = errors.New("shape does not fit a block")

const (
	exactBlock   = 256
	exactColumns = 32
	exactTile    = 16
)

// ExactArgs of mol_exact: φ in float32 by the CPU's sums in the CPU's order, each
// product with one rounding, and exponentials by way of float64. It serves every shape
// and both combinations of gates.
type ExactArgs struct {
	Table        uint64 // float32 [·][Features]
	First        uint64 // float32 [Hidden][pairs]
	FirstBias    uint64 // float32 [Hidden]
	Second       uint64 // float32 [pairs][Hidden], or [pairs][pairs] without Hidden; 0: no logits' part
	Components   uint64 // float32 [Queries][PairsQuery·Dim]
	Bias, Factor uint64 // float32 [Queries][pairs]
	Pairs
	SiLU                       uint64 // 1: glu_silu, 0: none
	PairsQuery, PairsItem, Dim uint64
	Hidden                     uint64
	Features                   uint64 // above PairsItem·Dim: the item's part of the gates is behind
	Tile                       uint64 // of ExactScan and ExactRescore
}

// List implements Arguments.
func (a ExactArgs) List() []uint64 {
	l := []uint64{a.Table, a.First, a.FirstBias, a.Second, a.Components, a.Bias, a.Factor}
	l = append(l, a.list()...)
	return append(l, a.SiLU, a.PairsQuery, a.PairsItem, a.Dim, a.Hidden, a.Features, a.Tile)
}

// ExactScan is the launch of mol_exact for rows of a table, and its Tile, for a device
// whose blocks have some shared memory. It returns ErrShape.
func (s Shape) ExactScan(rows, queries, shared int) (launch Launch, tile int, err error) {
	for tile = exactTile; tile > 0; tile /= 2 {
		// What a tile holds: logits, hidden layer, gates; a piece of the rows and of the query.
		bytes := 4 * (tile*(2*s.pairs()+s.Hidden+3) + (tile*s.PairsItem+s.PairsQuery)*(exactColumns+1))
		if bytes <= shared {
			return Launch{
				Name: "mol_exact", GridX: min(ceil(rows, tile), 1<<16), GridY: max(1, queries), Block: exactBlock, Shared: bytes,
			}, tile, nil
		}
	}
	return Launch{}, 0, fmt.Errorf("%w: %s needs more than the %d bytes of shared memory; score it on the CPU", ErrShape, s, shared)
}

// ExactRescore is ExactScan for queries with rows of their own, longest at most.
func (s Shape) ExactRescore(longest, queries, shared int) (launch Launch, tile int, err error) {
	return s.ExactScan(longest, queries, shared)
}
