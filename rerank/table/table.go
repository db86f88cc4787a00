// Package table holds the resident item features: one feature row or several
// for every item of a collection, in a file that is mapped read-only. The
// format is in docs/reference/model-format.md.
package table

import (
	"errors"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

// ErrTable: the file is not a table, is damaged, or belongs to another model or collection.
var ErrTable = errors.New("table is not valid")

// MaxFeatures is the longest feature row, MaxRows the most rows of a table.
const (
	MaxFeatures = 1 << 20
	MaxRows     = math.MaxInt32
)

// Meta is what a table says of itself.
type Meta struct {
	Model        string `json:"model"`         // name of the model
	ModelVersion string `json:"model_version"` // digest of the model file
	Collection   string `json:"collection"`
	Kind         string `json:"kind"`
	Features     int    `json:"features"` // length of a feature row
	Rows         int    `json:"rows"`
	Items        int    `json:"items"` // = Rows, less where an item owns several rows
	Created      string `json:"created"`
}

// Expect is what the reader of a table expects of it; an empty field expects nothing.
type Expect struct {
	ModelVersion string
	Collection   string
}

// Table is a resident table. It is read-only and safe for concurrent use.
type Table struct {
	meta     Meta
	features rerank.Matrix
	ids      idColumn  // the id of every item
	index    hashIndex // id → item, empty for dense ids
	starts   []int32   // nil: item i is row i; else rows starts[i]:starts[i+1]
	file     *mmap.Map // nil for a table in memory
}

// FromMemory makes a table of features that the caller keeps unchanged. With
// starts (one more than ids), item i has the rows starts[i]:starts[i+1],
// otherwise row i. meta's counts and length of a feature row are set from the
// arguments. It returns ErrTable.
func FromMemory(meta Meta, ids []rerank.ID, features rerank.Matrix, starts []int32) (*Table, error) {
	meta.Features, meta.Rows, meta.Items = features.Cols, features.Rows, len(ids)
	if err := checkMeta(meta); err != nil {
		return nil, err
	}
	if len(features.Data) != features.Rows*features.Cols {
		return nil, fmt.Errorf("%w: %d numbers do not fill %d rows of %d", ErrTable, len(features.Data), features.Rows, features.Cols)
	}
	if err := checkStarts(starts, meta); err != nil {
		return nil, err
	}
	t := &Table{meta: meta, features: features, starts: starts}
	for i, id := range ids {
		if id.IsZero() {
			return nil, fmt.Errorf("%w: item %d has no id", ErrTable, i)
		}
		t.ids.add(id)
	}
	var err error
	t.index, err = buildIndex(&t.ids)
	return t, err
}

// Close unmaps the file. The table, and every Items and Matrix it gave, must not
// be used after.
func (t *Table) Close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// Meta returns what the table says of itself.
func (t *Table) Meta() Meta { return t.meta }

// Len is the number of items.
func (t *Table) Len() int { return t.ids.len() }

// ID returns the id of item i.
func (t *Table) ID(i int) rerank.ID { return t.ids.at(i) }

// Find returns the number of an item.
func (t *Table) Find(id rerank.ID) (item int, ok bool) {
	if t.ids.form == formDense {
		n, ok := id.Uint64()
		return int(n), ok && n < uint64(t.ids.len())
	}
	return t.index.find(&t.ids, id)
}

// Lookup appends the number of every id that the table has to items, in the
// order of ids, and the place in ids of every other to missing.
func (t *Table) Lookup(ids []rerank.ID, items []int32, missing []int) ([]int32, []int) {
	for i, id := range ids {
		if item, ok := t.Find(id); ok {
			items = append(items, int32(item))
		} else {
			missing = append(missing, i)
		}
	}
	return items, missing
}

// Grouped reports whether an item can own several rows.
func (t *Table) Grouped() bool { return t.starts != nil }

// Rows returns the rows [from, to) of item i.
func (t *Table) Rows(i int) (from, to int) {
	if t.starts == nil {
		return i, i + 1
	}
	return int(t.starts[i]), int(t.starts[i+1])
}

// Features is the feature matrix; it aliases the mapped file.
func (t *Table) Features() rerank.Matrix { return t.features }

// All returns every item for Score.
func (t *Table) All() rerank.Items { return rerank.Items{Features: t.features, Starts: t.starts} }

// Slice returns the items [from, to) for Score, so that a scan can be divided.
func (t *Table) Slice(from, to int) rerank.Items {
	if t.starts == nil {
		return rerank.Items{Features: t.features.Slice(from, to)}
	}
	return rerank.Items{Features: t.features, Starts: t.starts[from : to+1]}
}

// Items returns the items of the given numbers, in that order, for Score. The
// result aliases items or, for a grouped table, the slices of scratch, which
// grow as needed; both must stay as they are while it is used.
func (t *Table) Items(items []int32, scratch *rerank.Items) rerank.Items {
	if t.starts == nil {
		return rerank.Items{Features: t.features, Rows: items}
	}
	rows, starts := scratch.Rows[:0], scratch.Starts[:0]
	starts = append(starts, 0)
	for _, item := range items {
		for r := t.starts[item]; r < t.starts[item+1]; r++ {
			rows = append(rows, r)
		}
		starts = append(starts, int32(len(rows)))
	}
	*scratch = rerank.Items{Features: t.features, Rows: rows, Starts: starts}
	return *scratch
}

func checkMeta(m Meta) error {
	switch {
	case m.Features < 1 || m.Features > MaxFeatures:
		return fmt.Errorf("%w: a feature row has %d numbers, want 1 to %d", ErrTable, m.Features, MaxFeatures)
	case m.Rows < 0 || m.Rows > MaxRows:
		return fmt.Errorf("%w: %d rows, at most %d", ErrTable, m.Rows, MaxRows)
	case m.Items < 0 || m.Items > m.Rows:
		return fmt.Errorf("%w: %d items in %d rows; every item owns one row at least", ErrTable, m.Items, m.Rows)
	}
	return nil
}

// checkStarts wants every item to own rows, and every row an item.
func checkStarts(starts []int32, m Meta) error {
	if starts == nil {
		if m.Items != m.Rows {
			return fmt.Errorf("%w: %d items and %d rows need starts", ErrTable, m.Items, m.Rows)
		}
		return nil
	}
	if len(starts) != m.Items+1 || starts[0] != 0 || int(starts[m.Items]) != m.Rows {
		return fmt.Errorf("%w: %d starts of %d items do not span %d rows", ErrTable, len(starts), m.Items, m.Rows)
	}
	for i := range m.Items {
		if starts[i+1] <= starts[i] {
			return fmt.Errorf("%w: item %d owns no row", ErrTable, i)
		}
	}
	return nil
}
