package milvus

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// scripted answers calls as a test prescribes, and records their requests.
type scripted struct {
	milvuspb.UnimplementedMilvusServiceServer
	searchAnswer    *milvuspb.SearchResults
	describeAnswer  *milvuspb.DescribeCollectionResponse
	describeFailure error // of a call; nil is its answer

	mu        sync.Mutex
	searches  []*milvuspb.SearchRequest
	hybrids   []*milvuspb.HybridSearchRequest
	described []*milvuspb.DescribeCollectionRequest
}

func (s *scripted) Search(ctx context.Context, r *milvuspb.SearchRequest) (*milvuspb.SearchResults, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.searches = append(s.searches, r)
	return s.searchAnswer, errors.Join(grpc.SetHeader(ctx, metadata.Pairs("x-header", "h")), grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "t")))
}

func (s *scripted) HybridSearch(_ context.Context, r *milvuspb.HybridSearchRequest) (*milvuspb.SearchResults, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hybrids = append(s.hybrids, r)
	return s.searchAnswer, nil
}

func (s *scripted) DescribeCollection(_ context.Context, r *milvuspb.DescribeCollectionRequest) (*milvuspb.DescribeCollectionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.described = append(s.described, r)
	return s.describeAnswer, s.describeFailure
}

// schema describes a collection with a key and vector fields of the given types.
func schema(level commonpb.ConsistencyLevel, kinds ...schemapb.DataType) *milvuspb.DescribeCollectionResponse {
	s := &schemapb.CollectionSchema{Fields: []*schemapb.FieldSchema{{Name: "n", DataType: schemapb.DataType_Int64}, {Name: "key", IsPrimaryKey: true, DataType: schemapb.DataType_Int64}}}
	for i, kind := range kinds {
		s.Fields = append(s.Fields, &schemapb.FieldSchema{Name: "v" + strconv.Itoa(i), DataType: kind})
	}
	return &milvuspb.DescribeCollectionResponse{Schema: s, ConsistencyLevel: level}
}

