package kernels

import (
	"errors"
	"fmt"
	"math"
)

// Shape selects the kernels of a MoL: P_Q, P_X, D, and the width of the gates' hidden layer
// (0 without one).
type Shape struct{ PairsQuery, PairsItem, Dim, Hidden int }

func (s Shape) pairs() int { return s.PairsQuery * s.PairsItem }

func (s Shape) String() string {
	return fmt.Sprintf("%dx%dx%dx%d", s.PairsQuery, s.PairsItem, s.Dim, s.Hidden)
}

// warpItems is how many items a warp scores at a time.
const warpItems = 32

// tensor says how the kernels of a shape were generated. A block has items·queries warps.
// Each warp takes 32 items and processes groups of queries one after the other. A group is
// as many queries as have eight components together.
type tensor struct {
	items, queries int
	resident       int // blocks that a multiprocessor runs at a time
	stages         int // stages of the pipeline that loads items
	streamed       int // columns per stage if components are loaded piecewise, otherwise 0
	groups         int // groups of queries that a warp of a streamed kernel processes at a time
}

// generated lists the shapes that have tensor-core kernels. It must match cuda/shapes.cu.
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

// Tensor reports whether the shape has tensor-core kernels.
func (s Shape) Tensor() bool {
	_, ok := generated[s]
	return ok
}

// Shapes returns the shapes with tensor-core kernels, in no particular order.
func Shapes() []Shape {
	all := make([]Shape, 0, len(generated))
	for s := range generated {
		all = append(all, s)
	}
	return all
}

// WeightsBytes returns the size of the output of mol_weights: First/2 and Second (with
// SiLU half of it) in float16, followed by the bias of First, halved, in float32.
func (s Shape) WeightsBytes() int { return 2*2*s.Hidden*s.pairs() + 4*s.Hidden }

// WeightsArgs are the parameters of the kernel mol_weights, which packs a model's layers.
type WeightsArgs struct {
	First, Bias           uint64 // float32 [Hidden][pairs], [Hidden]
	Second                uint64 // float32 [pairs][Hidden]; its bias is part of the queries
	Out                   uint64 // WeightsBytes
	PairsQuery, PairsItem uint64
	Hidden                uint64
	SiLU                  uint64 // as in TensorArgs
}

// List implements Arguments.
func (a WeightsArgs) List() []uint64 {
	return []uint64{a.First, a.Bias, a.Second, a.Out, a.PairsQuery, a.PairsItem, a.Hidden, a.SiLU}
}

// Weights returns the launch of mol_weights.
func (s Shape) Weights() Launch {
	return Launch{Name: "mol_weights", GridX: ceil(s.Hidden*s.pairs(), copyBlock), GridY: 1, Block: copyBlock}
}

// QueriesBytes returns the size of the float16 components of the given number of queries,
// rounded up to whole groups.
func (s Shape) QueriesBytes(queries int) int { return queriesBytes(queries*s.PairsQuery, s.Dim) }

// Queries returns the launch that rounds the components of queries to float16, with its
// arguments except for the two addresses.
func (s Shape) Queries(queries int) (Launch, QueriesArgs) {
	return packQueries(queries*s.PairsQuery, s.Dim, s.Dim)
}

// Errors of the functions in the tensor-core kernels, apart from rounding operands to
// float16 and adding in float32. The package comment derives them.
const (
	// SiLUError·|x| bounds the error of x·sigmoid(x) in the hidden layer and of gates. It is
	// x/2 + x/2·tanh(x/2), of which the tangent is wrong by 2⁻¹¹ of it; the sum is rounded.
	SiLUError = 0x1p-12 + 0x1p-22
	// ExponentialError is the relative error of a gate's exponential.
	ExponentialError = 0x1p-17
)

// Limits bounds how far an item's φ can exceed the score φ̂ that the tensor-core kernels
// compute. With the computed logits over τ, λ̂, the computed gates π̂, n = ‖λ̂‖ and e =
// Each + EachNorm·n,
//
//	φ ≤ φ̂ + Base + (All + AllNorm·n)·exp(1.5·e + e²/24)·(‖π̂⊙(λ̂−φ̂)‖ + 2⁻¹⁶·n)
//	φ ≤ n + Base
//
// Each query has its own Limits, which package bound computes.
type Limits struct{ Base, All, AllNorm, Each, EachNorm float32 }

// LimitsPairs is the most pairs for which 2⁻¹⁶·n exceeds the rounding error of the float32
// sums for φ̂.
const LimitsPairs = 120

// Numbers returns the limits in the order of the array TensorArgs.Limits.
func (l *Limits) Numbers() [5]float32 {
	return [5]float32{l.Base, l.All, l.AllNorm, l.Each, l.EachNorm}
}

