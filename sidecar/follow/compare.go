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

// compareRows is the number of rows of a page of a comparison.
const compareRows = 1000

// Drift is how what was derived differs from its collection. A row counts once,
// for what the table lacks of it first, then the companion.
type Drift struct {
	// Rows are those of the collection that were compared.
	Rows int64 `json:"rows"`
	// Missing are derived nowhere, Changed have other numbers or another payload,
	// Surplus are of rows that the collection does not have.
	Missing int64 `json:"missing"`
	Changed int64 `json:"changed"`
	Surplus int64 `json:"surplus"`
	// Unfit are rows with numbers that the table's format cannot hold.
	Unfit int64 `json:"unfit"`
}

// Differing is the number of rows that differ.
func (d Drift) Differing() int64 { return d.Missing + d.Changed + d.Surplus }

func (d *Drift) add(o Drift) {
	d.Rows += o.Rows
	d.Missing += o.Missing
	d.Changed += o.Changed
	d.Surplus += o.Surplus
	d.Unfit += o.Unfit
}

// Progress is called at the start of a stage with the number of its steps, −1 if that is
// unknown. It returns a function that is called with the number of steps done since.
type Progress func(stage string, steps int) (done func(n int))

// Compare says how a route's table, live or not, and companion differ from its
// collection, and changes nothing. Every row is read; feature rows are computed
// and compared in the table's format, derived vectors and payloads as stored. A
// row that is written meanwhile can count. It returns ErrRoute, or the store's
// error.
func Compare(ctx context.Context, r *route.Route, progress Progress) (Drift, error) {
	if !fromRows(r) || r.Store == nil {
		return Drift{}, fmt.Errorf("%w: route %q has items of several rows or by a ranker's scores, or no store", ErrRoute, r.Name)
	}
	d, err := newDerived(r.Store, r)
	if err != nil {
		return Drift{}, err
	}
	begin := func(stage string) func(int) { return func(int) {} }
	if progress != nil {
		begin = func(stage string) func(int) { return progress(stage, -1) }
	}
	c := comparison{scanner: adapters.AbilitiesOf(r.Store).Scan, collection: r.Collection, all: []*derived{d}}
	var drift Drift
	for _, stage := range c.stages() {
		done := begin(stage.name)
		err := stage.run(ctx, "", func(p page) error {
			drift.add(p.drift[0])
			done(p.rows)
			return nil
		})
		if err != nil {
			return drift, err
		}
	}
	return drift, nil
}

// comparison reads a collection and everything that was derived from it.
type comparison struct {
	scanner    adapters.Scanner
	collection string
	all        []*derived
	// dropped: that there is no such collection means that it has no rows.
	dropped bool
}

// page is what a part of a comparison found.
type page struct {
	rows   int
	drift  []Drift     // of each derived
	ids    []rerank.ID // that differ anywhere
	cursor string      // behind it; empty where the stage cannot go on from it
}

// stage is a part of a comparison: all rows of one thing.
type stage struct {
	name string
	run  func(ctx context.Context, cursor string, yield func(page) error) error
}

// stages are first the collection's rows, which may be missing or changed, and
// then those of everything derived, which may be surplus.
func (c *comparison) stages() []stage {
	all := []stage{{"comparing the rows of " + c.collection, c.forward}}
	seen := map[string]bool{}
	for i, d := range c.all {
		if d.route.Live != nil || d.route.Table != nil {
			all = append(all, stage{"looking for rows of the table of " + d.route.Name + " that are gone", func(ctx context.Context, _ string, yield func(page) error) error {
				return c.tableRows(ctx, i, yield)
			}})
		}
		if name := d.route.Companion; name != "" && !seen[name] {
			seen[name] = true
			all = append(all, stage{"looking for rows of " + name + " that are gone", func(ctx context.Context, cursor string, yield func(page) error) error {
				return c.companionRows(ctx, i, cursor, yield)
			}})
		}
	}
	return all
}

// vectorFields are the fields that some routes read, each once.
func vectorFields(all []*derived) []string {
	var names []string
	for _, d := range all {
		if !slices.Contains(names, d.route.Vector) {
			names = append(names, d.route.Vector)
		}
	}
	return names
}

func hasCompanion(all []*derived) bool {
	return slices.ContainsFunc(all, func(d *derived) bool { return d.route.Companion != "" })
}

// forward compares every row of the collection with what is derived of it.
func (c *comparison) forward(ctx context.Context, cursor string, yield func(page) error) error {
	fields := vectorFields(c.all)
	request := adapters.ScanRequest{Collection: c.collection, Vectors: fields, Payload: hasCompanion(c.all), Batch: compareRows, Cursor: cursor}
	err := c.scanner.Scan(ctx, request, func(r adapters.Rows, cursor string) error {
		p := page{rows: len(r.IDs), drift: make([]Drift, len(c.all)), cursor: cursor}
		for i, d := range c.all {
			vectors := r.Vectors[slices.Index(fields, d.route.Vector)]
			derived, err := d.encode(ctx, r, vectors)
			if err != nil {
				return err
			}
			ids, drift, err := d.compare(ctx, derived)
			if err != nil {
				return err
			}
			drift.Rows = int64(p.rows)
			p.drift[i] = drift
			p.ids = append(p.ids, ids...)
		}
		return yield(p)
	})
	if meansNoRows(err, c.dropped) {
		return nil
	}
	return err
}

