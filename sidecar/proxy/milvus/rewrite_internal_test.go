package milvus

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/proxy/wire"
)

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func bytesOf(v []float32) []byte { return wire.AppendPacked(nil, 1, v)[2:] }

// groupOf encodes vectors with fewer than 32 numbers.
func groupOf(kind commonpb.PlaceholderType, vectors ...[]float32) *commonpb.PlaceholderGroup {
	p := &commonpb.PlaceholderValue{Tag: "$0", Type: kind}
	for _, v := range vectors {
		p.Values = append(p.Values, bytesOf(v))
	}
	return &commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{p}}
}

func params(pairs ...string) (all []*commonpb.KeyValuePair) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, &commonpb.KeyValuePair{Key: pairs[i], Value: pairs[i+1]})
	}
	return all
}

// plainRequest is a request with every part that crosses.
func plainRequest(t testing.TB, vectors ...[]float32) *milvuspb.SearchRequest {
	m := &milvuspb.SearchRequest{
		DbName: "default", CollectionName: "c", PartitionNames: []string{"p"}, Dsl: "n > 1", DslType: commonpb.DslType_BoolExprV1, OutputFields: []string{"n"},
		SearchParams: params("anns_field", "v", "topk", "7", "offset", "2", "round_decimal", "-1", "metric_type", "IP", "params", `{"nprobe":4}`),
		Nq:           int64(len(vectors)), GuaranteeTimestamp: 3, PlaceholderGroup: encoded(t, groupOf(commonpb.PlaceholderType_FloatVector, vectors...)),
	}
	m.Base = &commonpb.MsgBase{}
	m.GetBase().ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "unknown"))
	return m
}

func rewrittens(n int) (all []routing.Replacement) {
	for i := range n {
		all = append(all, routing.Replacement{Vector: slices.Repeat([]float32{float32(i) - 0.5}, 1+7*i), Scale: 2, Offset: float32(i) + 1})
	}
	return all
}

// A rewritten request is the request with its vectors replaced, unknown fields and all.
func TestRewriteRequest(t *testing.T) {
	m := plainRequest(t, []float32{1, 2}, []float32{3, 4}, []float32{5, 6})
	all := rewrittens(3)
	got, err := rewriteRequest(encoded(t, m), all)
	m.PlaceholderGroup = encoded(t, groupOf(commonpb.PlaceholderType_FloatVector, all[0].Vector, all[1].Vector, all[2].Vector))
	if want := encoded(t, m); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, %v, want %x", got, err, want)
	}
	for _, n := range []int{2, 4} {
		if _, err := rewriteRequest(encoded(t, m), rewrittens(n)); err == nil {
			t.Errorf("three vectors are replaced by %d", n)
		}
	}
}

