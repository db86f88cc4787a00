// Package kernels holds the GPU's kernels: their PTX, the kernels' names, the
// geometry of their launches, and the order of their parameters. It runs nothing and
// needs no GPU. README.md says how they are built and what limits them.
//
// A table on the device is up to three arrays: the feature rows in float32, which
// Exact and Dot read, and for shapes with tensor-core kernels the components in
// float16 and the item's part of the gates in float32, which RowsPack makes of them.
// A query is three rows of float32: Components, f_i·(1/τ), P_Q rows of D; Bias, what a
// gate starts with; Factor, what the item's part of it is multiplied by. Pairs are in
// the order i·P_X + j; the tensor-core kernels have their own, inside.
//
// Scores are φ in float32, not finite where a feature is not. Numbers of rows are
// uint32, below Absent.
package kernels

import (
	_ "embed"
	"math"
)

//go:embed kernels.ptx
var ptx string

// PTX is the module of all kernels, for compute capability 8.0 and above, in text
// without the NUL behind it.
func PTX() string { return ptx }

// Absent is the row of an entry that TopK has not filled.
const Absent = math.MaxUint32

// Launch is the geometry of a launch. Blocks and grids have no third dimension,
// blocks no second.
type Launch struct {
	Name         string
	GridX, GridY int
	Block        int // threads
	Shared       int // bytes of dynamic shared memory; above 48 KiB the function must be told
}

// Arguments are the parameters of a kernel in their order, each of 8 bytes: an
// address on the device, 0 for an array that is not there, or a number.
type Arguments interface{ List() []uint64 }

// ceil is a/b, rounded up, and 1 at least: a grid is never empty.
func ceil(a, b int) int { return max(1, (a+b-1)/b) }

const copyBlock = 256

// RowsPackArgs of rows_pack, which writes rows to a table: it fills the arrays that
// there are. No number comes twice.
type RowsPackArgs struct {
	Source  uint64 // float32 [Count][Features]
	Numbers uint64 // uint32 [Count], where to; 0: First and on
	Rows    uint64 // float32 [·][Features]
	Halves  uint64 // float16 [·][Width]: a row's first Width numbers
	// Gates is float32 [·][PairsQuery·PairsItem]: those behind, in the order j·P_Q + i, NaN
	// for what is not finite.
	Gates uint64
	// Largest is a uint32: the bits of the largest finite |x| that became a half so
	// far. At 65,520 and above a half is infinite.
	Largest               uint64
	Count, First          uint64
	Features, Width       uint64
	PairsQuery, PairsItem uint64
}

// List implements Arguments.
func (a RowsPackArgs) List() []uint64 {
	return []uint64{
		a.Source, a.Numbers, a.Rows, a.Halves, a.Gates, a.Largest,
		a.Count, a.First, a.Features, a.Width, a.PairsQuery, a.PairsItem,
	}
}

// RowsPack is the launch for some rows.
func RowsPack(count int) Launch {
	return Launch{Name: "rows_pack", GridX: min(ceil(count, 8), 1<<16), GridY: 1, Block: copyBlock}
}

// RowsMoveArgs of rows_move, which copies rows of an array. Rows that are written and
// rows that are read are different ones, or of different arrays.
type RowsMoveArgs struct {
	To, From uint64 // the arrays
	// Targets and Sources are uint32 [Count]; 0: 0 and on.
	Targets, Sources uint64
	Count            uint64
	Words            uint64 // of 4 bytes, of a row
}

// List implements Arguments.
func (a RowsMoveArgs) List() []uint64 {
	return []uint64{a.To, a.From, a.Targets, a.Sources, a.Count, a.Words}
}

// RowsMove is the launch for some rows.
func RowsMove(count int) Launch {
	return Launch{Name: "rows_move", GridX: min(ceil(count, 8), 1<<16), GridY: 1, Block: copyBlock}
}

const (
	dotBlock   = 128
	dotColumns = 32
	// DotQueries is the most queries of a launch of Dot.
	DotQueries = 32
)

// DotArgs of dot_rows: scale·⟨vector, row⟩, one sum in the order of the columns with
// one rounding for each, then one for the scale.
type DotArgs struct {
	Table   uint64 // float32 [·][Width]
	Vectors uint64 // float32 [Queries][Width]
	Scales  uint64 // float32 [Queries]
	Pairs
	Width uint64
}

// Pairs say which rows are scored for which query. In a scan, Rows and Starts are 0:
// every query has rows First to First+Count, and its scores begin at
// Scores[q·Count]. Otherwise query q has the rows Rows[Starts[q]:Starts[q+1]], and
// their scores lie in the same places of Scores.
type Pairs struct {
	Rows, Starts uint64 // uint32, and uint32 [Queries+1]
	Scores       uint64 // float32
	First, Count uint64
	Queries      uint64
}

func (p Pairs) list() []uint64 {
	return []uint64{p.Rows, p.Starts, p.Scores, p.First, p.Count, p.Queries}
}

// List implements Arguments.
func (a DotArgs) List() []uint64 {
	return append(append([]uint64{a.Table, a.Vectors, a.Scales}, a.list()...), a.Width)
}

// DotScan is the launch of dot_rows for some rows and up to DotQueries queries.
func DotScan(rows, queries int) Launch {
	at := DotQueries // as many as the kernel multiplies with at once
	for _, n := range []int{8, 1} {
		if queries <= n {
			at = n
		}
	}
	return Launch{
		Name: "dot_rows", GridX: min(ceil(rows, dotBlock), 1<<20), GridY: 1, Block: dotBlock,
		Shared: 4 * (dotBlock*(dotColumns+1) + at*dotColumns),
	}
}

// DotRescore is the launch for queries with rows of their own, longest at most.
func DotRescore(longest, queries int) Launch {
	l := DotScan(longest, 1)
	l.GridY = max(1, queries)
	return l
}