func startScripted(t *testing.T) (*scripted, *rawgrpc.Upstream) {
	t.Helper()
	s := &scripted{describeAnswer: schema(commonpb.ConsistencyLevel_Bounded, schemapb.DataType_FloatVector)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	milvuspb.RegisterMilvusServiceServer(server, s)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	up, err := rawgrpc.Dial(listener.Addr().String(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = up.Close()
		server.Stop()
		<-served
	})
	return s, up
}

// routerOf returns a router with a route for each vector field of the collection c.
func routerOf(t *testing.T, database string, vectors ...string) *Router {
	t.Helper()
	var routes manyRoutes
	for _, v := range vectors {
		routes.all = append(routes.all, &route.Route{Policy: route.Policy{Name: "r" + v, Collection: "c", Vector: v, StoreName: "s", Ramp: 100}, Parts: route.Parts{Store: keyed{}}})
	}
	r, err := routing.New(routes, routing.Options{Store: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return New(r, database)
}

type manyRoutes struct {
	search.Searcher
	all []*route.Route
}

func (m manyRoutes) Routes() []*route.Route { return m.all }

func (m manyRoutes) Route(string) (*route.Route, error) { return m.all[0], nil }

// callOf returns a call of the named method on the collection c.
func callOf(t *testing.T, up *rawgrpc.Upstream, r *Router, name string, request proto.Message) *call {
	t.Helper()
	method := milvuspb.MilvusService_Search_FullMethodName
	if _, hybrid := request.(*milvuspb.HybridSearchRequest); hybrid {
		method = milvuspb.MilvusService_HybridSearch_FullMethodName
	}
	return &call{Router: r, upstream: up, method: method, target: routing.Target{Name: name, Routed: "c", Own: "c"}, raw: encoded(t, request)}
}

func vectorsOf(t *testing.T, vectors ...[]float32) []byte {
	t.Helper()
	return encoded(t, groupOf(commonpb.PlaceholderType_FloatVector, vectors...))
}

// plain returns a search at the collection's own consistency.
func plain(t *testing.T, pairs ...string) *milvuspb.SearchRequest {
	t.Helper()
	return &milvuspb.SearchRequest{CollectionName: "c", DslType: commonpb.DslType_BoolExprV1, PlaceholderGroup: vectorsOf(t, []float32{1, 2}), Nq: 1, UseDefaultConsistency: true,
		SearchParams: params(append(pairs, "topk", "3")...)}
}

// hybridOf returns a hybrid search of lists on the given fields.
func hybridOf(t *testing.T, fields ...string) *milvuspb.HybridSearchRequest {
	t.Helper()
	h := &milvuspb.HybridSearchRequest{Base: &commonpb.MsgBase{MsgID: 5}, DbName: "d", CollectionName: "c", PartitionNames: []string{"p"}, OutputFields: []string{"n"}, GuaranteeTimestamp: 2, NotReturnAllMeta: true,
		ConsistencyLevel: commonpb.ConsistencyLevel_Bounded, RankParams: params("strategy", "rrf", "params", `{"k":60}`, "limit", "3", "offset", "2", "round_decimal", "4")}
	for _, f := range fields {
		list := plain(t, "anns_field", f)
		list.SearchParams[1].Value, list.Dsl, list.ExprTemplateValues = "5", "n > {x}", values{"x": whole(1)}
		h.Requests = append(h.Requests, list)
	}
	return h
}

// TestWhatASearchAsks: the field, the page and the needs of a search depend on the schema.
func TestWhatASearchAsks(t *testing.T) {
	s, up := startScripted(t)
	r := routerOf(t, "", "v0")
	strong := plain(t)
	strong.UseDefaultConsistency = false
	whole := plain(t, "offset", "2")
	whole.Dsl, whole.PartitionNames = "n > 1", []string{"p"}
	for name, c := range map[string]struct {
		request proto.Message
		schema  *milvuspb.DescribeCollectionResponse
		want    routing.Search
		finds   bool
	}{
		"the only field": {whole, schema(commonpb.ConsistencyLevel_Bounded, schemapb.DataType_FloatVector), routing.Search{Vector: "v0", Offset: 2, Filter: "n > 1", Partitions: []string{"p"}}, false},
		"of two fields":  {plain(t), schema(commonpb.ConsistencyLevel_Bounded, schemapb.DataType_FloatVector, schemapb.DataType_SparseFloatVector), routing.Search{}, false},
		"of bits too":    {plain(t), schema(commonpb.ConsistencyLevel_Bounded, schemapb.DataType_FloatVector, schemapb.DataType_Int8Vector), routing.Search{}, false},
		"stricter":       {strong, schema(commonpb.ConsistencyLevel_Bounded, schemapb.DataType_FloatVector), routing.Search{Vector: "v0", Needs: []string{"consistency"}}, false},
		"as strict":      {strong, schema(commonpb.ConsistencyLevel_Strong, schemapb.DataType_FloatVector), routing.Search{Vector: "v0"}, false},
		"several lists":  {hybridOf(t, "v0", "w"), schema(commonpb.ConsistencyLevel_Bounded, schemapb.DataType_FloatVector), routing.Search{Vector: "v0", Offset: 2, Partitions: []string{"p"}, Needs: []string{"round-decimal", "hybrid"}}, true},
		"one list":       {hybridOf(t, "v0"), schema(commonpb.ConsistencyLevel_Bounded, schemapb.DataType_FloatVector), routing.Search{Vector: "v0", Offset: 2, Filter: "n >  1 ", Partitions: []string{"p"}, Needs: []string{"round-decimal"}}, false},
	} {
		r.shapes.Forget("c")
		s.describeAnswer = c.schema
		got, err := callOf(t, up, r, "c", c.request).Read(t.Context())
		if err != nil || len(got.Searches) != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		finds := got.Searches[0].Find != nil
		got.Searches[0].Find = nil
		c.want.Limit, c.want.Query = 3, []float32{1, 2}
		if !reflect.DeepEqual(got.Searches[0], c.want) || finds != c.finds {
			t.Errorf("%s: %+v, finds %t, want %+v", name, got.Searches[0], finds, c.want)
		}
	}
	only := routerOf(t, "", "")
	if got, err := callOf(t, up, only, "c", hybridOf(t, "v0", "w")).Read(t.Context()); err == nil || len(got.Searches) > 0 {
		t.Errorf("lists of two fields, both of the only route: %+v", got)
	}
	if got, err := callOf(t, up, only, "c", hybridOf(t, "v0", "v0")).Read(t.Context()); err != nil || len(got.Searches) != 1 {
		t.Errorf("a route of the only field: %+v, %v", got, err)
	}
}

// TestListsShorterThanTheAnswer: one list is the answer of a hybrid search only if it is as long as the page; of several lists
// each may be shorter.
func TestListsShorterThanTheAnswer(t *testing.T) {
	for _, c := range []struct {
		list    string // its length; the page ends at row 5
		several bool
		ok      bool
	}{{"5", false, true}, {"6", false, true}, {"4", false, false}, {"4", true, true}} {
		h := hybridOf(t, "v0")
		h.Requests[0].SearchParams[1].Value = c.list
		m, err := singleSearch(h, h.GetRequests()[0], c.several)
		if (err == nil) != c.ok || err == nil && (m.GetConsistencyLevel() != h.GetConsistencyLevel() || m.GetDbName() != "d" || !slices.Equal(m.GetPartitionNames(), []string{"p"})) {
			t.Errorf("a list of %s rows, one of several %t: %v, %v", c.list, c.several, m, err)
		}
	}
}

// TestSchemasAreKeptForAWhile: schemas are cached by collection; refusals are not cached.
func TestSchemasAreKeptForAWhile(t *testing.T) {
	s, up := startScripted(t)
	r := routerOf(t, "", "v0")
	read := func(want int, ok bool) {
		t.Helper()
		got, err := r.shape(t.Context(), up, "c", &milvuspb.SearchRequest{DbName: "d"})
		if (err == nil) != ok || ok && (got.primary != "key" || !slices.Equal(got.vectors, []string{"v0"}) || got.level != commonpb.ConsistencyLevel_Bounded) {
			t.Errorf("%+v, %v", got, err)
		}
		if len(s.described) != want {
			t.Errorf("described %d times, want %d", len(s.described), want)
		}
	}
	bounded := s.describeAnswer
	for _, refusal := range []*commonpb.Status{{Code: 100}, {ErrorCode: commonpb.ErrorCode_CollectionNotExists}} { // as older servers answer
		s.describeAnswer = &milvuspb.DescribeCollectionResponse{Status: refusal}
		read(len(s.described)+1, false)
	}
	s.describeAnswer, s.describeFailure = bounded, status.Error(codes.Unavailable, "gone")
	read(len(s.described)+1, false)
	s.described, s.describeFailure = nil, nil
	read(1, true)
	read(1, true)
	if got := s.described[0]; got.GetDbName() != "d" || got.GetCollectionName() != "c" {
		t.Errorf("asked for %v", got)
	}
	r.shapes.Keep = 0
	read(2, true)

	named := callOf(t, up, r, "c", plain(t, "anns_field", "v0"))
	if got, err := named.Locate(t.Context()); err != nil || got.Searches[0].Vector != "v0" || len(s.described) != 2 {
		t.Errorf("a search that names its field asks for the schema: %+v, %v", got, err)
	}
	r.shapes.Forget("c")
	unnamed := plain(t)
	unnamed.DbName = "d"
	if got, err := callOf(t, up, r, "c", unnamed).Locate(t.Context()); err != nil || got.Searches[0].Vector != "v0" || s.described[2].GetDbName() != "d" {
		t.Errorf("a search that names no field: %+v, %v", got, err)
	}
}

// TestCandidatesOfAHybridSearch: candidates are requested by the collection's own name, from the
// first row on.
func TestCandidatesOfAHybridSearch(t *testing.T) {
	s, up := startScripted(t)
	s.searchAnswer = results([]int64{2}, 5, 4)
	h := hybridOf(t, "v0", "w")
	for _, name := range []string{"c", "alias"} {
		h.CollectionName = name
		for _, list := range h.GetRequests() {
			list.CollectionName = name
		}
		c := callOf(t, up, routerOf(t, "", "v0"), name, h)
		if _, err := c.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids, err := c.find(t.Context(), 40)
		if err != nil || !slices.Equal(ids, []rerank.ID{rerank.IntID(40), rerank.IntID(41)}) {
			t.Errorf("%v, %v", ids, err)
		}
		want := proto.Clone(h).(*milvuspb.HybridSearchRequest)
		want.CollectionName, want.OutputFields = "c", nil
		want.RankParams = params("strategy", "rrf", "params", `{"k":60}`, "round_decimal", "4", "limit", "40")
		for _, list := range want.GetRequests() {
			list.CollectionName = "c"
		}
		if got := s.hybrids[len(s.hybrids)-1]; !proto.Equal(got, want) || !proto.Equal(c.hybrid, h) {
			t.Errorf("by %s asked for\n%v, want\n%v; the call holds\n%v", name, got, want, c.hybrid)
		}
		for _, bad := range []*milvuspb.SearchResults{{}, results([]int64{1, 1}, 5, 4), {Status: &commonpb.Status{Code: 1}, Results: results([]int64{1}, 5).GetResults()}} {
			s.searchAnswer = bad
			if _, err := c.find(t.Context(), 40); !errors.Is(err, errFind) {
				t.Errorf("%v: %v", bad, err)
			}
		}
		s.searchAnswer = results([]int64{2}, 5, 4)
	}
}

// TestConfirmedAnswers: the hits are requested as the client requested its rows. The answer is the
// database's, in the hits' order and with their scores.
func TestConfirmedAnswers(t *testing.T) {
	s, up := startScripted(t)
	m := plain(t, "anns_field", "v0", "offset", "1", "params", `{"nprobe":3,"ef":10,"search_list":7,"reorder_k":8}`, "round_decimal", "1")
	m.SearchParams[len(m.GetSearchParams())-1] = params("limit", "5")[0]
	m.DbName, m.Dsl, m.PartitionNames, m.OutputFields, m.Nq = "d", "n > 1 or n < 0", []string{"p"}, []string{"n"}, 2
	m.PlaceholderGroup, m.CollectionName = vectorsOf(t, []float32{1, 2}, []float32{3, 4}), "alias"
	hit := func(id int64, score float32) search.Hit { return search.Hit{ID: rerank.IntID(id), Score: score} }
	ranked := func(store bool) []routing.Ranked {
		return []routing.Ranked{{Limit: 3, Offset: 1, All: true, StoreScores: store, Hits: []search.Hit{hit(42, 9), hit(40, 8.26)}}, {Limit: 1, Offset: 1, StoreScores: store, Hits: []search.Hit{hit(40, 7), hit(41, 6.04), hit(42, 5)}}}
	}
	for _, store := range []bool{false, true} {
		s.describeAnswer = schema(commonpb.ConsistencyLevel_Bounded, schemapb.DataType_FloatVector)
		lists := []int64{3}
		if store {
			lists = []int64{3, 3}
		}
		answer := func() *milvuspb.SearchResults { // each list has the ids 40, 41, 42
			m := results(lists, []float32{3, 2, 1, 30, 20, 10}[:3*len(lists)]...)
			for i := range m.GetResults().GetIds().GetIntId().GetData() {
				m.Results.Ids.GetIntId().Data[i] = int64(40 + i%3)
			}
			m.Results.Distances = slices.Clone(m.GetResults().GetScores())
			return m
		}
		s.searchAnswer = answer()
		c := callOf(t, up, routerOf(t, "", "v0"), "alias", m)
		if _, err := c.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.searches = nil
		r, err := c.Confirm(t.Context(), ranked(store))
		if err != nil {
			t.Fatal(err)
		}
		want := proto.Clone(m).(*milvuspb.SearchRequest)
		want.CollectionName, want.Dsl = "c", "(n > 1 or n < 0) and (key in [42,40,41])"
		if !store {
			want.Nq, want.PlaceholderGroup = 1, vectorsOf(t, []float32{1, 2})
		}
		want.SearchParams = params("anns_field", "v0", "offset", "0", "params", `{"ef":64,"nprobe":65536,"reorder_k":3,"search_list":64}`, "round_decimal", "1", "limit", "3")
		if !proto.Equal(s.searches[0], want) {
			t.Errorf("the hits are asked for by\n%v, want\n%v", s.searches[0], want)
		}
		if !slices.Equal(r.Header.Get("x-header"), []string{"h"}) || !slices.Equal(r.Trailer.Get("x-trailer"), []string{"t"}) {
			t.Errorf("metadata %v, %v", r.Header, r.Trailer)
		}
		got := &milvuspb.SearchResults{}
		if err := proto.Unmarshal(r.Message, got); err != nil {
			t.Fatal(err)
		}
		scores := []float32{8.3, 6} // rounded as requested
		if store {
			scores = []float32{3, 20}
		}
		d := got.GetResults()
		if got.GetCollectionName() != "alias" || d.GetNumQueries() != 2 || d.GetTopK() != 5 || !slices.Equal(d.GetTopks(), []int64{1, 1}) || !slices.Equal(d.GetScores(), scores) || !slices.Equal(d.GetDistances(), scores) ||
			d.GetRecalls() != nil || !slices.Equal(d.GetIds().GetIntId().GetData(), []int64{40, 41}) {
			t.Errorf("%v", got)
		}
		s.searchAnswer.CollectionName = "" // as older servers answer
		if r, err = c.Confirm(t.Context(), ranked(store)); err != nil || proto.Unmarshal(r.Message, got) != nil || got.GetCollectionName() != "" {
			t.Errorf("without a name: %v, %v", got, err)
		}

		for name, change := range map[string]func(){
			"it refuses":             func() { s.searchAnswer.Status = &commonpb.Status{Code: 1} },
			"an old server refuses":  func() { s.searchAnswer.Status = &commonpb.Status{ErrorCode: commonpb.ErrorCode_UnexpectedError} }, // as above
			"too many lists":         func() { s.searchAnswer.Results.Topks = []int64{1, 1, 1} },
			"a negative length":      func() { s.searchAnswer.Results.Topks = []int64{-1, 4} },
			"rows behind the lists":  func() { s.searchAnswer.Results.Topks = []int64{2} },
			"fewer scores":           func() { s.searchAnswer.Results.Scores = s.searchAnswer.GetResults().GetScores()[1:] },
			"a column that is short": func() { s.searchAnswer.Results.FieldsData[0].ValidData = []bool{true} },
			"no right to the alias":  func() { s.describeAnswer = &milvuspb.DescribeCollectionResponse{Status: &commonpb.Status{Code: 1401}} },
		} {
			s.searchAnswer = answer()
			s.describeAnswer = schema(commonpb.ConsistencyLevel_Bounded, schemapb.DataType_FloatVector)
			change()
			if _, err := c.Confirm(t.Context(), ranked(store)); !errors.Is(err, errConfirm) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if last := s.described[len(s.described)-1]; last.GetCollectionName() != "alias" {
			t.Errorf("the right is asked for %v", last)
		}
	}
	if got := searchAllLists(`{"nprobe":3}`, 100); got != `{"nprobe":65536}` {
		t.Errorf("parameters that were not given are set: %s", got)
	}
	if got := searchAllLists(`{"ef":1,"search_list":1}`, 100); got != `{"ef":100,"search_list":100}` {
		t.Errorf("%s", got)
	}
	if got := searchAllLists("{", 100); got != "{" {
		t.Errorf("parameters that cannot be read are sent as %s", got)
	}
	flat := &schemapb.SearchResultData{FieldsData: []*schemapb.FieldData{{FieldName: "v", Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: []float32{1}}}}}}}}
	if got := vectorAt(flat, "v", 0); got != nil {
		t.Errorf("a vector without a dimension is %v", got)
	}
}