// The parts that locate reads without decoding equal the parts of the decoded request.
func TestLocate(t *testing.T) {
	got, err := locate(encoded(t, plainRequest(t, []float32{1, 2}, []float32{3, 4})))
	want := routing.Search{Vector: "v", Query: []float32{1, 2}, Limit: 7, Offset: 2, Narrowed: true}
	other := want
	other.Query = []float32{3, 4}
	if err != nil || !reflect.DeepEqual(got, []routing.Search{want, other}) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, tc := range map[string]struct {
		params   []string
		unmapped routing.Pass
		narrowed bool
	}{
		"nothing":         {nil, "", false},
		"rounded":         {[]string{"round_decimal", "3"}, "round-decimal", false},
		"iterator":        {[]string{"iterator", "True"}, "iterator", true},
		"no iterator":     {[]string{"iterator", "False"}, "", false},
		"iterator 2":      {[]string{"search_iter_batch_size", "10"}, "iterator", true},
		"radius":          {[]string{"params", `{"radius":0.5}`}, "search-params", true},
		"range":           {[]string{"range_filter", "0.5"}, "search-params", true},
		"nested rounding": {[]string{"params", `{"round_decimal":2}`}, "round-decimal", false},
		"not JSON":        {[]string{"params", `{`}, "search-params", false},
		"empty":           {[]string{"params", ""}, "", false},
		"too long":        {[]string{"params", "{}" + strings.Repeat(" ", maxParamsBytes)}, "search-params", false},
		"groups":          {[]string{"group_by_field", "n"}, "", true},
		"tuning":          {[]string{"params", `{"ef":10}`, "ef", "10"}, "", false},
	} {
		m := &milvuspb.SearchRequest{SearchParams: params(tc.params...), Nq: 1, PlaceholderGroup: encoded(t, groupOf(commonpb.PlaceholderType_FloatVector, []float32{1}))}
		got, err := locate(encoded(t, m))
		if err != nil || got[0].Unmapped != tc.unmapped || got[0].Narrowed != tc.narrowed || got[0].HasEF != (name == "tuning" || name == "not JSON" || name == "too long") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	group := encoded(t, groupOf(commonpb.PlaceholderType_FloatVector, []float32{1}))
	late := newer(groupOf(commonpb.PlaceholderType_FloatVector, []float32{1}), 9) // a group with a field that this version does not know
	if got, err := locate(encoded(t, &milvuspb.SearchRequest{Nq: 1, PlaceholderGroup: encoded(t, late)})); err != nil || len(got) != 1 {
		t.Errorf("a group of a newer client: %+v, %v", got, err)
	}
	for name, m := range map[string]*milvuspb.SearchRequest{
		"no vectors":          {Nq: 1},
		"another count":       {Nq: 2, PlaceholderGroup: group},
		"bytes":               {Nq: 1, PlaceholderGroup: encoded(t, groupOf(commonpb.PlaceholderType_BinaryVector, []float32{1}))},
		"two groups":          {Nq: 2, PlaceholderGroup: append(bytes.Clone(group), group...)},
		"five bytes":          {Nq: 1, PlaceholderGroup: encoded(t, &commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{Type: commonpb.PlaceholderType_FloatVector, Values: [][]byte{{1, 2, 3, 4, 5}}}}})},
		"not encoded":         {Nq: 1, PlaceholderGroup: []byte{10, 255}},
		"hybrid":              {Nq: 1, PlaceholderGroup: group, SubReqs: []*milvuspb.SubSearchRequest{{}}},
		"by keys":             {Nq: 1, PlaceholderGroup: group, SearchByPrimaryKeys: true},
		"a function":          {Nq: 1, PlaceholderGroup: group, FunctionScore: &schemapb.FunctionScore{}},
		"another metric":      {Nq: 1, PlaceholderGroup: group, SearchParams: params("metric_type", "L2")},
		"a limit of a word":   {Nq: 1, PlaceholderGroup: group, SearchParams: params("topk", "x")},
		"chains of functions": newer(&milvuspb.SearchRequest{Nq: 1, PlaceholderGroup: group}, 24),
	} {
		if got, err := locate(encoded(t, m)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// newer adds a message in a field that this version does not know, as a newer client does.
func newer[M proto.Message](m M, number protowire.Number) M {
	m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), []byte{8, 1}))
	return m
}

// TestKnownFields: the last fields that rewriting takes for known are those of the messages.
func TestKnownFields(t *testing.T) {
	for last, m := range map[protowire.Number]proto.Message{lastSearchField: &milvuspb.SearchRequest{}, lastHybridField: &milvuspb.HybridSearchRequest{}} {
		fields := m.ProtoReflect().Descriptor().Fields()
		most := protowire.Number(0)
		for i := range fields.Len() {
			most = max(most, fields.Get(i).Number())
		}
		if most != last {
			t.Errorf("%s has fields up to %d, want %d: look at the new ones", m.ProtoReflect().Descriptor().Name(), most, last)
		}
	}
}

func results(lengths []int64, scores ...float32) *milvuspb.SearchResults {
	ids := make([]int64, len(scores))
	for i := range ids {
		ids[i] = int64(i) + 40
	}
	m := &milvuspb.SearchResults{Status: &commonpb.Status{}, CollectionName: "c", Results: &schemapb.SearchResultData{
		NumQueries: int64(len(lengths)), TopK: 3, Scores: scores, Topks: lengths, Recalls: []float32{0.5}, OutputFields: []string{"n"},
		Ids:        &schemapb.IDs{IdField: &schemapb.IDs_IntId{IntId: &schemapb.LongArray{Data: ids}}},
		FieldsData: []*schemapb.FieldData{{FieldName: "n", Field: &schemapb.FieldData_Scalars{Scalars: &schemapb.ScalarField{Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: ids}}}}}},
	}}
	m.GetResults().ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "unknown"))
	return m
}

