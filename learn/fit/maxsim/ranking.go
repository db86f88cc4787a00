package maxsim

import (
	"slices"

	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// itemChunk holds the vectors of consecutive items. Item from+i owns the rows from starts[i] up to
// starts[i+1]; its own vector is the first.
type itemChunk struct {
	from   int
	rows   rerank.Matrix
	starts []int
}

// joinVectors makes a chunk of the items from row from on, with the own vector of each
// item, as a unit vector, before its behavioural vectors.
func joinVectors(items rerank.Matrix, from int, vectors []rerank.Matrix) itemChunk {
	c := itemChunk{from: from, starts: make([]int, 1, len(vectors)+1)}
	for i, v := range vectors {
		c.starts = append(c.starts, c.starts[i]+1+v.Rows)
	}
	c.rows = rerank.NewMatrix(c.starts[len(vectors)], items.Cols)
	for i, v := range vectors {
		own := c.rows.Row(c.starts[i])
		copy(own, items.Row(from+i))
		rerank.Normalise(own)
		copy(c.rows.Data[(c.starts[i]+1)*items.Cols:], v.Data)
	}
	return c
}

// ranking finds the best items of each query of a judge, while the items come in chunks.
type ranking struct {
	judge *judge.Judge
	// ownOnly reports whether an item is ranked by its own vector alone.
	ownOnly func(item int32) bool
	best    [][]rankedItem // of each query, best first
}

// rankedItem is an item and its score.
type rankedItem struct {
	item  int32
	score float32
}

func newRanking(j *judge.Judge, ownOnly func(item int32) bool) *ranking {
	return &ranking{judge: j, ownOnly: ownOnly, best: make([][]rankedItem, len(j.Queries))}
}

// maxScores bounds the scores that are in memory at a time.
const maxScores = 1 << 22

// addChunk ranks the items of a chunk. Chunks must be added in the order of their
// rows.
func (r *ranking) addChunk(c itemChunk) {
	queries := r.judge.Vectors
	block := max(1, min(512, maxScores/c.rows.Rows))
	scores := rerank.NewMatrix(min(block, queries.Rows), c.rows.Rows)
	for from := 0; from < queries.Rows; from += block {
		to := min(from+block, queries.Rows)
		s := scores.Slice(0, to-from)
		linalg.Multiply(s, queries.Slice(from, to), false, c.rows, true)
		linalg.Parallel(to-from, 16, func(a, b int) {
			for i := a; i < b; i++ {
				r.rank(from+i, c, s.Row(i))
			}
		})
	}
}

// rank ranks the items of a chunk for the i-th query, whose scores with the rows of the
// chunk are given.
func (r *ranking) rank(i int, c itemChunk, scores []float32) {
	best, query := r.best[i], r.judge.Queries[i]
	for k := range len(c.starts) - 1 {
		x := int32(c.from + k)
		own := scores[c.starts[k]:c.starts[k+1]]
		if r.ownOnly(x) {
			own = own[:1]
		}
		score := slices.Max(own)
		if len(best) == judge.Cutoff && score <= best[judge.Cutoff-1].score || r.judge.LeavesOut(query, x) {
			continue
		}
		if len(best) < judge.Cutoff {
			best = append(best, rankedItem{})
		}
		at := len(best) - 1
		for ; at > 0 && best[at-1].score < score; at-- {
			best[at] = best[at-1]
		}
		best[at] = rankedItem{item: x, score: score}
	}
	r.best[i] = best
}

// hits returns the hits of each query.
func (r *ranking) hits() []judge.Hits {
	hits := make([]judge.Hits, len(r.best))
	for i := range r.best {
		hits[i] = r.judge.HitsAmong(r.bestItems(i), r.judge.Queries[i])
	}
	return hits
}

// marksWhenRepeated returns the judge's measure of each query, for users who choose again as the log's users did.
func (r *ranking) marksWhenRepeated() []float64 {
	marks := make([]float64, len(r.best))
	for i := range r.best {
		marks[i] = r.judge.MarkOfPairs(r.bestItems(i), r.judge.Queries[i])
	}
	return marks
}

// bestItems returns the items of the i-th query's ranking, best first.
func (r *ranking) bestItems(i int) []int32 {
	items := make([]int32, len(r.best[i]))
	for place, b := range r.best[i] {
		items[place] = b.item
	}
	return items
}
