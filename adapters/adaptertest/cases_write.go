package adaptertest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/race"
	"github.com/likenessdb/likeness/rerank"
)

func writeCases() []testCase {
	return []testCase{
		{"derived vectors written, read, dropped", []Capability{Write}, derivedVectors},
		{"a row written again is replaced", []Capability{Write}, rowReplaced},
		{"rows deleted", []Capability{Write}, rowsDeleted},
		{"alias switched", []Capability{Write, Alias}, aliasSwitched},
	}
}

func derivedVectors(t *testing.T, e *env) {
	w := storeAs[adapters.Writer](t, e)
	n := e.kit.Fields
	if e.lacks(MultipleFields) {
		n = 1
	}
	rng := rand.New(rand.NewPCG(8, 8))
	f := Fixture{Schema: adapters.Schema{Collection: e.name()}, Rows: adapters.Rows{IDs: numberIDs(80)}}
	for i := range n {
		f.Fields = append(f.Fields, vectorFields(adapters.InnerProduct, 8, fmt.Sprintf("g%d", i))...)
		f.Rows.Vectors = append(f.Rows.Vectors, unitMatrix(rng, 80, 8))
	}
	f = e.load(t, f)
	if err := w.Create(t.Context(), f.Schema); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("a collection created twice: %v, want ErrStore", err)
	}
	for i := range f.Fields {
		probes := e.probes(8, 2, 10)
		lists := e.search(t, adapters.SearchRequest{Collection: f.Collection, Vector: f.Fields[i].Name, Exact: true, Probes: probes})
		e.checkLists(t, f, i, probes, lists, nil)
	}
	if !e.lacks(Fetch) {
		var names []string
		for _, v := range f.Fields {
			names = append(names, v.Name)
		}
		rows := e.fetch(t, adapters.FetchRequest{Collection: f.Collection, IDs: f.Rows.IDs[:9], Vectors: names})
		for i := range names {
			if err := sameVectors(rows.Vectors[i], f.Rows.Vectors[i], rowsOf(f, f.Rows.IDs[:9])); err != nil {
				t.Errorf("field %q: %v", names[i], err)
			}
		}
	}
	for range 2 {
		if err := w.Drop(t.Context(), f.Collection); err != nil {
			t.Errorf("drop: %v", err)
		}
	}
	_, err := e.store.Search(t.Context(), adapters.SearchRequest{Collection: f.Collection, Probes: e.probes(8, 1, 1)})
	if !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("search of a dropped collection: %v, want ErrNotFound", err)
	}
}

func rowReplaced(t *testing.T, e *env) {
	w := storeAs[adapters.Writer](t, e)
	rng := rand.New(rand.NewPCG(9, 8))
	f := e.load(t, Fixture{
		Schema: adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 8, "vec")},
		Rows:   adapters.Rows{IDs: numberIDs(40), Vectors: []rerank.Matrix{randomMatrix(rng, 40, 8)}},
	})
	again := adapters.Rows{IDs: f.Rows.IDs[10:20], Vectors: []rerank.Matrix{randomMatrix(rng, 10, 8)}}
	if err := w.Write(t.Context(), f.Collection, f.Schema, again); err != nil {
		t.Fatalf("write again: %v", err)
	}
	copy(f.Rows.Vectors[0].Slice(10, 20).Data, again.Vectors[0].Data)
	probes := e.probes(8, 3, 50)
	lists := e.search(t, adapters.SearchRequest{Collection: f.Collection, Exact: true, Probes: probes})
	e.checkLists(t, f, 0, probes, lists, nil)
	e.checkCount(t, f.Collection, 40)
	wrong := adapters.Rows{IDs: numberIDs(2), Vectors: []rerank.Matrix{rerank.NewMatrix(2, 9)}}
	if err := w.Write(t.Context(), f.Collection, f.Schema, wrong); !errors.Is(err, adapters.ErrDimension) {
		t.Errorf("rows of another dimension: %v, want ErrDimension", err)
	}
	if err := w.Write(t.Context(), e.name(), f.Schema, again); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("a write to no collection: %v, want ErrNotFound", err)
	}
}