// TestInterceptedCalls: a call on a routed collection is read as its method demands, and what passes has the
// database's own answer and says why.
func TestInterceptedCalls(t *testing.T) {
	s, up := startScripted(t)
	s.searchAnswer = results([]int64{2}, 5, 4)
	methods := routerOf(t, "", "v0").Intercept(up)
	twoVectors := hybridOf(t, "v0", "v0")
	twoVectors.DbName, twoVectors.Requests[1].PlaceholderGroup = "", vectorsOf(t, []float32{9, 9})
	elsewhere := plain(t)
	elsewhere.CollectionName = "d"
	for name, c := range map[string]struct {
		method  string
		request proto.Message
		status  []string
	}{
		"no route":     {milvuspb.MilvusService_Search_FullMethodName, elsewhere, nil},
		"two vectors":  {milvuspb.MilvusService_HybridSearch_FullMethodName, twoVectors, []string{"passed; reason=hybrid"}},
		"an iterator":  {milvuspb.MilvusService_Search_FullMethodName, plain(t, "iterator", "True"), []string{"passed; reason=iterator"}},
		"other fields": {milvuspb.MilvusService_Search_FullMethodName, plain(t, "anns_field", "w"), []string{"passed; reason=vector"}},
	} {
		r := methods[c.method].Answer(t.Context(), encoded(t, c.request))
		if got := r.Trailer.Get(routing.StatusKey); r.Err != nil || !slices.Equal(got, c.status) {
			t.Errorf("%s: %q, %v", name, got, r.Err)
		}
	}
}

