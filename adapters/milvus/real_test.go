package milvus_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
)

const (
	exactJSON   = `{"a":9223372036854775807,"u":18446744073709551615,"f":1e308,"z":"\u0000","h":"<&>","e":"é😀","n":null,"o":{"":[1,2.50]}}`
	dynamicJSON = `{"big":1152921504606846977,"deep":{"x":[1,2.5]},"":"empty key","group":"g\"1"}`
)

func scalarFields(t *testing.T, r *live) {
	r.create(t, "scalars", "IP", "FLAT", nil, field("pk", entity.FieldTypeInt64).WithIsPrimaryKey(true),
		field("b", entity.FieldTypeBool), field("i8", entity.FieldTypeInt8), field("i64", entity.FieldTypeInt64), field("f32", entity.FieldTypeFloat),
		field("f64", entity.FieldTypeDouble), field("text", entity.FieldTypeVarChar), field("j", entity.FieldTypeJSON),
		field("list", entity.FieldTypeArray).WithElementType(entity.FieldTypeInt64).WithMaxCapacity(8))
	vecs, m := vectors(3)
	r.insert(t, "scalars", 3,
		entity.NewColumnInt64("pk", []int64{math.MinInt64, -7, 5}), entity.NewColumnFloatVector("vec", 4, vecs),
		entity.NewColumnBool("b", []bool{true, false, true}), entity.NewColumnInt8("i8", []int8{-128, 0, 127}),
		entity.NewColumnInt64("i64", []int64{9007199254740993, math.MinInt64, math.MaxInt64}), entity.NewColumnFloat("f32", repeat(3, float32(0.1))),
		entity.NewColumnDouble("f64", []float64{0.1, 1e-300, -0.5}), entity.NewColumnVarChar("text", []string{"a\"<é", "", "x\ny"}),
		jsonColumn("j", 3, exactJSON), entity.NewColumnInt64Array("list", [][]int64{{1, 4611686018427387905}, {}, {-1}}), jsonColumn("$meta", 3, dynamicJSON))
	ids := []rerank.ID{rerank.IntID(5), rerank.IntID(math.MinInt64)}
	rows, err := r.store.Fetch(t.Context(), adapters.FetchRequest{Collection: "scalars", IDs: ids, Payload: true, Vectors: []string{"vec"}})
	if err != nil {
		t.Fatal(err)
	}
	tail := `,"j":` + exactJSON + `,"list":%s,` + dynamicJSON[1:]
	want := []string{
		fmt.Sprintf(`{"b":true,"i8":127,"i64":9223372036854775807,"f32":0.1,"f64":-0.5,"text":"x\ny"`+tail, "[-1]"),
		fmt.Sprintf(`{"b":true,"i8":-128,"i64":9007199254740993,"f32":0.1,"f64":0.1,"text":"a\"<é"`+tail, "[1,4611686018427387905]"),
	}
	if !slices.Equal(rows.IDs, ids) || !slices.Equal(rows.Vectors[0].Row(0), m.Row(2)) || !slices.Equal(rows.Vectors[0].Row(1), m.Row(0)) {
		t.Errorf("rows are %v %v", rows.IDs, rows.Vectors)
	}
	for i, w := range want {
		if string(rows.Payloads[i]) != w {
			t.Errorf("payload %d is\n%s, want\n%s", i, rows.Payloads[i], w)
		}
	}
	some, err := r.store.Fetch(t.Context(), adapters.FetchRequest{Collection: "scalars", IDs: ids[:1], PayloadFields: []string{"big", "i64", "absent"}})
	if err != nil || string(some.Payloads[0]) != `{"i64":9223372036854775807,"big":1152921504606846977}` {
		t.Errorf("payload fields: %s, %v", some.Payloads, err)
	}
	scalarOwners(t, r)
}

