package kernels

// The geometry of top_k. topKPart is how many scores one block examines, unless it must
// keep more than a quarter of them.
const (
	topKPart  = 16384
	topKBlock = 256
	// topKShared is TopKBlock in cuda/topk.cuh, rounded up.
	topKShared = 1280
)

// TopKArgs are the parameters of the kernel top_k. It divides each query's scores into
// parts of Part entries and selects the best Keep of each part: by score descending, then
// by row number, with scores that are not finite last. The output of a part is unordered.
// If a part has fewer than Keep entries, the rest of its output is filled with Absent.
type TopKArgs struct {
	Scores uint64 // float32
	// Rows holds the row number of each entry. If 0, the rows are First, First+1, …. Starts
	// divides the entries among the queries, as in Pairs. If 0, every query has Count
	// entries. Entries with row Absent are ignored.
	Rows, Starts uint64
	// Bitmaps that restrict the rows, with bit r%32 of word r/32 set if row r may be
	// selected. Live applies to all queries. Bitmaps is an array of addresses, uint64
	// [Queries], one bitmap per query. An address of 0 means no restriction.
	Live, Bitmaps uint64
	OutScores     uint64 // float32 [Queries][parts][Keep]
	OutRows       uint64 // uint32, same shape as OutScores
	OutStats      uint64 // TopKStats [Queries][parts]
	// InStats is the OutStats of the previous top_k launch if its output is the input of
	// this one, and InParts its number of parts per query. 0 if the input is a kernel's
	// scores.
	InStats, InParts uint64
	First, Count     uint64
	Part, Keep       uint64
}

// List implements Arguments.
func (a TopKArgs) List() []uint64 {
	return []uint64{
		a.Scores, a.Rows, a.Starts, a.Live, a.Bitmaps, a.OutScores, a.OutRows, a.OutStats,
		a.InStats, a.InParts, a.First, a.Count, a.Part, a.Keep,
	}
}

// TopKStats describes the selection from one part, or, after the last launch, from all
// entries of a query. It takes 16 bytes.
type TopKStats struct {
	// Next is the best finite score that was not selected, or −Inf if all were.
	Next float32
	// Kept is the number of selected entries, Scored the number of examined entries, and
	// NotFinite the number of examined entries without a finite score.
	Kept, Scored, NotFinite uint32
}

// TopKPlan returns the launches that select the best `keep` entries of each query. The
// first launch examines up to longest entries per query; each further one examines what the
// previous launch selected, until a single part is left. There is at least one launch.
func TopKPlan(longest, queries, keep int) []TopKStep {
	keep = max(1, keep)
	part := max(topKPart, 4*keep)
	var steps []TopKStep
	for left := longest; ; {
		parts := ceil(left, part)
		steps = append(steps, TopKStep{
			Launch:  Launch{Name: "top_k", GridX: parts, GridY: max(1, queries), Block: topKBlock, Shared: topKShared},
			Entries: left, Part: part, Parts: parts, Keep: keep,
		})
		if parts == 1 {
			return steps
		}
		left = parts * keep
	}
}

// TopKStep is one launch. It divides Entries entries per query into Parts parts of up to
// Part entries, and selects Keep of each part.
type TopKStep struct {
	Launch
	Entries, Part, Parts, Keep int
}