// TestAccess: an answer with rows shows that the caller may read; an error of the database
// shows nothing.
func TestAccess(t *testing.T) {
	for name, c := range map[string]struct {
		reply rawgrpc.Reply
		want  routing.Access
	}{
		"rows":           {rawgrpc.Reply{Message: encoded(t, results([]int64{1}, 1))}, routing.AccessGranted},
		"refused":        {rawgrpc.Reply{Message: encoded(t, &milvuspb.SearchResults{Status: &commonpb.Status{Code: 1401}})}, routing.AccessDenied},
		"a wrong word":   {rawgrpc.Reply{Message: encoded(t, &milvuspb.SearchResults{Status: &commonpb.Status{Code: 1400}})}, routing.AccessDenied},
		"of old servers": {rawgrpc.Reply{Message: encoded(t, &milvuspb.SearchResults{Status: &commonpb.Status{ErrorCode: commonpb.ErrorCode_PermissionDenied}})}, routing.AccessDenied}, // as they answer
		"an error":       {rawgrpc.Reply{Message: encoded(t, &milvuspb.SearchResults{Status: &commonpb.Status{Code: 100}})}, routing.AccessUnknown},
		"malformed":      {rawgrpc.Reply{Message: []byte{10, 255}}, routing.AccessUnknown},
		"no answer":      {rawgrpc.Reply{Err: status.Error(codes.Unavailable, "")}, routing.AccessUnknown},
		"no credentials": {rawgrpc.Reply{Err: status.Error(codes.Unauthenticated, "")}, routing.AccessDenied},
	} {
		if got := (&call{}).Access(c.reply); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if lists, ok := (&call{}).IDs(rawgrpc.Reply{Message: encoded(t, &milvuspb.SearchResults{Status: &commonpb.Status{Code: 1}})}); ok {
		t.Errorf("a failed answer has the ids %v", lists)
	}
}

// TestRewrittenCalls: what the database says to a rewritten call.
func TestRewrittenCalls(t *testing.T) {
	s, up := startScripted(t)
	r := routerOf(t, "", "v0")
	c := callOf(t, up, r, "c", plain(t, "anns_field", "v0"))
	all := []routing.Replacement{{Vector: []float32{3, 4}, Scale: 2, EF: 70}}
	s.searchAnswer = results([]int64{2}, 5, 4)
	reply, hits, err := c.Rewrite(t.Context(), all)
	if want := []search.Hit{{ID: rerank.IntID(40), Score: 10}, {ID: rerank.IntID(41), Score: 8}}; err != nil || !reflect.DeepEqual(hits, [][]search.Hit{want}) || !slices.Equal(reply.Trailer.Get("x-trailer"), []string{"t"}) {
		t.Errorf("%v, %v", hits, err)
	}
	want := plain(t, "anns_field", "v0")
	want.PlaceholderGroup, want.SearchParams = vectorsOf(t, []float32{3, 4}), append(want.GetSearchParams(), params("params", `{"ef":70}`)...)
	if !proto.Equal(s.searches[0], want) {
		t.Errorf("sent as %v, want %v", s.searches[0], want)
	}
	s.searchAnswer = results([]int64{1}, math.MaxFloat32)
	if _, _, err := c.Rewrite(t.Context(), all); err == nil || errors.Is(err, errAnswer) {
		t.Errorf("a score out of range: %v", err)
	}
	s.searchAnswer = results([]int64{1, 1}, 1, 2)
	if _, _, err := c.Rewrite(t.Context(), all); !errors.Is(err, errAnswer) {
		t.Errorf("an answer of two lists: %v", err)
	}
	s.searchAnswer = &milvuspb.SearchResults{Status: &commonpb.Status{Code: 1401}}
	if _, _, err := c.Rewrite(t.Context(), all); !errors.Is(err, routing.ErrDenied) {
		t.Errorf("a refusal: %v", err)
	}
	s.searchAnswer = results([]int64{2}, 5, 4)
	h := callOf(t, up, r, "c", hybridOf(t, "v0", "w"))
	if _, err := h.Locate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, hits, err := h.Rewrite(t.Context(), all); err != nil || len(hits) != 1 {
		t.Errorf("a hybrid search: %v, %v", hits, err)
	}
}

// TestFused: which hybrid searches are turned into the search of one list, and into which.
func TestFused(t *testing.T) {
	routed := func(field string) bool { return field == "v0" || field == "v1" }
	h := hybridOf(t, "v0", "w")
	m, several, err := fused(h, routed)
	want := plain(t, "anns_field", "v0")
	want.Base, want.DbName, want.PartitionNames, want.OutputFields, want.GuaranteeTimestamp, want.NotReturnAllMeta = h.GetBase(), "d", []string{"p"}, []string{"n"}, 2, true
	want.ConsistencyLevel, want.UseDefaultConsistency = commonpb.ConsistencyLevel_Bounded, false
	want.SearchParams = params("anns_field", "v0", "topk", "3", "offset", "2", "round_decimal", "4")
	if err != nil || !several || !proto.Equal(m, want) {
		t.Errorf("%v, %t, %v, want\n%v", m, several, err, want)
	}
	unnamed := hybridOf(t, "")
	unnamed.Requests[0].SearchParams = unnamed.GetRequests()[0].GetSearchParams()[1:]
	if m, _, err := fused(unnamed, func(string) bool { return false }); err != nil || anns(m) != "" {
		t.Errorf("one list without a field: %v, %v", m, err)
	}
	one := hybridOf(t, "w")
	want.Dsl, want.ExprTemplateValues, want.SearchParams[0].Value = "n > {x}", values{"x": whole(1)}, "w"
	if m, several, err := fused(one, routed); err != nil || several || !proto.Equal(m, want) {
		t.Errorf("one list: %v, %t, %v, want\n%v", m, several, err, want)
	}
	namespace := "x"
	for name, c := range map[string]struct {
		fields []string
		change func(h *milvuspb.HybridSearchRequest)
		want   routing.Pass
	}{
		"two lists of a vector": {[]string{"v0", "v0"}, func(*milvuspb.HybridSearchRequest) {}, ""},
		"two vectors":           {[]string{"v0", "v0"}, func(h *milvuspb.HybridSearchRequest) { h.Requests[1].PlaceholderGroup = vectorsOf(t, []float32{9}) }, "hybrid"},
		"two routed fields":     {[]string{"v0", "v1"}, func(*milvuspb.HybridSearchRequest) {}, "hybrid"},
		"no routed field":       {[]string{"w", "x"}, func(*milvuspb.HybridSearchRequest) {}, "hybrid"},
		"several queries":       {[]string{"v0", "w"}, func(h *milvuspb.HybridSearchRequest) { h.Requests[0].Nq = 2 }, "hybrid"},
		"a function":            {[]string{"v0"}, func(h *milvuspb.HybridSearchRequest) { h.FunctionScore = &schemapb.FunctionScore{} }, "function-score"},
		"a namespace":           {[]string{"v0"}, func(h *milvuspb.HybridSearchRequest) { h.Namespace = &namespace }, "namespace"},
		"the past":              {[]string{"v0"}, func(h *milvuspb.HybridSearchRequest) { h.TravelTimestamp = 1 }, "namespace"},
		"normalised scores": {[]string{"v0"}, func(h *milvuspb.HybridSearchRequest) {
			h.RankParams = append(h.GetRankParams(), params("norm_score", "true")...)
		}, "hybrid"},
		"a list as long":          {[]string{"v0"}, func(h *milvuspb.HybridSearchRequest) { h.RankParams[3].Value = "2" }, ""},
		"a list that is shorter":  {[]string{"v0"}, func(h *milvuspb.HybridSearchRequest) { h.RankParams[3].Value = "3" }, "hybrid"},
		"lists that are shorter":  {[]string{"v0", "w"}, func(h *milvuspb.HybridSearchRequest) { h.RankParams[3].Value = "3" }, ""},
		"a length that is a word": {[]string{"v0"}, func(h *milvuspb.HybridSearchRequest) { h.Requests[0].SearchParams[1].Value = "x" }, "search-params"},
	} {
		h := hybridOf(t, c.fields...)
		c.change(h)
		_, _, err := fused(h, routed)
		if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestReadSearches: which searches can be answered, and the parts that are read.
func TestReadSearches(t *testing.T) {
	long := strings.Repeat(" ", maxParamsBytes)
	with := func(change func(m *milvuspb.SearchRequest)) func(m *milvuspb.SearchRequest) { return change }
	param := func(pairs ...string) func(m *milvuspb.SearchRequest) {
		return func(m *milvuspb.SearchRequest) { m.SearchParams = append(m.GetSearchParams(), params(pairs...)...) }
	}
	vectors := func(n int, nq int64) func(m *milvuspb.SearchRequest) {
		return func(m *milvuspb.SearchRequest) {
			m.PlaceholderGroup, m.Nq = vectorsOf(t, slices.Repeat([][]float32{{1, 2}}, n)...), nq
		}
	}
	namespace := "x"
	for name, c := range map[string]struct {
		change func(m *milvuspb.SearchRequest)
		want   error
	}{
		"sub-requests":               {with(func(m *milvuspb.SearchRequest) { m.SubReqs = []*milvuspb.SubSearchRequest{{}} }), routing.Pass("hybrid")},
		"keys":                       {with(func(m *milvuspb.SearchRequest) { m.SearchByPrimaryKeys = true }), routing.Pass("not-nearest")},
		"a function":                 {with(func(m *milvuspb.SearchRequest) { m.FunctionScore = &schemapb.FunctionScore{} }), routing.Pass("function-score")},
		"the past":                   {with(func(m *milvuspb.SearchRequest) { m.TravelTimestamp = 1 }), routing.Pass("namespace")},
		"a namespace":                {with(func(m *milvuspb.SearchRequest) { m.Namespace = &namespace }), routing.Pass("namespace")},
		"another language":           {with(func(m *milvuspb.SearchRequest) { m.DslType = commonpb.DslType_Dsl }), routing.Pass("filter")},
		"a value without a literal":  {with(func(m *milvuspb.SearchRequest) { m.Dsl, m.ExprTemplateValues = "n == {x}", values{"x": {}} }), routing.Pass("template")},
		"64 parameters":              {param(slices.Repeat([]string{"ef", "1"}, maxParams-1)...), nil},
		"65 parameters":              {param(slices.Repeat([]string{"ef", "1"}, maxParams)...), routing.Pass("search-params")},
		"a limit":                    {param("limit", "3"), nil},
		"a metric in small letters":  {param("metric_type", "ip"), nil},
		"no metric":                  {param("metric_type", ""), nil},
		"another metric":             {param("metric_type", "L2"), routing.Pass("metric")},
		"growing rows":               {param("ignore_growing", "False"), nil},
		"no growing rows":            {param("ignore_growing", "true"), routing.Pass("ignore-growing")},
		"no groups":                  {param("group_by_field", "false", "iterator", "", "group_size", "3"), nil},
		"groups":                     {param("group_by_field", "n"), routing.Pass("group-by-field")},
		"an iterator":                {param("iterator", "True"), routing.Pass("iterator")},
		"an unknown parameter":       {param("hints", "x"), routing.Pass("search-params")},
		"a page that is a word":      {param("offset", "x"), routing.Pass("search-params")},
		"no rounding":                {param("round_decimal", ""), nil},
		"six decimals":               {param("round_decimal", "6"), nil},
		"seven decimals":             {param("round_decimal", "7"), routing.Pass("search-params")},
		"fewer than no decimals":     {param("round_decimal", "-2"), routing.Pass("search-params")},
		"tuning":                     {param("params", `{"ef":1,"nprobe":2,"level":3,"for_tuning":false}`), nil},
		"for tuning":                 {param("params", `{"for_tuning":true}`), routing.Pass("search-params")},
		"a radius":                   {param("params", `{"radius":3}`), routing.Pass("search-params")},
		"a parameter again":          {param("params", `{"topk":3}`), nil},
		"a parameter against itself": {param("params", `{"topk":4}`), routing.Pass("search-params")},
		"empty parameters":           {param("params", ""), nil},
		"no JSON":                    {param("params", "{"), routing.Pass("search-params")},
		"long parameters":            {param("params", "{}"+long[2:]), nil},
		"longer parameters":          {param("params", "{}"+long[1:]), routing.Pass("search-params")},
		"two groups of vectors": {with(func(m *milvuspb.SearchRequest) {
			m.PlaceholderGroup = append(bytes.Clone(m.GetPlaceholderGroup()), m.GetPlaceholderGroup()...)
		}), routing.Pass("malformed")},
		"half a group": {with(func(m *milvuspb.SearchRequest) { m.PlaceholderGroup = []byte{10, 255} }), routing.Pass("malformed")},
		"no group":     {with(func(m *milvuspb.SearchRequest) { m.PlaceholderGroup = nil }), routing.Pass("malformed")},
		"bits": {with(func(m *milvuspb.SearchRequest) {
			m.PlaceholderGroup = encoded(t, groupOf(commonpb.PlaceholderType_BinaryVector, []float32{1}))
		}), routing.Pass("vector-type")},
		"no vector":         {vectors(0, 0), routing.Pass("malformed")},
		"another count":     {vectors(2, 1), routing.Pass("malformed")},
		"the largest batch": {vectors(routing.MaxBatch, routing.MaxBatch), nil},
		"a larger batch":    {vectors(routing.MaxBatch+1, routing.MaxBatch+1), routing.Pass("batch")},
		"a vector that is cut": {with(func(m *milvuspb.SearchRequest) {
			m.PlaceholderGroup = encoded(t, &commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{Type: commonpb.PlaceholderType_FloatVector, Values: [][]byte{make([]byte, 7)}}}})
		}), routing.Pass("malformed")},
	} {
		m := plain(t)
		c.change(m)
		if _, err := read(m); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	m := plain(t, "round_decimal", "2")
	m.Dsl, m.ExprTemplateValues = "n == {x}", values{"x": whole(4)}
	q, err := read(m)
	if err != nil || q.filter != "n ==  4 " || q.rounded(1.2372) != 1.24 || !slices.Equal(q.needs, []string{"round-decimal"}) {
		t.Errorf("%+v, %v, rounds to %v", q, err, q.rounded(1.2372))
	}
	if q, err := read(plain(t)); err != nil || q.rounded(1.2372) != 1.2372 || len(q.needs) > 0 {
		t.Errorf("%+v, %v", q, err)
	}
	older := &milvuspb.SearchRequest{}
	for timestamp, strict := range map[uint64]bool{0: true, eventually: false, bounded: false, 3: true} {
		older.GuaranteeTimestamp = timestamp
		if got := wantsStricterReads(older, commonpb.ConsistencyLevel_Bounded); got != strict {
			t.Errorf("the timestamp %d wants stricter reads: %t", timestamp, got)
		}
	}
}

// TestLocateLimits: batches up to the limit, and each way to exceed the limits of reading.
func TestLocateLimits(t *testing.T) {
	batch := func(n int) *milvuspb.SearchRequest {
		m := plain(t)
		m.PlaceholderGroup, m.Nq = vectorsOf(t, slices.Repeat([][]float32{{1}}, n)...), int64(n)
		return m
	}
	if got, err := locate(encoded(t, batch(routing.MaxRewrites))); err != nil || len(got) != routing.MaxRewrites {
		t.Errorf("the largest batch: %d, %v", len(got), err)
	}
	if _, err := locate(encoded(t, batch(routing.MaxRewrites+1))); err == nil {
		t.Error("a larger batch is located")
	}
	h := hybridOf(t, "v0", "v0")
	for _, list := range h.GetRequests() {
		list.PlaceholderGroup, list.Nq = batch(routing.MaxRewrites/2+1).GetPlaceholderGroup(), routing.MaxRewrites/2+1
	}
	if _, _, err := locateHybrid(encoded(t, h), func(string) bool { return true }); err == nil {
		t.Error("lists of too many vectors are located")
	}
	one := plain(t)
	two := proto.Clone(one).(*milvuspb.SearchRequest)
	two.Nq, two.PlaceholderGroup = 2, append(bytes.Clone(one.GetPlaceholderGroup()), one.GetPlaceholderGroup()...)
	twice := append(encoded(t, one), encoded(t, &milvuspb.SearchRequest{PlaceholderGroup: one.GetPlaceholderGroup(), Nq: 2})...)
	float16 := plain(t)
	float16.PlaceholderGroup = encoded(t, groupOf(commonpb.PlaceholderType_Float16Vector, []float32{1}))
	for name, b := range map[string][]byte{"two placeholders": encoded(t, two), "two groups": twice, "vectors of float16": encoded(t, float16)} {
		if got, err := locate(b); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestPagesOfTextKeys: an answer has the keys of the page's rows, of whichever type.
func TestPagesOfTextKeys(t *testing.T) {
	d := results([]int64{3}, 3, 2, 1).GetResults()
	d.Ids = &schemapb.IDs{IdField: &schemapb.IDs_StrId{StrId: &schemapb.StringArray{Data: []string{"a", "b", "c"}}}}
	all := []routing.Ranked{{Limit: 2, Hits: []search.Hit{{ID: rerank.TextID("c"), Score: 9}, {ID: rerank.TextID("a"), Score: 8}}}}
	err := rebuild(t.Context(), d, all, query{limit: 2, decimals: -1})
	if err != nil || !slices.Equal(d.GetIds().GetStrId().GetData(), []string{"c", "a"}) || !slices.Equal(d.GetScores(), []float32{9, 8}) {
		t.Errorf("%v, %v", d, err)
	}
}

// TestAnswersThatAreNoAnswers: scores are mapped only in complete answers.
func TestAnswersThatAreNoAnswers(t *testing.T) {
	distances := results([]int64{2}, 1, 2)
	distances.Results.Distances = []float32{1}
	tooFar := results([]int64{1}, 1)
	tooFar.Results.Distances = []float32{math.MaxFloat32}
	cut := protowire.AppendBytes(protowire.AppendTag(nil, lengthsField, protowire.BytesType), []byte{0x80}) // a number without an end
	fewer := results([]int64{2}, 1, 2)
	for name, c := range map[string]struct {
		answer []byte
		all    int
	}{
		"few distances":    {encoded(t, distances), 1},
		"a far distance":   {encoded(t, tooFar), 1},
		"a cut length":     {protowire.AppendBytes(protowire.AppendTag(nil, resultsField, protowire.BytesType), cut), 1},
		"fewer lists":      {encoded(t, fewer), 2},
		"no results":       {encoded(t, &milvuspb.SearchResults{Status: &commonpb.Status{}}), 1},
		"results in parts": {slices.Repeat(encoded(t, &milvuspb.SearchResults{Results: &schemapb.SearchResultData{}}), 2), 1},
	} {
		if got, _, err := mapScores(c.answer, rewrittens(c.all)); err == nil {
			t.Errorf("%s: %x", name, got)
		}
	}
	in := results([]int64{2}, 1, 2)
	b := encoded(t, in)
	parts := &schemapb.SearchResultData{Topks: []int64{2}, Scores: []float32{1}, Ids: in.GetResults().GetIds()}
	inner := append(encoded(t, parts), encoded(t, &schemapb.SearchResultData{Scores: []float32{2}})...)
	whole := append([]byte{resultsField<<3 | 2, byte(len(inner))}, inner...)
	for name, b := range map[string][]byte{"whole": b, "in parts": whole} {
		mapped, _, err := mapScores(b, []routing.Replacement{{Scale: 2}})
		got := &milvuspb.SearchResults{}
		if err != nil || proto.Unmarshal(mapped, got) != nil || !slices.Equal(got.GetResults().GetScores(), []float32{2, 4}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestDatabases: a request belongs to the store's database if the request or, without a name in it,
// the connection names that database. The default database has two names.
func TestDatabases(t *testing.T) {
	for _, c := range []struct {
		store, request, connection string
		want                       bool
	}{
		{"", "", "", true}, {"", "default", "", true}, {"default", "", "", true}, {"", "", "default", true}, {"", "d", "", false}, {"", "", "d", false},
		{"d", "d", "", true}, {"d", "", "d", true}, {"d", "", "", false}, {"d", "e", "d", false}, {"d", "d", "e", true},
	} {
		r := routerOf(t, c.store, "")
		ctx := t.Context()
		if c.connection != "" {
			ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs("dbname", c.connection))
		}
		request := encoded(t, &milvuspb.SearchRequest{DbName: c.request, CollectionName: "c"})
		if got := r.ours(ctx, request); got != c.want || r.mayBeOurs(ctx, request, databaseField) != c.want {
			t.Errorf("%+v: %t", c, got)
		}
		if c.want {
			continue
		}
		if _, covered := r.covered(ctx, request); covered {
			t.Errorf("%+v: covered", c)
		}
	}
	r := routerOf(t, "d", "") // some servers take the first of several names, and others the last
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("dbname", "d", "dbname", "e"))
	request := encoded(t, &milvuspb.SearchRequest{CollectionName: "c"})
	if r.ours(ctx, request) || !r.mayBeOurs(ctx, request, databaseField) {
		t.Error("a search by a connection that names two databases is answered, or a write is not followed")
	}
	both := routerOf(t, "", "").Intercept(nil)
	if both[milvuspb.MilvusService_Search_FullMethodName].Answer == nil || both[milvuspb.MilvusService_HybridSearch_FullMethodName].Answer == nil || len(both) != 2 {
		t.Errorf("%d methods are intercepted", len(both))
	}
}

// TestMethodsThatWrite: the changes of each method, and the field with its database.
func TestMethodsThatWrite(t *testing.T) {
	const c, collection = "c", journal.Collection
	rows := routing.Writing{Kind: journal.Upsert, Collections: []string{c}}
	for method, want := range map[string]struct {
		request proto.Message
		writing routing.Writing
	}{
		milvuspb.MilvusService_Insert_FullMethodName:               {&milvuspb.InsertRequest{DbName: "d", CollectionName: c}, routing.Writing{Kind: journal.Upsert, Way: adapters.WriteInsert, Collections: []string{c}}},
		milvuspb.MilvusService_Upsert_FullMethodName:               {&milvuspb.UpsertRequest{DbName: "d", CollectionName: c}, routing.Writing{Kind: journal.Upsert, Way: adapters.WriteUpsert, Collections: []string{c}}},
		milvuspb.MilvusService_Delete_FullMethodName:               {&milvuspb.DeleteRequest{DbName: "d", CollectionName: c}, routing.Writing{Kind: journal.Delete, Way: adapters.WriteDelete, Collections: []string{c}}},
		milvuspb.MilvusService_Import_FullMethodName:               {&milvuspb.ImportRequest{DbName: "d", CollectionName: c}, routing.Writing{Kind: journal.Upsert, Collections: []string{c}}},
		milvuspb.MilvusService_DropPartition_FullMethodName:        {&milvuspb.DropPartitionRequest{DbName: "d", CollectionName: c}, routing.Writing{Kind: journal.Delete, Collections: []string{c}}},
		milvuspb.MilvusService_AddCollectionField_FullMethodName:   {&milvuspb.AddCollectionFieldRequest{DbName: "d", CollectionName: c}, routing.Writing{Kind: journal.Payload, Collections: []string{c}}},
		milvuspb.MilvusService_CreateCollection_FullMethodName:     {&milvuspb.CreateCollectionRequest{DbName: "d", CollectionName: c}, routing.Writing{Kind: collection, Collections: []string{c}, Renamed: []string{c}}},
		milvuspb.MilvusService_DropCollection_FullMethodName:       {&milvuspb.DropCollectionRequest{DbName: "d", CollectionName: c}, routing.Writing{Kind: collection, Collections: []string{c}, Renamed: []string{c}}},
		milvuspb.MilvusService_CreateAlias_FullMethodName:          {&milvuspb.CreateAliasRequest{DbName: "d", CollectionName: c, Alias: "a"}, routing.Writing{Kind: collection, Renamed: []string{"a"}}},
		milvuspb.MilvusService_AlterAlias_FullMethodName:           {&milvuspb.AlterAliasRequest{DbName: "d", CollectionName: c, Alias: "a"}, routing.Writing{Kind: collection, Renamed: []string{"a"}}},
		milvuspb.MilvusService_DropAlias_FullMethodName:            {&milvuspb.DropAliasRequest{DbName: "d", Alias: "a"}, routing.Writing{Kind: collection, Renamed: []string{"a"}}},
		milvuspb.MilvusService_AlterCollection_FullMethodName:      {&milvuspb.AlterCollectionRequest{DbName: "d", CollectionName: c}, rows},
		milvuspb.MilvusService_AlterCollectionField_FullMethodName: {&milvuspb.AlterCollectionFieldRequest{DbName: "d", CollectionName: c}, rows},
		milvuspb.MilvusService_LoadCollection_FullMethodName:       {&milvuspb.LoadCollectionRequest{DbName: "d", CollectionName: c}, rows},
		milvuspb.MilvusService_ReleaseCollection_FullMethodName:    {&milvuspb.ReleaseCollectionRequest{DbName: "d", CollectionName: c}, rows},
		milvuspb.MilvusService_LoadPartitions_FullMethodName:       {&milvuspb.LoadPartitionsRequest{DbName: "d", CollectionName: c}, rows},
		milvuspb.MilvusService_ReleasePartitions_FullMethodName:    {&milvuspb.ReleasePartitionsRequest{DbName: "d", CollectionName: c}, rows},
	} {
		w, known := methodsThatWrite()[method]
		if !known {
			t.Errorf("%s does not write", method)
			continue
		}
		b := encoded(t, want.request)
		got := w.read(b)
		got.Read = nil
		if !reflect.DeepEqual(got, want.writing) {
			t.Errorf("%s: %+v, want %+v", method, got, want.writing)
		}
		if database, _ := routing.Text(b, w.databaseField); w.databaseField > 0 && database != "d" {
			t.Errorf("%s: the database is %q", method, database)
		}
	}
	if n := len(methodsThatWrite()); n != 17 {
		t.Errorf("%d methods write", n)
	}
	r, _ := following(t, false)
	for name, c := range map[string]struct {
		request *milvuspb.RenameCollectionRequest
		want    routing.Writing
	}{
		"within ours":   {&milvuspb.RenameCollectionRequest{DbName: "mine", OldName: "a", NewName: "b"}, routing.Writing{Kind: collection, Collections: []string{"a"}, Renamed: []string{"a", "b"}}},
		"within theirs": {&milvuspb.RenameCollectionRequest{DbName: "yours", OldName: "a", NewName: "b"}, routing.Writing{Kind: collection}},
		"into ours":     {&milvuspb.RenameCollectionRequest{DbName: "yours", OldName: "a", NewName: "b", NewDBName: "mine"}, routing.Writing{Kind: collection, Renamed: []string{"b"}}},
		"out of ours":   {&milvuspb.RenameCollectionRequest{DbName: "mine", OldName: "a", NewName: "b", NewDBName: "yours"}, routing.Writing{Kind: collection, Collections: []string{"a"}, Renamed: []string{"a"}}},
	} {
		if got := r.readRename(t.Context(), encoded(t, c.request)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("a rename %s: %+v, want %+v", name, got, c.want)
		}
	}
	ours := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("dbname", "mine"))
	if got := r.readRename(ours, encoded(t, &milvuspb.RenameCollectionRequest{DbName: "yours", OldName: "a", NewName: "b"})); !slices.Equal(got.Renamed, []string{"b"}) {
		t.Errorf("a rename that may lead into the connection's database: %+v", got)
	}
	if got := r.readRename(t.Context(), []byte{10, 255}); !got.Everywhere || got.Kind != collection {
		t.Errorf("a rename that is not read: %+v", got)
	}
}

// TestEveryMethodHasAClass: each method of Milvus's services reads, writes to one collection or name, or is listed
// here as one that may change anything. A method of a later version has to be put into a class.
func TestEveryMethodHasAClass(t *testing.T) {
	anything := []string{
		"AddUserTags", "AlterDatabase", "CreateReplicateStream", "CreateRowPolicy", "DeleteUserTags", "DropDatabase", "DropRowPolicy", "ReplicateMessage",
		"UpdateReplicateConfiguration",
	}
	r, _ := following(t, false)
	all := r.Intercept(nil)
	var other []string
	services := milvuspb.File_milvus_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			method := "/" + string(services.Get(i).FullName()) + "/" + string(methods.Get(j).Name())
			_, writes := methodsThatWrite()[method]
			writes = writes || method == milvuspb.MilvusService_RenameCollection_FullMethodName
			intercept, isListed := all[method]
			reads := slices.Contains(methodsThatRead(), method)
			switch {
			case reads == writes && isListed, reads && writes, writes && !intercept.MustRead:
				t.Errorf("%s has no class, or two", method)
			case !isListed:
				other = append(other, string(methods.Get(j).Name()))
			}
		}
	}
	if slices.Sort(other); !slices.Equal(other, anything) {
		t.Errorf("these methods may change anything: %v; want %v", other, anything)
	}
	if all[rawgrpc.AnyOther].Watch == nil {
		t.Error("methods without a class are not followed")
	}
}

// TestRowsOfAWrite: the ids that a write names, or any row.
func TestRowsOfAWrite(t *testing.T) {
	many := make([]string, maxTouchedIDs+1)
	expression := strings.Repeat("1,", maxTouchedIDs)
	text := []rerank.ID{rerank.TextID("a")}
	numbers := func(s *schemapb.ScalarField) *schemapb.FieldData {
		return &schemapb.FieldData{FieldName: "id", Field: &schemapb.FieldData_Scalars{Scalars: s}}
	}
	longs := numbers(&schemapb.ScalarField{Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: []int64{-7, 8}}}})
	ints := numbers(&schemapb.ScalarField{Data: &schemapb.ScalarField_IntData{IntData: &schemapb.IntArray{Data: []int32{9}}}})
	for name, c := range map[string]struct {
		method  string
		request []byte
		auto    bool
		want    routing.Rows
	}{
		"keys":               {milvuspb.MilvusService_Insert_FullMethodName, encoded(t, &milvuspb.InsertRequest{FieldsData: []*schemapb.FieldData{keyColumn("x", "z"), keyColumn("id", "a")}}), false, routing.Rows{IDs: text}},
		"new keys":           {milvuspb.MilvusService_Insert_FullMethodName, encoded(t, &milvuspb.InsertRequest{FieldsData: []*schemapb.FieldData{keyColumn("id", "a")}}), true, routing.Rows{Chosen: true}},
		"old and new keys":   {milvuspb.MilvusService_Upsert_FullMethodName, encoded(t, &milvuspb.UpsertRequest{FieldsData: []*schemapb.FieldData{keyColumn("id", "a")}}), true, routing.Rows{IDs: text, Chosen: true}},
		"numbers":            {milvuspb.MilvusService_Upsert_FullMethodName, encoded(t, &milvuspb.UpsertRequest{FieldsData: []*schemapb.FieldData{longs}}), false, routing.Rows{IDs: []rerank.ID{rerank.IntID(-7), rerank.IntID(8)}}},
		"short numbers":      {milvuspb.MilvusService_Upsert_FullMethodName, encoded(t, &milvuspb.UpsertRequest{FieldsData: []*schemapb.FieldData{ints}}), false, routing.Rows{IDs: []rerank.ID{rerank.IntID(9)}}},
		"no key":             {milvuspb.MilvusService_Upsert_FullMethodName, encoded(t, &milvuspb.UpsertRequest{FieldsData: []*schemapb.FieldData{keyColumn("x", "a")}}), false, routing.Rows{All: true}},
		"an unknown field":   {milvuspb.MilvusService_Upsert_FullMethodName, append(encoded(t, &milvuspb.UpsertRequest{FieldsData: []*schemapb.FieldData{keyColumn("id", "a")}}), 0xf8, 0x07, 1), false, routing.Rows{All: true}},
		"too many keys":      {milvuspb.MilvusService_Upsert_FullMethodName, encoded(t, &milvuspb.UpsertRequest{FieldsData: []*schemapb.FieldData{keyColumn("id", many...)}}), false, routing.Rows{All: true}},
		"too many in two":    {milvuspb.MilvusService_Upsert_FullMethodName, encoded(t, &milvuspb.UpsertRequest{FieldsData: []*schemapb.FieldData{keyColumn("id", many[1:]...), keyColumn("id", "a")}}), false, routing.Rows{All: true}},
		"a delete":           {milvuspb.MilvusService_Delete_FullMethodName, encoded(t, &milvuspb.DeleteRequest{Expr: "id in ['a']"}), false, routing.Rows{IDs: text}},
		"by a filter":        {milvuspb.MilvusService_Delete_FullMethodName, encoded(t, &milvuspb.DeleteRequest{Expr: "n > 1"}), false, routing.Rows{Filter: "n > 1"}},
		"by an escape":       {milvuspb.MilvusService_Delete_FullMethodName, encoded(t, &milvuspb.DeleteRequest{Expr: `id == "a\n"`}), false, routing.Rows{Filter: `id == "a\n"`}},
		"by octal numbers":   {milvuspb.MilvusService_Delete_FullMethodName, encoded(t, &milvuspb.DeleteRequest{Expr: "id == 010"}), false, routing.Rows{Filter: "id == 010"}},
		"by too many":        {milvuspb.MilvusService_Delete_FullMethodName, encoded(t, &milvuspb.DeleteRequest{Expr: "id in [" + expression + "1]"}), false, routing.Rows{Filter: "id in [" + expression + "1]"}},
		"without expression": {milvuspb.MilvusService_Delete_FullMethodName, encoded(t, &milvuspb.DeleteRequest{}), false, routing.Rows{All: true}},
		"by a template":      {milvuspb.MilvusService_Delete_FullMethodName, encoded(t, &milvuspb.DeleteRequest{Expr: "id == 1", ExprTemplateValues: values{"x": whole(1)}}), false, routing.Rows{All: true}},
	} {
		identity, err := keyed{auto: c.auto}.Identify(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		if got := methodsThatWrite()[c.method].read(c.request).Read(t.Context(), identity); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %.200s, want %.200s", name, strconv.Quote(strings.Trim(reflect.ValueOf(got).String(), " ")), name)
		}
	}
}

