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

// Meta is the metadata stored in a table.
type Meta struct {
	Model        string `json:"model"`         // name of the model
	ModelVersion string `json:"model_version"` // digest of the model file
	Collection   string `json:"collection"`
	Kind         string `json:"kind"`
	Features     int    `json:"features"` // length of a feature row
	Rows         int    `json:"rows"`
	Items        int    `json:"items"` // equals Rows, or less if items own several rows
	Created      string `json:"created"`
	// Format is the number format; the default is rerank.FormatFloat32. Layout is the
	// arrangement of the rows; the default is LayoutRows.
	Format rerank.Format `json:"format,omitempty"`
	Layout Layout        `json:"layout,omitempty"`
	// Block is the length of a row's sub-vectors (rerank.Spec.Block); 0 means that a row is
	// one vector.
	Block int `json:"block,omitempty"`
	// Full: the file also contains the rows in float32, in a part that only rescoring
	// reads. It has no effect for float32 rows.
	Full bool `json:"full_precision,omitempty"`
}

// Layout is how the rows of a table are arranged.
type Layout string

// The layouts.
const (
	// LayoutRows stores row after row, so that a candidate is read in one piece.
	LayoutRows Layout = "rows"
	// LayoutTiles interleaves sixteen rows, in the form that the kernels process. A scan
	// reads tiles directly, but reading one candidate touches as many cache lines as its
	// row has words.
	LayoutTiles Layout = "tiles"
)

// fill sets the defaults.
func (m *Meta) fill() {
	m.Format, m.Layout = cmp.Or(m.Format, rerank.FormatFloat32), cmp.Or(m.Layout, LayoutRows)
	if m.Format == rerank.FormatFloat32 && m.Layout == LayoutRows {
		m.Full = false
	}
}

func (m Meta) packing() rerank.Packing {
	return rerank.Packing{Format: m.Format, Cols: m.Features, Block: m.Block}
}

// plain reports whether rows are float32 in LayoutRows, which Score reads as a matrix.
func (m Meta) plain() bool { return m.Format == rerank.FormatFloat32 && m.Layout == LayoutRows }

// Expect states what the reader of a table requires. An empty field requires nothing.
type Expect struct {
	ModelVersion string
	Collection   string
}

// Table is a resident table. It is read-only and safe for concurrent use.
type Table struct {
	meta   Meta
	packed rerank.Packed // every row, whatever the format and layout
	plain  rerank.Matrix // the rows as a matrix, if Meta.plain
	full   rerank.Matrix // float32 copies of the rows, if Meta.Full
	loss   rerank.Loss
	ids    idColumn  // id of every item
	index  hashIndex // id → item, empty for dense ids
	starts []int32   // item i owns rows starts[i]:starts[i+1]; nil: item i is row i
	file   *mmap.Map // nil for a table in memory
	live   *live     // nil unless it is a snapshot of a Live
}

// FromMemory returns a table of the given features. It keeps float32 rows without copying
// them, so the caller must not change them; for other formats or layouts it stores a
// converted copy. If starts is not nil, it has one element more than ids, and item i has
// the rows starts[i]:starts[i+1]; otherwise item i has row i. The counts and the row length
// in meta are set from the arguments. It returns ErrTable.
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

// pack converts the rows of a table in memory to its format and layout.
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

// Close unmaps the file. The table, and every Items and Matrix obtained from it, must not
// be used afterwards.
func (t *Table) Close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// Meta returns the table's metadata.
func (t *Table) Meta() Meta { return t.meta }

// Len returns the number of items, including items that are not alive.
func (t *Table) Len() int {
	if t.live != nil {
		return t.live.items
	}
	return t.ids.len()
}

// Count returns the number of items that are alive, that is, Len without the items that
// were deleted or replaced in a Live.
func (t *Table) Count() int {
	if t.live != nil {
		return t.live.items - t.live.dead
	}
	return t.ids.len()
}

// Dead reports whether any item is not alive.
func (t *Table) Dead() bool { return t.live != nil && t.live.dead > 0 }

// Alive reports whether item i has been neither deleted nor replaced. Find and Lookup only
// find such items.
func (t *Table) Alive(i int) bool { return t.live == nil || t.live.alive(i) }

// AliveMask returns one bit for each item 16·tile to 16·tile + 15, set if the item exists
// and is alive.
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

// Find returns the number of the item with the given id.
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

// Lookup appends to items the item number of every id in the table, in the order of ids,
// and to missing the position in ids of every other id.
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

// Features returns the feature matrix of a table of plain float32 rows; it aliases the
// mapped file. For other formats and layouts it has no rows: use Packed or Row32.
func (t *Table) Features() rerank.Matrix { return t.plain }

// Packed returns the feature rows in the table's format and layout; it aliases the mapped
// file. It works for float32 rows too.
func (t *Table) Packed() *rerank.Packed { return &t.packed }

// Row32 writes feature row r (Meta().Features numbers) to dst, with the rounding of the
// table's format.
func (t *Table) Row32(dst []float32, r int) { t.packed.Row32(dst, r) }

// Loss returns the rounding errors of the table's rows, measured when they were packed, and
// their norms. Norms of a file of format version 1 are +Inf.
func (t *Table) Loss() rerank.Loss { return t.loss }

// Rounded reports whether the format rounded any row. If so, scores of the table's rows
// differ from exact scores by up to RoundingError of rerank.Rounder for Loss.
func (t *Table) Rounded() bool { return t.loss.Row.Lost > 0 }

// Full returns the rows in float32, if the table has them: either it stores float32 rows,
// or additional ones (Meta.Full).
func (t *Table) Full() (features rerank.Matrix, ok bool) {
	switch {
	case t.meta.Full:
		return t.full, true
	default:
		return t.plain, t.meta.plain()
	}
}

// All returns all items, for Score.
func (t *Table) All() rerank.Items { return t.newItems(nil, t.starts) }

// newItems returns items that refer to the table's rows.
func (t *Table) newItems(rows, starts []int32) rerank.Items {
	if t.meta.plain() {
		return rerank.Items{Features: t.plain, Rows: rows, Starts: starts}
	}
	return rerank.Items{Packed: &t.packed, Rows: rows, Starts: starts}
}

// Slice returns the items [from, to), for Score, so that a scan can be split. It does not
// allocate for float32 rows; for others it can.
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

// Items returns the items with the given numbers, in that order, for Score. The result
// aliases items or, for a grouped table, the slices of scratch, which grow as needed.
// Neither may change while the result is used.
func (t *Table) Items(items []int32, scratch *rerank.Items) rerank.Items {
	if t.starts == nil {
		return t.newItems(items, nil)
	}
	return t.groups(items, scratch, t.newItems)
}

// FullItems is Items in full precision. It reports false if Full does.
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

// groups lists the rows of the given items in scratch.
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

// checkStarts verifies that every item owns at least one row and every row belongs to an
// item.
func checkStarts(starts []int32, m Meta) error {
	if starts == nil {
		if m.Items != m.Rows {
			return fmt.Errorf("%w: %d items and %d rows need starts", ErrTable, m.Items, m.Rows)
		}
		return nil
	}
	if len(starts) != m.Items+1 {
		return fmt.Errorf("%w: %d starts of %d items", ErrTable, len(starts), m.Items)
	}
	if err := rerank.CheckStarts(starts, m.Rows); err != nil {
		return fmt.Errorf("%w: %w", ErrTable, err)
	}
	return nil
}
