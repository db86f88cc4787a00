package milvus

import (
	"slices"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/search"
)

func TestConsistency(t *testing.T) {
	const (
		strong  = commonpb.ConsistencyLevel_Strong
		bounded = commonpb.ConsistencyLevel_Bounded
	)
	for _, c := range []struct {
		name   string
		m      *milvuspb.SearchRequest
		own    commonpb.ConsistencyLevel
		strict bool
	}{
		{"the collection's", &milvuspb.SearchRequest{UseDefaultConsistency: true}, bounded, false},
		{"strong of a bounded collection", &milvuspb.SearchRequest{ConsistencyLevel: strong}, bounded, true},
		{"session of a bounded collection", &milvuspb.SearchRequest{ConsistencyLevel: commonpb.ConsistencyLevel_Session}, bounded, true},
		{"strong of a strong collection", &milvuspb.SearchRequest{ConsistencyLevel: strong}, strong, false},
		{"bounded by the level", &milvuspb.SearchRequest{ConsistencyLevel: bounded}, bounded, false},
		{"eventual", &milvuspb.SearchRequest{ConsistencyLevel: commonpb.ConsistencyLevel_Eventually}, bounded, false},
		{"bounded by the timestamp", &milvuspb.SearchRequest{GuaranteeTimestamp: 2}, bounded, false},
		{"a timestamp", &milvuspb.SearchRequest{GuaranteeTimestamp: 1 << 50, UseDefaultConsistency: true}, strong, true},
	} {
		if got := wantsStricterReads(c.m, c.own); got != c.strict {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// columns returns a column of every type whose rows can be reordered.
func columns() []*schemapb.FieldData {
	scalar := func(s *schemapb.ScalarField) *schemapb.FieldData {
		return &schemapb.FieldData{Field: &schemapb.FieldData_Scalars{Scalars: s}}
	}
	vector := func(v *schemapb.VectorField) *schemapb.FieldData {
		return &schemapb.FieldData{Field: &schemapb.FieldData_Vectors{Vectors: v}}
	}
	nullable := scalar(&schemapb.ScalarField{Data: &schemapb.ScalarField_FloatData{FloatData: &schemapb.FloatArray{Data: []float32{0, 2}}}})
	nullable.ValidData = []bool{false, true}
	return []*schemapb.FieldData{
		scalar(&schemapb.ScalarField{Data: &schemapb.ScalarField_BoolData{BoolData: &schemapb.BoolArray{Data: []bool{true, false}}}}),
		scalar(&schemapb.ScalarField{Data: &schemapb.ScalarField_IntData{IntData: &schemapb.IntArray{Data: []int32{1, 2}}}}),
		scalar(&schemapb.ScalarField{Data: &schemapb.ScalarField_JsonData{JsonData: &schemapb.JSONArray{Data: [][]byte{[]byte("{}"), []byte("[]")}}}}),
		scalar(&schemapb.ScalarField{Data: &schemapb.ScalarField_ArrayData{ArrayData: &schemapb.ArrayArray{
			Data: []*schemapb.ScalarField{{}, {Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: []int64{7}}}}},
		}}}),
		nullable,
		vector(&schemapb.VectorField{Dim: 2, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: []float32{1, 2, 3, 4}}}}),
		vector(&schemapb.VectorField{Dim: 8, Data: &schemapb.VectorField_BinaryVector{BinaryVector: []byte{1, 2}}}),
		vector(&schemapb.VectorField{Dim: 1, Data: &schemapb.VectorField_Float16Vector{Float16Vector: []byte{1, 2, 3, 4}}}),
		vector(&schemapb.VectorField{Dim: 1, Data: &schemapb.VectorField_Bfloat16Vector{Bfloat16Vector: []byte{1, 2, 3, 4}}}),
		vector(&schemapb.VectorField{Dim: 2, Data: &schemapb.VectorField_Int8Vector{Int8Vector: []byte{1, 2, 3, 4}}}),
		vector(&schemapb.VectorField{Dim: 9, Data: &schemapb.VectorField_SparseFloatVector{SparseFloatVector: &schemapb.SparseFloatArray{Dim: 9, Contents: [][]byte{{1}, {2}}}}}),
	}
}

