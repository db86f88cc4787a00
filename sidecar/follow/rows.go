package follow

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

const (
	// readRows is the most rows that are read at once.
	readRows = 512
	// retryRow is how long a row waits after it failed while other rows did not.
	retryRow = 5 * time.Second
)

// rowFailure is a row that could not be applied, and why.
type rowFailure struct {
	row *row
	err error
}

// applyEach applies rows together. If some rows alone make that fail, it applies each half, down to
// single rows, and returns the rows that failed. It stops when ctx ends, or at an error that
// affects the whole collection: then it returns the error, and the rows that are left in unapplied.
func applyEach(ctx context.Context, rows []*row, apply func([]*row) error) (failed []rowFailure, unapplied []*row, err error) {
	err = apply(rows)
	switch {
	case err == nil:
		return nil, nil, nil
	case ctx.Err() != nil || affectsCollection(err):
		return nil, rows, err
	case len(rows) == 1 && errors.Is(err, adapters.ErrID):
		return nil, nil, nil // no row can have this id, so nothing derives from it
	case len(rows) == 1:
		return []rowFailure{{rows[0], err}}, nil, nil
	}
	half := len(rows) / 2
	failed, unapplied, err = applyEach(ctx, rows[:half], apply)
	if err != nil {
		return failed, append(slices.Clone(unapplied), rows[half:]...), err
	}
	more, unapplied, err := applyEach(ctx, rows[half:], apply)
	return append(failed, more...), unapplied, err
}

// affectsCollection reports whether an error would recur for every row, so that trying
// the rows one by one is pointless.
func affectsCollection(err error) bool {
	return slices.ContainsFunc([]error{adapters.ErrUnavailable, adapters.ErrRefused, adapters.ErrNotFound, adapters.ErrDimension},
		func(target error) bool { return errors.Is(err, target) })
}

// meansNoRows reports whether an error of a read says that the collection has no rows.
// A collection that is not found counts as empty only after a write was seen that may
// have dropped it: a store can fail to find a collection that is there.
func meansNoRows(err error, dropped bool) bool {
	return dropped && errors.Is(err, adapters.ErrNotFound)
}

// rowReader reads rows of a collection.
type rowReader struct {
	fetch       adapters.Fetcher
	scan        adapters.Scanner
	collection  string
	consistency string // the consistency of reads that follow a write
}

// read fetches the vectors and payloads that the routes need of some rows, for each of sourcesOf. It leaves
// out rows that do not exist.
func (s rowReader) read(ctx context.Context, routes []*derivation, ids []rerank.ID, dropped bool) ([]adapters.Rows, error) {
	var all []adapters.Rows
	for _, src := range sourcesOf(routes) {
		have, err := s.fetch.Fetch(ctx, adapters.FetchRequest{
			Collection: s.collection, IDs: ids, Vectors: src.fields, Payload: src.needsPayload(routes), Consistency: s.consistency,
		})
		if meansNoRows(err, dropped) {
			have, err = adapters.Rows{Vectors: make([]rerank.Matrix, len(src.fields))}, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, have)
	}
	return all, nil
}

// isGone reports whether the collection no longer exists. It is asked after a write that may have dropped it.
func (s rowReader) isGone(ctx context.Context) bool {
	exists := errors.New("the collection exists")
	err := s.scan.Scan(ctx, adapters.ScanRequest{Collection: s.collection, Batch: 1}, func(adapters.Rows, string) error { return exists })
	return meansNoRows(err, true)
}

// deriveAndApply brings the routes' tables and companions up to date with some rows. have is what
// rowReader.read returned for them; a row that it lacks was deleted. unfit reports whether a table cannot
// hold some of the rows.
func deriveAndApply(ctx context.Context, routes []*derivation, rows []*row, have []adapters.Rows) (unfit bool, err error) {
	changed, checksums := changedRows(have, rows)
	for s, src := range sourcesOf(routes) {
		picked, gone := pickRows(have[s], changed)
		for _, i := range src.routes {
			d := routes[i]
			encoded, err := d.encode(picked, picked.Vectors[slices.Index(src.fields, d.field())])
			if err != nil {
				return unfit, err
			}
			n, err := d.apply(ctx, encoded, gone)
			if err != nil {
				return unfit, err
			}
			unfit = unfit || n > 0
		}
	}
	for i, r := range rows {
		r.checksum, r.applied = checksums[i], true
	}
	return unfit, nil
}

