package milvus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// makes answers the calls of Create of a collection with vector fields of those names.
func (r *recorded) makes(fields ...string) {
	r.answers("HasCollection", &milvuspb.BoolResponse{Status: &commonpb.Status{}}, &milvuspb.BoolResponse{Status: &commonpb.Status{}, Value: true})
	r.answers("DescribeCollection", described("c", func(s *schemapb.CollectionSchema) {
		for _, f := range fields {
			s.Fields = append(s.Fields, &schemapb.FieldSchema{Name: f, DataType: schemapb.DataType_FloatVector, TypeParams: pairs("dim", "2")})
		}
	}))
	r.answers("DescribeIndex", &milvuspb.DescribeIndexResponse{Status: &commonpb.Status{}, IndexDescriptions: []*milvuspb.IndexDescription{
		{IndexName: "a", State: commonpb.IndexState_Finished}, {IndexName: "b", State: commonpb.IndexState_Finished}, {IndexName: "vector_0", State: commonpb.IndexState_Finished},
	}})
}

// TestWritesAsSent compares rows as they were given with the columns of the requests.
func TestWritesAsSent(t *testing.T) {
	s, r := record(t, Options{Database: "db"})
	r.answers("DescribeCollection", inRows(t))
	schema := adapters.Schema{Collection: "c", Owner: "item", Fields: []adapters.VectorField{{Name: "a", Dim: 2}, {Name: "b", Dim: 3}}}
	text := func(s ...string) (ids []rerank.ID) {
		for _, x := range s {
			ids = append(ids, rerank.TextID(x))
		}
		return ids
	}
	matrix := func(cols int, x ...float32) rerank.Matrix { return rerank.Matrix{Rows: 3, Cols: cols, Data: x} }
	rows := adapters.Rows{IDs: text("x", "y", "x"), Owners: []rerank.ID{rerank.IntID(1), rerank.IntID(2), rerank.TextID("o")}, Payloads: []json.RawMessage{[]byte(`{"k":1}`), nil, []byte(`{"k":3}`)},
		Vectors: []rerank.Matrix{matrix(2, 1, 2, 3, 4, 5, 6), matrix(3, 1, 2, 3, 4, 5, 6, 7, 8, 9)}}
	if err := s.Write(t.Context(), "c", schema, rows); err != nil {
		t.Fatal(err)
	}
	upsert := func(comp int32, keys []string, vectors ...float32) *milvuspb.UpsertRequest {
		meta, v := jsons("$meta", "{}", `{"k":3}`), floats("vector", 3, vectors...)
		meta.IsDynamic, v.Type = true, schemapb.DataType_FloatVector
		return &milvuspb.UpsertRequest{DbName: "db", CollectionName: "c", NumRows: 2, FieldsData: []*schemapb.FieldData{
			textData(companionID, keys),
			scalarData(companionField, schemapb.DataType_Int16, &schemapb.ScalarField{Data: &schemapb.ScalarField_IntData{IntData: &schemapb.IntArray{Data: []int32{comp, comp}}}}),
			textData(companionOwner, []string{"2", "$o"}), v, meta,
		}}
	}
	calls := slices.Clone(r.calls)
	r.wantSent(t, "write", "Upsert", upsert(0, []string{"0:y", "0:x"}, 3, 4, 0, 5, 6, 0), upsert(1, []string{"1:y", "1:x"}, 4, 5, 6, 7, 8, 9))
	visible := &milvuspb.QueryRequest{DbName: "db", CollectionName: "c", Expr: `likeness_id in ["0:x"]`, OutputFields: []string{companionID}, QueryParams: pairs("limit", "1")}
	r.calls = calls
	r.wantSent(t, "write", "Query", visible)

	many := make([]rerank.ID, 1001)
	for i := range many {
		many[i] = rerank.TextID("x")
	}
	if err := s.Delete(t.Context(), "c", many); err != nil {
		t.Error(err)
	}
	calls = slices.Clone(r.calls)
	deletes := r.take("Delete")
	if len(deletes) != 4 || deletes[1].(*milvuspb.DeleteRequest).GetExpr() != `likeness_id in ["0:x"]` || deletes[3].(*milvuspb.DeleteRequest).GetExpr() != `likeness_id in ["1:x"]` {
		t.Errorf("1,001 items are deleted by %d calls", len(deletes))
	}
	r.calls = calls
	r.wantSent(t, "delete", "Query", visible)
	if err := s.Delete(t.Context(), "c", nil); err != nil || len(r.take("Delete")) > 0 {
		t.Errorf("nothing is deleted: %v", err)
	}
	r.answers("Upsert", &milvuspb.MutationResult{Status: refused(1, "not ready")}, &milvuspb.MutationResult{})
	if err := s.Write(t.Context(), "c", schema, rows); !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("a write that failed: %v", err)
	}
	for name, c := range map[string]struct {
		schema func(*adapters.Schema)
		rows   func(*adapters.Rows)
		want   error
	}{
		"another owner":           {schema: func(s *adapters.Schema) { s.Owner = "other" }, want: adapters.ErrField},
		"fields in another order": {schema: func(s *adapters.Schema) { s.Fields[0].Name, s.Fields[1].Name = "b", "a" }, want: adapters.ErrField},
		"another dimension": {schema: func(s *adapters.Schema) { s.Fields[1].Dim = 2 }, rows: func(r *adapters.Rows) { r.Vectors[1] = rerank.NewMatrix(3, 2) },
			want: adapters.ErrDimension},
		"a field too many": {rows: func(r *adapters.Rows) { r.Vectors = append(r.Vectors, r.Vectors[0]) }, want: adapters.ErrField},
		"a vector too few": {rows: func(r *adapters.Rows) { r.Vectors[0].Rows = 2 }, want: adapters.ErrDimension},
		"a number too few": {rows: func(r *adapters.Rows) { r.Vectors[0].Data = r.Vectors[0].Data[1:] }, want: adapters.ErrDimension},
		"no number":        {rows: func(r *adapters.Rows) { r.Vectors[0].Data[1] = float32(math.NaN()) }, want: adapters.ErrStore},
		"an owner too few": {rows: func(r *adapters.Rows) { r.Owners = r.Owners[1:] }, want: adapters.ErrField},
		"a payload too few": {rows: func(r *adapters.Rows) { r.Payloads = r.Payloads[1:] },
			want: adapters.ErrStore},
		"a payload that is no object": {rows: func(r *adapters.Rows) { r.Payloads[2] = []byte("[1]") }, want: adapters.ErrStore},
	} {
		other, bad := schema, rows
		other.Fields, bad.Vectors, bad.Payloads = slices.Clone(schema.Fields), slices.Clone(rows.Vectors), slices.Clone(rows.Payloads)
		bad.Vectors[0].Data = slices.Clone(rows.Vectors[0].Data)
		if c.schema != nil {
			c.schema(&other)
		}
		if c.rows != nil {
			c.rows(&bad)
		}
		r.take("")
		if err := s.Write(t.Context(), "c", other, bad); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if len(r.take("Upsert")) > 0 {
			t.Errorf("%s: is written", name)
		}
	}
	s.options.Limits.MaxMessageBytes = 2 * 10 * (64 + 4*3 + 100)
	c := &collection{vectors: []vectorColumn{{dim: 3}}}
	if n := s.writeBatch(c, adapters.Rows{Payloads: []json.RawMessage{make([]byte, 150), make([]byte, 50)}}); n != 10 {
		t.Errorf("%d rows of payloads are written at once, want 10", n)
	}
}

