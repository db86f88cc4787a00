package follow

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math"
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
	collection  string
	consistency string // the consistency of reads that follow a write
}

// read fetches the vectors and payloads that the routes need of some rows. It leaves out rows that
// do not exist.
func (s rowReader) read(ctx context.Context, routes []*derivation, ids []rerank.ID, dropped bool) (adapters.Rows, error) {
	fields := vectorFields(routes)
	have, err := s.fetch.Fetch(ctx, adapters.FetchRequest{
		Collection: s.collection, IDs: ids, Vectors: fields, Payload: hasCompanion(routes), Consistency: s.consistency,
	})
	if meansNoRows(err, dropped) {
		return adapters.Rows{Vectors: make([]rerank.Matrix, len(fields))}, nil
	}
	return have, err
}

// deriveAndApply brings the routes' tables and companions up to date with some rows. have holds the
// rows that the database returned for them; a row that it lacks was deleted. unfit reports whether
// a table cannot hold some of the rows.
func deriveAndApply(ctx context.Context, routes []*derivation, rows []*row, have adapters.Rows) (unfit bool, err error) {
	have, gone, checksums := changedRows(have, rows)
	fields := vectorFields(routes)
	for _, d := range routes {
		encoded, err := d.encode(have, have.Vectors[slices.Index(fields, d.route.Vector)])
		if err != nil {
			return unfit, err
		}
		n, err := d.apply(ctx, encoded, gone)
		if err != nil {
			return unfit, err
		}
		unfit = unfit || n > 0
	}
	for i, r := range rows {
		r.checksum, r.applied = checksums[i], true
	}
	return unfit, nil
}

// changedRows picks from have the rows whose content differs from the content that was applied
// last, and lists the rows that were deleted since. checksums has a checksum for each of rows.
func changedRows(have adapters.Rows, rows []*row) (picked adapters.Rows, gone []rerank.ID, checksums []uint64) {
	indexByID := make(map[rerank.ID]int, len(have.IDs))
	for i, id := range have.IDs {
		indexByID[id] = i
	}
	checksums = make([]uint64, len(rows))
	var changed []int
	for i, r := range rows {
		at, exists := indexByID[r.id]
		if exists {
			checksums[i] = rowChecksum(have, at)
		}
		if r.applied && !r.differs && checksums[i] == r.checksum {
			continue
		}
		if exists {
			changed = append(changed, at)
		} else {
			gone = append(gone, r.id)
		}
	}
	return pickRows(have, changed), gone, checksums
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
		for _, x := range m.Row(i) {
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

// pickRows copies the rows with the given indices.
func pickRows(rows adapters.Rows, indices []int) adapters.Rows {
	out := adapters.Rows{IDs: make([]rerank.ID, len(indices)), Vectors: make([]rerank.Matrix, len(rows.Vectors))}
	for f, m := range rows.Vectors {
		out.Vectors[f] = rerank.NewMatrix(len(indices), m.Cols)
	}
	for i, at := range indices {
		out.IDs[i] = rows.IDs[at]
		for f, m := range rows.Vectors {
			copy(out.Vectors[f].Row(i), m.Row(at))
		}
		if rows.Payloads != nil {
			out.Payloads = append(out.Payloads, rows.Payloads[at])
		}
	}
	return out
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
