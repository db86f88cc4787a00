package kernels

const (
	dotBlock   = 128
	dotColumns = 32
	// DotQueries is the most queries in a launch of dot_rows or dot_screen.
	DotQueries = 32
)

// DotArgs are the parameters of the kernel dot_rows, which computes scale·⟨vector, row⟩. It
// sums in the order of the columns, with one rounding per column and one for the scale.
type DotArgs struct {
	Table   uint64 // float32 [·][Width]
	Vectors uint64 // float32 [Queries][Width]
	Scales  uint64 // float32 [Queries]
	Pairs
	Width uint64
}

// List implements Arguments.
func (a DotArgs) List() []uint64 {
	return append(append([]uint64{a.Table, a.Vectors, a.Scales}, a.list()...), a.Width)
}

// DotScan returns the launch of dot_rows for a range of rows and up to DotQueries queries.
func DotScan(rows, queries int) Launch {
	at := DotQueries // queries that the kernel processes at a time
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

// DotRescore returns the launch of dot_rows for queries that name their rows. longest is
// the most rows of a query.
func DotRescore(longest, queries int) Launch {
	l := DotScan(longest, 1)
	l.GridY = max(1, queries)
	return l
}

// The geometry of dot_screen, as in cuda/screen.cuh.
const (
	screenRows     = 128
	screenColumns  = 64
	screenStages   = 3
	screenResident = 3  // blocks that a multiprocessor runs at a time
	screenStep     = 32 // columns of two products
)

// ScreenArgs are the parameters of the kernel dot_screen, which computes ⟨vector, row⟩ with
// float16 products and float32 sums.
type ScreenArgs struct {
	Halves  uint64 // float16 [·][Width], of the table
	Vectors uint64 // float16 [PaddedRows][Width], the output of queries_pack
	// Above is float32 [Queries]: what is added to the scores of a query, so that they are
	// upper bounds of φ. 0 for scores.
	Above uint64
	Pairs
	Width uint64 // ScreenWidth
}

// List implements Arguments.
func (a ScreenArgs) List() []uint64 {
	return append(append([]uint64{a.Halves, a.Vectors, a.Above}, a.list()...), a.Width)
}

// ScreenWidth returns how many float16 numbers a row of a screened table takes.
func ScreenWidth(features int) int { return ceil(features, screenStep) * screenStep }

// ScreenBytes returns the size of the float16 vectors of the given number of queries.
func ScreenBytes(features, queries int) int { return queriesBytes(queries, ScreenWidth(features)) }

// ScreenQueries returns the launch that rounds the vectors of queries to float16, with its
// arguments except for the two addresses.
func ScreenQueries(features, queries int) (Launch, QueriesArgs) {
	return packQueries(queries, features, ScreenWidth(features))
}

// ScreenScan returns the launch of dot_screen for a range of rows and up to DotQueries
// queries, on a device with the given number of multiprocessors.
func ScreenScan(rows, queries, multiprocessors int) Launch {
	groups := 1
	if queries > group {
		groups = DotQueries / group
	}
	return Launch{
		Name: "dot_screen", GridX: min(ceil(rows, screenRows), screenResident*max(1, multiprocessors)), GridY: 1, Block: screenRows,
		Shared: screenStages * (screenRows + group*groups) * (2*screenColumns + skew),
	}
}

// ScreenRescore returns the launch of dot_screen for queries that name their rows. longest
// is the most rows of a query.
func ScreenRescore(longest, queries, multiprocessors int) Launch {
	l := ScreenScan(longest, 1, multiprocessors)
	l.GridY = max(1, queries)
	return l
}

// ScreenFits reports whether a block with the given bytes of shared memory can run
// dot_screen.
func ScreenFits(shared int) bool { return ScreenScan(1, DotQueries, 1).Shared <= shared }