// Upper returns the smaller of the two bounds, as the kernels compute it. If φ̂ is not
// finite, it returns φ̂.
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

// TensorArgs are the parameters of the kernels mol_scan_* and mol_rescore_*. They compute φ
// with float16 products, float32 sums, and the special functions of the hardware. If Limits
// is set, they write upper bounds of φ instead.
type TensorArgs struct {
	Halves, Gates uint64 // of the table; Gates is 0 if items have no part of the gates
	Weights       uint64 // output of mol_weights
	Components    uint64 // output of mol_queries
	Bias, Factor  uint64 // float32 [Queries][pairs]; Factor is only read with Gates
	Limits        uint64 // float32 [Queries][5], from Limits.Numbers; 0 for scores instead of bounds
	Pairs
	SiLU uint64 // 1 for glu_silu, 0 for none
}

// List implements Arguments.
func (a TensorArgs) List() []uint64 {
	l := []uint64{a.Halves, a.Gates, a.Weights, a.Components, a.Bias, a.Factor, a.Limits}
	return append(append(l, a.list()...), a.SiLU)
}

// Padding in shared memory, in bytes: skew for a row of float16 values, gateSkew for a row
// of gates. It makes rows begin in different banks.
const (
	skew     = 16
	gateSkew = 32
)

// shared returns the dynamic shared memory for the given number of queries. It must match
// the layout in cuda/tensor.cuh.
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

// ScanQueries returns the most queries in a launch of Scan on a device whose blocks have
// `shared` bytes of shared memory: 0 if one query or Rescore does not fit, otherwise at
// most 32.
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

// Scan returns the launch for a range of rows and up to ScanQueries queries, on a device
// with the given number of multiprocessors. The shape must have tensor-core kernels. A
// single group of queries uses the kernel of Rescore, in which all warps share the group.
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

// Rescore returns the launch for queries that name their rows. longest is the most rows of
// a query. The shape must have tensor-core kernels.
func (s Shape) Rescore(longest, queries, multiprocessors int) Launch {
	t := generated[s].rescore
	each := max(1, t.resident*multiprocessors/max(1, queries)) // blocks per query, so that all blocks run at the same time
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

// ExactArgs are the parameters of the kernel mol_exact. It computes φ in float32 with the
// same sums as the CPU in the same order: each product is rounded once, and exponentials
// are computed in float64. It supports every shape and both combinations of gates.
type ExactArgs struct {
	Table        uint64 // float32 [·][Features]
	First        uint64 // float32 [Hidden][pairs]
	FirstBias    uint64 // float32 [Hidden]
	Second       uint64 // float32 [pairs][Hidden], or [pairs][pairs] without a hidden layer; 0 if there is no logits' part
	Components   uint64 // float32 [Queries][PairsQuery·Dim]
	Bias, Factor uint64 // float32 [Queries][pairs]
	Pairs
	SiLU                       uint64 // 1: glu_silu, 0: none
	PairsQuery, PairsItem, Dim uint64
	Hidden                     uint64
	Features                   uint64 // length of a row; if above PairsItem·Dim, the row ends with the item's part of the gates
	Tile                       uint64 // from ExactScan or ExactRescore
}

// List implements Arguments.
func (a ExactArgs) List() []uint64 {
	l := []uint64{a.Table, a.First, a.FirstBias, a.Second, a.Components, a.Bias, a.Factor}
	l = append(l, a.list()...)
	return append(l, a.SiLU, a.PairsQuery, a.PairsItem, a.Dim, a.Hidden, a.Features, a.Tile)
}

// ExactScan returns the launch of mol_exact for a range of rows, and its Tile, for a device
// whose blocks have `shared` bytes of shared memory. It returns ErrShape.
func (s Shape) ExactScan(rows, queries, shared int) (launch Launch, tile int, err error) {
	for tile = exactTile; tile > 0; tile /= 2 {
		// A tile holds logits, hidden layer and gates, and a piece of the rows and of the
		// query.
		bytes := 4 * (tile*(2*s.pairs()+s.Hidden+3) + (tile*s.PairsItem+s.PairsQuery)*(exactColumns+1))
		if bytes <= shared {
			return Launch{
				Name: "mol_exact", GridX: min(ceil(rows, tile), 1<<16), GridY: max(1, queries), Block: exactBlock, Shared: bytes,
			}, tile, nil
		}
	}
	return Launch{}, 0, fmt.Errorf("%w: %s needs more than the %d bytes of shared memory; score it on the CPU", ErrShape, s, shared)
}

// ExactRescore is ExactScan for queries that name their rows. longest is the most rows of a
// query.
func (s Shape) ExactRescore(longest, queries, shared int) (launch Launch, tile int, err error) {
	return s.ExactScan(longest, queries, shared)
}
