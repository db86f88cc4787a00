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

// derived is what a route has derived from its collection: a table, a companion,
// or both. It is used by one goroutine at a time.
type derived struct {
	route  *route.Route
	store  adapters.Abilities
	derive rerank.Deriver  // nil: the model derives no fields
	fields []rerank.Field  // of the companion; nil: not asked yet
	schema adapters.Schema // of the companion
}

func newDerived(store adapters.Store, r *route.Route) (*derived, error) {
	d := &derived{route: r, store: adapters.AbilitiesOf(store), derive: rerank.AbilitiesOf(r.Model.Similarity).Derive}
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

// announce tells the route's live table of a write that it does not show yet.
func (d *derived) announce() {
	if d.route.Live != nil {
		d.route.Live.Announce()
	}
}

// settle tells the route's live table that it shows one more of the announced writes.
func (d *derived) settle() {
	if d.route.Live != nil {
		d.route.Live.Settle()
	}
}

// open asks the store which fields the companion has.
func (d *derived) open(ctx context.Context) error {
	if d.route.Companion == "" || d.fields != nil {
		return nil
	}
	have, err := d.store.Describe.Describe(ctx, d.route.Companion)
	if err != nil {
		return fmt.Errorf("companion %q: %w", d.route.Companion, err)
	}
	var can []rerank.Field
	if d.derive != nil {
		can = d.derive.Fields()
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

// rows are rows of a collection with what a route derives of them.
type rows struct {
	ids      []rerank.ID
	features rerank.Matrix
	payloads []json.RawMessage // nil: not asked
	// without are the rows from which nothing can be derived: they have no vector,
	// or one whose features are not finite.
	without []rerank.ID
}

// encode derives from rows; vectors are of the route's field.
func (d *derived) encode(ctx context.Context, r adapters.Rows, vectors rerank.Matrix) (rows, error) {
	if dim := d.route.Model.Similarity.Spec().ItemDim; vectors.Cols != dim && vectors.Rows > 0 {
		return rows{}, fmt.Errorf("%w: vectors %q of collection %q have dimension %d, model %s takes %d",
			adapters.ErrDimension, d.route.Vector, d.route.Collection, vectors.Cols, d.route.Model.Name, dim)
	}
	features, err := derive.EncodeRows(ctx, d.route.Model.Similarity, vectors)
	if err != nil {
		return rows{}, err
	}
	out := rows{ids: make([]rerank.ID, 0, len(r.IDs)), features: features}
	for i, id := range r.IDs {
		if rerank.CheckFinite("vector", vectors.Row(i)) != nil || rerank.CheckFinite("features", features.Row(i)) != nil {
			out.without = append(out.without, id)
			continue
		}
		copy(features.Row(len(out.ids)), features.Row(i))
		out.ids = append(out.ids, id)
		if r.Payloads != nil {
			out.payloads = append(out.payloads, r.Payloads[i])
		}
	}
	out.features = features.Slice(0, len(out.ids))
	return out, nil
}

// apply makes what is derived of these rows, and of those that are gone, what it
// should be. unfit are the rows whose numbers the table's format cannot hold; they
// are not in it.
func (d *derived) apply(ctx context.Context, r rows, gone []rerank.ID) (unfit int, err error) {
	gone = slices.Concat(gone, r.without)
	if d.route.Live != nil {
		if unfit, err = d.applyTable(r, gone); err != nil {
			return unfit, fmt.Errorf("table of route %q: %w", d.route.Name, err)
		}
	}
	if d.route.Companion != "" {
		if err := d.applyCompanion(ctx, r, gone); err != nil {
			d.fields = nil // it may have been built anew
			return unfit, fmt.Errorf("companion of route %q: %w", d.route.Name, err)
		}
	}
	return unfit, nil
}

func (d *derived) applyTable(r rows, gone []rerank.ID) (unfit int, err error) {
	t := d.route.Live.Snapshot()
	if t == nil {
		return 0, table.ErrClosed
	}
	defer t.Release()
	look := newTableLook(t)
	var changed []rerank.ID
	features := rerank.Matrix{Cols: r.features.Cols}
	remove := gone[:len(gone):len(gone)]
	for i, id := range r.ids {
		switch look.at(id, r.features.Row(i)) {
		case missing, differs:
			changed = append(changed, id)
			features.Data = append(features.Data, r.features.Row(i)...)
			features.Rows++
		case extra:
			remove = append(remove, id)
			unfit++
		case absent:
			unfit++
		case equal:
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

func (d *derived) applyCompanion(ctx context.Context, r rows, gone []rerank.ID) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	if len(r.ids) > 0 {
		vectors, err := derive.Fields(d.derive, d.fields, r.features)
		if err != nil {
			return err
		}
		out := adapters.Rows{IDs: r.ids, Vectors: vectors, Payloads: r.payloads}
		if err := d.store.Write.Write(ctx, d.route.Companion, d.schema, out); err != nil {
			return err
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return d.store.Delete.Delete(ctx, d.route.Companion, gone)
}

// found is how a row of a collection stands in a table.
type found int

const (
	equal   found = iota
	missing       // it is not there and should be
	differs       // it is there and not what it should be
	extra         // it is there and should not be
	absent        // it is not there, as the format cannot hold it
)

// tableLook compares feature rows with those of a table.
type tableLook struct {
	t      *table.Table
	full   rerank.Matrix
	exact  bool // full is there
	words  []uint32
	packed *rerank.Packed
}

func newTableLook(t *table.Table) *tableLook {
	l := &tableLook{t: t, packed: t.Packed()}
	l.full, l.exact = t.Full()
	l.words = make([]uint32, l.packed.RowWords())
	return l
}

func (l *tableLook) at(id rerank.ID, row []float32) found {
	item, there := l.t.Find(id)
	fits := l.packed.Pack(l.words, row)
	switch {
	case !fits && there:
		return extra
	case !fits:
		return absent
	case !there:
		return missing
	}
	from, to := l.t.Rows(item)
	if to-from != 1 || l.exact && !slices.Equal(l.full.Row(from), row) {
		return differs
	}
	words, stride := l.packed.Row(from)
	for i, w := range l.words {
		if words[i*stride] != w {
			return differs
		}
	}
	return equal
}
