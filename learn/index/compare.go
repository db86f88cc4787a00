package index

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// Difference counts how a table or companion differs from a fresh build of its
// collection.
type Difference struct {
	// Rows counts the compared rows: items of a table, rows of a companion.
	Rows int64
	// Missing counts rows that the table or companion lacks, Changed rows with other
	// numbers, and Surplus rows that a fresh build does not have.
	Missing, Changed, Surplus int64
}

// CompareTable builds the job's table again in a temporary file beside it and compares
// every item with the table at job.Path. It serves models whose items have several
// rows, because such an item cannot be computed from a single row of the collection.
// It returns the errors of BuildTable, and table.ErrTable.
func CompareTable(ctx context.Context, job TableJob) (d Difference, err error) {
	expect := table.Expect{ModelVersion: job.Model.Version, Collection: job.Source.Collection}
	have, err := table.Open(job.Path, expect)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, have.Close()) }()
	again := job
	again.Path, again.Force = job.Path+".verify", true
	again.Format, again.Layout, again.Full = have.Meta().Format, have.Meta().Layout, have.Meta().Full
	defer func() { err = errors.Join(err, removeTable(again.Path)) }()
	if _, err := BuildTable(ctx, again); err != nil {
		return d, err
	}
	want, err := table.Open(again.Path, expect)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, want.Close()) }()
	found := 0
	for i := range want.Len() {
		d.Rows++
		at, there := have.Find(want.ID(i))
		switch {
		case !there:
			d.Missing++
			continue
		case !sameItem(want, i, have, at):
			d.Changed++
		}
		found++
	}
	d.Surplus = int64(have.Count() - found)
	return d, nil
}

// removeTable removes a table and the files of an interrupted build of it.
func removeTable(path string) (err error) {
	for _, name := range []string{path, path + ".part", path + ".part.full", path + ".part.ids", path + ".part.json"} {
		if gone := os.Remove(name); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// sameItem reports whether item i of a and item k of b have equal rows.
func sameItem(a *table.Table, i int, b *table.Table, k int) bool {
	from, to := a.Rows(i)
	at, end := b.Rows(k)
	if to-from != end-at {
		return false
	}
	x, y := make([]float32, a.Meta().Features), make([]float32, b.Meta().Features)
	for ; from < to; from, at = from+1, at+1 {
		a.Row32(x, from)
		b.Row32(y, at)
		if !slices.EqualFunc(x, y, sameNumber) {
			return false
		}
	}
	return true
}

// CompareCompanion computes the rows that the job would write and compares their
// vectors with the companion's. The job's writer must read rows by id. If the store
// counts rows, rows beyond the computed ones are Surplus. It returns ErrSource or the
// store's error.
func CompareCompanion(ctx context.Context, job CompanionJob) (Difference, error) {
	fields, err := job.Fields()
	if err != nil {
		return Difference{}, err
	}
	fetcher := adapters.AbilitiesOf(job.Writer).Fetch
	if fetcher == nil {
		return Difference{}, fmt.Errorf("%w: the store of companion %q reads no rows by id", ErrSource, job.Name)
	}
	c := &comparer{fetcher: fetcher}
	for _, f := range fields {
		c.fields = append(c.fields, f.Name)
	}
	rows, err := countRows(ctx, job.Writer, job.Name)
	if err != nil {
		return Difference{}, err
	}
	job.Writer, job.State, job.Force = c, "", false
	if _, err := BuildCompanion(ctx, job); err != nil {
		return Difference{}, err
	}
	if there := c.found.Rows - c.found.Missing; rows >= 0 {
		c.found.Surplus = max(0, rows-there)
	}
	return c.found, nil
}

// comparer is a Writer that compares rows with the stored rows instead of writing
// them.
type comparer struct {
	fetcher adapters.Fetcher
	fields  []string
	found   Difference
}

var _ adapters.Writer = (*comparer)(nil)

// Create implements adapters.Writer. It does nothing, because the companion exists.
func (*comparer) Create(context.Context, adapters.Schema) error { return nil }

// Drop implements adapters.Writer. It removes nothing.
func (*comparer) Drop(context.Context, string) error { return nil }

// Write implements adapters.Writer. It reads the stored rows and compares them with
// want.
func (c *comparer) Write(ctx context.Context, companion string, _ adapters.Schema, want adapters.Rows) error {
	have, err := c.fetcher.Fetch(ctx, adapters.FetchRequest{Collection: companion, IDs: want.IDs, Vectors: c.fields})
	if err != nil {
		return fmt.Errorf("companion %q: %w", companion, err)
	}
	place := make(map[rerank.ID]int, len(have.IDs))
	for i, id := range have.IDs {
		place[id] = i
	}
	for i, id := range want.IDs {
		c.found.Rows++
		at, there := place[id]
		switch {
		case !there:
			c.found.Missing++
		case !sameRow(want.Vectors, i, have.Vectors, at):
			c.found.Changed++
		}
	}
	return nil
}

// sameRow reports whether row i of a and row k of b are equal in every field.
func sameRow(a []rerank.Matrix, i int, b []rerank.Matrix, k int) bool {
	for f := range a {
		if !slices.EqualFunc(a[f].Row(i), b[f].Row(k), sameNumber) {
			return false
		}
	}
	return true
}

// sameNumber reports whether two numbers are equal, or both NaN: what a ranker did not score stays so.
func sameNumber(a, b float32) bool { return a == b || a != a && b != b }