// compare finds the rows whose derived rows are not what they should be.
func (d *derived) compare(ctx context.Context, r rows) (ids []rerank.ID, drift Drift, err error) {
	if t := d.route.CurrentTable(); t != nil {
		ids, drift = compareTable(t, r)
		t.Release()
	}
	if d.route.Companion == "" {
		return ids, drift, nil
	}
	more, other, err := d.compareCompanion(ctx, r, ids)
	drift.add(other)
	return append(ids, more...), drift, err
}

func compareTable(t *table.Table, r rows) (ids []rerank.ID, drift Drift) {
	look := newTableLook(t)
	for i, id := range r.ids {
		switch look.at(id, r.features.Row(i)) {
		case missing:
			drift.Missing++
		case differs:
			drift.Changed++
		case extra:
			drift.Unfit++
			drift.Surplus++
		case absent:
			drift.Unfit++
			continue
		case equal:
			continue
		}
		ids = append(ids, id)
	}
	for _, id := range r.without {
		if _, there := t.Find(id); there {
			drift.Surplus++
			ids = append(ids, id)
		}
	}
	return ids, drift
}

// compareCompanion passes by the rows that are known to differ.
func (d *derived) compareCompanion(ctx context.Context, r rows, known []rerank.ID) (ids []rerank.ID, drift Drift, err error) {
	if err := d.open(ctx); err != nil {
		return nil, drift, err
	}
	names := make([]string, len(d.fields))
	for i, f := range d.fields {
		names[i] = f.Name
	}
	have, err := d.store.Fetch.Fetch(ctx, adapters.FetchRequest{
		Collection: d.route.Companion, IDs: slices.Concat(r.ids, r.without), Vectors: names, Payload: true,
	})
	if err != nil {
		return nil, drift, fmt.Errorf("companion %q: %w", d.route.Companion, err)
	}
	want, err := derive.Fields(d.derive, d.fields, r.features)
	if err != nil {
		return nil, drift, err
	}
	place := make(map[rerank.ID]int, len(have.IDs))
	for i, id := range have.IDs {
		place[id] = i
	}
	passed := make(map[rerank.ID]bool, len(known))
	for _, id := range known {
		passed[id] = true
	}
	for i, id := range r.ids {
		at, there := place[id]
		switch {
		case passed[id]:
			continue
		case !there:
			drift.Missing++
		case !sameVectors(want, i, have.Vectors, at) || !derive.SamePayload(payload(r.payloads, i), payload(have.Payloads, at)):
			drift.Changed++
		default:
			continue
		}
		ids = append(ids, id)
	}
	for _, id := range r.without {
		if _, there := place[id]; there && !passed[id] {
			drift.Surplus++
			ids = append(ids, id)
		}
	}
	return ids, drift, nil
}

func payload(all []json.RawMessage, i int) json.RawMessage {
	if all == nil {
		return nil
	}
	return all[i]
}

func sameVectors(want []rerank.Matrix, i int, have []rerank.Matrix, at int) bool {
	for f := range want {
		if !slices.Equal(want[f].Row(i), have[f].Row(at)) {
			return false
		}
	}
	return true
}

// tableRows finds the rows of a table that the collection does not have.
func (c *comparison) tableRows(ctx context.Context, i int, yield func(page) error) error {
	t := c.all[i].route.CurrentTable()
	if t == nil {
		return table.ErrClosed
	}
	defer t.Release()
	ids := make([]rerank.ID, 0, compareRows)
	for item := range t.Len() {
		if t.Alive(item) {
			ids = append(ids, t.ID(item))
		}
		if len(ids) == compareRows || item == t.Len()-1 {
			if err := c.surplus(ctx, i, ids, nil, "", yield); err != nil {
				return err
			}
			ids = ids[:0]
		}
	}
	return nil
}

// companionRows finds the rows of a companion that the collection does not have.
func (c *comparison) companionRows(ctx context.Context, i int, cursor string, yield func(page) error) error {
	name := c.all[i].route.Companion
	t := c.all[i].route.CurrentTable() // its rows were counted
	if t != nil {
		defer t.Release()
	}
	request := adapters.ScanRequest{Collection: name, Batch: compareRows, Cursor: cursor}
	err := c.scanner.Scan(ctx, request, func(r adapters.Rows, cursor string) error {
		return c.surplus(ctx, i, r.IDs, t, cursor, yield)
	})
	if err != nil {
		return fmt.Errorf("companion %q: %w", name, err)
	}
	return nil
}

// surplus yields those of some ids that the collection does not have, and counts
// those that the table, if there is one, does not have either.
func (c *comparison) surplus(ctx context.Context, i int, ids []rerank.ID, counted *table.Table, cursor string, yield func(page) error) error {
	have, err := c.all[i].store.Fetch.Fetch(ctx, adapters.FetchRequest{Collection: c.collection, IDs: ids})
	if err != nil && !meansNoRows(err, c.dropped) {
		return err
	}
	there := make(map[rerank.ID]bool, len(have.IDs))
	for _, id := range have.IDs {
		there[id] = true
	}
	p := page{rows: len(ids), drift: make([]Drift, len(c.all)), cursor: cursor}
	for _, id := range ids {
		if there[id] {
			continue
		}
		p.ids = append(p.ids, id)
		known := false
		if counted != nil {
			_, known = counted.Find(id)
		}
		if !known {
			p.drift[i].Surplus++
		}
	}
	return yield(p)
}