// A mapped answer is the answer with its scores mapped, each list by its own search.
func TestMapScores(t *testing.T) {
	for name, m := range map[string]*milvuspb.SearchResults{
		"one": results([]int64{3}, 3, 0, -1), "three": results([]int64{2, 0, 1}, 3, 2, 3), "empty": results([]int64{0, 0}), "nothing": {Results: &schemapb.SearchResultData{}},
	} {
		for _, distances := range []bool{false, true} {
			m := proto.Clone(m).(*milvuspb.SearchResults)
			if distances {
				m.Results.Distances = slices.Clone(m.GetResults().GetScores())
			}
			before := encoded(t, m)
			all := rewrittens(max(1, len(m.GetResults().GetTopks())))
			got, hits, err := mapScores(before, all)
			row := 0
			for i, n := range m.GetResults().GetTopks() {
				for j := range n {
					score := all[i].Score(m.GetResults().GetScores()[row])
					m.Results.Scores[row] = score
					if distances {
						m.Results.Distances[row] = score
					}
					if err == nil && (hits[i][j].Score != score || hits[i][j].ID != rerank.IntID(int64(row)+40)) {
						t.Errorf("%s: row %d of %d is %+v", name, j, i, hits[i][j])
					}
					row++
				}
			}
			if want := encoded(t, m); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %x, %v, want %x", name, got, err, want)
			}
			same, _, err := mapScores(before, slices.Repeat([]routing.Replacement{{Scale: 1}}, len(all)))
			if err != nil || !bytes.Equal(same, before) {
				t.Errorf("%s: scores that stay change the answer: %v", name, err)
			}
		}
	}
	short := results([]int64{3}, 1, 2)
	short.Results.Ids = nil
	for name, b := range map[string][]byte{
		"another length": encoded(t, results([]int64{1}, 1, 2)), "another count": encoded(t, results([]int64{1, 1}, 1, 2)), "no ids": encoded(t, short), "no results": encoded(t, &milvuspb.SearchResults{}),
		"too large": encoded(t, results([]int64{1}, math.MaxFloat32)), "twice": slices.Repeat(encoded(t, results([]int64{1}, 1)), 2), "not encoded": {18, 255},
	} {
		if got, _, err := mapScores(b, rewrittens(1)); err == nil {
			t.Errorf("%s: %x", name, got)
		}
	}
}

