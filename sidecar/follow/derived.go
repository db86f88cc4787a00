package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/derive"
	"github.com/likenessdb/likeness/sidecar/route"
)

// derivation keeps the table and the companion of one route up to date. One goroutine
// uses it at a time.
type derivation struct {
	route   *route.Route
	store   adapters.Abilities
	deriver rerank.Deriver  // nil if the model derives no fields
	fields  []rerank.Field  // the companion's fields; nil until the store was asked
	schema  adapters.Schema // the companion's schema
	// consistency is the level of those reads of the companion that have to show its last write.
	consistency string
}

func newDerivation(store adapters.Store, r *route.Route, consistency string) (*derivation, error) {
	d := &derivation{route: r, store: adapters.AbilitiesOf(store), deriver: rerank.AbilitiesOf(r.Model.Similarity).Derive, consistency: consistency}
	if d.store.Fetch == nil {
		return nil, fmt.Errorf("%w: route %q: its store fetches no rows by id", ErrRoute, r.Name)
	}
	if d.store.Scan == nil {
		return nil, fmt.Errorf("%w: route %q: its store lists no rows", ErrRoute, r.Name)
	}
	if r.Companion == "" {
		return d, nil
	}
	if d.store.Write == nil || d.store.Delete == nil || d.store.Describe == nil {
		return nil, fmt.Errorf("%w: route %q: its store does not write companions", ErrRoute, r.Name)
	}
	return d, nil
}

// announce tells the route's live table that one more write was seen that it does not show yet.
func (d *derivation) announce() {
	if d.route.Live != nil {
		d.route.Live.Announce()
	}
}

// settle tells the route's live table that it now shows one of the announced writes.
func (d *derivation) settle() {
	if d.route.Live != nil {
		d.route.Live.Settle()
	}
}

// open asks the store for the companion's fields.
func (d *derivation) open(ctx context.Context) error {
	if d.route.Companion == "" || d.fields != nil {
		return nil
	}
	have, err := d.store.Describe.Describe(ctx, d.route.Companion)
	if err != nil {
		return fmt.Errorf("companion %q: %w", d.route.Companion, err)
	}
	var can []rerank.Field
	if d.deriver != nil {
		can = d.deriver.Fields()
	}
	var fields []rerank.Field
	for _, f := range have.Fields {
		i := slices.IndexFunc(can, func(c rerank.Field) bool { return c.Name == f.Name && c.Dim == f.Dim })
		if i < 0 {
			return fmt.Errorf("%w: companion %q has the field %q of %d dimensions, which model %s does not derive; build it again with `likeness index`",
				ErrRoute, d.route.Companion, f.Name, f.Dim, d.route.Model.Name)
		}
		fields = append(fields, can[i])
	}
	d.fields = fields
	d.schema = adapters.Schema{Collection: d.route.Companion, Fields: have.Fields, TextIDs: have.TextIDs}
	return nil
}

// field returns the vector field from which the route derives.
func (d *derivation) field() string {
	if d.route.Vectors != "" {
		return d.route.Vectors
	}
	return d.route.Vector
}

// rows holds rows of a collection with the features derived from them.
type rows struct {
	ids      []rerank.ID
	features rerank.Matrix
	starts   []int32           // divide features among rows of several vectors; nil: each row has one
	payloads []json.RawMessage // nil if the route needs no payloads
	sources  []string          // the rows' source digests; nil unless the route embeds its items again
	// underivable holds rows without a vector, and rows whose features are not finite. Tables and
	// companions leave such rows out.
	underivable []rerank.ID
}

// items returns the feature rows as items.
func (r rows) items() rerank.Items { return rerank.Items{Features: r.features, Starts: r.starts} }

// own returns the feature rows of the i-th row.
func (r rows) own(i int) rerank.Matrix {
	if r.starts == nil {
		return r.features.Slice(i, i+1)
	}
	return r.features.Slice(int(r.starts[i]), int(r.starts[i+1]))
}

// encode computes the features of rows. vectors holds the rows' vectors of the route's field.
func (d *derivation) encode(r adapters.Rows, vectors rerank.Matrix) (rows, error) {
	if dim := d.route.Model.Similarity.Spec().ItemDim; vectors.Cols != dim && vectors.Rows > 0 {
		return rows{}, fmt.Errorf("%w: vectors %q of collection %q have dimension %d, model %s takes %d",
			adapters.ErrDimension, d.field(), d.route.Collection, vectors.Cols, d.route.Model.Name, dim)
	}
	if r.Starts == nil {
		d.route.Norms.See(r.IDs, vectors)
	}
	features, err := derive.EncodeRows(d.route.Model.Similarity, vectors)
	if err != nil {
		return rows{}, err
	}
	out := rows{ids: make([]rerank.ID, 0, len(r.IDs)), features: features}
	read := rows{features: features, starts: r.Starts}
	if r.Starts != nil {
		out.starts = []int32{0}
	}
	n := 0 // feature rows of out
	for i, id := range r.IDs {
		own := read.own(i)
		if own.Rows == 0 || rerank.CheckFinite("vectors", vectorsOf(vectors, r.Starts, i)) != nil || rerank.CheckFinite("features", own.Data) != nil {
			out.underivable = append(out.underivable, id)
			continue
		}
		copy(features.Data[n*features.Cols:], own.Data)
		n += own.Rows
		out.ids = append(out.ids, id)
		if out.starts != nil {
			out.starts = append(out.starts, int32(n))
		}
		if r.Payloads != nil {
			out.payloads = append(out.payloads, r.Payloads[i])
		}
		if d.route.Reembeds() {
			out.sources = append(out.sources, derive.SourceDigest(vectors.Row(i), derive.TextOf(payload(r.Payloads, i), d.route.Reembed.Text)))
		}
	}
	out.features = features.Slice(0, n)
	return out, nil
}

