// Package scan finds the exact top K of a resident table: it goes over every item,
// in chunks, on every processor that is free for it, and scores all that a cheaper bound does not rule out.
//
// Queries that are asked at the same time share one pass: a query joins at the
// chunk where the pass is, and leaves when it has been round the table. So the
// table is read once for all of them, none waits for another to end, and one that
// is alone starts at once. The answer does not depend on any of this.
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

// The size of a chunk: what stays in a core's cache where reading is what costs,
// and so many items that little is lost at its end where computing does.
const (
	chunkBytes            = 256 << 10
	minChunk, maxChunk    = 64, 1024
	minChunksPerProcessor = 4 // at least, where there are items enough
)

// Query is what a scan is asked.
type Query struct {
	Encoded rerank.Encoded
	K       int
	// Within are the items to go over; nil: all.
	Within *Bitmap
	// Whole scores every item, whatever a bound says.
	Whole bool
}

// Result is the answer of a scan.
type Result struct {
	// Top are the best K items, best first, ties by id; Index is the item's number
	// in the table.
	Top []rerank.Scored
	// Items is the number that the query went over, Scored those whose φ was
	// computed: a bound ruled the others out.
	Items, Scored int
	// NotFinite counts the scored items whose score is not finite; they rank last.
	NotFinite int
}

// Scanner scans one table. It is safe for concurrent use.
type Scanner struct {
	table         *table.Table
	loss          rerank.Loss // of the rows, against those that are scored
	alive         *Bitmap     // nil: all of them
	chunk, chunks int         // items a chunk, chunks of the table
	turns         *turns.Turns

	pool sync.Pool // *job

	mu      sync.Mutex
	next    int       // the chunk that is handed out next
	jobs    []*job    // those that still need chunks
	running int       // workers
	idle    []*worker // workers that are not
}

// New returns a scanner of a table, which must not be closed while it is used.
// spec is of the similarity that its queries are encoded by. It scans on as many
// processors as there are now.
func New(t *table.Table, spec rerank.Spec) *Scanner {
	return NewShared(t, spec, turns.New(runtime.GOMAXPROCS(0)))
}

// NewShared is New where scans take turns on the processors with other work.
func NewShared(t *table.Table, spec rerank.Spec, shared *turns.Turns) *Scanner {
	s := &Scanner{table: t, turns: shared, chunk: chunkOf(t, spec, shared.Most())}
	s.loss = t.Loss()
	if _, ok := t.Full(); !ok { // the rows themselves are scored
		s.loss.Row.Lost, s.loss.Blocks = 0, slices.Clone(s.loss.Blocks)
		for i := range s.loss.Blocks {
			s.loss.Blocks[i].Lost = 0
		}
	}
	s.chunks = (t.Len() + s.chunk - 1) / s.chunk
	s.alive = aliveItems(t)
	s.pool.New = func() any { return &job{done: make(chan struct{}, 1)} }
	return s
}

func chunkOf(t *table.Table, spec rerank.Spec, workers int) int {
	n := maxChunk
	if spec.SingleInnerProduct && t.Len() > 0 {
		rows := max(1, t.Meta().Rows/t.Len())
		n = chunkBytes / (4 * t.Meta().Features * rows)
	}
	share := t.Len() / (minChunksPerProcessor * workers)
	return max(minChunk, min(n, maxChunk, share)) / minChunk * minChunk
}

// Table is the table that is scanned.
func (s *Scanner) Table() *table.Table { return s.table }

// Scan answers a query; the result's rows are appended to top. It returns the
// context's error when ctx ended first, or the error of the query's Score.
func (s *Scanner) Scan(ctx context.Context, q Query, top []rerank.Scored) (Result, error) {
	results := [1]Result{{Top: top}}
	err := s.Batch(ctx, []Query{q}, results[:])
	return results[0], err
}

// Batch answers queries in one pass. The rows of result i, of as many as there
// are queries, are appended to its Top. It returns the first error of a query, as
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