// TestRowsOfNumbers: a companion of items with numbers has their numbers as its keys.
func TestRowsOfNumbers(t *testing.T) {
	l := layout{Version: layoutVersion, Fields: []layoutField{{Name: "a", Column: "a", Dim: 2, Metric: adapters.InnerProduct}}}
	description, err := l.describe()
	if err != nil {
		t.Fatal(err)
	}
	s, r := record(t, Options{})
	r.answers("DescribeCollection", described("c", func(s *schemapb.CollectionSchema) {
		s.Description = description
		s.Fields = []*schemapb.FieldSchema{{Name: companionID, IsPrimaryKey: true, DataType: schemapb.DataType_Int64}, {Name: "a", DataType: schemapb.DataType_FloatVector, TypeParams: pairs("dim", "2")}}
	}))
	rows := adapters.Rows{IDs: intIDs(7, -1), Vectors: []rerank.Matrix{{Rows: 2, Cols: 2, Data: []float32{1, 2, 3, 4}}}}
	if err := s.Write(t.Context(), "c", adapters.Schema{Collection: "c", Fields: []adapters.VectorField{{Name: "a", Dim: 2}}}, rows); err != nil {
		t.Fatal(err)
	}
	meta, v := jsons("$meta", "{}", "{}"), floats("a", 2, 1, 2, 3, 4)
	meta.IsDynamic, v.Type = true, schemapb.DataType_FloatVector
	r.wantSent(t, "write", "Upsert", &milvuspb.UpsertRequest{CollectionName: "c", NumRows: 2, FieldsData: []*schemapb.FieldData{longs(companionID, 7, -1), v, meta}})
}

