package kernels

import (
	_ "embed"
	"math"
)

//go:embed limits.ptx
var limitsPTX string

// LimitsPTX returns the module of the kernels that measure the limits of a device. No other
// launch needs it.
func LimitsPTX() string { return limitsPTX }

// Limit names a limit of a device that a kernel measures, such as its memory bandwidth.
type Limit string

// The limits that have a kernel.
const (
	LimitFMA        Limit = "fma"        // multiply-adds in float32; 32 of them are one issued instruction
	LimitExp2       Limit = "exp2"       // approximate exponentials
	LimitReciprocal Limit = "reciprocal" // approximate reciprocals
	LimitTanh       Limit = "tanh"       // approximate tangents
	LimitTensor     Limit = "tensor"     // sums of products of float16 in float32, by mma.sync
	LimitRead       Limit = "read"       // bytes of the device's memory
)

// ArithmeticLimits returns all limits except LimitRead, in the order of reports.
func ArithmeticLimits() []Limit {
	return []Limit{LimitFMA, LimitExp2, LimitReciprocal, LimitTanh, LimitTensor}
}

const (
	limitBlock  = 256
	limitChains = 8
	limitSteps  = 8 // steps of each chain per round
)

// LimitArgs are the parameters of the kernels limit_*. Out is float32 [threads], or uint32
// for limit_read. Clocks is a uint64, the clock cycles of block 0.
type LimitArgs struct {
	Out, Clocks uint64
	// First is the number of rounds, and Second the bits of the factor (one float32 for
	// fma, two float16 for tensor). For read, First is the address, and Second the number
	// of 16-byte words.
	First, Second uint64
}

// List implements Arguments.
func (a LimitArgs) List() []uint64 { return []uint64{a.Out, a.Clocks, a.First, a.Second} }

// Launch returns the launch of the limit's kernel on a device with the given number of
// multiprocessors.
func (l Limit) Launch(multiprocessors int) Launch {
	return Launch{Name: "limit_" + string(l), GridX: 8 * max(1, multiprocessors), GridY: 1, Block: limitBlock}
}

// Factor returns the bits of the factor that keeps sums small for fma and tensor. It is 0
// for other limits.
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

// Work returns how many operations a launch performs. A multiply-add or a special function
// counts as one, a tensor-core product as its 2·16·8·16 multiplications and additions. It
// is undefined for LimitRead.
func (l Limit) Work(launch Launch, rounds int) float64 {
	threads := float64(launch.GridX) * float64(launch.Block)
	if l == LimitTensor {
		return threads / 32 * limitChains * 2 * 16 * 8 * 16 * float64(rounds)
	}
	return threads * limitChains * limitSteps * float64(rounds)
}

// Cost is the least work of a kernel for one pair of item and query.
type Cost struct {
	Tensor                 float64 // flop on tensor cores
	FMA                    float64 // multiply-adds in float32
	Exp2, Reciprocal, Tanh float64
	// Instructions is the number of issued instructions per pair. Each instruction serves 32
	// lanes of a warp. It is approximate, from ptxas 12.4 for compute capability 9.0.
	Instructions float64
	// ItemBytes is the memory to read per item. A scan reads each item once per launch,
	// Rescore once per pair.
	ItemBytes float64
}

// instructions is the number of warp instructions for 32 items and one query, counted in
// the compiled code. For four components a query they are in proportion to products and
// gates.
var instructions = map[Shape]float64{
	{8, 8, 32, 128}: 2092, {8, 4, 64, 128}: 1319, {8, 4, 128, 128}: 1364, {4, 4, 64, 128}: 950, {4, 4, 768, 128}: 1270,
}

// TensorCost returns the cost of the tensor-core kernels. gates says whether items have
// their own part of the gates.
func (s Shape) TensorCost(gates bool) Cost {
	pairs, hidden := float64(s.pairs()), float64(s.Hidden)
	c := Cost{
		Tensor:       2 * (pairs*float64(s.Dim) + 2*pairs*hidden),
		Tanh:         hidden + pairs,
		Exp2:         pairs,
		Reciprocal:   8, // of the softmax, and four functions of the bound
		Instructions: instructions[s] / 32,
		ItemBytes:    2 * float64(s.PairsItem*s.Dim),
	}
	if gates {
		c.ItemBytes += 4 * pairs
	}
	return c
}

// ExactCost returns the cost of mol_exact, without its exponentials.
func (s Shape) ExactCost(features int) Cost {
	pairs, hidden := float64(s.pairs()), float64(s.Hidden)
	fma := pairs*float64(s.Dim) + 2*pairs*hidden
	return Cost{FMA: fma, Instructions: fma / 32, ItemBytes: 4 * float64(features)}
}

// ScreenCost returns the cost of dot_screen for a number of queries at once.
func ScreenCost(features, queries int) Cost {
	width, groups := ScreenWidth(features), ceil(queries, group)
	perPair := 1 / float64(queries)
	// Of a warp, for 32 rows and 64 columns: as counted in the compiled code.
	instructions := float64(ceil(width, screenColumns)) * float64(190+24*groups)
	return Cost{
		Tensor:       2 * float64(width) * float64(group*groups) * perPair,
		Instructions: instructions / 32 * perPair, ItemBytes: 2 * float64(width),
	}
}

// DotCost returns the cost of dot_rows.
func DotCost(features int) Cost {
	return Cost{FMA: float64(features), Instructions: float64(features) / 32, ItemBytes: 4 * float64(features)}
}
