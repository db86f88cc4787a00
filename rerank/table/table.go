// Package table holds the resident item features: one feature row or several
// for every item of a collection, in a file that is mapped read-only. The
// format is in docs/reference/model-format.md.
package table

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/internal/largepages"
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
	// Format is how numbers are stored, rerank.FormatFloat32 where not given, and
	// Layout how rows lie, LayoutRows where not given.
	Format rerank.Format `json:"format,omitempty"`
	Layout Layout        `json:"layout,omitempty"`
	// Block is the length of a sub-vector of a row (rerank.Spec.Block), 0 for one.
	Block int `json:"block,omitempty"`
	// Full: the rows are also kept in float32, in a part of the file that only a
	// rescoring reads. It means nothing for rows of float32.
	Full bool `json:"full_precision,omitempty"`
}

// Layout is how the rows of a table lie.
type Layout string

// The layouts.
const (
	// LayoutRows has row after row: a candidate is read in one piece.
	LayoutRows Layout = "rows"
	// LayoutTiles has sixteen rows side by side, as the kernels work on them: a scan
	// reads tiles as they are, a candidate is gathered from as many cache lines as
	// its row has words.
	LayoutTiles Layout = "tiles"
)

// fill fills the defaults in.
func (m *Meta) fill() {
	m.Format, m.Layout = cmp.Or(m.Format, rerank.FormatFloat32), cmp.Or(m.Layout, LayoutRows)
	if m.Format == rerank.FormatFloat32 && m.Layout == LayoutRows {
		m.Full = false
	}
}

func (m Meta) packing() rerank.Packing {
	return rerank.Packing{Format: m.Format, Cols: m.Features, Block: m.Block}
}

// plain reports rows of float32 that Score reads as a matrix.
func (m Meta) plain() bool { return m.Format == rerank.FormatFloat32 && m.Layout == LayoutRows }

// Expect is what the reader of a table expects of it; an empty field expects nothing.
type Expect struct {
	ModelVersion string
	Collection   string
}

// Table is a resident table. It is read-only and safe for concurrent use.
type Table struct {
	meta   Meta
	packed rerank.Packed // every row, whatever the format and layout
	plain  rerank.Matrix // the same, where they are rows of float32
	full   rerank.Matrix // float32 rows beside others, where the file has them
	loss   rerank.Loss
	ids    idColumn  // the id of every item
	index  hashIndex // id → item, empty for dense ids
	starts []int32   // nil: item i is row i; else rows starts[i]:starts[i+1]
	file   *mmap.Map // nil for a table in memory
	live   *live     // nil unless it is a snapshot of a Live
}

// FromMemory makes a table of features that the caller keeps unchanged; in
// another format or layout than rows of float32, of a copy of them. With starts
// (one more than ids), item i has the rows starts[i]:starts[i+1], otherwise row i.
// meta's counts and length of a feature row are set from the arguments. It
// returns ErrTable.
func FromMemory(meta Meta, ids []rerank.ID, features rerank.Matrix, starts []int32) (*Table, error) {
	meta.Features, meta.Rows, meta.Items = features.Cols, features.Rows, len(ids)
	meta.fill()
	if err := checkMeta(meta); err != nil {
		return nil, err
	}
	if len(features.Data) != features.Rows*features.Cols {
		return nil, fmt.Errorf("%w: %d numbers do not fill %d rows of %d", ErrTable, len(features.Data), features.Rows, features.Cols)
	}
	if err := checkStarts(starts, meta); err != nil {
		return nil, err
	}
	t := &Table{meta: meta, starts: starts}
	for i, id := range ids {
		if id.IsZero() {
			return nil, fmt.Errorf("%w: item %d has no id", ErrTable, i)
		}
		t.ids.add(id)
	}
	if err := t.pack(features); err != nil {
		return nil, err
	}
	var err error
	t.index, err = buildIndex(&t.ids)
	return t, err
}

