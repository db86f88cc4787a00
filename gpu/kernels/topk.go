package kernels

// topKPart is how many scores one block of TopK looks through, unless it must keep
// more of them.
const (
	topKPart  = 16384
	topKBlock = 256
	// topKShared is TopKBlock of cuda/topk.cuh, rounded up.
	topKShared = 1280
)

// TopKArgs of top_k, which keeps the best Keep entries of every part of a query's
// scores: by score descending, then by row; scores that are not finite come last. It
// writes them in no order, and Absent entries where there are fewer.
type TopKArgs struct {
	Scores uint64 // float32
	// Rows are the numbers of the entries; 0: First and on. Starts as in Pairs; 0: every
	// query has Count entries. An entry of row Absent is none.
	Rows, Starts uint64
	// Bitmap and Live have bit r%32 of word r/32 set for rows that may be kept; 0: all.
	// Live is one, Bitmaps the addresses (uint64 [Queries]) of one a query, or 0s.
	Live, Bitmaps uint64
	OutScores     uint64 // float32 [Queries][parts][Keep]
	OutRows       uint64 // uint32, as OutScores
	OutStats      uint64 // TopKStats [Queries][parts]
	// InStats are the OutStats of the launch that made the scores, InParts a query; 0:
	// they are no entries of a TopK.
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

// TopKStats is what is said of one part, or of all where there is one part: 16 bytes.
type TopKStats struct {
	// Next is the best finite score that was not kept, −Inf where there is none.
	Next float32
	// Kept entries are filled; Scored were looked at, NotFinite of them.
	Kept, Scored, NotFinite uint32
}

// TopKPlan says in which launches the best of entries are found: each looks through
// the entries that the one before has kept, the first through longest a query, until
// one part is left. There are one or more.
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

// TopKStep is one launch: of Entries a query it keeps Keep of each Part of them.
type TopKStep struct {
	Launch
	Entries, Part, Parts, Keep int
}