// TestOutcomesOfWrites: which answers say that nothing was changed, and which leave it open.
func TestOutcomesOfWrites(t *testing.T) {
	inner := func(s *commonpb.Status) []byte { return encoded(t, &milvuspb.MutationResult{Status: s}) }
	lost, err := rawgrpc.Dial("127.0.0.1:1", nil, nil) // nothing listens there
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	_, _, _, unsent := lost.Call(t.Context(), milvuspb.MilvusService_Insert_FullMethodName, nil) //nolint:dogsled // only the error matters
	for name, c := range map[string]struct {
		answer []byte
		err    error
		want   routing.WriteOutcome
	}{
		"done":                     {inner(&commonpb.Status{}), nil, routing.Answered},
		"an insert, refused":       {inner(&commonpb.Status{Code: 1100}), nil, routing.Refused},
		"a drop, refused":          {encoded(t, &commonpb.Status{Code: 100}), nil, routing.Refused},
		"a wrong password":         {inner(&commonpb.Status{Code: 1400}), nil, routing.Refused},
		"refused by an old server": {inner(&commonpb.Status{ErrorCode: commonpb.ErrorCode_PermissionDenied}), nil, routing.Refused}, // as it answers
		"failed":                   {inner(&commonpb.Status{Code: 5}), nil, routing.Failed},
		"interrupted":              {inner(&commonpb.Status{Code: 3}), nil, routing.Failed},
		"failed by an old server":  {inner(&commonpb.Status{ErrorCode: commonpb.ErrorCode_UnexpectedError}), nil, routing.Failed}, // as it answers
		"a drop, failed":           {encoded(t, &commonpb.Status{Code: 5}), nil, routing.Failed},
		"no credentials":           {nil, status.Error(codes.Unauthenticated, ""), routing.Refused},
		"no right":                 {nil, status.Error(codes.PermissionDenied, ""), routing.Refused},
		"no such call":             {nil, status.Error(codes.Unimplemented, ""), routing.Refused},
		"cut":                      {nil, status.Error(codes.Unavailable, ""), routing.Unknown},
		"unknown":                  {nil, errors.New("cut"), routing.Unknown},
		"late":                     {nil, status.Error(codes.DeadlineExceeded, ""), routing.Unknown},
		"given up":                 {nil, status.Error(codes.Canceled, ""), routing.Unknown},
		"a panic":                  {nil, status.Error(codes.Internal, ""), routing.Unknown},
		"never sent":               {nil, unsent, routing.Refused},
		"aborted":                  {nil, status.Error(codes.Aborted, ""), routing.Failed},
	} {
		if got := outcome(c.answer, c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	ids := &schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: []int64{7}}}}
	for name, c := range map[string]struct {
		answer *milvuspb.MutationResult
		err    error
		want   int
	}{
		"done":     {&milvuspb.MutationResult{IDs: ids}, nil, 1},
		"failed":   {&milvuspb.MutationResult{IDs: ids, Status: &commonpb.Status{Code: 1}}, nil, 0},
		"in part":  {&milvuspb.MutationResult{IDs: ids, ErrIndex: []uint32{0}}, nil, 0},
		"an error": {&milvuspb.MutationResult{IDs: ids}, errors.New("cut"), 0},
	} {
		if got := generatedIDs(encoded(t, c.answer), c.err); len(got) != c.want {
			t.Errorf("%s: the ids %v", name, got)
		}
	}
}

