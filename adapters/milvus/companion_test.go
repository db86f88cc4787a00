package milvus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

func rowsSchema(name string, fields int) (adapters.Schema, adapters.Rows) {
	s := adapters.Schema{Collection: name, TextIDs: true, Owner: "item"}
	rows := adapters.Rows{IDs: textIDs()}
	for i := range rows.IDs {
		rows.Owners = append(rows.Owners, []rerank.ID{rerank.UintID(math.MaxUint64), rerank.TextID("it's\n"), rerank.IntID(-4)}[i%3])
		rows.Payloads = append(rows.Payloads, json.RawMessage(fmt.Sprintf(`{"size":%d}`, i)))
	}
	for f := range fields {
		dim := 3 + f
		s.Fields = append(s.Fields, adapters.VectorField{Name: "c" + strconv.Itoa(f), Dim: dim, Metric: adapters.InnerProduct})
		m := rerank.NewMatrix(len(rows.IDs), dim)
		for i := range m.Data {
			m.Data[i] = float32((i*(f+7))%101) - 50
		}
		rows.Vectors = append(rows.Vectors, m)
	}
	return s, rows
}

// rowsLayout: eight fields are more than a collection takes, and are written and
// read as if they were not.
func rowsLayout(t *testing.T, r *live) {
	schema, rows := rowsSchema("components", 8)
	r.companion(t, schema, rows)
	request := adapters.SearchRequest{Collection: "components", Exact: true, Owner: "item", Filter: "size >= 4 or size == 1"}
	for i, f := range schema.Fields {
		p := make([]float32, f.Dim)
		p[i%len(p)], p[0] = 1, -2
		request.Probes = append(request.Probes, rerank.Probe{Field: f.Name, Vector: p, Depth: 6}, rerank.Probe{Field: f.Name, Vector: rows.Vectors[i].Row(9), Depth: 90})
	}
	lists, err := r.open(t, r.options).Search(t.Context(), request) // a reader that has not written
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range lists {
		want := bruteForce(rows, i/2, request.Probes[i], func(row int) bool { return row >= 4 || row == 1 })
		if !slices.Equal(l.IDs, want) || !l.Exact || l.Exhausted != (i%2 == 1) {
			t.Errorf("list %d: %q, want %q; exact %v, exhausted %v", i, l.IDs, want, l.Exact, l.Exhausted)
		}
		for j, id := range l.IDs {
			if l.Owners[j] != rows.Owners[slices.Index(rows.IDs, id)] {
				t.Errorf("list %d: %q belongs to %q", i, id, l.Owners[j])
			}
		}
	}
	r.readComponents(t, schema, rows)
}

func bruteForce(rows adapters.Rows, field int, p rerank.Probe, keep func(int) bool) []rerank.ID {
	top := rerank.NewTopK(p.Depth)
	for i, id := range rows.IDs {
		score := float32(0)
		for j, x := range rows.Vectors[field].Row(i) {
			score += x * p.Vector[j] // small integers: exact
		}
		if keep(i) {
			top.Push(rerank.Scored{ID: id, Score: score})
		}
	}
	var ids []rerank.ID
	for _, s := range top.Sorted() {
		ids = append(ids, s.ID)
	}
	return ids
}

func (r *live) companion(t *testing.T, schema adapters.Schema, rows adapters.Rows) {
	t.Helper()
	if err := r.store.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.store.Drop(context.WithoutCancel(t.Context()), schema.Collection); err != nil {
			t.Error(err)
		}
	})
	if err := r.store.Write(t.Context(), schema.Collection, schema, rows); err != nil {
		t.Fatal(err)
	}
}