// changedRows lists the rows whose content differs from the content that was applied last. checksums has
// a checksum for each of rows, over all sources.
func changedRows(have []adapters.Rows, rows []*row) (changed []rerank.ID, checksums []uint64) {
	checksums = make([]uint64, len(rows))
	for _, part := range have {
		place := placesOf(part.IDs)
		for i, r := range rows {
			checksums[i] = bits.RotateLeft64(checksums[i], 1)
			if at, exists := place[r.id]; exists {
				checksums[i] ^= rowChecksum(part, at)
			}
		}
	}
	for i, r := range rows {
		if !r.applied || r.differs || checksums[i] != r.checksum {
			changed = append(changed, r.id)
		}
	}
	return changed, checksums
}

// pickRows returns those rows of have that have the given ids, and the ids that it lacks.
func pickRows(have adapters.Rows, ids []rerank.ID) (picked adapters.Rows, gone []rerank.ID) {
	place := placesOf(have.IDs)
	var at []int
	for _, id := range ids {
		if i, exists := place[id]; exists {
			at = append(at, i)
		} else {
			gone = append(gone, id)
		}
	}
	return have.Pick(at), gone
}

func placesOf(ids []rerank.ID) map[rerank.ID]int {
	place := make(map[rerank.ID]int, len(ids))
	for i, id := range ids {
		place[id] = i
	}
	return place
}

// vectorsOf returns the numbers of row i of a field: of its several vectors if starts is not nil.
func vectorsOf(m rerank.Matrix, starts []int32, i int) []float32 {
	if starts == nil {
		return m.Row(i)
	}
	return m.Slice(int(starts[i]), int(starts[i+1])).Data
}

// checksumSeed is chosen anew in each process, which no checksum leaves.
var checksumSeed = maphash.MakeSeed()

// rowChecksum hashes a row's vectors and payload. It never returns 0, which stands for
// a missing row.
func rowChecksum(rows adapters.Rows, i int) uint64 {
	var h maphash.Hash
	h.SetSeed(checksumSeed)
	var b [4]byte
	for _, m := range rows.Vectors {
		for _, x := range vectorsOf(m, rows.Starts, i) {
			n := math.Float32bits(x)
			b[0], b[1], b[2], b[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
			_, _ = h.Write(b[:])
		}
	}
	if rows.Payloads != nil {
		_, _ = h.Write(rows.Payloads[i])
	}
	return max(h.Sum64(), 1)
}

// rowFailures logs a line when rows begin to fail, and one when no row fails any more: with a
// full disk every row fails at every retry.
type rowFailures struct {
	log   *slog.Logger
	rows  map[rerank.ID]bool // rows whose last try failed
	tries int                // failed tries since rows began to fail
}

func newRowFailures(log *slog.Logger) rowFailures {
	return rowFailures{log: log, rows: map[rerank.ID]bool{}}
}

// note takes the outcome of one call of applyEach for rows.
func (f *rowFailures) note(rows []*row, failed []rowFailure, unapplied []*row) {
	began := len(f.rows) == 0
	left := map[*row]bool{}
	for _, r := range unapplied {
		left[r] = true
	}
	for _, r := range failed {
		left[r.row] = true
		f.rows[r.row.id] = true
		f.tries++
	}
	for _, r := range rows {
		if !left[r] {
			delete(f.rows, r.id)
		}
	}
	switch {
	case began && len(failed) > 0:
		f.log.Warn("follow: row failed, will retry", "id", failed[0].row.id.String(), "rows", len(failed), "error", failed[0].err)
	case !began && len(f.rows) == 0:
		f.log.Info("follow: no row fails any more", "failed_tries", f.tries)
		f.tries = 0
	}
}