// rowsDeleted deletes some rows of each set of ids and checks that the others remain
// in searches, fetches and a scan that was already running.
func rowsDeleted(t *testing.T, e *env) {
	d := storeAs[adapters.Deleter](t, e)
	for _, s := range e.kit.IDs {
		n := e.kit.Fields
		if e.lacks(MultipleFields) {
			n = 1
		}
		f := Fixture{Schema: adapters.Schema{TextIDs: s.Text}, Rows: adapters.Rows{IDs: s.IDs}}
		for i := range n {
			f.Fields = append(f.Fields, vectorFields(adapters.InnerProduct, 8, fmt.Sprintf("g%d", i))...)
			f.Rows.Vectors = append(f.Rows.Vectors, randomMatrix(rand.New(rand.NewPCG(5, uint64(i))), len(s.IDs), 8))
		}
		f = e.load(t, f)
		gone, kept := s.IDs[:len(s.IDs)/2], s.IDs[len(s.IDs)/2:]
		for range 2 { // the second deletion finds no rows
			if err := d.Delete(t.Context(), f.Collection, gone); err != nil {
				t.Fatalf("%s: delete: %v", s.Name, err)
			}
		}
		for i := range n {
			lists := e.search(t, adapters.SearchRequest{Collection: f.Collection, Vector: f.Fields[i].Name, Exact: true, Probes: e.probes(8, 1, len(s.IDs)+1)})
			if err := sameSet(lists[0].IDs, kept); err != nil {
				t.Errorf("%s: search of field %d: %v", s.Name, i, err)
			}
		}
		if !e.lacks(Fetch) {
			if rows := e.fetch(t, adapters.FetchRequest{Collection: f.Collection, IDs: gone}); len(rows.IDs) > 0 {
				t.Errorf("%s: fetch found %v", s.Name, rows.IDs)
			}
		}
		if e.lacks(Scan) {
			continue
		}
		var left []rerank.ID
		err := storeAs[adapters.Scanner](t, e).Scan(t.Context(), adapters.ScanRequest{Collection: f.Collection, Batch: 1}, func(r adapters.Rows, _ string) error {
			left = append(left, r.IDs...)
			return d.Delete(t.Context(), f.Collection, r.IDs)
		})
		if err != nil {
			t.Errorf("%s: scan: %v", s.Name, err)
		}
		if err := sameSet(left, kept); err != nil {
			t.Errorf("%s: scan that deletes what it saw: %v", s.Name, err)
		}
	}
	if err := d.Delete(t.Context(), e.name(), numberIDs(3)); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("a delete in no collection: %v, want ErrNotFound", err)
	}
}

func aliasSwitched(t *testing.T, e *env) {
	a := storeAs[adapters.Aliaser](t, e)
	alias := e.name()
	for i, rows := range []int{10, 25} {
		f := e.load(t, Fixture{
			Schema: adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 8+4*i, "vec")},
			Rows:   adapters.Rows{IDs: numberIDs(rows), Vectors: []rerank.Matrix{randomMatrix(rand.New(rand.NewPCG(1, uint64(rows))), rows, 8+4*i)}},
		})
		if err := a.SwitchAlias(t.Context(), alias, f.Collection); err != nil {
			t.Fatalf("switch %s to %s: %v", alias, f.Collection, err)
		}
		if identifier, ok := e.store.(adapters.Identifier); ok {
			id, err := identifier.Identify(t.Context(), alias)
			if err != nil || id.Collection != f.Collection || !slices.Equal(id.Aliases, []string{alias}) {
				t.Errorf("%s is %+v, %v, want an alias of %s", alias, id, err, f.Collection)
			}
		}
		probes := e.probes(8+4*i, 1, 50)
		lists := e.search(t, adapters.SearchRequest{Collection: alias, Exact: true, Probes: probes})
		e.checkLists(t, f, 0, probes, lists, nil)
	}
	if identifier, ok := e.store.(adapters.Identifier); ok {
		if id, err := identifier.Identify(t.Context(), e.name()); !errors.Is(err, adapters.ErrNotFound) {
			t.Errorf("a name of nothing is %+v, %v, want ErrNotFound", id, err)
		}
	}
	if err := a.SwitchAlias(t.Context(), alias, e.name()); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("an alias to no collection: %v, want ErrNotFound", err)
	}
}

func idCases() []testCase {
	return []testCase{
		{"number ids come back unchanged", []Capability{Write, NumberIDs}, func(t *testing.T, e *env) { idSets(t, e, false) }},
		{"text ids come back unchanged", []Capability{Write, TextIDs}, func(t *testing.T, e *env) { idSets(t, e, true) }},
		{"ids that the store cannot hold", []Capability{Write}, badIDs},
	}
}

func idSets(t *testing.T, e *env, text bool) {
	done := 0
	for _, s := range e.kit.IDs {
		if s.Text != text {
			continue
		}
		done++
		t.Run(s.Name, func(t *testing.T) { idSet(t, e, s) })
	}
	if done == 0 {
		t.Fatal("the kit has no such set of ids")
	}
}

