package milvus

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

func hits(topks []int64, scores []float32, ids []int64, fields ...*schemapb.FieldData) *milvuspb.SearchResults {
	return &milvuspb.SearchResults{Results: &schemapb.SearchResultData{
		Topks: topks, Scores: scores, FieldsData: fields, Ids: &schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: ids}}},
	}}
}

func probesOf(t *testing.T, vectors ...[]float32) []byte {
	t.Helper()
	f := fieldSearch{}
	f.col.vectorColumn.dim = len(vectors[0])
	for i, v := range vectors {
		f.probes, f.request.Probes = append(f.probes, i), append(f.request.Probes, rerank.Probe{Vector: v})
	}
	b, err := proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{Tag: "$0", Type: commonpb.PlaceholderType_FloatVector, Values: f.vectors()}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSearchAsSent compares the whole request with the search that the store was asked for.
func TestSearchAsSent(t *testing.T) {
	plain := adapters.SearchRequest{Collection: "c", Vector: "v", Probes: []rerank.Probe{{Vector: []float32{1, 2}, Depth: 3}, {Vector: []float32{3, 4}, Depth: 5}}, Filter: "n > 1 or n < 0", UnitVectors: true}
	full := plain
	full.Probes = full.Probes[1:] // vectors come with one probe alone
	full.EF, full.Partitions, full.Consistency, full.WithVectors, full.Owner, full.Payload, full.PayloadFields = 99, []string{"p", "q"}, "Bounded", true, "n", true, []string{"text", "extra"}
	components := plain
	components.Vector, components.Probes, components.WithVectors = "", []rerank.Probe{{Field: "b", Vector: []float32{1, 2, 3}, Depth: 2}}, true
	short := components
	short.Probes = []rerank.Probe{{Field: "a", Vector: []float32{1, 2}, Depth: 2}}
	params := func(field, depth, text string) []*commonpb.KeyValuePair {
		return pairs("anns_field", field, "topk", depth, "metric_type", "IP", "params", text, "round_decimal", "-1", "offset", "0")
	}
	of := func(change func(*milvuspb.SearchRequest)) *milvuspb.SearchRequest {
		m := &milvuspb.SearchRequest{DbName: "db", CollectionName: "c", Dsl: "n > 1 or n < 0", DslType: commonpb.DslType_BoolExprV1, Nq: 2, UseDefaultConsistency: true,
			PlaceholderGroup: probesOf(t, []float32{1, 2}, []float32{3, 4}), SearchParams: params("v", "5", `{"nprobe":7}`)}
		change(m)
		return m
	}
	for name, c := range map[string]struct {
		request adapters.SearchRequest
		of      *milvuspb.DescribeCollectionResponse
		want    *milvuspb.SearchRequest
	}{
		"plain": {plain, described("c"), of(func(*milvuspb.SearchRequest) {})},
		"full": {full, described("c"), of(func(m *milvuspb.SearchRequest) {
			m.PartitionNames, m.ConsistencyLevel, m.UseDefaultConsistency = []string{"p", "q"}, commonpb.ConsistencyLevel_Bounded, false
			m.Nq, m.PlaceholderGroup = 1, probesOf(t, []float32{3, 4})
			m.OutputFields, m.SearchParams = []string{"n", "v", "text", "$meta"}, params("v", "5", `{"ef":99,"nprobe":7}`)
		})},
		"a component": {components, inRows(t), of(func(m *milvuspb.SearchRequest) {
			m.Dsl, m.Nq, m.PlaceholderGroup, m.OutputFields = "(n > 1 or n < 0) && (likeness_field == 1)", 1, probesOf(t, []float32{1, 2, 3}), []string{"vector"}
			m.SearchParams = params("vector", "2", `{"nprobe":7}`)
		})},
		"a component of a longer column": {short, inRows(t), of(func(m *milvuspb.SearchRequest) {
			m.Dsl, m.Nq, m.PlaceholderGroup, m.OutputFields = "(n > 1 or n < 0) && (likeness_field == 0)", 1, probesOf(t, []float32{1, 2, 0}), []string{"vector"}
			m.SearchParams = params("vector", "2", `{"nprobe":7}`)
		})},
	} {
		s, r := record(t, Options{Database: "db", SearchParams: map[string]any{"nprobe": 7}})
		r.answers("DescribeCollection", c.of)
		r.answers("DescribeIndex", indexed(parameterOf(c.want, "anns_field"), "metric_type", "IP", "index_type", "HNSW"))
		if _, err := s.Search(t.Context(), c.request); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r.wantSent(t, name, "Search", c.want)
	}
}

// TestSearchesOfSeveralFields: each search has the probes of its own field.
func TestSearchesOfSeveralFields(t *testing.T) {
	s, r := record(t, Options{})
	r.answers("DescribeCollection", inRows(t))
	r.answers("DescribeIndex", indexed("vector", "metric_type", "IP", "index_type", "FLAT"))
	b := rerank.Probe{Field: "b", Vector: []float32{1, 2, 3}, Depth: 2}
	_, err := s.Search(t.Context(), adapters.SearchRequest{Collection: "c", UnitVectors: true, Probes: []rerank.Probe{b, {Field: "a", Vector: []float32{1, 2}, Depth: 2}, b}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*milvuspb.SearchRequest{
		"likeness_field == 0": {Nq: 1, PlaceholderGroup: probesOf(t, []float32{1, 2, 0})},
		"likeness_field == 1": {Nq: 2, PlaceholderGroup: probesOf(t, b.Vector, b.Vector)},
	}
	sent := r.take("Search")
	for _, m := range sent {
		m := m.(*milvuspb.SearchRequest)
		if w := want[m.GetDsl()]; w == nil || m.GetNq() != w.GetNq() || !bytes.Equal(m.GetPlaceholderGroup(), w.GetPlaceholderGroup()) {
			t.Errorf("sent as %v", m)
		}
	}
	if len(sent) != len(want) {
		t.Errorf("%d searches", len(sent))
	}
}

func parameterOf(m *milvuspb.SearchRequest, key string) string {
	return value(m.GetSearchParams(), key)
}

// TestListsOfSeveralProbes: each probe gets its own rows, sorted, with their own owners,
// payloads and vectors; a search of two fields sends each its own probes.
func TestListsOfSeveralProbes(t *testing.T) {
	s, r := record(t, Options{})
	r.answers("DescribeCollection", described("c"))
	r.answers("DescribeIndex", indexed("v", "metric_type", "IP", "index_type", "FLAT"))
	r.answers("Search", hits([]int64{2, 1, 1}, []float32{1, 5, 3, 4}, []int64{10, 11, 12, 13},
		longs("n", 100, 101, 102, 103)))
	request := adapters.SearchRequest{Collection: "c", Vector: "v", UnitVectors: true, Owner: "n"}
	for range 3 {
		request.Probes = append(request.Probes, rerank.Probe{Vector: []float32{1, 0}, Depth: 2})
	}
	lists, err := s.Search(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]int64{{11, 10}, {12}, {13}} {
		l := lists[i]
		if !slices.Equal(l.IDs, intIDs(want...)) {
			t.Errorf("list %d: %v, want %v", i, l.IDs, want)
			continue
		}
		for j, id := range want {
			if l.Owners[j] != rerank.IntID(90+id) {
				t.Errorf("list %d: row %d has owner %v", i, id, l.Owners[j])
			}
		}
	}
	one := request
	one.Probes, one.WithVectors, one.Payload = request.Probes[:1], true, true
	r.answers("Search", hits([]int64{2}, []float32{1, 5}, []int64{10, 11}, longs("n", 100, 101), textData("text", []string{"a", "b"}), floats("v", 2, 1, 2, 3, 4)))
	if lists, err := s.Search(t.Context(), one); err != nil || !slices.Equal(lists[0].IDs, intIDs(11, 10)) || !slices.Equal(lists[0].Vectors.Data, []float32{3, 4, 1, 2}) || string(lists[0].Payloads[0]) != `{"n":101,"text":"b"}` {
		t.Errorf("%+v, %v", lists, err)
	}
	r.answers("Search", hits([]int64{1}, []float32{1}, nil))
	if _, err := s.Search(t.Context(), request); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("scores without ids: %v", err)
	}
	r.answers("Search", hits([]int64{1}, []float32{1}, []int64{1}))
	for name, c := range map[string]struct {
		change func(*adapters.SearchRequest)
		want   error
	}{
		"a filter that is not text": {func(q *adapters.SearchRequest) { q.Filter = "n == '\xff'" }, adapters.ErrFilter},
		"an unknown level":          {func(q *adapters.SearchRequest) { q.Consistency = "Customized" }, adapters.ErrUnsupported},
		"a field of bits":           {func(q *adapters.SearchRequest) { q.Vector = "bits" }, adapters.ErrField},
		"no field, of two":          {func(q *adapters.SearchRequest) { q.Vector = "" }, adapters.ErrField},
		"more vectors than fit": {func(q *adapters.SearchRequest) {
			q.Probes, q.WithVectors = []rerank.Probe{{Vector: []float32{1, 0}, Depth: 16_000}}, true
		}, adapters.ErrLimit},
	} {
		s.options.Limits.MaxMessageBytes = 16_000*24 - 1
		bad := request
		c.change(&bad)
		r.take("")
		if _, err := s.Search(t.Context(), bad); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if sent := r.take("Search"); len(sent) > 0 {
			t.Errorf("%s: is sent", name)
		}
	}
}

// TestAliasesThatMove: a search by an alias asks, beside, whether it still stands for the
// collection of the schema, and is made again where it does not.
func TestAliasesThatMove(t *testing.T) {
	s, r := record(t, Options{SchemaTTL: time.Hour})
	r.answers("DescribeIndex", indexed("v", "metric_type", "IP", "index_type", "FLAT"), indexed("v", "metric_type", "IP", "index_type", "HNSW"))
	r.answers("Search", hits(nil, nil, nil))
	request := adapters.SearchRequest{Collection: "alias", Vector: "v", UnitVectors: true, Probes: []rerank.Probe{{Vector: []float32{1, 0}, Depth: 2}}}
	for name, c := range map[string]struct {
		schemas []proto.Message
		times   int // DescribeCollection
		exact   bool
	}{
		"it stays": {[]proto.Message{described("one")}, 2, true},
		"it moves": {[]proto.Message{described("one"), described("two")}, 4, false},
	} {
		s.forget("alias")
		r.answers("DescribeIndex", indexed("v", "metric_type", "IP", "index_type", "FLAT"), indexed("v", "metric_type", "IP", "index_type", "HNSW"))
		r.answers("DescribeCollection", c.schemas...)
		r.take("")
		lists, err := s.Search(t.Context(), request)
		if err != nil || lists[0].Exact != c.exact {
			t.Errorf("%s: %+v, %v", name, lists, err)
		}
		if got := len(r.take("DescribeCollection")); got != c.times {
			t.Errorf("%s: the collection is described %d times, want %d", name, got, c.times)
		}
	}
	s.forget("own")
	r.answers("DescribeCollection", described("own"))
	request.Collection = "own"
	r.take("")
	if _, err := s.Search(t.Context(), request); err != nil {
		t.Error(err)
	}
	if got := len(r.take("DescribeCollection")); got != 1 {
		t.Errorf("a collection by its own name is described %d times", got)
	}
	r.answers("AlterAlias", refused(1600, "alias not found"))
	r.take("")
	if err := s.SwitchAlias(t.Context(), "alias", "two"); err != nil {
		t.Error(err)
	}
	if got := r.take("CreateAlias"); len(got) != 1 {
		t.Errorf("a new alias is made %d times", len(got))
	}
	errUnread := errors.New("not read")
	if c, _, err := s.schemas.Load("alias", func() (*collection, error) { return nil, errUnread }); !errors.Is(err, errUnread) {
		t.Errorf("the schema of a switched alias is kept: %v", c)
	}
	r.answers("AlterAlias", refused(1401, "permission deny"))
	if err := s.SwitchAlias(t.Context(), "alias", "two"); !errors.Is(err, adapters.ErrRefused) {
		t.Errorf("a switch that is not permitted: %v", err)
	}
	if got := r.take("CreateAlias"); len(got) > 0 {
		t.Error("an alias that may not be switched is made")
	}
}

// TestIdentifyWithoutListAliases: a server that does not list aliases, or does not permit it, identifies a
// collection all the same.
func TestIdentifyWithoutListAliases(t *testing.T) {
	for code, want := range map[int32]error{1401: nil, 2200: adapters.ErrStore} {
		s, r := record(t, Options{})
		r.answers("DescribeCollection", inRows(t))
		r.answers("ListAliases", &milvuspb.ListAliasesResponse{Status: refused(code, "any words")})
		if _, err := s.Identify(t.Context(), "c"); !errors.Is(err, want) {
			t.Errorf("code %d: %v, want %v", code, err, want)
		}
	}
}

// TestNorms: the greatest norm is estimated from rows of the component, once a minute, and
// anew after a write.
func TestNorms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := record(t, Options{})
		r.answers("DescribeCollection", inRows(t))
		c, err := s.collection(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		r.answers("Query", &milvuspb.QueryResults{FieldsData: []*schemapb.FieldData{textData(companionID, []string{"0:x", "0:y"}), floats("vector", 3, 3, 4, 0, 1, 0, 0)}})
		a := c.columns()[0]
		read := func(want int) {
			t.Helper()
			r.take("")
			if n, err := s.greatestNorm(t.Context(), c, a); n != 10 || err != nil {
				t.Errorf("the greatest norm is %v, %v, want 10", n, err)
			}
			got := r.take("Query")
			if len(got) != want {
				t.Errorf("rows are read %d times, want %d", len(got), want)
			}
			for _, m := range got {
				if q := m.(*milvuspb.QueryRequest); q.GetExpr() != "likeness_field == 0" || value(q.GetQueryParams(), "limit") != "64" {
					t.Errorf("norms are read by %v", q)
				}
			}
		}
		read(1)
		time.Sleep(normTTL - time.Second) //nolint:forbidigo // of the bubble: no time passes
		read(0)
		schema := adapters.Schema{Collection: "c", Owner: "item", Fields: []adapters.VectorField{{Name: "a", Dim: 2}, {Name: "b", Dim: 3}}}
		ids := []rerank.ID{rerank.TextID("x")}
		if err := s.Write(t.Context(), "c", schema, adapters.Rows{IDs: ids, Owners: ids, Vectors: []rerank.Matrix{rerank.NewMatrix(1, 2), rerank.NewMatrix(1, 3)}}); err != nil {
			t.Error(err)
		}
		read(1)
		time.Sleep(normTTL) //nolint:forbidigo // of the bubble: no time passes
		read(1)
	})
}