// scalarOwners: the owner can be any scalar field, or a key of the dynamic one.
func scalarOwners(t *testing.T, r *live) {
	for name, owner := range map[string]rerank.ID{"i64": rerank.IntID(9007199254740993), "text": rerank.TextID("a\"<é"), "group": rerank.TextID(`g"1`), "big": rerank.IntID(1152921504606846977)} {
		lists, err := r.store.Search(t.Context(), adapters.SearchRequest{Collection: "scalars", Owner: name, Probes: []rerank.Probe{{Vector: []float32{-1, 0, 0, 0}, Depth: 1}}})
		if err != nil || lists[0].IDs[0] != rerank.IntID(math.MinInt64) || lists[0].Owners[0] != owner {
			t.Errorf("owner %s of a search: %v, %v, want %v", name, lists, err, owner)
		}
		rows, err := r.store.Fetch(t.Context(), adapters.FetchRequest{Collection: "scalars", Owner: name, IDs: []rerank.ID{owner}})
		if err != nil || len(rows.IDs) == 0 || rows.IDs[0] != rerank.IntID(math.MinInt64) || rows.Owners[0] != owner {
			t.Errorf("fetch by owner %s: %v, %v", name, rows, err)
		}
	}
}

func textKeys(t *testing.T, r *live) {
	r.create(t, "texts", "COSINE", "FLAT", nil, field("key", entity.FieldTypeVarChar).WithIsPrimaryKey(true))
	texts := trickyTexts()
	vecs, m := vectors(len(texts))
	r.insert(t, "texts", len(texts), entity.NewColumnVarChar("key", texts), entity.NewColumnFloatVector("vec", 4, vecs), jsonColumn("$meta", len(texts), `{}`))
	ids := textIDs()
	slices.Reverse(ids)
	rows, err := r.store.Fetch(t.Context(), adapters.FetchRequest{Collection: "texts", IDs: append(ids, rerank.TextID("no\nsuch")), Vectors: []string{""}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows.IDs, ids) {
		t.Errorf("fetched %q, want %q", rows.IDs, ids)
	}
	for i, id := range rows.IDs {
		if at := slices.Index(textIDs(), id); !slices.Equal(rows.Vectors[0].Row(i), m.Row(at)) {
			t.Errorf("%q has the vector %v, want %v", id, rows.Vectors[0].Row(i), m.Row(at))
		}
	}
	slices.SortFunc(ids, rerank.ID.Compare)
	for _, batch := range []int{1, 7, 0} {
		var got []rerank.ID
		cursor := ""
		for stop := errors.New("stop"); ; {
			// Each batch is a scan of its own, so that every key is a cursor once.
			err := r.store.Scan(t.Context(), adapters.ScanRequest{Collection: "texts", Batch: batch, Cursor: cursor}, func(rows adapters.Rows, c string) error {
				got, cursor = append(got, rows.IDs...), c
				return stop
			})
			if err == nil {
				break
			}
			if !errors.Is(err, stop) {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("batches of %d: %q, want %q", batch, got, ids)
		}
	}
}

// greatestNumber: Milvus 2.3 takes the greatest number for the end of its
// merge. It is found by a search, and reading it is refused, not left out.
func greatestNumber(t *testing.T, r *live) {
	greatest := rerank.IntID(math.MaxInt64)
	r.create(t, "greatest", "IP", "FLAT", nil, field("pk", entity.FieldTypeInt64).WithIsPrimaryKey(true))
	vecs, _ := vectors(2)
	r.insert(t, "greatest", 2, entity.NewColumnInt64("pk", []int64{math.MaxInt64, 1}), entity.NewColumnFloatVector("vec", 4, vecs), jsonColumn("$meta", 2, `{"a":1}`))
	lists, err := r.store.Search(t.Context(), adapters.SearchRequest{Collection: "greatest", Probes: []rerank.Probe{{Vector: []float32{-1, 0, 0, 0}, Depth: 1}}})
	if err != nil || lists[0].IDs[0] != greatest {
		t.Errorf("search: %v, %v", lists, err)
	}
	ids, err := r.store.Match(t.Context(), "greatest", "")
	if err != nil || !slices.Equal(ids, []rerank.ID{rerank.IntID(1), greatest}) {
		t.Errorf("match: %v, %v", ids, err)
	}
	rows, err := r.store.Fetch(t.Context(), adapters.FetchRequest{Collection: "greatest", IDs: []rerank.ID{greatest}, Vectors: []string{"vec"}})
	switch {
	case r.lite && (err != nil || !slices.Equal(rows.IDs, []rerank.ID{greatest})):
		t.Errorf("fetch: %v, %v", rows, err)
	case !r.lite && !errors.Is(err, adapters.ErrUnsupported):
		t.Errorf("fetch: %v, %v, want ErrUnsupported", rows, err)
	}
}

func approximateIndex(t *testing.T, r *live) {
	r.create(t, "ivf", "L2", "IVF_FLAT", map[string]string{"nlist": "4"}, field("pk", entity.FieldTypeInt64).WithIsPrimaryKey(true))
	d, err := r.store.Describe(t.Context(), "ivf")
	if err != nil || d.Fields[0].Exact || d.Fields[0].Metric != adapters.L2 || d.Settings["vec.index_type"] != "IVF_FLAT" {
		t.Errorf("describe: %+v, %v", d, err)
	}
	lists, err := r.store.Search(t.Context(), adapters.SearchRequest{Collection: "ivf", Exact: true, UnitVectors: true, Probes: []rerank.Probe{{Vector: []float32{1, 2, 3, 4}, Depth: 9}}})
	if err != nil || lists[0].Exact || lists[0].Exhausted {
		t.Errorf("search: %+v, %v; want a list that is neither exact nor exhausted", lists, err)
	}
	if r.lite {
		return // has no HNSW
	}
	o := r.options
	o.Companion = milvus.Index{Type: "HNSW", Params: map[string]string{"M": "8", "efConstruction": "32"}}
	o.SearchParams = map[string]any{"ef": 128}
	s := r.open(t, o)
	schema, rows := rowsSchema("hnsw", 1)
	if err := s.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Drop(t.Context(), "hnsw") }()
	if err := s.Write(t.Context(), "hnsw", schema, rows); err != nil {
		t.Fatal(err)
	}
	for _, reader := range []*milvus.Store{s, r.store} { // with ef and without
		lists, err = reader.Search(t.Context(), adapters.SearchRequest{Collection: "hnsw", Probes: []rerank.Probe{{Vector: []float32{1, 2, 3}, Depth: 100}}})
		if err != nil || len(lists[0].IDs) == 0 || lists[0].Exact {
			t.Errorf("HNSW: %+v, %v", lists, err)
		}
	}
}

func notLoaded(t *testing.T, r *live) {
	r.create(t, "unloaded", "IP", "", nil, field("pk", entity.FieldTypeInt64).WithIsPrimaryKey(true))
	_, err := r.store.Search(t.Context(), adapters.SearchRequest{Collection: "unloaded", Probes: []rerank.Probe{{Vector: []float32{1, 2, 3, 4}, Depth: 9}}})
	if !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("search: %v, want ErrUnavailable", err)
	}
	d, err := r.store.Describe(t.Context(), "unloaded")
	if err != nil || len(d.Fields) != 1 {
		t.Errorf("describe: %+v, %v", d, err)
	}
}