// apply writes the features of rows to the table and the companion, and removes the rows that are
// gone. unfit counts the rows whose numbers the table's format cannot hold; the table leaves such
// rows out.
func (d *derivation) apply(ctx context.Context, r rows, gone []rerank.ID) (unfit int, err error) {
	gone = slices.Concat(gone, r.underivable)
	if d.route.Live != nil {
		if unfit, err = d.applyTable(r, gone); err != nil {
			return unfit, fmt.Errorf("table of route %q: %w", d.route.Name, err)
		}
	}
	if d.route.Companion != "" {
		if err := d.applyCompanion(ctx, r, gone); err != nil {
			d.fields = nil // the companion may have been built anew
			return unfit, fmt.Errorf("companion of route %q: %w", d.route.Name, err)
		}
	}
	return unfit, nil
}

func (d *derivation) applyTable(r rows, gone []rerank.ID) (unfit int, err error) {
	t := d.route.Live.Snapshot()
	if t == nil {
		return 0, table.ErrClosed
	}
	defer t.Release()
	comparer := newTableComparer(t)
	var changed []rerank.ID
	features := rerank.Matrix{Cols: r.features.Cols}
	remove := gone[:len(gone):len(gone)]
	for i, id := range r.ids {
		switch comparer.state(id, r.own(i)) {
		case rowMissing, rowDiffers:
			changed = append(changed, id)
			features.Data = append(features.Data, r.features.Row(i)...)
			features.Rows++
		case rowSurplus:
			remove = append(remove, id)
			unfit++
		case rowUnfit:
			unfit++
		case rowEqual:
		}
	}
	remove = slices.DeleteFunc(slices.Clone(remove), func(id rerank.ID) bool {
		_, there := t.Find(id)
		return !there
	})
	if err := d.route.Live.Upsert(changed, features, nil); err != nil {
		return unfit, err
	}
	return unfit, d.route.Live.Delete(remove)
}

func (d *derivation) applyCompanion(ctx context.Context, r rows, gone []rerank.ID) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	if len(r.ids) > 0 {
		vectors, err := derive.Fields(d.deriver, d.fields, r.items())
		if err != nil {
			return err
		}
		out := adapters.Rows{IDs: r.ids, Vectors: vectors, Payloads: r.payloads}
		if d.route.Reembeds() {
			if err := d.keepNewVectors(ctx, r, &out); err != nil {
				return err
			}
		}
		if err := d.store.Write.Write(ctx, d.route.Companion, d.schema, out); err != nil {
			return err
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return d.store.Delete.Delete(ctx, d.route.Companion, gone)
}

// rowState says how a table's row compares with the same row of the collection.
type rowState int

const (
	rowEqual   rowState = iota
	rowMissing          // the table lacks it
	rowDiffers          // the table holds other numbers
	rowSurplus          // the table holds the row, though its format cannot hold the right numbers
	rowUnfit            // the table rightly lacks the row: its format cannot hold the numbers
)

// tableComparer compares feature rows with the rows of a table, in the table's format.
type tableComparer struct {
	table   *table.Table
	full    rerank.Matrix // the rows at hand, in full precision
	hasFull bool
	words   []uint32
	packed  *rerank.Packed
}

func newTableComparer(t *table.Table) *tableComparer {
	c := &tableComparer{table: t, packed: t.Packed()}
	c.full, c.hasFull = t.Full()
	return c
}

// state packs a row's feature rows in the table's format and compares them with the table's of the same
// id.
func (c *tableComparer) state(id rerank.ID, own rerank.Matrix) rowState {
	item, there := c.table.Find(id)
	n, fits := c.packed.RowWords(), true
	c.words = slices.Grow(c.words[:0], own.Rows*n)[:own.Rows*n]
	for r := range own.Rows {
		fits = c.packed.Pack(c.words[r*n:(r+1)*n], own.Row(r)) && fits
	}
	switch {
	case !fits && there:
		return rowSurplus
	case !fits:
		return rowUnfit
	case !there:
		return rowMissing
	}
	from, to := c.table.Rows(item)
	if to-from != own.Rows {
		return rowDiffers
	}
	for r := range own.Rows {
		if c.hasFull && !slices.Equal(c.full.Row(from+r), own.Row(r)) {
			return rowDiffers
		}
		words, stride := c.packed.Row(from + r)
		for i, w := range c.words[r*n : (r+1)*n] {
			if words[i*stride] != w {
				return rowDiffers
			}
		}
	}
	return rowEqual
}
