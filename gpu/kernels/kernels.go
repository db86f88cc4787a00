package kernels

import (
	_ "embed"
	"math"
)

//go:embed kernels.ptx
var ptx string

// PTX returns the module of all kernels as text, without a terminating NUL. It needs
// compute capability 8.0 or above.
func PTX() string { return ptx }

// Absent is the row number of an entry that TopK has not filled.
const Absent = math.MaxUint32

// Launch is the geometry of a launch. Grids have at most two dimensions, blocks one.
type Launch struct {
	Name         string
	GridX, GridY int
	Block        int // threads
	Shared       int // bytes of dynamic shared memory; more than 48 KiB must be requested for the function
}

// Arguments are the parameters of a kernel. List returns them in order. Each takes 8 bytes
// and is a number, or an address on the device (0 for a missing array).
type Arguments interface{ List() []uint64 }

// ceil returns a/b rounded up, and at least 1, because a grid must not be empty.
func ceil(a, b int) int { return max(1, (a+b-1)/b) }

const copyBlock = 256

// RowsPackArgs are the parameters of the kernel rows_pack, which writes rows to a table and
// fills those arrays that exist. Row numbers must be unique.
type RowsPackArgs struct {
	Source  uint64 // float32 [Count][Features]
	Numbers uint64 // uint32 [Count], target row numbers; 0: First, First+1, …
	Rows    uint64 // float32 [·][Features]
	Halves  uint64 // float16 [·][Stride]: the first Width numbers of each row, then zeros
	// Gates is float32 [·][PairsQuery·PairsItem]: the remaining numbers of each row, in the
	// order j·P_Q + i, with NaN in place of numbers that are not finite.
	Gates uint64
	// Largest is a uint32: the bits of the largest finite |x| that was rounded to float16
	// so far. From 65,520 on the result is infinite.
	Largest                 uint64
	Count, First            uint64
	Features, Width, Stride uint64
	PairsQuery, PairsItem   uint64
}

// List implements Arguments.
func (a RowsPackArgs) List() []uint64 {
	return []uint64{
		a.Source, a.Numbers, a.Rows, a.Halves, a.Gates, a.Largest,
		a.Count, a.First, a.Features, a.Width, a.Stride, a.PairsQuery, a.PairsItem,
	}
}

// RowsPack returns the launch of rows_pack for count rows.
func RowsPack(count int) Launch {
	return Launch{Name: "rows_pack", GridX: min(ceil(count, 8), 1<<16), GridY: 1, Block: copyBlock}
}

// RowsMoveArgs are the parameters of the kernel rows_move, which copies rows within an
// array or between two. A row must not be both read and written.
type RowsMoveArgs struct {
	To, From uint64 // the arrays
	// Targets and Sources are row numbers, uint32 [Count]; 0 means 0, 1, ….
	Targets, Sources uint64
	Count            uint64
	Words            uint64 // length of a row in words of 4 bytes
}

// List implements Arguments.
func (a RowsMoveArgs) List() []uint64 {
	return []uint64{a.To, a.From, a.Targets, a.Sources, a.Count, a.Words}
}

// RowsMove returns the launch of rows_move for count rows.
func RowsMove(count int) Launch {
	return Launch{Name: "rows_move", GridX: min(ceil(count, 8), 1<<16), GridY: 1, Block: copyBlock}
}

// QueriesArgs are the parameters of the kernel queries_pack, which rounds vectors of
// queries to float16.
type QueriesArgs struct {
	Components uint64 // float32 [Rows][Dim]
	Out        uint64 // float16 [PaddedRows][Stride]; what Components lacks is 0
	Rows       uint64
	PaddedRows uint64 // Rows rounded up to groups of eight
	Dim        uint64
	Stride     uint64
}

// List implements Arguments.
func (a QueriesArgs) List() []uint64 {
	return []uint64{a.Components, a.Out, a.Rows, a.PaddedRows, a.Dim, a.Stride}
}

// group is how many vectors of queries are the columns of a tensor-core product.
const group = 8

// queriesBytes returns the size of the output of queries_pack.
func queriesBytes(rows, stride int) int { return 2 * stride * ceil(rows, group) * group }

// packQueries returns the launch of queries_pack for rows of dim numbers, with its
// arguments except for the two addresses.
func packQueries(rows, dim, stride int) (Launch, QueriesArgs) {
	padded := ceil(rows, group) * group
	launch := Launch{Name: "queries_pack", GridX: ceil(padded*stride, copyBlock), GridY: 1, Block: copyBlock}
	return launch, QueriesArgs{Rows: uint64(rows), PaddedRows: uint64(padded), Dim: uint64(dim), Stride: uint64(stride)}
}

// Pairs selects the rows to score for each query. For a scan, Rows and Starts are 0: every
// query scores the rows First to First+Count−1, and its scores begin at Scores[q·Count].
// Otherwise query q scores the rows Rows[Starts[q]:Starts[q+1]], and their scores go to the
// same positions of Scores.
type Pairs struct {
	Rows, Starts uint64 // uint32, and uint32 [Queries+1]
	Scores       uint64 // float32
	First, Count uint64
	Queries      uint64
}

func (p Pairs) list() []uint64 {
	return []uint64{p.Rows, p.Starts, p.Scores, p.First, p.Count, p.Queries}
}