func idSet(t *testing.T, e *env, s IDSet) {
	f := e.load(t, Fixture{
		Schema: adapters.Schema{TextIDs: s.Text, Fields: vectorFields(adapters.InnerProduct, 8, "vec")},
		Rows:   adapters.Rows{IDs: s.IDs, Vectors: []rerank.Matrix{randomMatrix(rand.New(rand.NewPCG(4, 4)), len(s.IDs), 8)}},
	})
	probes := e.probes(8, 2, len(s.IDs)+1)
	lists := e.search(t, adapters.SearchRequest{Collection: f.Collection, Exact: true, Probes: probes})
	e.checkLists(t, f, 0, probes, lists, nil)
	for _, l := range lists {
		if err := sameSet(l.IDs, s.IDs); err != nil {
			t.Errorf("search: %v", err)
		}
	}
	excluded := s.IDs[:(len(s.IDs)+1)/2]
	lists = e.search(t, adapters.SearchRequest{Collection: f.Collection, Exact: true, Exclude: excluded, Probes: probes})
	e.checkLists(t, f, 0, probes, lists, func(row int) bool { return !slices.Contains(excluded, s.IDs[row]) })
	if !e.lacks(Fetch) {
		rows := e.fetch(t, adapters.FetchRequest{Collection: f.Collection, IDs: s.IDs, Vectors: []string{"vec"}})
		if err := sameIDs(rows.IDs, s.IDs); err != nil {
			t.Errorf("fetch: %v", err)
		}
		if err := sameVectors(rows.Vectors[0], f.Rows.Vectors[0], rowsOf(f, s.IDs)); err != nil {
			t.Errorf("fetch: %v", err)
		}
	}
	if !e.lacks(Scan) {
		ids, _ := e.scanRows(t, adapters.ScanRequest{Collection: f.Collection, Batch: 2}, 0)
		if err := sameSet(ids, s.IDs); err != nil {
			t.Errorf("scan: %v", err)
		}
	}
}

func badIDs(t *testing.T, e *env) {
	if len(e.kit.BadIDs) == 0 {
		t.Fatal("the kit has no id that the store refuses; every store has some")
	}
	w := storeAs[adapters.Writer](t, e)
	for _, b := range e.kit.BadIDs {
		schema := adapters.Schema{TextIDs: b.Text, Fields: vectorFields(adapters.InnerProduct, 4, "vec")}
		f := e.load(t, Fixture{Schema: schema})
		rows := adapters.Rows{IDs: []rerank.ID{b.ID}, Vectors: []rerank.Matrix{{Rows: 1, Cols: 4, Data: []float32{1, 2, 3, 4}}}}
		if err := w.Write(t.Context(), f.Collection, f.Schema, rows); !errors.Is(err, adapters.ErrID) {
			t.Errorf("write of %s: %v, want ErrID", b.Name, err)
		}
	}
}

func largeCases() []testCase {
	return []testCase{{"100,000 rows", []Capability{Large}, hundredThousand}}
}

func hundredThousand(t *testing.T, e *env) {
	switch {
	case !e.kit.Large:
		e.skip(t, "run on another version of the store")
	case race.Enabled:
		e.skip(t, "off under the race detector")
	}
	const rows, dim = 100_000, 16
	rng := rand.New(rand.NewPCG(100, 1))
	m := randomMatrix(rng, rows, dim)
	f := e.load(t, Fixture{
		Schema: adapters.Schema{Fields: vectorFields(adapters.InnerProduct, dim, "vec")},
		Rows:   adapters.Rows{IDs: numberIDs(rows), Vectors: []rerank.Matrix{m}},
	})
	probes := e.probes(dim, 8, 1000)
	lists := e.search(t, adapters.SearchRequest{Collection: f.Collection, Exact: true, Probes: probes})
	e.checkLists(t, f, 0, probes, lists, nil)
	if e.lacks(Scan) {
		return
	}
	sum, n := 0.0, 0
	err := storeAs[adapters.Scanner](t, e).Scan(t.Context(), adapters.ScanRequest{Collection: f.Collection, Vectors: []string{"vec"}, Batch: 5000}, func(r adapters.Rows, _ string) error {
		n += len(r.IDs)
		for _, id := range r.IDs {
			u, _ := id.Uint64()
			sum += float64(u)
		}
		return nil
	})
	if want := float64(rows) * (rows + 1) / 2; err != nil || n != rows || math.Abs(sum-want) > 0.5 {
		t.Errorf("scan: %d rows, ids add up to %.0f, want %.0f, error %v", n, sum, want, err)
	}
}
