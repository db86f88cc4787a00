package kernels

import (
	_ "embed"
	"math"
)

//go:embed limits.ptx
var limitsPTX string

// LimitsPTX is the module of the kernels that measure what a device does at most; no
// other launch needs it.
func LimitsPTX() string { return limitsPTX }

// Limit is something of which a device does so much and no more.
type Limit string

// The limits that have a kernel.
const (
	LimitFMA        Limit = "fma"        // multiply-adds in float32, 32 of which are an instruction issued
	LimitExp2       Limit = "exp2"       // approximate exponentials
	LimitReciprocal Limit = "reciprocal" // approximate reciprocals
	LimitTanh       Limit = "tanh"       // approximate tangents
	LimitTensor     Limit = "tensor"     // sums of products of float16 in float32, by mma.sync
	LimitRead       Limit = "read"       // bytes of the device's memory
)

// ArithmeticLimits are those of arithmetic, in the order of reports; LimitRead is beside them.
func ArithmeticLimits() []Limit {
	return []Limit{LimitFMA, LimitExp2, LimitReciprocal, LimitTanh, LimitTensor}
}

const (
	limitBlock  = 256
	limitChains = 8
	limitSteps  = 8 // of each chain a round
)

// LimitArgs of limit_*: Out is float32 [threads], or uint32 of limit_read; Clocks a
// uint64, what block 0 took.
type LimitArgs struct {
	Out, Clocks uint64
	// Rounds, and Factor's bits as float32 (fma) or two of float16 (tensor); From and
	// Count of 16 bytes (read).
	First, Second uint64
}

// List implements Arguments.
func (a LimitArgs) List() []uint64 { return []uint64{a.Out, a.Clocks, a.First, a.Second} }

// Launch is that of the limit's kernel on a device of some multiprocessors.
func (l Limit) Launch(multiprocessors int) Launch {
	return Launch{Name: "limit_" + string(l), GridX: 8 * max(1, multiprocessors), GridY: 1, Block: limitBlock}
}

// Factor that keeps sums small: of fma and tensor, 0 of the others.
func (l Limit) Factor() uint64 {
	switch l {
	case LimitFMA:
		return uint64(math.Float32bits(0.5))
	case LimitTensor:
		return 0x14001400 // 2⁻¹⁰, twice
	case LimitExp2, LimitReciprocal, LimitTanh, LimitRead:
	}
	return 0
}

// Work is how many operations a launch of some rounds does: multiply-adds and special
// functions count as one, a tensor core's product as its 2·16·8·16 multiplications and
// additions. It is not defined for LimitRead.
func (l Limit) Work(launch Launch, rounds int) float64 {
	threads := float64(launch.GridX) * float64(launch.Block)
	if l == LimitTensor {
		return threads / 32 * limitChains * 2 * 16 * 8 * 16 * float64(rounds)
	}
	return threads * limitChains * limitSteps * float64(rounds)
}

// Cost is what a kernel does for one pair of item and query, at least.
type Cost struct {
	Tensor                 float64 // flop on tensor cores
	FMA                    float64 // multiply-adds in float32
	Exp2, Reciprocal, Tanh float64
	// Instructions of a warp, of which several do 32 pairs; about, by ptxas 12.4 for
	// compute capability 9.0.
	Instructions float64
	// ItemBytes are read of an item, once a launch where the item is scored for all its
	// queries, and once a pair in Rescore.
	ItemBytes float64
}

// instructions of a warp for 32 items and one query: the loop over the hidden layer as
// it was compiled, the rest in proportion to its products and gates.
var instructions = map[Shape]float64{
	{8, 8, 32, 128}: 2500, {8, 4, 64, 128}: 1450, {8, 4, 128, 128}: 1560, {4, 4, 64, 128}: 950, {4, 4, 768, 128}: 1270,
}

// TensorCost is that of Scan and Rescore. gates: items have their part of the gates.
func (s Shape) TensorCost(gates bool) Cost {
	pairs, hidden := float64(s.pairs()), float64(s.Hidden)
	c := Cost{
		Tensor:       2 * (pairs*float64(s.Dim) + 2*pairs*hidden),
		Tanh:         hidden,
		Exp2:         2 * pairs,   // of a gate's activation, and of the softmax
		Reciprocal:   pairs/2 + 8, // one of two activations; the softmax', and four functions of the bound
		Instructions: instructions[s] / 32,
		ItemBytes:    2 * float64(s.PairsItem*s.Dim),
	}
	if gates {
		c.ItemBytes += 4 * pairs
	}
	return c
}

// ExactCost is that of ExactScan and ExactRescore, without their exponentials.
func (s Shape) ExactCost(features int) Cost {
	pairs, hidden := float64(s.pairs()), float64(s.Hidden)
	fma := pairs*float64(s.Dim) + 2*pairs*hidden
	return Cost{FMA: fma, Instructions: fma / 32, ItemBytes: 4 * float64(features)}
}

// DotCost is that of DotScan and DotRescore.
func DotCost(features int) Cost {
	return Cost{FMA: float64(features), Instructions: float64(features) / 32, ItemBytes: 4 * float64(features)}
}