// pack makes the rows of a table in memory.
func (t *Table) pack(features rerank.Matrix) error {
	p := newPacker(t.meta)
	if t.meta.Full {
		t.full = features
	}
	t.packed = rerank.Packed{Packing: p.packing, Rows: features.Rows, Tiled: t.meta.Layout == LayoutTiles}
	if t.meta.plain() {
		t.plain, t.packed.Words = features, words(features.Data)
	} else {
		rows := (features.Rows + rerank.Lanes - 1) / rerank.Lanes * rerank.Lanes
		t.packed.Words = make([]uint32, 0, rows*p.packing.RowWords())
		if b, ok := mmap.AsBytes(t.packed.Words[:cap(t.packed.Words)]); ok {
			largepages.Advise(b)
		}
	}
	for r := range features.Rows {
		w, ok := p.add(features.Row(r))
		if !ok {
			return fmt.Errorf("%w: row %d has %w", ErrTable, r, p.tooLarge())
		}
		if !t.meta.plain() {
			t.packed.Words = append(t.packed.Words, w...)
		}
	}
	if !t.meta.plain() {
		t.packed.Words = append(t.packed.Words, p.rest()...)
	}
	t.loss = p.loss
	return nil
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

// Len is the number of items, those that are not alive among them.
func (t *Table) Len() int {
	if t.live != nil {
		return t.live.items
	}
	return t.ids.len()
}

// Count is the number of items that are alive: Len, without those deleted or
// replaced since the table was built (Live).
func (t *Table) Count() int {
	if t.live != nil {
		return t.live.items - t.live.dead
	}
	return t.ids.len()
}

// Dead reports whether any item is not alive.
func (t *Table) Dead() bool { return t.live != nil && t.live.dead > 0 }

// Alive reports whether item i is neither deleted nor replaced. Find and Lookup
// only find items that are.
func (t *Table) Alive(i int) bool { return t.live == nil || t.live.alive(i) }

// AliveMask has a bit for each of the items 16·tile to 16·tile + 15, set if it is
// there and alive.
func (t *Table) AliveMask(tile int) uint16 {
	first := tile * rerank.Lanes
	n := min(max(t.Len()-first, 0), rerank.Lanes)
	mask := uint16(1<<n - 1)
	if !t.Dead() {
		return mask
	}
	for l := range n {
		if !t.live.alive(first + l) {
			mask &^= 1 << l
		}
	}
	return mask
}

// ID returns the id of item i.
func (t *Table) ID(i int) rerank.ID {
	if t.live != nil && i >= t.live.base {
		return t.live.ids[i-t.live.base]
	}
	return t.ids.at(i)
}

// Find returns the number of an item.
func (t *Table) Find(id rerank.ID) (item int, ok bool) {
	if item, ok = t.findInFile(id); t.live == nil {
		return item, ok
	}
	if ok && t.live.alive(item) {
		return item, true
	}
	return t.live.find(id)
}

func (t *Table) findInFile(id rerank.ID) (item int, ok bool) {
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

// Features is the feature matrix of a table of float32 rows; it aliases the
// mapped file. Of another format or layout it has no rows: see Packed and Row32.
func (t *Table) Features() rerank.Matrix { return t.plain }

// Packed is the feature rows in the table's format and layout; it aliases the
// mapped file. Rows of float32 are words too.
func (t *Table) Packed() *rerank.Packed { return &t.packed }

// Row32 writes feature row r, of Meta().Features numbers, to dst, as the table
// has it: rounded to its format.
func (t *Table) Row32(dst []float32, r int) { t.packed.Row32(dst, r) }

// Loss says what the table's format lost of its rows, measured when they were
// packed, and how long they are. Norms of a file of format version 1 are +Inf.
func (t *Table) Loss() rerank.Loss { return t.loss }

// Rounded reports whether the format lost anything: scores of the table's rows
// are those of the items within Encoded's rerank.Rounder of Loss.
func (t *Table) Rounded() bool { return t.loss.Row.Lost > 0 }

// Full returns the rows in float32, where the table has them: its own, or those
// kept beside (Meta.Full).
func (t *Table) Full() (features rerank.Matrix, ok bool) {
	switch {
	case t.meta.Full:
		return t.full, true
	default:
		return t.plain, t.meta.plain()
	}
}

// All returns every item for Score.
func (t *Table) All() rerank.Items { return t.newItems(nil, t.starts) }

// newItems are items of the table's rows.
func (t *Table) newItems(rows, starts []int32) rerank.Items {
	if t.meta.plain() {
		return rerank.Items{Features: t.plain, Rows: rows, Starts: starts}
	}
	return rerank.Items{Packed: &t.packed, Rows: rows, Starts: starts}
}

// Slice returns the items [from, to) for Score, so that a scan can be divided.
// Only of float32 rows does it not allocate.
func (t *Table) Slice(from, to int) rerank.Items {
	switch {
	case t.starts != nil:
		return t.newItems(nil, t.starts[from:to+1])
	case t.meta.plain():
		return rerank.Items{Features: t.plain.Slice(from, to)}
	case t.packed.Tiled && from%rerank.Lanes != 0:
		rows := make([]int32, to-from)
		for i := range rows {
			rows[i] = int32(from + i)
		}
		return t.newItems(rows, nil)
	}
	part := t.packed
	part.Words, part.Rows = part.Words[from*part.RowWords():], to-from
	return rerank.Items{Packed: &part}
}

// Items returns the items of the given numbers, in that order, for Score. The
// result aliases items or, for a grouped table, the slices of scratch, which
// grow as needed; both must stay as they are while it is used.
func (t *Table) Items(items []int32, scratch *rerank.Items) rerank.Items {
	if t.starts == nil {
		return t.newItems(items, nil)
	}
	return t.groups(items, scratch, t.newItems)
}

// FullItems is Items in full precision; it reports false where Full does.
func (t *Table) FullItems(items []int32, scratch *rerank.Items) (rerank.Items, bool) {
	features, ok := t.Full()
	switch {
	case !ok:
		return rerank.Items{}, false
	case t.starts == nil:
		return rerank.Items{Features: features, Rows: items}, true
	}
	return t.groups(items, scratch, func(rows, starts []int32) rerank.Items {
		return rerank.Items{Features: features, Rows: rows, Starts: starts}
	}), true
}

// groups lists the rows of items in scratch.
func (t *Table) groups(items []int32, scratch *rerank.Items, with func(rows, starts []int32) rerank.Items) rerank.Items {
	rows, starts := scratch.Rows[:0], scratch.Starts[:0]
	starts = append(starts, 0)
	for _, item := range items {
		for r := t.starts[item]; r < t.starts[item+1]; r++ {
			rows = append(rows, r)
		}
		starts = append(starts, int32(len(rows)))
	}
	*scratch = with(rows, starts)
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
	case m.Layout != LayoutRows && m.Layout != LayoutTiles:
		return fmt.Errorf("%w: layout %q is neither %q nor %q", ErrTable, m.Layout, LayoutRows, LayoutTiles)
	}
	if err := m.packing().Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrTable, err)
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
