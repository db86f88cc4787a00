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

// compareRows is the most rows on a page of a comparison.
const compareRows = 1000

// Drift counts the rows in which a route's table and companion differ from the collection. A row
// that differs in both counts once, for its table.
type Drift struct {
	// Rows counts the rows of the collection that were compared.
	Rows int64 `json:"rows"`
	// Missing counts rows that the table or companion lacks, Changed rows with other
	// numbers or another payload, and Surplus rows that the collection lacks.
	Missing int64 `json:"missing"`
	Changed int64 `json:"changed"`
	Surplus int64 `json:"surplus"`
	// Unfit counts rows whose numbers the table's format cannot hold.
	Unfit int64 `json:"unfit"`
}

// Differing returns the number of rows that differ.
func (d Drift) Differing() int64 { return d.Missing + d.Changed + d.Surplus }

func (d *Drift) add(o Drift) {
	d.Rows += o.Rows
	d.Missing += o.Missing
	d.Changed += o.Changed
	d.Surplus += o.Surplus
	d.Unfit += o.Unfit
}

// Progress is called when a stage of a comparison begins, with the stage's number of steps, or −1
// if that is not known. The function that it returns is called with the number of steps done since
// its last call.
type Progress func(stage string, steps int) (done func(n int))

// Compare counts the rows in which a route's table and companion differ from the collection. It
// reads every row and changes nothing. Feature rows are compared in the table's format, derived
// vectors and payloads as the companion holds them. A row that is written during the comparison may
// count as a difference. Compare returns ErrRoute, or the store's error.
func Compare(ctx context.Context, r *route.Route, progress Progress) (Drift, error) {
	if !fromRows(r) || r.Store == nil {
		return Drift{}, fmt.Errorf("%w: route %q cannot be compared row by row: its items own several rows or consist of a ranker's scores, or it has no store", ErrRoute, r.Name)
	}
	d, err := newDerivation(r.Store, r, r.Consistency)
	if err != nil {
		return Drift{}, err
	}
	begin := func(stage string) func(int) { return func(int) {} }
	if progress != nil {
		begin = func(stage string) func(int) { return progress(stage, -1) }
	}
	c := comparison{scanner: adapters.AbilitiesOf(r.Store).Scan, collection: r.Collection, routes: []*derivation{d}}
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

// comparison compares a collection with the data that routes derived from it.
type comparison struct {
	scanner    adapters.Scanner
	collection string
	routes     []*derivation
	// the collection was dropped, so that it has no rows if it is not found
	dropped bool
}

// page holds the differences found in one part of a comparison.
type page struct {
	rows   int
	drift  []Drift     // by route
	ids    []rerank.ID // the rows that differ in any route
	cursor string      // where the next page begins; empty if the stage can only start over
}

// stage is one part of a comparison: it reads all rows of one collection or table.
type stage struct {
	name string
	run  func(ctx context.Context, cursor string, yield func(page) error) error
}

// stages returns the stages of the comparison. The first, one for each of sourcesOf, read the collection,
// and find rows that are missing or changed. The others read tables and companions, and find surplus rows.
func (c *comparison) stages() []stage {
	var all []stage
	for _, src := range sourcesOf(c.routes) {
		all = append(all, stage{"comparing the rows of " + c.collection, func(ctx context.Context, cursor string, yield func(page) error) error {
			return c.forward(ctx, src, cursor, yield)
		}})
	}
	seen := map[string]bool{}
	for i, d := range c.routes {
		if d.route.Live != nil || d.route.Table != nil {
			all = append(all, stage{"looking for surplus rows in the table of " + d.route.Name, func(ctx context.Context, _ string, yield func(page) error) error {
				return c.tableRows(ctx, i, yield)
			}})
		}
		if name := d.route.Companion; name != "" && !seen[name] {
			seen[name] = true
			all = append(all, stage{"looking for surplus rows in " + name, func(ctx context.Context, cursor string, yield func(page) error) error {
				return c.companionRows(ctx, i, cursor, yield)
			}})
		}
	}
	return all
}

// source is a part of the routes whose fields one read of the collection returns: fields of one vector a
// row, or one field of several.
type source struct {
	fields []string // each once
	routes []int    // by number
}

// sourcesOf divides the routes into sources. Without routes there is one, of no fields.
func sourcesOf(routes []*derivation) []source {
	var single source
	var several []source
	for i, d := range routes {
		to := &single
		if field := d.route.Vectors; field != "" {
			at := slices.IndexFunc(several, func(s source) bool { return s.fields[0] == field })
			if at < 0 {
				at, several = len(several), append(several, source{fields: []string{field}})
			}
			to = &several[at]
		}
		if to.routes = append(to.routes, i); !slices.Contains(to.fields, d.field()) {
			to.fields = append(to.fields, d.field())
		}
	}
	if len(single.routes) > 0 || len(several) == 0 {
		several = append([]source{single}, several...)
	}
	return several
}

// needsPayload reports whether a route of the source has a companion, whose rows repeat payload.
func (s source) needsPayload(routes []*derivation) bool {
	return slices.ContainsFunc(s.routes, func(i int) bool { return routes[i].route.Companion != "" })
}

// forward compares every row of the collection with what the routes of a source derived from it.
func (c *comparison) forward(ctx context.Context, src source, cursor string, yield func(page) error) error {
	request := adapters.ScanRequest{Collection: c.collection, Vectors: src.fields, Payload: src.needsPayload(c.routes), Batch: compareRows, Cursor: cursor}
	err := c.scanner.Scan(ctx, request, func(r adapters.Rows, cursor string) error {
		p := page{rows: len(r.IDs), drift: make([]Drift, len(c.routes)), cursor: cursor}
		for _, i := range src.routes {
			d := c.routes[i]
			derived, err := d.encode(r, r.Vectors[slices.Index(src.fields, d.field())])
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

// compare finds the rows of one page that the table or the companion lacks or holds with other
// values.
func (d *derivation) compare(ctx context.Context, r rows) (ids []rerank.ID, drift Drift, err error) {
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
	comparer := newTableComparer(t)
	for i, id := range r.ids {
		switch comparer.state(id, r.own(i)) {
		case rowMissing:
			drift.Missing++
		case rowDiffers:
			drift.Changed++
		case rowSurplus:
			drift.Unfit++
			drift.Surplus++
		case rowUnfit:
			drift.Unfit++
			continue
		case rowEqual:
			continue
		}
		ids = append(ids, id)
	}
	for _, id := range r.underivable {
		if _, there := t.Find(id); there {
			drift.Surplus++
			ids = append(ids, id)
		}
	}
	return ids, drift
}

// compareCompanion reads the companion's rows and finds those that differ from the collection. It
// skips the rows of known, which differ in the table too and were counted there.
func (d *derivation) compareCompanion(ctx context.Context, r rows, known []rerank.ID) (ids []rerank.ID, drift Drift, err error) {
	if err := d.open(ctx); err != nil {
		return nil, drift, err
	}
	have, err := d.store.Fetch.Fetch(ctx, adapters.FetchRequest{
		Collection: d.route.Companion, IDs: slices.Concat(r.ids, r.underivable), Vectors: d.fieldNames(), Payload: true, Consistency: d.consistency,
	})
	if err != nil {
		return nil, drift, fmt.Errorf("companion %q: %w", d.route.Companion, err)
	}
	want, err := derive.Fields(d.deriver, d.fields, r.items())
	if err != nil {
		return nil, drift, err
	}
	ids, drift = compareCompanionRows(r, want, have, known)
	return ids, drift, nil
}

// compareCompanionRows compares the rows that a companion has with the rows that it should have:
// ids and payloads from r, and vectors from want, one matrix per field. It skips the rows of known.
func compareCompanionRows(r rows, want []rerank.Matrix, have adapters.Rows, known []rerank.ID) (ids []rerank.ID, drift Drift) {
	place := make(map[rerank.ID]int, len(have.IDs))
	for i, id := range have.IDs {
		place[id] = i
	}
	skipped := make(map[rerank.ID]bool, len(known))
	for _, id := range known {
		skipped[id] = true
	}
	for i, id := range r.ids {
		at, there := place[id]
		switch {
		case skipped[id]:
			continue
		case !there:
			drift.Missing++
		case r.sources != nil && isMarked(have.Payloads[at], r.sources[i]) && derive.SamePayload(derive.WithoutMark(payload(r.payloads, i)), derive.WithoutMark(have.Payloads[at])):
			continue // it has a new vector, which no row of the collection shows
		case !sameVectors(want, i, have.Vectors, at) || !derive.SamePayload(payload(r.payloads, i), payload(have.Payloads, at)):
			drift.Changed++
		default:
			continue
		}
		ids = append(ids, id)
	}
	for _, id := range r.underivable {
		if _, there := place[id]; there && !skipped[id] {
			drift.Surplus++
			ids = append(ids, id)
		}
	}
	return ids, drift
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

// tableRows finds the rows of a table that the collection lacks.
func (c *comparison) tableRows(ctx context.Context, i int, yield func(page) error) error {
	t := c.routes[i].route.CurrentTable()
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

// companionRows finds the rows of a companion that the collection lacks.
func (c *comparison) companionRows(ctx context.Context, i int, cursor string, yield func(page) error) error {
	name := c.routes[i].route.Companion
	t := c.routes[i].route.CurrentTable() // if the table holds the row too, it was counted there
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

// surplus passes on the ids that the collection lacks. It counts a row as surplus unless counted,
// which may be nil, holds the row too.
func (c *comparison) surplus(ctx context.Context, i int, ids []rerank.ID, counted *table.Table, cursor string, yield func(page) error) error {
	have, err := c.routes[i].store.Fetch.Fetch(ctx, adapters.FetchRequest{Collection: c.collection, IDs: ids, Consistency: c.routes[i].consistency})
	if err != nil && !meansNoRows(err, c.dropped) {
		return err
	}
	there := make(map[rerank.ID]bool, len(have.IDs))
	for _, id := range have.IDs {
		there[id] = true
	}
	p := page{rows: len(ids), drift: make([]Drift, len(c.routes)), cursor: cursor}
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
