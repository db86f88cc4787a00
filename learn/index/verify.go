package index

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/derive"
)

// ErrVerify means that a finished table or companion, read back, is not what the build
// wrote.
var ErrVerify = errors.New("what was built was not verified")

// Verified says how a build was checked at its end.
type Verified struct {
	// Rows is the number of rows of the table or companion, read back. It is 0 if they
	// were not counted.
	Rows int64 `json:"rows"`
	// Counted means that Rows agrees with the number of rows of the collection.
	Counted bool `json:"counted"`
	// Compared counts the rows of a companion that were read back and equal what was
	// written.
	Compared int `json:"compared"`
}

// rowRange holds the least and the greatest number of rows that a collection had while
// it was read.
type rowRange struct{ least, most int64 }

// countRows asks a store for the number of rows of a collection. It returns −1 if the
// store cannot tell.
func countRows(ctx context.Context, store any, collection string) (int64, error) {
	counter := adapters.AbilitiesOf(store).Count
	if counter == nil {
		return -1, nil
	}
	n, err := counter.Count(ctx, collection)
	if errors.Is(err, adapters.ErrUnsupported) || errors.Is(err, adapters.ErrUnavailable) {
		return -1, nil
	}
	return n, err
}

// countAgain counts the source's rows after the build, and returns the range between
// that count and the count before. ok is false if either is unknown or if only a part
// was built.
func (s Source) countAgain(ctx context.Context, before int64) (c rowRange, ok bool, err error) {
	after, err := countRows(ctx, s.Store, s.Collection)
	ok = s.Part.isWhole() && before >= 0 && after >= 0
	return rowRange{min(before, after), max(before, after)}, ok, err
}

// check returns ErrVerify if a number of rows is outside the range. what names the
// table or companion.
func (c rowRange) check(rows int64, what, collection string) error {
	if rows >= c.least && rows <= c.most {
		return nil
	}
	return fmt.Errorf("%w: %s has %d rows, collection %q has %d (%d before it was read); if it was written to meanwhile, a sidecar with state_dir repairs that and `likeness index --verify` shows it; `likeness index --force` builds it again",
		ErrVerify, what, rows, collection, c.most, c.least)
}

// VerifyTable reads a whole table, which verifies its checksums, and compares its
// number of rows with the number written. It returns ErrVerify, joined with the
// table's own error if the table is damaged.
func VerifyTable(path string, expect table.Expect, rows int) (Verified, error) {
	t, err := table.Open(path, expect)
	if err != nil {
		return Verified{}, fmt.Errorf("%w: %w; build it again with --force", ErrVerify, err)
	}
	have := t.Meta().Rows
	if err := t.Close(); err != nil {
		return Verified{}, err
	}
	if have != rows {
		return Verified{}, fmt.Errorf("%w: table %s has %d rows, %d were written; build it again with --force", ErrVerify, path, have, rows)
	}
	return Verified{Rows: int64(have)}, nil
}

// verify checks the finished table. before is the number of rows of the collection
// when the build began.
func (b *tableBuild) verify(ctx context.Context, before int64) (v Verified, err error) {
	expect := table.Expect{ModelVersion: b.Model.Version, Collection: b.Source.Collection}
	if v, err = VerifyTable(b.Path, expect, b.writer.Rows()); err != nil {
		return v, err
	}
	c, ok, err := b.Source.countAgain(ctx, before)
	if err != nil || !ok {
		return v, err
	}
	read := v.Rows
	if b.Vectors != nil || b.Model.Similarity.Spec().Kind == rerank.KindLate && b.Source.Owner == "" {
		read = int64(b.writer.Items()) // one row of the collection for each item
	}
	v.Counted = true
	return v, b.checkCount(ctx, c, read)
}

// checkCount checks that the rows of the table that were read from the collection, and the rows without a vector, are as many
// as the collection had. Earlier runs of a build that was resumed may have left out rows, which are counted again.
func (b *tableBuild) checkCount(ctx context.Context, had rowRange, read int64) error {
	name := "table " + b.Path
	err := had.check(read+int64(b.result.Missing), name, b.Source.Collection)
	if err == nil || b.result.Resumed == 0 {
		return err
	}
	missing, err := b.Source.countMissing(ctx)
	if err != nil {
		return err
	}
	return had.check(read+missing, name, b.Source.Collection)
}