func consistencyAndPartitions(t *testing.T, r *live) {
	r.create(t, "parts", "IP", "FLAT", nil, field("pk", entity.FieldTypeInt64).WithIsPrimaryKey(true))
	request := adapters.SearchRequest{Collection: "parts", Probes: []rerank.Probe{{Vector: []float32{1, 2, 3, 4}, Depth: 9}}}
	for _, level := range []string{"", "Strong", "Session", "Bounded", "Eventually"} {
		request.Consistency = level
		if _, err := r.store.Search(t.Context(), request); err != nil {
			t.Errorf("%q: %v", level, err)
		}
	}
	request.Consistency = "strong"
	if _, err := r.store.Search(t.Context(), request); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("a level Milvus does not have: %v", err)
	}
	if r.lite {
		return // has no partitions
	}
	request.Consistency, request.Partitions = "Strong", []string{"_default"}
	if _, err := r.store.Search(t.Context(), request); err != nil {
		t.Errorf("the default partition: %v", err)
	}
	request.Partitions = []string{"absent"}
	if _, err := r.store.Search(t.Context(), request); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("no such partition: %v", err)
	}
}

// aliasElsewhere: after an alias was switched, searches do not use the schema of its former
// collection.
func aliasElsewhere(t *testing.T, r *live) {
	pk := func() *entity.Field { return field("pk", entity.FieldTypeInt64).WithIsPrimaryKey(true) }
	r.create(t, "flat", "IP", "FLAT", nil, pk())
	r.create(t, "approximate", "IP", "IVF_FLAT", map[string]string{"nlist": "2"}, pk())
	request := adapters.SearchRequest{Collection: "which", Exact: true, Probes: []rerank.Probe{{Vector: []float32{1, 2, 3, 4}, Depth: 9}}}
	other := r.open(t, r.options)
	defer func() { _ = r.sdk.DropAlias(t.Context(), "which") }()
	for _, to := range []string{"flat", "approximate", "flat"} {
		switch err := other.SwitchAlias(t.Context(), "which", to); {
		case errors.Is(err, adapters.ErrUnsupported):
			t.Skip("milvus-lite has no aliases before version 3, and the kit checks that it says so")
		case err != nil:
			t.Fatal(err)
		}
		lists, err := r.store.Search(t.Context(), request)
		if err != nil || lists[0].Exact != (to == "flat") {
			t.Errorf("alias of %s: %+v, %v", to, lists, err)
		}
	}
}

