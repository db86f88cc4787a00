// Package scan finds the exact top K of a resident table. It visits every item, in chunks,
// on all processors that are free, and scores each item that a cheaper bound does not rule
// out. Where a table has rounded rows and full precision, a bound from the rounded rows comes
// first, and what it leaves may get a tighter one from full precision before it is scored.
//
// Queries that run at the same time share one pass. A query joins at the pass's current
// chunk and leaves after one round of the table. So the table is read once for all of them,
// no query waits for another to end, and a query on its own starts at once. None of this
// changes the answer.
package scan

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// The size of a chunk. For kinds whose cost is reading memory, a chunk fits a core's cache.
// For kinds whose cost is arithmetic, it has enough items to make the overhead per chunk
// small.
const (
	chunkBytes            = 256 << 10
	minChunk, maxChunk    = 64, 1024
	minChunksPerProcessor = 4 // the least number of chunks per processor, if there are enough items
)

// Query is the input of a scan.
type Query struct {
	Encoded rerank.Encoded
	K       int
	// Within is the set of items to visit; nil means all.
	Within *Bitmap
	// Whole disables the bounds, so that every item is scored.
	Whole bool
}

// Result is the answer of a scan.
type Result struct {
	// Top holds the best K items, best first, ties by id. Index is the item's number in the
	// table.
	Top []rerank.Scored
	// Items is the number of items that the query visited, Scored the number whose φ was
	// computed. Bounds ruled out the others.
	Items, Scored int
	// NotFinite counts the scored items whose score is not finite; they rank last.
	NotFinite int
}

// Scanner scans one table. It is safe for concurrent use.
type Scanner struct {
	table         *table.Table
	loss          rerank.Loss // difference between the rows that are screened and the rows that are scored
	lossless      rerank.Loss // the same of the rows that are scored: only norms
	alive         *Bitmap     // nil if all items are alive
	chunk, chunks int         // items per chunk; chunks of the table
	turns         *turns.Turns

	pool sync.Pool // *job

	mu      sync.Mutex
	next    int       // the next chunk to hand out
	jobs    []*job    // jobs that still need chunks
	running int       // number of running workers
	idle    []*worker // workers that are not running
}

// New returns a scanner of a table, which must stay open while the scanner is used. spec is
// the Spec of the similarity that encodes the queries. The scanner uses as many processors
// as GOMAXPROCS is now.
func New(t *table.Table, spec rerank.Spec) *Scanner {
	return NewShared(t, spec, turns.New(runtime.GOMAXPROCS(0)))
}

// NewShared returns a Scanner whose scans take turns on the processors with other work.
func NewShared(t *table.Table, spec rerank.Spec, shared *turns.Turns) *Scanner {
	s := &Scanner{table: t, turns: shared, chunk: chunkOf(t, spec, shared.Most())}
	s.loss, s.lossless = t.Loss(), withoutLoss(t.Loss())
	if _, ok := t.Full(); !ok { // without full precision, the packed rows themselves are scored
		s.loss = s.lossless
	}
	s.chunks = (t.Len() + s.chunk - 1) / s.chunk
	s.alive = aliveItems(t)
	s.pool.New = func() any { return &job{done: make(chan struct{}, 1)} }
	return s
}

// withoutLoss returns the norms of l, and no rounding errors.
func withoutLoss(l rerank.Loss) rerank.Loss {
	l.Row.Lost, l.Blocks = 0, slices.Clone(l.Blocks)
	for i := range l.Blocks {
		l.Blocks[i].Lost = 0
	}
	return l
}

func chunkOf(t *table.Table, spec rerank.Spec, workers int) int {
	n := maxChunk
	if spec.SingleInnerProduct && t.Len() > 0 {
		rows := max(1, t.Meta().Rows/t.Len())
		n = chunkBytes / (4 * t.Packed().RowWords() * rows)
	}
	share := t.Len() / (minChunksPerProcessor * workers)
	return max(minChunk, min(n, maxChunk, share)) / minChunk * minChunk
}

// Table returns the scanned table.
func (s *Scanner) Table() *table.Table { return s.table }

// Scan answers a query and appends the result's rows to top. It returns the context's error
// if ctx ended first, or the error of the query's Score.
func (s *Scanner) Scan(ctx context.Context, q Query, top []rerank.Scored) (Result, error) {
	results := [1]Result{{Top: top}}
	err := s.Batch(ctx, []Query{q}, results[:])
	return results[0], err
}

// Batch answers several queries in one pass. There must be one result per query; the rows
// of answer i are appended to results[i].Top. Batch returns the first error of a query, as
// Scan does.
func (s *Scanner) Batch(ctx context.Context, queries []Query, results []Result) error {
	if len(queries) != len(results) {
		return fmt.Errorf("%w: %d results for %d queries", rerank.ErrItems, len(results), len(queries))
	}
	var few [8]*job
	jobs := few[:0]
	for _, q := range queries {
		j := s.pool.Get().(*job)
		j.begin(ctx, s, q)
		jobs = append(jobs, j)
	}
	s.join(ctx, jobs)
	var err error
	for i, j := range jobs {
		<-j.done
		if e := j.end(&results[i]); err == nil {
			err = e
		}
		s.pool.Put(j)
	}
	return err
}