func TestColumnsFollowTheHits(t *testing.T) {
	for _, f := range columns() {
		twice, ok := pickField(f, []int{1, 0}, 2)
		if !ok {
			t.Errorf("%v: not picked", f)
			continue
		}
		if proto.Equal(twice, f) {
			t.Errorf("%v: the rows stayed where they were", f)
		}
		if back, ok := pickField(twice, []int{1, 0}, 2); !ok || !proto.Equal(back, f) {
			t.Errorf("%v: there and back it is %v", f, back)
		}
		if _, ok := pickField(f, []int{0}, 3); ok {
			t.Errorf("%v: has not three rows", f)
		}
	}
}

// FuzzRebuild: rebuilding never panics, whatever the database answers.
func FuzzRebuild(f *testing.F) {
	d := &schemapb.SearchResultData{Ids: &schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: []int64{3, 4}}}}, FieldsData: columns(), Scores: []float32{1, 2}, Topks: []int64{2}}
	b, err := proto.Marshal(d)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &schemapb.SearchResultData{}
		if proto.Unmarshal(b, d) != nil {
			return
		}
		all := []routing.Ranked{{Limit: 2, Hits: []search.Hit{{ID: rerank.UintID(4), Score: 9}, {ID: rerank.UintID(3), Score: 8}}}}
		if rebuild(t.Context(), d, all, query{limit: 2, decimals: -1}) == nil && len(d.GetIds().GetIntId().GetData()) != 2 {
			t.Errorf("rebuilt to %v", d)
		}
	})
}

// FuzzRead: reading a request never panics, whatever it holds.
func FuzzRead(f *testing.F) {
	group, _ := proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{Type: commonpb.PlaceholderType_FloatVector, Values: [][]byte{{0, 0, 0, 0}}}}})
	b, err := proto.Marshal(&milvuspb.SearchRequest{PlaceholderGroup: group, Nq: 1, DslType: commonpb.DslType_BoolExprV1,
		SearchParams: []*commonpb.KeyValuePair{{Key: "topk", Value: "3"}, {Key: "params", Value: `{"ef":1}`}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		m := &milvuspb.SearchRequest{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		if q, err := read(m); err == nil {
			_, _ = narrow(m, routing.Target{}, q, "id", []rerank.ID{rerank.UintID(1)}, true)
		}
	})
}

// TestTheHitsAreLookedForWhereTheyWereFound: by an alias, the request for the hits names
// the collection that the alias stood for.
func TestTheHitsAreLookedForWhereTheyWereFound(t *testing.T) {
	q := query{group: &commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{Values: [][]byte{{0, 0, 0, 0}}}}}, decimals: -1}
	for _, c := range []struct{ named, want string }{{"also", "things_2"}, {"things_2", "things_2"}} {
		m := &milvuspb.SearchRequest{CollectionName: c.named}
		b, err := narrow(m, routing.Target{Name: c.named, Routed: "things_2", Own: "things_2"}, q, "id", []rerank.ID{rerank.IntID(1)}, false)
		sent := &milvuspb.SearchRequest{}
		if err != nil || proto.Unmarshal(b, sent) != nil || sent.GetCollectionName() != c.want || m.GetCollectionName() != c.named {
			t.Errorf("by %q: %v, %v, want %q", c.named, sent, err, c.want)
		}
	}
}

// TestTheVectorOfARow: the vector that a route scores is found in the columns of an answer.
func TestTheVectorOfARow(t *testing.T) {
	column := func(name string, v *schemapb.VectorField) *schemapb.FieldData {
		return &schemapb.FieldData{FieldName: name, Field: &schemapb.FieldData_Vectors{Vectors: v}}
	}
	d := &schemapb.SearchResultData{FieldsData: []*schemapb.FieldData{
		column("bits", &schemapb.VectorField{Dim: 8, Data: &schemapb.VectorField_BinaryVector{BinaryVector: []byte{1, 2}}}),
		column("vec", &schemapb.VectorField{Dim: 2, Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: []float32{1, 2, 3, 4}}}}),
	}}
	for _, c := range []struct {
		field string
		row   int
		want  []float32
	}{{"vec", 0, []float32{1, 2}}, {"vec", 1, []float32{3, 4}}, {"vec", 2, nil}, {"bits", 0, nil}, {"other", 0, nil}} {
		if got := vectorAt(d, c.field, c.row); !slices.Equal(got, c.want) {
			t.Errorf("field %q, row %d: %v, want %v", c.field, c.row, got, c.want)
		}
	}
}