// countMissing scans the collection and counts the rows without a vector.
func (s Source) countMissing(ctx context.Context) (int64, error) {
	var missing adapters.Missing
	err := s.scan(ctx, bounds{}, s.request(), func(rows adapters.Rows, _ string) error {
		missing.Drop(rows)
		return nil
	})
	return int64(missing.Rows), err
}

// sampleRows is the greatest number of rows of a companion that are read back.
const sampleRows = 1000

// rowSample is a uniform random sample of the rows that a build wrote.
type rowSample struct {
	seen int
	rng  *rand.Rand
	rows []sampledRow
}

type sampledRow struct {
	id      rerank.ID
	vectors [][]float32 // one vector for each field
	payload json.RawMessage
}

// add offers rows to the sample (algorithm R: J. S. Vitter, Random Sampling with a
// Reservoir, 1985). It leaves out rows with a number that is not finite, because a
// store may keep another such number.
func (s *rowSample) add(rows adapters.Rows) {
	if s.rng == nil {
		s.rng = rand.New(rand.NewPCG(1, 1))
	}
	for i, id := range rows.IDs {
		if slices.ContainsFunc(rows.Vectors, func(m rerank.Matrix) bool { return rerank.CheckFinite("row", m.Row(i)) != nil }) {
			continue
		}
		s.seen++
		at := len(s.rows)
		if at < sampleRows {
			s.rows = append(s.rows, sampledRow{})
		} else if at = s.rng.IntN(s.seen); at >= sampleRows {
			continue
		}
		row := sampledRow{id: id}
		for _, m := range rows.Vectors {
			row.vectors = append(row.vectors, slices.Clone(m.Row(i)))
		}
		if rows.Payloads != nil {
			row.payload = slices.Clone(rows.Payloads[i])
		}
		s.rows[at] = row
	}
}

// verify checks the finished companion: its number of rows, and the rows of the
// sample. before is the number of rows of the collection when the build began.
func (b *companionBuild) verify(ctx context.Context, before int64) (v Verified, err error) {
	if v.Compared, err = b.compareSample(ctx); err != nil {
		return v, err
	}
	rows, err := countRows(ctx, b.Writer, b.Name)
	if err != nil || rows < 0 || !b.Source.Part.isWhole() {
		return v, err
	}
	v.Rows = rows
	if rows != int64(b.state.Written) {
		return v, fmt.Errorf("%w: companion %s has %d rows, %d were written; begin again, which writes all of them, or with --force", ErrVerify, b.Name, rows, b.state.Written)
	}
	c, ok, err := b.Source.countAgain(ctx, before)
	if err != nil || !ok {
		return v, err
	}
	v.Counted = true
	return v, c.check(int64(b.state.Rows), "companion "+b.Name, b.Source.Collection)
}

// compareSample reads the sample's rows back and returns how many it compared: 0 if
// the store does not read rows by id.
func (b *companionBuild) compareSample(ctx context.Context) (n int, err error) {
	fetcher := adapters.AbilitiesOf(b.Writer).Fetch
	if fetcher == nil {
		return 0, nil
	}
	request := adapters.FetchRequest{Collection: b.Name, Payload: b.schema.Owner == ""} // some stores keep the owner in the payload
	for _, f := range b.fields {
		request.Vectors = append(request.Vectors, f.Name)
	}
	const page = 100
	for part := range slices.Chunk(b.sample.rows, page) {
		request.IDs = request.IDs[:0]
		for _, row := range part {
			request.IDs = append(request.IDs, row.id)
		}
		have, err := fetcher.Fetch(ctx, request)
		if err != nil {
			return n, fmt.Errorf("reading companion %q back: %w", b.Name, err)
		}
		for i, row := range part {
			if !row.matches(have, i) {
				return n, fmt.Errorf("%w: row %s of companion %s is not read back as it was written; begin again, which writes all of them, or with --force", ErrVerify, row.id, b.Name)
			}
			n++
		}
	}
	return n, nil
}

// matches reports whether row i of have is the sampled row. A row missing from have
// shifts the rows after it, which then do not match either.
func (s sampledRow) matches(have adapters.Rows, i int) bool {
	if i >= len(have.IDs) || have.IDs[i] != s.id {
		return false
	}
	for f, want := range s.vectors {
		if !slices.Equal(want, have.Vectors[f].Row(i)) {
			return false
		}
	}
	return have.Payloads == nil || derive.SamePayload(s.payload, have.Payloads[i])
}