// serversLimits: what the server refuses becomes the limit that it names.
func serversLimits(t *testing.T, r *live) {
	if r.lite {
		t.Skip("milvus-lite says 'invalid parameter' to too deep a search, and nothing more")
	}
	o := r.options
	o.Limits.MaxDepth, o.Limits.MaxProbes = 50_000, 50_000
	s := r.open(t, o)
	r.create(t, "limits", "IP", "FLAT", nil, field("pk", entity.FieldTypeInt64).WithIsPrimaryKey(true))
	var limit *adapters.LimitError
	_, err := s.Search(t.Context(), adapters.SearchRequest{Collection: "limits", Probes: []rerank.Probe{{Vector: []float32{1, 2, 3, 4}, Depth: 17_000}}})
	if !errors.As(err, &limit) || limit.Limit != "max_depth" || limit.Value != 17_000 || limit.Max != 16_384 {
		t.Errorf("depth of 17,000: %v", err)
	}
	_, err = s.Search(t.Context(), adapters.SearchRequest{Collection: "limits", Probes: repeat(17_000, rerank.Probe{Vector: []float32{1, 2, 3, 4}, Depth: 1})})
	if !errors.As(err, &limit) || limit.Limit != "max_probes" || limit.Value != 17_000 || limit.Max != 16_384 {
		t.Errorf("17,000 probes: %v", err)
	}
	d, err := s.Describe(t.Context(), "limits")
	if err != nil || d.Limits.MaxDepth != 16_384 || d.Limits.MaxProbes != 16_384 {
		t.Errorf("describe: %+v, %v; want the limits narrowed", d.Limits, err)
	}
}

func binaryField(t *testing.T, r *live) {
	sch := entity.NewSchema().WithName("binary").WithField(field("pk", entity.FieldTypeInt64).WithIsPrimaryKey(true)).
		WithField(field("bits", entity.FieldTypeBinaryVector).WithDim(8))
	if err := r.sdk.CreateCollection(t.Context(), sch, 1); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.store.Drop(t.Context(), "binary") }()
	_, err := r.store.Search(t.Context(), adapters.SearchRequest{Collection: "binary", Probes: []rerank.Probe{{Vector: []float32{1}, Depth: 9}}})
	if !errors.Is(err, adapters.ErrField) {
		t.Errorf("search of %v: %v, want ErrField", schemapb.DataType_BinaryVector, err)
	}
}