// TestTemplatesHaveTheirText: which templates are rendered, and the text of values next to words
// and powers.
func TestTemplatesHaveTheirText(t *testing.T) {
	for _, r := range renderings() {
		if got, ok := render(r.expression, r.values); ok != (r.picks != nil) {
			t.Errorf("%.100q is rendered as %.100q", r.expression, got)
		}
	}
	for template, want := range map[string]string{"n in{a}and b": "n in [1, 2] and b", "n == {m} ** 2": "n ==  (-2)  ** 2", "f / {w}": "f /  2.0 "} {
		if got, ok := render(template, values{"a": wholes(1, 2), "m": whole(-2), "w": real(2)}); got != want || !ok {
			t.Errorf("%q is rendered as %q, want %q", template, got, want)
		}
	}
}

// TestColumnsThatAreShort: rows are not picked from a column that is too short.
func TestColumnsThatAreShort(t *testing.T) {
	for _, f := range columns() {
		if len(f.GetValidData()) > 0 {
			f.ValidData = f.GetValidData()[1:]
			if _, ok := pickField(f, []int{1}, 2); ok {
				t.Errorf("%v: picked", f)
			}
			continue
		}
		if _, ok := pickField(f, []int{2}, 3); ok {
			t.Errorf("%v: has not three rows", f)
		}
	}
	empty := &schemapb.FieldData{Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{Data: &schemapb.VectorField_Int8Vector{}}}}
	if _, ok := pickField(empty, []int{0}, 1); ok {
		t.Error("a row is picked from vectors of no dimension")
	}
}