// TestRepliesAreReadAnew: a reply's memory is used again, and nothing of the last answer is
// left in it; a field that is not known is skipped.
func TestRepliesAreReadAnew(t *testing.T) {
	full := hits([]int64{1}, []float32{1}, []int64{7}, longs("n", 1))
	text := &schemapb.IDs{IdField: &schemapb.IDs_StrId{StrId: &schemapb.StringArray{Data: []string{"x"}}}}
	texts := &milvuspb.SearchResults{Results: &schemapb.SearchResultData{Topks: []int64{1}, Scores: []float32{2}, Ids: text}}
	r := &reply{}
	for i, m := range []*milvuspb.SearchResults{full, texts, {Status: refused(1, "no")}, full} {
		if data := m.GetResults().GetIds().GetIntId(); data != nil {
			data.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), 5))
		}
		b, err := proto.Marshal(m)
		if err != nil || r.ReadWire(b) != nil {
			t.Fatal(err)
		}
		n := len(m.GetResults().GetScores())
		if len(r.keys) != n || len(r.scores) != n || len(r.topks) != n || len(r.fields) != len(m.GetResults().GetFieldsData()) || r.status.GetCode() != m.GetStatus().GetCode() {
			t.Errorf("answer %d is read as %v %v %v %v", i, r.keys, r.scores, r.topks, r.fields)
		}
		if n > 0 && r.keys[0] != keysOf(m.GetResults().GetIds())[0] {
			t.Errorf("answer %d has the key %+v", i, r.keys[0])
		}
	}
}
