// Package score is the third step of a search: candidates become scores. A Scorer
// scores batches of candidates, or a whole table, on this machine or on a device,
// and keeps the best in a Found. It knows no route and no store.
package score

import (
	"context"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// Query is the query that candidates are scored against.
type Query struct {
	rerank.Query // the query as the client sent it: a device encodes it itself
	Encoded      rerank.Encoded
	K            int // number of best candidates wanted
	// Proof: the answer must be proved, so that a device's measured error is not enough.
	Proof bool
	// Settle repeats a scan with more rows, time permitting, as long as rounding to float32 could change the
	// answer. The answer is proved only if Found.Refined is set.
	Settle bool
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
	// Device scores rows of Table on another processor; if nil, this machine scores them.
	Device Device
	// ReadExact reads feature rows in full precision from the store, for rows that Table does not
	// keep so. It leaves out items that are gone. It is nil if the store cannot be read.
	ReadExact func(ctx context.Context, ids []rerank.ID) (Batch, error)
}

// Candidates scores batches and merges them into f. It returns *failure.Error, or
// the context's error.
func (s *Scorer) Candidates(ctx context.Context, q Query, batches []Batch, f *Found) (err error) {
	ctx, sp := span.Step(ctx, "score")
	began, before := time.Now(), f.Scored
	defer func() {
		f.Time += time.Since(began)
		sp.SetAttributes(attribute.Int("likeness.candidates", f.Scored-before))
		span.Fail(ctx, sp, err)
		sp.End()
	}()
	few, scores, err := s.onDevice(ctx, q, batches, f)
	if err == nil && scores == nil {
		few = batches
		scores, err = s.scoreHere(ctx, q.Encoded, batches)
	}
	if err != nil {
		return err
	}
	f.merge(few, scores, q)
	return s.refine(ctx, q, f, few)
}

// All scores every item of the table, or only the items within if it is not nil, and puts the best
// into f. It returns *failure.Error, or the context's error.
func (s *Scorer) All(ctx context.Context, q Query, within *scan.Bitmap, f *Found) (err error) {
	ctx, sp := span.Step(ctx, "score")
	var found scan.Result
	began := time.Now()
	defer func() {
		f.Time += time.Since(began)
		sp.SetAttributes(attribute.Int("likeness.candidates", found.Items), attribute.Int("likeness.scored", found.Scored))
		span.Fail(ctx, sp, err)
		sp.End()
	}()
	request := scan.Query{Encoded: q.Encoded, K: f.rounding.keep(q.K), Within: within}
	if found, err = s.scan(ctx, q, request, f); err != nil {
		return err
	}
	took := time.Since(began)
	f.NotFinite += found.NotFinite
	f.setBest(found.Top, found.Items, q.K)
	if err := s.refine(ctx, q, f, nil); err != nil || f.Refined() || f.rounding.lacksRows || !q.Settle || found.Items <= request.K || !hasTimeFor(ctx, 3*took) {
		return err
	}
	// More items than were kept, or than a device returns at once, may belong to the answer.
	request.K = max(maxContenders, 4*q.K)
	if found, err = s.scanHere(ctx, request); err != nil {
		return err
	}
	f.rounding.dropped, f.rounding.exact = float32(math.Inf(-1)), map[rerank.ID]bool{}
	f.setBest(found.Top, found.Items, q.K)
	return s.refine(ctx, q, f, nil)
}

// maxContenders is how many items a scan keeps if more of them than usual have to be scored in
// float64.
const maxContenders = 4096

// hasTimeFor reports whether at least d is left until the deadline.
func hasTimeFor(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > d
}

// scan finds the best items of the table, on a device or on this machine.
func (s *Scorer) scan(ctx context.Context, q Query, request scan.Query, f *Found) (scan.Result, error) {
	if found, ok := s.scanOnDevice(ctx, q, request, f); ok {
		return found, nil
	}
	return s.scanHere(ctx, request)
}

func (s *Scorer) scanHere(ctx context.Context, request scan.Query) (scan.Result, error) {
	found, err := s.Scanner.Scan(ctx, request, nil)
	switch {
	case err == nil:
		return found, nil
	case ctx.Err() != nil:
		return found, failure.TimedOut(ctx, err)
	default:
		return found, &failure.Error{Reason: failure.Scoring, Err: err}
	}
}

// Wide scores a batch in float64 on this machine. epsilon bounds the error of each score. It returns
// *failure.Error, or the context's error.
func (s *Scorer) Wide(ctx context.Context, q rerank.Encoded, b Batch) (scores map[rerank.ID]float64, epsilon float64, err error) {
	var f Found
	scores, err = s.scoreWide(ctx, q, []Batch{b}, &f)
	return scores, float64(f.rounding.wideError), err
}

// scoreHere scores batches on this machine.
func (s *Scorer) scoreHere(ctx context.Context, q rerank.Encoded, batches []Batch) ([][]float32, error) {
	scores := make([][]float32, len(batches))
	return scores, s.eachBatch(ctx, batches, func(i int, b Batch) error {
		scores[i] = make([]float32, len(b.IDs))
		return q.Score(scores[i], b.Items)
	})
}

// eachBatch takes a turn, and calls f with every batch while it holds the turn. An error of f is a
// failure of scoring.
func (s *Scorer) eachBatch(ctx context.Context, batches []Batch, f func(i int, b Batch) error) error {
	// Scoring keeps a processor busy. More goroutines than processors would only take
	// turns, and every one of them would end late.
	if err := s.Turns.Take(ctx); err != nil {
		return failure.TimedOut(ctx, err)
	}
	defer s.Turns.Give()
	for i, b := range batches {
		if err := f(i, b); err != nil {
			return &failure.Error{Reason: failure.Scoring, Err: err}
		}
	}
	return nil
}

// inFullPrecision scores items in float64, from rows that no format rounded: rows of the batches,
// of the table if it keeps full precision, or computed from stored vectors if the search asks for a
// proof. It returns fewer scores than ids if rows are missing.
func (s *Scorer) inFullPrecision(ctx context.Context, q Query, ids []rerank.ID, batches []Batch, f *Found) (map[rerank.ID]float64, error) {
	sources, left := fromBatches(ids, batches)
	if len(left) > 0 && s.Table != nil {
		numbers, missing := s.Table.Lookup(left, nil, nil)
		if rows, ok := s.fullRows(numbers); ok && len(missing) == 0 {
			sources, left = append(sources, Batch{IDs: left, Items: rows}), nil
		}
	}
	if len(left) > 0 {
		if !q.Proof || s.ReadExact == nil {
			return nil, nil
		}
		b, err := s.ReadExact(ctx, left)
		if err != nil {
			return nil, err
		}
		sources = append(sources, b)
	}
	return s.scoreWide(ctx, q.Encoded, sources, f)
}

// fullRows returns items of the table in full precision, if it has them.
func (s *Scorer) fullRows(numbers []int32) (rerank.Items, bool) {
	if !s.Table.Rounded() {
		return s.Table.Items(numbers, &rerank.Items{}), true
	}
	return s.Table.FullItems(numbers, &rerank.Items{})
}

// fromBatches returns those items whose rows are in the batches in full precision, and the ids of
// the others.
func fromBatches(ids []rerank.ID, batches []Batch) (found []Batch, left []rerank.ID) {
	wanted := make(map[rerank.ID]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	for _, b := range batches {
		var picked Batch
		var numbers []int32
		for i, id := range b.IDs {
			if !b.Rounded && wanted[id] {
				wanted[id] = false
				picked.IDs, numbers = append(picked.IDs, id), append(numbers, int32(i))
			}
		}
		if len(numbers) > 0 {
			picked.Items = b.Items.Pick(numbers)
			found = append(found, picked)
		}
	}
	return found, slices.DeleteFunc(slices.Clone(ids), func(id rerank.ID) bool { return !wanted[id] })
}

// scoreWide scores batches in float64 on this machine.
func (s *Scorer) scoreWide(ctx context.Context, q rerank.Encoded, batches []Batch, f *Found) (map[rerank.ID]float64, error) {
	exact := map[rerank.ID]float64{}
	return exact, s.eachBatch(ctx, batches, func(_ int, b Batch) error {
		scores := make([]float64, len(b.IDs))
		epsilon, err := q.ScoreWide(scores, b.Items)
		f.rounding.wideError = max(f.rounding.wideError, epsilon)
		for i, id := range b.IDs {
			exact[id] = scores[i]
		}
		return err
	})
}

// halfOf gives a device half of the remaining time, so that this machine can score in the other
// half if the device does not answer.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}