// readComponents fetches and scans all fields of a companion.
func (r *live) readComponents(t *testing.T, schema adapters.Schema, rows adapters.Rows) {
	var names []string
	for _, f := range schema.Fields {
		names = append(names, f.Name)
	}
	seen := 0
	check := func(got adapters.Rows, _ string) error {
		for i, id := range got.IDs {
			at := slices.Index(rows.IDs, id)
			seen++
			for f := range names {
				if !slices.Equal(got.Vectors[f].Row(i), rows.Vectors[f].Row(at)) {
					t.Errorf("%q, field %s: %v, want %v", id, names[f], got.Vectors[f].Row(i), rows.Vectors[f].Row(at))
				}
			}
			if compact(t, got.Payloads[i]) != string(rows.Payloads[at]) || got.Owners != nil && got.Owners[i] != rows.Owners[at] {
				t.Errorf("%q has payload %s", id, got.Payloads[i])
			}
		}
		return nil
	}
	got, err := r.store.Fetch(t.Context(), adapters.FetchRequest{Collection: schema.Collection, IDs: rows.IDs, Vectors: names, Payload: true})
	if err != nil || !slices.Equal(got.IDs, rows.IDs) {
		t.Fatalf("fetch: %q, %v", got.IDs, err)
	}
	_ = check(got, "")
	owned, err := r.store.Fetch(t.Context(), adapters.FetchRequest{Collection: schema.Collection, Owner: "item", IDs: rows.Owners[:3], Vectors: names, Payload: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = check(owned, "")
	if err := r.store.Scan(t.Context(), adapters.ScanRequest{Collection: schema.Collection, Vectors: names, Payload: true, Owner: "item", Batch: 4}, check); err != nil {
		t.Fatal(err)
	}
	d, err := r.store.Describe(t.Context(), schema.Collection)
	if err != nil || d.Rows != int64(len(rows.IDs)) || len(d.Fields) != len(names) || !d.TextIDs || !d.Fields[7].Exact || d.Fields[7].Dim != 10 {
		t.Errorf("describe: %+v, %v", d, err)
	}
	if seen != 3*len(rows.IDs) {
		t.Errorf("%d rows were read, want three times %d", seen, len(rows.IDs))
	}
}

func mixedMetrics(t *testing.T, r *live) {
	schema, _ := rowsSchema("mixed", 5)
	schema.Fields[3].Metric = adapters.Cosine
	var limit *adapters.LimitError
	if err := r.store.Create(t.Context(), schema); !errors.As(err, &limit) || limit.Value != 5 {
		t.Errorf("create: %v, want a LimitError", err)
	}
}

// compact removes the spaces that milvus-lite writes into JSON from version 3 on.
func compact(t *testing.T, payload json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, payload); err != nil {
		t.Fatalf("payload %s: %v", payload, err)
	}
	return b.String()
}

// largeRows: replies that turn out larger than the limit are asked for in parts.
func largeRows(t *testing.T, r *live) {
	schema := adapters.Schema{Collection: "large_rows", Fields: []adapters.VectorField{{Name: "vec", Dim: 4}}}
	const n = 200
	_, m := vectors(n)
	rows := adapters.Rows{Vectors: []rerank.Matrix{m}}
	text := json.RawMessage(`{"text":"` + strings.Repeat("x", 20_000) + `"}`)
	for i := range n {
		rows.IDs, rows.Payloads = append(rows.IDs, rerank.IntID(int64(i))), append(rows.Payloads, text)
	}
	r.companion(t, schema, rows)
	o := r.options
	o.Limits.MaxMessageBytes = 1 << 20
	small := r.open(t, o)
	got, err := small.Fetch(t.Context(), adapters.FetchRequest{Collection: "large_rows", IDs: rows.IDs, Payload: true})
	if err != nil || !slices.Equal(got.IDs, rows.IDs) || compact(t, got.Payloads[n-1]) != string(text) {
		t.Errorf("fetch: %d rows, %v", len(got.IDs), err)
	}
	seen := 0
	err = small.Scan(t.Context(), adapters.ScanRequest{Collection: "large_rows", Payload: true}, func(rows adapters.Rows, _ string) error {
		seen += len(rows.IDs)
		return nil
	})
	if err != nil || seen != n {
		t.Errorf("scan: %d rows, %v", seen, err)
	}
}

func writeNeedsCompanion(t *testing.T, r *live) {
	r.create(t, "own", "IP", "FLAT", nil, field("pk", entity.FieldTypeInt64).WithIsPrimaryKey(true))
	schema := adapters.Schema{Collection: "own", Fields: []adapters.VectorField{{Name: "vec", Dim: 4}}}
	_, m := vectors(1)
	err := r.store.Write(t.Context(), "own", schema, adapters.Rows{IDs: []rerank.ID{rerank.IntID(1)}, Vectors: []rerank.Matrix{m}})
	if !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("write to a user's collection: %v, want ErrUnsupported", err)
	}
}
