package follow

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/derive"
	"github.com/likenessdb/likeness/sidecar/route"
)

// featureField is a Deriver of one field "f", which holds the feature rows. If err is set, Derive fails.
type featureField struct{ err error }

func (featureField) Fields() []rerank.Field { return []rerank.Field{{Name: "f", Dim: 2}} }

func (d featureField) Derive(dst rerank.Matrix, _ string, items rerank.Items) error {
	copy(dst.Data, items.Features.Data)
	return d.err
}

func (featureField) Features(dst rerank.Matrix, fields []rerank.Matrix) error {
	copy(dst.Data, fields[0].Data)
	return nil
}

// withCompanion returns a derivation whose route embeds the collection "items" again into the companion "derived". Both
// collections are empty.
func withCompanion(t *testing.T) *derivation {
	t.Helper()
	store := embedded.New()
	for collection, field := range map[string]string{"items": "vec", "derived": "f"} {
		fields := []adapters.VectorField{{Name: field, Dim: 2, Metric: adapters.InnerProduct}}
		if err := store.Create(t.Context(), adapters.Schema{Collection: collection, Fields: fields}); err != nil {
			t.Fatal(err)
		}
	}
	sim, err := dot.New(dot.Config{Dim: 2, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &route.Route{
		Policy: route.Policy{Name: "r", Collection: "items", Vector: "vec", Companion: "derived"},
		Parts:  route.Parts{Store: store, Model: route.Model{Name: "m", Similarity: sim}},
	}
	r.Reembed.Text = "text"
	d, err := newDerivation(store, r, "")
	if err != nil {
		t.Fatal(err)
	}
	d.deriver = featureField{}
	return d
}

// put writes rows of two numbers into a collection of a derivation's store.
func (d *derivation) put(t *testing.T, collection, field string, ids []rerank.ID, numbers ...float32) {
	t.Helper()
	schema := adapters.Schema{Collection: collection, Fields: []adapters.VectorField{{Name: field, Dim: 2, Metric: adapters.InnerProduct}}}
	r := adapters.Rows{IDs: ids, Vectors: []rerank.Matrix{{Rows: len(ids), Cols: 2, Data: numbers}}}
	if err := d.store.Write.Write(t.Context(), collection, schema, r); err != nil {
		t.Fatal(err)
	}
}

// derivedRows returns the companion's rows with the given ids.
func (d *derivation) derivedRows(t *testing.T, ids []rerank.ID) adapters.Rows {
	t.Helper()
	have, err := d.store.Fetch.Fetch(t.Context(), adapters.FetchRequest{Collection: "derived", IDs: ids, Vectors: []string{"f"}, Payload: true})
	if err != nil {
		t.Fatal(err)
	}
	return have
}

// TestDerivingFails: if fields cannot be derived, nothing is written, and the error says so.
func TestDerivingFails(t *testing.T) {
	broken := errors.New("the model is broken")
	one := rows{ids: idsOf(1), features: rerank.NewMatrix(1, 2), sources: []string{"s"}}
	for name, try := range map[string]func(context.Context, *derivation) error{
		"a row":        func(ctx context.Context, d *derivation) error { _, err := d.apply(ctx, one, nil); return err },
		"a comparison": func(ctx context.Context, d *derivation) error { _, _, err := d.compare(ctx, one); return err },
		"a new vector": func(ctx context.Context, d *derivation) error {
			_, err := d.writeNewVectors(ctx, one, map[rerank.ID]NewVector{one.ids[0]: {Vector: []float32{1, 0}}})
			return err
		},
	} {
		d := withCompanion(t)
		d.deriver = featureField{broken}
		if err := try(t.Context(), d); !errors.Is(err, broken) || len(d.derivedRows(t, one.ids).IDs) > 0 {
			t.Errorf("%s: %v; the companion has %d rows", name, err, len(d.derivedRows(t, one.ids).IDs))
		}
	}
}

// TestNewVectorsAreWritten: into the companion go those vectors whose row still has the source that was embedded, with the norm
// and the mark that searches and later writes look for.
func TestNewVectorsAreWritten(t *testing.T) {
	d := withCompanion(t)
	now := rows{ids: idsOf(1, 2, 3, 4), sources: []string{"s1", "s2", "s3", "s4"}, payloads: []json.RawMessage{[]byte(`{"n":1}`), []byte(`{}`), []byte(`{}`), []byte(`{}`)}}
	vectors := map[rerank.ID]NewVector{
		rerank.UintID(1): {Vector: []float32{3, 4}, Source: "s1"}, rerank.UintID(2): {Vector: []float32{3, 4}, Source: "before"},
		rerank.UintID(3): {Vector: []float32{0, 2}},
	}
	written, err := d.writeNewVectors(t.Context(), now, vectors)
	if err != nil || written != 2 {
		t.Fatalf("%d rows are written, %v; want 2", written, err)
	}
	have := d.derivedRows(t, now.ids)
	if !slices.Equal(have.IDs, idsOf(1, 3)) || !slices.Equal(have.Vectors[0].Data, []float32{.6, .8, 0, 1}) {
		t.Errorf("rows %v with %v", have.IDs, have.Vectors[0].Data)
	}
	if !isMarked(have.Payloads[0], "s1") || !isMarked(have.Payloads[1], "s3") || !derive.SamePayload(derive.WithoutMark(have.Payloads[0]), now.payloads[0]) {
		t.Errorf("payloads %s", have.Payloads)
	}
}

// TestNewVectorsAreChecked: a vector that no query can be compared with is refused, and no other is written either.
func TestNewVectorsAreChecked(t *testing.T) {
	for name, vector := range map[string][]float32{
		"zero": {0, 0}, "too short": {1}, "too long": {1, 2, 3}, "infinite": {1, float32(math.Inf(1))}, "no number": {float32(math.NaN()), 1},
	} {
		d := withCompanion(t)
		now := rows{ids: idsOf(1, 2), sources: []string{"s", "s"}}
		written, err := d.writeNewVectors(t.Context(), now, map[rerank.ID]NewVector{now.ids[0]: {Vector: []float32{1, 0}}, now.ids[1]: {Vector: vector}})
		if !errors.Is(err, adapters.ErrDimension) || written != 0 || len(d.derivedRows(t, now.ids).IDs) > 0 {
			t.Errorf("%s: %v; %d rows are written", name, err, written)
		}
	}
}

// TestRowsThatATableLacks: a table writes nothing for rows that it lacks already, each of which would cost a sync of its log.
func TestRowsThatATableLacks(t *testing.T) {
	d, path := withCompanion(t), filepath.Join(t.TempDir(), "t")
	w, err := table.NewWriter(path, table.Meta{Model: "m", ModelVersion: "v", Collection: "items", Kind: "dot", Features: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Append(idsOf(1), rerank.NewMatrix(1, 2)), w.Close()); err != nil {
		t.Fatal(err)
	}
	live, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	d.route.Companion, d.route.Live = "", live
	for i, gone := range [][]rerank.ID{idsOf(2, 3), idsOf(1, 2), idsOf(1)} {
		if _, err := d.apply(t.Context(), rows{features: rerank.Matrix{Cols: 2}}, gone); err != nil {
			t.Fatal(err)
		}
		if s := live.Stats(); s.Sequence != uint64(min(i, 1)) || s.Items != 1-min(i, 1) {
			t.Errorf("after rows %v are gone: %d writes, %d items", gone, s.Sequence, s.Items)
		}
	}
}

// TestSurplusOfTheSecondRoute: rows that only a companion has count for its own route, whichever number that has.
func TestSurplusOfTheSecondRoute(t *testing.T) {
	d := withCompanion(t)
	d.put(t, "items", "vec", idsOf(1), 1, 0)
	d.put(t, "derived", "f", idsOf(1, 2), 1, 0, 1, 0)
	c := comparison{scanner: d.store.Scan, collection: "items", routes: []*derivation{{route: &route.Route{}}, d}}
	var pages []page
	err := c.companionRows(t.Context(), 1, "", func(p page) error {
		pages = append(pages, p)
		return nil
	})
	if err != nil || len(pages) != 1 || pages[0].rows != 2 || !slices.Equal(pages[0].ids, idsOf(2)) || !slices.Equal(pages[0].drift, []Drift{{}, {Surplus: 1}}) {
		t.Errorf("%+v, %v", pages, err)
	}
}

// described is a Describer of one description.
type described adapters.Description

func (d described) Describe(context.Context, string) (adapters.Description, error) {
	return adapters.Description(d), nil
}

// TestSchemaOfTheCompanion: rows are written as the companion was made: with its fields, in its order, and ids of its kind.
func TestSchemaOfTheCompanion(t *testing.T) {
	d := withCompanion(t)
	have := described{Fields: []adapters.VectorField{{Name: "f", Dim: 2, Metric: adapters.InnerProduct}}, TextIDs: true}
	d.store.Describe = have
	if err := d.open(t.Context()); err != nil || !slices.Equal(d.fieldNames(), []string{"f"}) {
		t.Fatal(d.fieldNames(), err)
	}
	if s := d.schema; s.Collection != "derived" || !slices.Equal(s.Fields, have.Fields) || !s.TextIDs {
		t.Errorf("%+v", s)
	}
}

// TestNormsOfFollowedRows: each row that is read is checked on a route with unit_vectors, and none of a field with several
// vectors a row.
func TestNormsOfFollowedRows(t *testing.T) {
	for name, c := range map[string]struct {
		starts []int32
		wrong  bool
	}{"a vector a row": {nil, true}, "several": {[]int32{0, 1, 2}, false}} {
		d := withCompanion(t)
		d.route.Norms, d.route.Reembed.Text = &route.Norms{}, ""
		vectors := rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 2}}
		if _, err := d.encode(adapters.Rows{IDs: idsOf(1, 2), Starts: c.starts}, vectors); err != nil {
			t.Fatal(name, err)
		}
		if w := d.route.Norms.Wrong(); (w != nil) != c.wrong || w != nil && w.ID != rerank.UintID(2) {
			t.Errorf("%s: %v", name, w)
		}
	}
}