// TestCompanionsAreMadeWhole: indexed as configured, loaded before Create returns, and dropped
// again where a step fails; what is there already stays.
func TestCompanionsAreMadeWhole(t *testing.T) {
	schema := adapters.Schema{Collection: "c", Fields: []adapters.VectorField{{Name: "likeness_id", Dim: 2, Metric: adapters.Cosine}, {Name: "b", Dim: 3}}}
	o := Options{Companion: Index{Type: "HNSW", Params: map[string]string{"M": "8"}}}
	state := func(s commonpb.LoadState) *milvuspb.GetLoadStateResponse {
		return &milvuspb.GetLoadStateResponse{State: s}
	}
	s, r := record(t, o)
	r.answers("GetLoadState", state(commonpb.LoadState_LoadStateLoading), state(commonpb.LoadState_LoadStateLoaded))
	r.makes("vector_0", "b")
	if err := s.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	calls := slices.Clone(r.calls)
	if n := len(r.take("GetLoadState")); n != 2 {
		t.Errorf("its state is asked for %d times", n)
	}
	r.calls = calls
	var fields, metrics []string
	for _, m := range r.take("CreateIndex") {
		x := m.(*milvuspb.CreateIndexRequest)
		fields = append(fields, x.GetFieldName())
		metrics = append(metrics, value(x.GetExtraParams(), "metric_type")+value(x.GetExtraParams(), "index_type"))
		if text := fmt.Sprint(x.GetExtraParams()); !strings.Contains(text, `M`) || !strings.Contains(text, `8`) {
			t.Errorf("%s is indexed by %v", x.GetFieldName(), x.GetExtraParams())
		}
	}
	if !slices.Equal(fields, []string{"vector_0", "b"}) || !slices.Equal(metrics, []string{"COSINEHNSW", "IPHNSW"}) {
		t.Errorf("indexed are %q by %q", fields, metrics)
	}
	for name, c := range map[string]struct {
		script  map[string]proto.Message
		gone    bool // the caller gives up
		dropped int
	}{
		"it exists":            {map[string]proto.Message{"HasCollection": &milvuspb.BoolResponse{Value: true}}, false, 0},
		"it cannot be made":    {map[string]proto.Message{"CreateCollection": refused(1401, "permission deny")}, false, 0},
		"it cannot be indexed": {map[string]proto.Message{"CreateIndex": refused(1, "not ready")}, false, 1},
		"the caller gives up":  {map[string]proto.Message{"GetLoadState": state(commonpb.LoadState_LoadStateLoading)}, true, 1},
	} {
		s, r := record(t, o)
		r.makes("vector_0", "b")
		for name, m := range c.script {
			r.answers(name, m)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if c.gone {
			r.script["GetLoadState"] = func(proto.Message) proto.Message {
				cancel()
				return state(commonpb.LoadState_LoadStateLoading)
			}
		}
		if err := s.Create(ctx, schema); err == nil {
			t.Errorf("%s: no error", name)
		}
		cancel()
		calls := slices.Clone(r.calls)
		if n := len(r.take("DropCollection")); n != c.dropped {
			t.Errorf("%s: dropped %d times", name, n)
		}
		r.calls = calls
		if c.script["HasCollection"] != nil && len(r.take("CreateCollection")) > 0 {
			t.Errorf("%s: made anew", name)
		}
	}
	twice := adapters.Schema{Collection: "c", Fields: []adapters.VectorField{{Name: "a", Dim: 2}, {Name: "a", Dim: 3}}}
	if err := s.Create(t.Context(), twice); !errors.Is(err, adapters.ErrField) {
		t.Errorf("two fields of one name: %v", err)
	}
	s, r = record(t, o)
	if err := s.Create(t.Context(), adapters.Schema{Collection: "c", Fields: []adapters.VectorField{{Name: "a"}}}); !errors.Is(err, adapters.ErrDimension) || len(r.take("HasCollection")) > 0 {
		t.Errorf("a field without a dimension: %v", err)
	}
	for want, status := range map[error]*commonpb.Status{nil: refused(1, "the collection does not exist"), adapters.ErrRefused: refused(1401, "permission deny")} {
		r.answers("DropCollection", status)
		if err := s.Drop(t.Context(), "c"); !errors.Is(err, want) {
			t.Errorf("a drop that is answered by %v: %v, want %v", status, err, want)
		}
	}
	if l := newLayout(adapters.Schema{Fields: []adapters.VectorField{{Name: "a", Dim: 5}, {Name: "b", Dim: 3}}}, 1); l.width(l.Fields[1]) != 5 {
		t.Errorf("a shared column has %d numbers, want 5", l.width(l.Fields[1]))
	}
	if _, err := readLayout(companionMark + `{"version":2}`); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("another version of the layout: %v", err)
	}
}