// A hybrid search is rewritten list by list: lists of a routed field change and keep their places.
func TestRewriteHybrid(t *testing.T) {
	list := func(field string, vectors ...[]float32) *milvuspb.SearchRequest {
		m := plainRequest(t, vectors...)
		m.SearchParams = params("anns_field", field, "topk", "7", "params", "{}")
		return m
	}
	group := func(vectors ...[]float32) []byte {
		return encoded(t, groupOf(commonpb.PlaceholderType_FloatVector, vectors...))
	}
	routed := func(field string) bool { return field == "v" }
	m := &milvuspb.HybridSearchRequest{
		DbName: "default", CollectionName: "c", RankParams: params("strategy", "rrf", "params", `{"k":60}`, "limit", "3", "offset", "4"), OutputFields: []string{"n"},
		Requests: []*milvuspb.SearchRequest{list("v", []float32{1}, []float32{2}), list("w", []float32{3}, []float32{4}), list("v", []float32{5}, []float32{6})},
	}
	found, lists, err := locateHybrid(encoded(t, m), routed)
	if err != nil || !slices.Equal(lists, []int{2, 0, 2}) {
		t.Fatalf("%+v, %v, %v", found, lists, err)
	}
	for i, s := range found {
		if want := []float32{1, 2, 5, 6}[i]; s.Query[0] != want || s.Vector != "v" || !s.Staged || !s.Narrowed || s.Offset != 4 {
			t.Errorf("search %d is %+v, want of %v", i, s, want)
		}
	}
	all := rewrittens(4)
	all[2].EF, all[3].EF = 50, 50
	got, err := rewriteHybrid(encoded(t, m), lists, all)
	m.Requests[0].PlaceholderGroup, m.Requests[2].PlaceholderGroup = group(all[0].Vector, all[1].Vector), group(all[2].Vector, all[3].Vector)
	m.Requests[2].SearchParams[2].Value = `{"ef":50}`
	if want := encoded(t, m); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, %v, want %x", got, err, want)
	}
	for name, change := range map[string]func(m *milvuspb.HybridSearchRequest){
		"weighted":       func(m *milvuspb.HybridSearchRequest) { m.RankParams[0].Value = "weighted" },
		"a function":     func(m *milvuspb.HybridSearchRequest) { m.FunctionScore = &schemapb.FunctionScore{} },
		"functions":      func(m *milvuspb.HybridSearchRequest) { newer(m, 24) },
		"no list":        func(m *milvuspb.HybridSearchRequest) { m.Requests = m.GetRequests()[1:2] },
		"an unnamed one": func(m *milvuspb.HybridSearchRequest) { m.Requests[1].SearchParams[0].Value = "" },
		"no floats": func(m *milvuspb.HybridSearchRequest) {
			m.Requests[2].PlaceholderGroup = encoded(t, groupOf(commonpb.PlaceholderType_SparseFloatVector, []float32{1}))
		},
	} {
		other := proto.Clone(m).(*milvuspb.HybridSearchRequest)
		change(other)
		if got, _, err := locateHybrid(encoded(t, other), routed); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// ef is added to the parameters that are written as JSON, and the others stay.
func TestRewriteEF(t *testing.T) {
	all := []routing.Replacement{{Vector: []float32{2}, EF: 300}}
	for text, want := range map[string]string{"": `{"ef":300}`, "{}": `{"ef":300}`, `{ "nprobe": 3}`: `{"ef":300, "nprobe": 3}`} {
		for _, pairs := range [][]string{{"topk", "7"}, {"topk", "7", "params", text, "round_decimal", "-1"}} {
			m := &milvuspb.SearchRequest{CollectionName: "c", Nq: 1, PlaceholderGroup: encoded(t, groupOf(commonpb.PlaceholderType_FloatVector, []float32{1})), SearchParams: params(pairs...)}
			got, err := rewriteRequest(encoded(t, m), all)
			m.PlaceholderGroup = encoded(t, groupOf(commonpb.PlaceholderType_FloatVector, all[0].Vector))
			if len(pairs) == 2 {
				m.SearchParams = params("topk", "7", "params", `{"ef":300}`)
			} else {
				m.SearchParams[1].Value = want
			}
			sent := &milvuspb.SearchRequest{}
			if err != nil || proto.Unmarshal(got, sent) != nil || !proto.Equal(sent, m) {
				t.Errorf("%q: %v, %v, want %v", pairs, sent, err, m)
			}
		}
	}
}

// FuzzRewriteRequest compares with decoding.
func FuzzRewriteRequest(f *testing.F) {
	f.Add(encoded(f, plainRequest(f, []float32{1, 2}, []float32{3, 4})))
	f.Fuzz(func(t *testing.T, request []byte) {
		want := &milvuspb.SearchRequest{}
		found, err := locate(request)
		if err != nil || proto.Unmarshal(request, want) != nil {
			return
		}
		group := &commonpb.PlaceholderGroup{}
		if err := proto.Unmarshal(want.GetPlaceholderGroup(), group); err != nil {
			return // a tag that is not text
		}
		all := rewrittens(len(found))
		mended, err := rewriteRequest(request, all)
		if err != nil {
			t.Fatalf("%x is read and not rewritten: %v", request, err)
		}
		for i, b := range group.GetPlaceholders()[0].GetValues() {
			if !bytes.Equal(b, wire.AppendPacked(nil, 1, found[i].Query)[len(wire.AppendPacked(nil, 1, found[i].Query))-4*len(found[i].Query):]) {
				t.Errorf("%x: vector %v, want %x", request, found[i].Query, b)
			}
			group.GetPlaceholders()[0].Values[i] = wire.AppendPacked(nil, 1, all[i].Vector)[len(wire.AppendPacked(nil, 1, all[i].Vector))-4*len(all[i].Vector):]
		}
		got, gotGroup := &milvuspb.SearchRequest{}, &commonpb.PlaceholderGroup{}
		if err := proto.Unmarshal(mended, got); err != nil {
			t.Fatalf("%x: %v", request, err)
		}
		if err := proto.Unmarshal(got.GetPlaceholderGroup(), gotGroup); err != nil || !bytes.Equal(encoded(t, gotGroup), encoded(t, group)) {
			t.Errorf("%x: got %v (%v), want %v", request, gotGroup, err, group)
		}
		got.PlaceholderGroup, want.PlaceholderGroup = nil, nil
		if !bytes.Equal(encoded(t, got), encoded(t, want)) {
			t.Errorf("%x: got %v, want %v", request, got, want)
		}
	})
}

// FuzzMapScores compares with decoding.
func FuzzMapScores(f *testing.F) {
	f.Add(uint8(2), encoded(f, results([]int64{2, 1}, 3, 2, 3)))
	f.Fuzz(func(t *testing.T, n uint8, answer []byte) {
		want := &milvuspb.SearchResults{}
		all := rewrittens(1 + int(n)%8)
		mapped, _, err := mapScores(answer, all)
		if err != nil || proto.Unmarshal(answer, want) != nil {
			return
		}
		row := 0
		for i, length := range want.GetResults().GetTopks() {
			for range length {
				want.Results.Scores[row] = all[i].Score(want.GetResults().GetScores()[row])
				if len(want.GetResults().GetDistances()) > 0 {
					want.Results.Distances[row] = all[i].Score(want.GetResults().GetDistances()[row])
				}
				row++
			}
		}
		got := &milvuspb.SearchResults{}
		if err := proto.Unmarshal(mapped, got); err != nil || !bytes.Equal(encoded(t, got), encoded(t, want)) {
			t.Errorf("%x: got %v (%v), want %v", answer, got, err, want)
		}
	})
}

// A refusal of the caller goes to the client; after a refusal of the request the call is sent
// unchanged; anything else is a fault of the database.
func TestRefusal(t *testing.T) {
	state := func(code int32) rawgrpc.Reply {
		return rawgrpc.Reply{Message: encoded(t, &milvuspb.SearchResults{Status: &commonpb.Status{Code: code}})}
	}
	for name, tc := range map[string]struct {
		reply rawgrpc.Reply
		want  error
	}{
		"rows":       {state(0), nil},
		"denied":     {state(1401), routing.ErrDenied},
		"denied too": {rawgrpc.Reply{Err: status.Error(codes.Unauthenticated, "")}, routing.ErrDenied},
		"too often":  {rawgrpc.Reply{Err: status.Error(codes.ResourceExhausted, "")}, routing.ErrDenied},
		"parameter":  {state(1100), routing.Pass("refused")},
		"not found":  {state(100), routing.Pass("refused")},
		"not ready":  {state(1), routing.Degraded{Reason: "unavailable"}},
		"gone":       {rawgrpc.Reply{Err: status.Error(codes.Unavailable, "")}, routing.Degraded{Reason: "unavailable"}},
		"malformed":  {rawgrpc.Reply{Message: []byte{10, 255}}, errAnswer},
	} {
		if got := refusal(tc.reply); got != tc.want { //nolint:errorlint // exactly this
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestNarrowedSearches: each part of a request that keeps its answer from being the first rows
// of the collection is seen alone.
func TestNarrowedSearches(t *testing.T) {
	for name, change := range map[string]func(*milvuspb.SearchRequest){
		"none":       nil,
		"filter":     func(m *milvuspb.SearchRequest) { m.Dsl = "n == 1" },
		"partitions": func(m *milvuspb.SearchRequest) { m.PartitionNames = []string{"p"} },
		"offset": func(m *milvuspb.SearchRequest) {
			m.SearchParams = append(m.SearchParams, &commonpb.KeyValuePair{Key: "offset", Value: "1"})
		},
		"groups": func(m *milvuspb.SearchRequest) {
			m.SearchParams = append(m.SearchParams, &commonpb.KeyValuePair{Key: "group_by_field", Value: "f"})
		},
		"no growing row": func(m *milvuspb.SearchRequest) {
			m.SearchParams = append(m.SearchParams, &commonpb.KeyValuePair{Key: "ignore_growing", Value: "true"})
		},
		"nor in JSON": func(m *milvuspb.SearchRequest) {
			m.SearchParams = append(m.SearchParams, &commonpb.KeyValuePair{Key: "params", Value: `{"ignore_growing":true}`})
		},
	} {
		group, err := proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{Tag: "$0", Type: commonpb.PlaceholderType_FloatVector, Values: [][]byte{{0, 0, 128, 63}}}}})
		if err != nil {
			t.Fatal(err)
		}
		m := &milvuspb.SearchRequest{CollectionName: "c", Nq: 1, PlaceholderGroup: group, SearchParams: []*commonpb.KeyValuePair{{Key: "topk", Value: "3"}}}
		if change != nil {
			change(m)
		}
		searches, err := locate(encoded(t, m))
		if err != nil || len(searches) != 1 || searches[0].Narrowed != (change != nil) || searches[0].Limit != 3 {
			t.Errorf("%s: %+v, %v", name, searches, err)
		}
	}
}
