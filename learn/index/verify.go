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

// ErrVerify: what was built is not what it should be, as it was read back.
var ErrVerify = errors.New("what was built was not verified")

// Verified says how a build was checked at its end.
type Verified struct {
	// Rows are those of the table or companion as it was read back; 0: it was not.
	Rows int64 `json:"rows"`
	// Counted: they are as many as the collection had while it was read.
	Counted bool `json:"counted"`
	// Compared rows of a companion were read back, and are what was written.
	Compared int `json:"compared"`
}

// counts are how many rows a collection had, before and after it was read.
type counts struct{ least, most int64 }

// count asks a store for a collection's rows; −1: it does not tell.
func count(ctx context.Context, store any, collection string) (int64, error) {
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

// counted are the counts of the source, which had before rows when it was first
// read; ok is false where they cannot be compared with what was read of it.
func (s Source) counted(ctx context.Context, before int64) (c counts, ok bool, err error) {
	after, err := count(ctx, s.Store, s.Collection)
	ok = s.Part.whole() && before >= 0 && after >= 0
	return counts{min(before, after), max(before, after)}, ok, err
}

// check compares what was built of a collection with its counts.
func (c counts) check(rows int64, what, collection string) error {
	if rows >= c.least && rows <= c.most {
		return nil
	}
	return fmt.Errorf("%w: %s has %d rows, collection %q has %d (%d before it was read); if it was written to meanwhile, a sidecar with state_dir repairs that and `likeness index --verify` shows it; `likeness index --force` builds it again",
		ErrVerify, what, rows, collection, c.most, c.least)
}

// VerifyTable reads all of a table, which checks its checksums, and compares its
// rows with the number of them that it was made of. It returns ErrVerify, with the
// table's own error if that is damaged.
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

// verify checks the table that was written from a collection of before rows.
func (b *tableBuild) verify(ctx context.Context, before int64) (v Verified, err error) {
	expect := table.Expect{ModelVersion: b.Model.Version, Collection: b.Source.Collection}
	if v, err = VerifyTable(b.Path, expect, b.writer.Rows()); err != nil {
		return v, err
	}
	c, ok, err := b.Source.counted(ctx, before)
	if err != nil || !ok {
		return v, err
	}
	read := v.Rows
	if b.Vectors != nil {
		read = int64(b.writer.Items()) // an item is a row of the collection
	}
	v.Counted = true
	err = c.check(read+int64(b.result.Missing), "table "+b.Path, b.Source.Collection)
	if err != nil && b.result.Resumed > 0 { // the run before may have left out rows too
		missing, failed := b.Source.countMissing(ctx)
		if failed != nil {
			return v, failed
		}
		err = c.check(read+missing, "table "+b.Path, b.Source.Collection)
	}
	return v, err
}

// countMissing counts the rows of the collection that have no vector.
func (s Source) countMissing(ctx context.Context) (int64, error) {
	var missing adapters.Missing
	err := s.scan(ctx, bounds{}, s.request(), func(rows adapters.Rows, _ string) error {
		missing.Drop(rows)
		return nil
	})
	return int64(missing.Rows), err
}

// sampleRows is how many rows of a companion are read back, at most.
const sampleRows = 1000

// sample is some of the rows that a build wrote, each as likely as another.
type sample struct {
	seen int
	rng  *rand.Rand
	rows []sampled
}

type sampled struct {
	id      rerank.ID
	vectors [][]float32 // of each field
	payload json.RawMessage
}

// add takes some of the rows (algorithm R: J. S. Vitter, Random Sampling with a
// Reservoir, 1985). Those with a number that is not finite are left out: a store may
// keep another one.
func (s *sample) add(rows adapters.Rows) {
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
			s.rows = append(s.rows, sampled{})
		} else if at = s.rng.IntN(s.seen); at >= sampleRows {
			continue
		}
		row := sampled{id: id}
		for _, m := range rows.Vectors {
			row.vectors = append(row.vectors, slices.Clone(m.Row(i)))
		}
		if rows.Payloads != nil {
			row.payload = slices.Clone(rows.Payloads[i])
		}
		s.rows[at] = row
	}
}

// verify checks the companion that was written of a collection of before rows: its
// count, and the rows of the sample.
func (b *companionBuild) verify(ctx context.Context, before int64) (v Verified, err error) {
	if v.Compared, err = b.compareSample(ctx); err != nil {
		return v, err
	}
	rows, err := count(ctx, b.Writer, b.Name)
	if err != nil || rows < 0 || !b.Source.Part.whole() {
		return v, err
	}
	v.Rows = rows
	if rows != int64(b.state.Written) {
		return v, fmt.Errorf("%w: companion %s has %d rows, %d were written; begin again, which writes all of them, or with --force", ErrVerify, b.Name, rows, b.state.Written)
	}
	c, ok, err := b.Source.counted(ctx, before)
	if err != nil || !ok {
		return v, err
	}
	v.Counted = true
	return v, c.check(int64(b.state.Rows), "companion "+b.Name, b.Source.Collection)
}

// compareSample reads the sample's rows back; 0 where the store reads none by id.
func (b *companionBuild) compareSample(ctx context.Context) (n int, err error) {
	fetcher := adapters.AbilitiesOf(b.Writer).Fetch
	if fetcher == nil {
		return 0, nil
	}
	request := adapters.FetchRequest{Collection: b.Name, Payload: b.schema.Owner == ""} // it is in the payload, in some stores
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
			if !row.is(have, i) {
				return n, fmt.Errorf("%w: row %s of companion %s is not read back as it was written; begin again, which writes all of them, or with --force", ErrVerify, row.id, b.Name)
			}
			n++
		}
	}
	return n, nil
}

// is reports whether row i of those that were read back is the one written; a row
// that is missing moves those behind it.
func (s sampled) is(have adapters.Rows, i int) bool {
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
