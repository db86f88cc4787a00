// Package score is the third step of a search: candidates become scores. A Scorer
// scores batches of candidates, or a whole table, on this machine or on a device,
// and keeps the best in a Found. It knows no route and no store.
package score

import (
	"context"
	"time"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/search/failure"
)

// Query is the query that candidates are scored against.
type Query struct {
	rerank.Query // as it came: a device encodes it itself
	Encoded      rerank.Encoded
	K            int // number of best candidates wanted
	// Proof: the answer must be proved, so that a device's measured error is not enough.
	Proof bool
	// Keep keeps the scored batches in Found.Kept.
	Keep bool
}

// Scorer scores candidates. It has no state of its own.
type Scorer struct {
	// Turns limits how many goroutines keep a processor busy at a time.
	Turns *turns.Turns
	// Table is the table that Batch.Numbers refer to, or nil.
	Table *table.Table
	// Scanner scans Table.
	Scanner *scan.Scanner
	// Device scores rows of Table elsewhere; nil: this machine scores them.
	Device Device
	// ReadExact reads feature rows in full precision from the store, where Table does
	// not keep them. Items that are gone are left out. nil: the store cannot be read.
	ReadExact func(ctx context.Context, ids []rerank.ID) (Batch, error)
}

// Candidates scores batches and merges them into f. It returns *failure.Error, or
// the context's error.
func (s *Scorer) Candidates(ctx context.Context, q Query, batches []Batch, f *Found) error {
	few, scores, err := s.onDevice(ctx, q, batches, f)
	if err == nil && scores == nil {
		few = batches
		scores, err = s.scoreHere(ctx, q.Encoded, batches)
	}
	if err != nil {
		return err
	}
	f.merge(few, scores, q)
	return s.refine(ctx, q, f)
}

// All scores every item of the table, or those in within if it is not nil, and
// puts the best into f. It returns *failure.Error, or the context's error.
func (s *Scorer) All(ctx context.Context, q Query, within *scan.Bitmap, f *Found) (scan.Result, error) {
	request := scan.Query{Encoded: q.Encoded, K: f.rounding.keep(q.K), Within: within}
	found, ok := s.scanOnDevice(ctx, q, request, f)
	if !ok {
		var err error
		if found, err = s.Scanner.Scan(ctx, request, nil); err != nil {
			if ctx.Err() != nil {
				return found, failure.TimedOut(ctx, err)
			}
			return found, &failure.Error{Reason: failure.Scoring, Err: err}
		}
	}
	f.setBest(found.Top, found.Items, q.K)
	f.NotFinite += found.NotFinite
	return found, s.refine(ctx, q, f)
}

// scoreHere scores batches on this machine.
func (s *Scorer) scoreHere(ctx context.Context, q rerank.Encoded, batches []Batch) ([][]float32, error) {
	// Scoring keeps a processor busy. More goroutines than processors would only take
	// turns, and every one of them would end late.
	if err := s.Turns.Take(ctx); err != nil {
		return nil, failure.TimedOut(ctx, err)
	}
	defer s.Turns.Give()
	scores := make([][]float32, len(batches))
	for i, b := range batches {
		scores[i] = make([]float32, len(b.IDs))
		if err := q.Score(scores[i], b.Items); err != nil {
			return nil, &failure.Error{Reason: failure.Scoring, Err: err}
		}
	}
	return scores, nil
}

// inFullPrecision scores items from rows that no format rounded: the table's own
// where it keeps them, or rows computed from stored vectors if the search asks for
// a proof. It returns fewer scores than ids where there are neither.
func (s *Scorer) inFullPrecision(ctx context.Context, q Query, ids []rerank.ID) (map[rerank.ID]float32, error) {
	var b Batch
	numbers, missing := s.Table.Lookup(ids, nil, nil)
	full, ok := s.Table.FullItems(numbers, &rerank.Items{})
	switch {
	case ok && len(missing) == 0:
		b = Batch{IDs: ids, Items: full}
	case q.Proof && s.ReadExact != nil:
		var err error
		if b, err = s.ReadExact(ctx, ids); err != nil {
			return nil, err
		}
	default:
		return nil, nil
	}
	scores, err := s.scoreHere(ctx, q.Encoded, []Batch{b})
	if err != nil {
		return nil, err
	}
	exact := make(map[rerank.ID]float32, len(b.IDs))
	for i, id := range b.IDs {
		exact[id] = scores[0][i]
	}
	return exact, nil
}

// halfOf leaves half of the remaining time to a device: without its answer this
// machine scores in the other half.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}
