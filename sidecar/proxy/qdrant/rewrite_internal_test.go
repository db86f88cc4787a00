package qdrant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/proxy/wire"
)

// kinds are the requests and answers of the layouts.
var kinds = []struct {
	layout          layout
	request, answer proto.Message
}{
	{searchLayout, &qdrant.SearchPoints{}, &qdrant.SearchResponse{}},
	{searchLayout.inBatch(), &qdrant.SearchBatchPoints{}, &qdrant.SearchBatchResponse{}},
	{searchGroupsLayout, &qdrant.SearchPointGroups{}, &qdrant.SearchGroupsResponse{}},
	{queryLayout, &qdrant.QueryPoints{}, &qdrant.QueryResponse{}},
	{queryLayout.inBatch(), &qdrant.QueryBatchPoints{}, &qdrant.QueryBatchResponse{}},
	{queryGroupsLayout, &qdrant.QueryPointGroups{}, &qdrant.QueryGroupsResponse{}},
}

// namesAt returns the names of the fields on a path.
func namesAt(d protoreflect.MessageDescriptor, path []protowire.Number) (names []string) {
	for _, n := range path {
		f := d.Fields().ByNumber(n)
		if f == nil {
			return append(names, fmt.Sprint("no field ", n))
		}
		names, d = append(names, string(f.Name())), f.Message()
	}
	return names
}

// The layouts name the fields that they mean.
func TestLayouts(t *testing.T) {
	for _, k := range kinds {
		d := k.request.ProtoReflect().Descriptor()
		if k.layout.searches != 0 {
			d = d.Fields().ByNumber(k.layout.searches).Message()
		}
		query := strings.HasPrefix(string(d.Name()), "Query")
		want := []string{"vector"}
		name, others := "vector_name", []string{"sparse_indices"}
		if query {
			want, name, others = []string{"query", "nearest", "dense", "data"}, "using", []string{"lookup_from"}
		}
		if got := namesAt(d, k.layout.vector); !slices.Equal(got, want) {
			t.Errorf("%s: vector at %q", d.Name(), got)
		}
		for number, want := range map[protowire.Number]string{
			k.layout.name: name, k.layout.threshold: "score_threshold", k.layout.limit: "limit", k.layout.params: "params", k.layout.timeout: "timeout",
		} {
			if got := namesAt(d, []protowire.Number{number}); got[0] != want {
				t.Errorf("%s: %d is %q, want %q", d.Name(), number, got[0], want)
			}
		}
		if offset := d.Fields().ByName("offset"); offset != nil != (k.layout.offset != 0) || offset != nil && offset.Number() != k.layout.offset {
			t.Errorf("%s: offset is not %d", d.Name(), k.layout.offset)
		}
		var narrows []string
		for _, n := range k.layout.narrows {
			narrows = append(narrows, namesAt(d, []protowire.Number{n})...)
		}
		if query && !slices.Equal(namesAt(d, []protowire.Number{k.layout.prefetch}), []string{"prefetch"}) || query && k.layout.vector[0] != k.layout.query {
			t.Errorf("%s: prefetch %d, query %d", d.Name(), k.layout.prefetch, k.layout.query)
		}
		for _, want := range []string{"filter", "shard_key_selector", "group_by"} {
			if d.Fields().ByName(protoreflect.Name(want)) != nil && !slices.Contains(narrows, want) {
				t.Errorf("%s: %q does not narrow it", d.Name(), want)
			}
		}
		var passing []string
		for _, n := range k.layout.others {
			passing = append(passing, namesAt(d, []protowire.Number{n})...)
		}
		if !slices.Equal(passing, others) {
			t.Errorf("%s: others are %q", d.Name(), passing)
		}
		a := k.answer.ProtoReflect().Descriptor()
		points := namesAt(a, k.layout.points)
		for _, n := range k.layout.points {
			a = a.Fields().ByNumber(n).Message()
		}
		if a.Name() != "ScoredPoint" || points[0] != "result" {
			t.Errorf("%s: rows at %q", k.answer.ProtoReflect().Descriptor().Name(), points)
		}
	}
}

// eachSearch calls change with every search of a request.
func eachSearch(m proto.Message, change func(m proto.Message)) {
	switch m := m.(type) {
	case *qdrant.SearchBatchPoints:
		for _, s := range m.GetSearchPoints() {
			change(s)
		}
	case *qdrant.QueryBatchPoints:
		for _, q := range m.GetQueryPoints() {
			change(q)
		}
	default:
		change(m)
	}
}

// setVector sets the vector and the threshold of a search.
func setVector(m proto.Message, vector []float32, threshold *float32) {
	switch m := m.(type) {
	case *qdrant.SearchPoints:
		m.Vector, m.ScoreThreshold = vector, threshold
	case *qdrant.SearchPointGroups:
		m.Vector, m.ScoreThreshold = vector, threshold
	case *qdrant.QueryPoints:
		m.Query.GetNearest().GetDense().Data, m.ScoreThreshold = vector, threshold
	case *qdrant.QueryPointGroups:
		m.Query.GetNearest().GetDense().Data, m.ScoreThreshold = vector, threshold
	}
}

// vectorOf returns the vector of a search; nil if it is another kind of search.
func vectorOf(m proto.Message) []float32 {
	switch m := m.(type) {
	case *qdrant.SearchPoints:
		return m.GetVector()
	case *qdrant.SearchPointGroups:
		return m.GetVector()
	case *qdrant.QueryPoints:
		return m.GetQuery().GetNearest().GetDense().GetData()
	case *qdrant.QueryPointGroups:
		return m.GetQuery().GetNearest().GetDense().GetData()
	}
	return nil
}

// requests are requests with every part that crosses.
func requests() map[string]proto.Message {
	filter := &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatchInt("n", 1)}}
	params := &qdrant.SearchParams{Exact: proto.Bool(true), HnswEf: proto.Uint64(7), Quantization: &qdrant.QuantizationSearchParams{Ignore: proto.Bool(true)}}
	key := &qdrant.ShardKeySelector{ShardKeys: []*qdrant.ShardKey{{Key: &qdrant.ShardKey_Keyword{Keyword: "k"}}}}
	search := func(n int) *qdrant.SearchPoints {
		return &qdrant.SearchPoints{CollectionName: "c", Vector: numbers(n), Filter: filter, Limit: 5, Params: params, ScoreThreshold: proto.Float32(3), Offset: proto.Uint64(2),
			VectorName: proto.String("v"), WithPayload: qdrant.NewWithPayload(true), ShardKeySelector: key, ReadConsistency: qdrant.NewReadConsistencyFactor(2), Timeout: proto.Uint64(4)}
	}
	query := func(n int) *qdrant.QueryPoints {
		return &qdrant.QueryPoints{CollectionName: "c", Query: qdrant.NewQueryDense(numbers(n)), Using: proto.String("v"), Filter: filter, Params: params, ScoreThreshold: proto.Float32(3),
			Offset: proto.Uint64(2), WithVectors: qdrant.NewWithVectors(true), ShardKeySelector: key, Timeout: proto.Uint64(4)}
	}
	return map[string]proto.Message{
		"search":        search(3),
		"search batch":  &qdrant.SearchBatchPoints{CollectionName: "c", SearchPoints: []*qdrant.SearchPoints{search(1), search(40)}, Timeout: proto.Uint64(4)},
		"search groups": &qdrant.SearchPointGroups{CollectionName: "c", Vector: numbers(3), VectorName: proto.String("v"), GroupBy: "n", GroupSize: 2, Limit: 3, ScoreThreshold: proto.Float32(3)},
		"query":         query(3),
		"query batch":   &qdrant.QueryBatchPoints{CollectionName: "c", QueryPoints: []*qdrant.QueryPoints{query(40), query(1), query(3)}, ReadConsistency: qdrant.NewReadConsistencyFactor(2)},
		"query groups":  &qdrant.QueryPointGroups{CollectionName: "c", Query: qdrant.NewQueryDense(numbers(3)), GroupBy: "n", GroupSize: proto.Uint64(2), ScoreThreshold: proto.Float32(3)},
	}
}

func numbers(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i) + 0.1
	}
	return v
}

func layoutOf(m proto.Message) layout {
	for _, k := range kinds {
		if k.request.ProtoReflect().Type() == m.ProtoReflect().Type() || k.answer.ProtoReflect().Type() == m.ProtoReflect().Type() {
			return k.layout
		}
	}
	panic("no such message")
}

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rewrittens returns replacements for n searches. Their vectors are longer and shorter by turns.
func rewrittens(n int, threshold bool) []routing.Replacement {
	all := make([]routing.Replacement, n)
	for i := range all {
		all[i] = routing.Replacement{Vector: slices.Repeat([]float32{float32(i) - 0.5, 7}, 1+20*(i%2)), Scale: 2, Offset: float32(i) + 1}
		if threshold {
			all[i].Threshold = proto.Float32(float32(i) + 9)
		}
	}
	return all
}

// A rewritten request is the request with its vectors and thresholds replaced, unknown
// fields and all.
func TestRewriteRequest(t *testing.T) {
	unknown := protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "unknown")
	for name, m := range requests() {
		searches := 0
		eachSearch(m, func(m proto.Message) {
			searches++
			m.ProtoReflect().SetUnknown(unknown)
		})
		all := rewrittens(searches, true)
		got, err := rewriteRequest(encoded(t, m), layoutOf(m), nil, all)
		i := 0
		eachSearch(m, func(m proto.Message) {
			setVector(m, all[i].Vector, all[i].Threshold)
			i++
		})
		if want := encoded(t, m); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, %v, want %x", name, got, err, want)
		}
		for _, n := range []int{searches - 1, searches + 1} {
			if searches == 1 {
				break
			}
			if _, err := rewriteRequest(encoded(t, m), layoutOf(m), nil, rewrittens(n, false)); err == nil {
				t.Errorf("%s: %d searches are rewritten by %d", name, searches, n)
			}
		}
	}
}

// The parts that locate reads without decoding equal the parts of the decoded request.
func TestLocate(t *testing.T) {
	for name, m := range requests() {
		found, err := locate(encoded(t, m), layoutOf(m), isRouted)
		searches, timeout := found.searches, found.timeout
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := m.(interface{ GetTimeout() uint64 }).GetTimeout(); timeout != want {
			t.Errorf("%s: timeout %d, want %d", name, timeout, want)
		}
		i := 0
		eachSearch(m, func(m proto.Message) {
			want := routing.Search{Query: vectorOf(m), Limit: 10, Threshold: proto.Float32(3), Narrowed: true}
			switch m := m.(type) {
			case *qdrant.SearchPoints:
				want.Vector, want.Limit, want.Offset, want.Exact, want.Unquantized, want.HasEF = "v", 5, 2, true, true, true
			case *qdrant.QueryPoints:
				want.Vector, want.Offset, want.Exact, want.Unquantized, want.HasEF = "v", 2, true, true, true
			case *qdrant.SearchPointGroups:
				want.Vector, want.Limit = "v", uint64(m.GetLimit())
			}
			want.HasExact, want.HasQuantization = want.Exact, want.Exact
			if !reflect.DeepEqual(searches[i], want) {
				t.Errorf("%s: %+v, want %+v", name, searches[i], want)
			}
			i++
		})
	}
}

// A search that is not by one dense vector is not rewritten.
func TestLocateRefuses(t *testing.T) {
	dense := qdrant.NewQueryDense([]float32{1})
	twice := append(encoded(t, &qdrant.QueryPoints{Query: dense}), encoded(t, &qdrant.QueryPoints{Query: dense})...)
	withNew := proto.Clone(dense).(*qdrant.Query)
	withNew.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	newVariant := encoded(t, &qdrant.QueryPoints{Query: withNew})
	for name, b := range map[string][]byte{
		"an id":        encoded(t, &qdrant.QueryPoints{Query: qdrant.NewQueryID(qdrant.NewIDNum(1))}),
		"sparse":       encoded(t, &qdrant.QueryPoints{Query: qdrant.NewQuerySparse([]uint32{1}, []float32{1})}),
		"several":      encoded(t, &qdrant.QueryPoints{Query: qdrant.NewQueryMulti([][]float32{{1}})}),
		"recommend":    encoded(t, &qdrant.QueryPoints{Query: qdrant.NewQueryRecommend(&qdrant.RecommendInput{Positive: []*qdrant.VectorInput{qdrant.NewVectorInput(1)}})}),
		"MMR":          encoded(t, &qdrant.QueryPoints{Query: qdrant.NewQueryMMR(qdrant.NewVectorInput(1), &qdrant.Mmr{})}),
		"order":        encoded(t, &qdrant.QueryPoints{Query: qdrant.NewQueryOrderBy(&qdrant.OrderBy{Key: "n"})}),
		"fusion":       encoded(t, &qdrant.QueryPoints{Query: qdrant.NewQueryFusion(qdrant.Fusion_RRF), Prefetch: []*qdrant.PrefetchQuery{{Query: dense}}}),
		"prefetch":     encoded(t, &qdrant.QueryPoints{Query: dense, Prefetch: []*qdrant.PrefetchQuery{{Query: dense}}}),
		"lookup":       encoded(t, &qdrant.QueryPoints{Query: dense, LookupFrom: &qdrant.LookupLocation{CollectionName: "c"}}),
		"none":         encoded(t, &qdrant.QueryPoints{}),
		"two queries":  twice,
		"new variant":  newVariant,
		"empty vector": encoded(t, &qdrant.QueryPoints{Query: qdrant.NewQueryDense(nil)}),
		"not encoded":  []byte("\x1a\xff"),
	} {
		if got, err := locate(b, queryLayout, isRouted); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, m := range map[string]proto.Message{
		"sparse indices":     &qdrant.SearchPoints{Vector: []float32{1}, SparseIndices: &qdrant.SparseIndices{Data: []uint32{1}}},
		"another collection": &qdrant.SearchBatchPoints{CollectionName: "c", SearchPoints: []*qdrant.SearchPoints{{CollectionName: "d", Vector: []float32{1}}}},
		"one of a batch":     &qdrant.SearchBatchPoints{SearchPoints: []*qdrant.SearchPoints{{Vector: []float32{1}}, {}}},
	} {
		if got, err := locate(encoded(t, m), layoutOf(m), isRouted); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// point is a row whose id is its score.
func point(score float32, fields map[string]any) *qdrant.ScoredPoint {
	return &qdrant.ScoredPoint{Id: qdrant.NewIDNum(uint64(score)), Score: score, Version: 3, Payload: qdrant.NewValueMap(fields)}
}

func points(scores ...float32) (all []*qdrant.ScoredPoint) {
	for _, s := range scores {
		all = append(all, point(s, map[string]any{"text": strings.Repeat("x", int(s)+120)}))
	}
	return all
}

func answers() map[string]proto.Message {
	groups := &qdrant.GroupsResult{Groups: []*qdrant.PointGroup{
		{Id: &qdrant.GroupId{Kind: &qdrant.GroupId_UnsignedValue{UnsignedValue: 1}}, Hits: points(3, 0), Lookup: &qdrant.RetrievedPoint{Id: qdrant.NewIDNum(9)}},
		{Hits: points(2)},
	}}
	return map[string]proto.Message{
		"search":        &qdrant.SearchResponse{Result: points(3, 2, 0), Time: 1},
		"search batch":  &qdrant.SearchBatchResponse{Result: []*qdrant.BatchResult{{Result: points(3)}, {}, {Result: points(2, 0)}}, Time: 2},
		"search groups": &qdrant.SearchGroupsResponse{Result: groups, Time: 2},
		"query":         &qdrant.QueryResponse{Result: points(0), Time: 2},
		"query batch":   &qdrant.QueryBatchResponse{Result: []*qdrant.BatchResult{{Result: points(3, 1)}, {Result: points(2, 0)}}},
		"query groups":  &qdrant.QueryGroupsResponse{Result: groups},
	}
}

// lists are the rows of an answer, a list for every search.
func lists(m proto.Message) (all [][]*qdrant.ScoredPoint) {
	for _, list := range results(m) {
		all = append(all, *list)
	}
	if g, ok := m.(interface{ GetResult() *qdrant.GroupsResult }); ok {
		all = append(all, nil)
		for _, group := range g.GetResult().GetGroups() {
			all[0] = append(all[0], group.GetHits()...)
		}
	}
	return all
}

// A mapped answer differs from the answer only in its scores, including scores of 0, which are not
// encoded.
func TestMapScores(t *testing.T) {
	for name, m := range answers() {
		m = proto.Clone(m)
		before, rows := encoded(t, m), lists(m)
		all := rewrittens(len(rows), false)
		all[0].Offset = -6 // so that a score of 3 is mapped to 0
		got, hits, err := mapScores(slices.Clone(before), layoutOf(m), all)
		for i, list := range rows {
			for j, p := range list {
				p.Score = all[i].Score(p.GetScore())
				if err == nil && (hits[i][j].Score != p.GetScore() || hits[i][j].ID != idOf(p.GetId())) {
					t.Errorf("%s: row %d of %d is %+v, want %v", name, j, i, hits[i][j], p)
				}
			}
		}
		decoded := m.ProtoReflect().New().Interface()
		if err != nil || proto.Unmarshal(got, decoded) != nil || !proto.Equal(decoded, m) {
			t.Errorf("%s: %v, %v, want %v", name, decoded, err, m)
		}
		same, _, err := mapScores(slices.Clone(before), layoutOf(m), slices.Repeat([]routing.Replacement{{Scale: 1}}, len(rows)))
		if err != nil || !bytes.Equal(same, before) {
			t.Errorf("%s: a score that stays changes the answer: %v", name, err)
		}
		if layoutOf(m).batch {
			if _, _, err := mapScores(before, layoutOf(m), all[:1]); err == nil {
				t.Errorf("%s: a list too many is mapped", name)
			}
			if _, _, err := mapScores(before, layoutOf(m), rewrittens(len(rows)+1, false)); err == nil {
				t.Errorf("%s: an answer that lacks a list is mapped", name)
			}
		}
	}
	huge := encoded(t, &qdrant.SearchResponse{Result: points(3)})
	if _, _, err := mapScores(huge, searchLayout, []routing.Replacement{{Scale: math.MaxFloat32}}); err == nil {
		t.Error("a score is infinite")
	}
	repeated := wire.AppendFloat(encoded(t, point(3, nil)), pointScoreField, 4)
	if _, _, err := mapScores(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), repeated), searchLayout, rewrittens(1, false)); err == nil {
		t.Error("a row has two scores")
	}
}

// FuzzRewriteRequest compares with decoding.
func FuzzRewriteRequest(f *testing.F) {
	order := []string{"search", "search batch", "search groups", "query", "query batch", "query groups"}
	for i, name := range order {
		f.Add(uint8(i), encoded(f, requests()[name]))
	}
	f.Fuzz(func(t *testing.T, kind uint8, request []byte) {
		k := kinds[int(kind)%len(kinds)]
		want := k.request.ProtoReflect().New().Interface()
		found, err := locate(request, k.layout, isRouted)
		searches := found.searches
		if err != nil || proto.Unmarshal(request, want) != nil || found.queries != nil {
			return
		}
		threshold := len(searches) > 0 && searches[0].Threshold != nil
		all := rewrittens(len(searches), threshold)
		for i := range searches {
			if searches[i].Threshold == nil {
				all[i].Threshold = nil
			} else if all[i].Threshold == nil {
				all[i].Threshold = proto.Float32(1)
			}
		}
		mended, err := rewriteRequest(request, k.layout, nil, all)
		if err != nil {
			t.Fatalf("%x is read and not rewritten: %v", request, err)
		}
		i := 0
		eachSearch(want, func(m proto.Message) {
			if !slices.EqualFunc(vectorOf(m), searches[i].Query, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
				t.Errorf("%x: vector %v, want %v", request, searches[i].Query, vectorOf(m))
			}
			setVector(m, all[i].Vector, all[i].Threshold)
			i++
		})
		got := k.request.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(mended, got); err != nil || !bytes.Equal(encoded(t, got), encoded(t, want)) {
			t.Errorf("%x: got %v (%v), want %v", request, got, err, want)
		}
	})
}

// FuzzMapScores compares with decoding.
func FuzzMapScores(f *testing.F) {
	order := []string{"search", "search batch", "search groups", "query", "query batch", "query groups"}
	for i, name := range order {
		f.Add(uint8(i), encoded(f, answers()[name]))
	}
	f.Fuzz(func(t *testing.T, kind uint8, answer []byte) {
		k := kinds[int(kind)%len(kinds)]
		want := k.answer.ProtoReflect().New().Interface()
		if proto.Unmarshal(answer, want) != nil {
			return
		}
		rows := lists(want)
		all := rewrittens(max(len(rows), 1), false)
		mapped, _, err := mapScores(slices.Clone(answer), k.layout, all)
		if err != nil {
			return
		}
		for i, list := range rows {
			for _, p := range list {
				p.Score = all[i].Score(p.GetScore())
			}
		}
		got := k.answer.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(mapped, got); err != nil || !bytes.Equal(encoded(t, got), encoded(t, want)) {
			t.Errorf("%x: got %v (%v), want %v", answer, got, err, want)
		}
	})
}

// A rewritten body is the body with the numbers of its vectors and thresholds replaced, and
// every other byte as it was.
func TestRewriteJSON(t *testing.T) {
	for _, tc := range []struct {
		path, body, want string
		search           routing.Search
	}{
		{"search", ` {"vector" : [1, 2.5e0] ,"limit":3,"with_payload":{"include":["a"]},"filter":null}`, ` {"vector" : [-0.5,7] ,"limit":3,"with_payload":{"include":["a"]},"filter":null}`, routing.Search{Query: []float32{1, 2.5}, Limit: 3}},
		{"search", `{"vector":{"name":"v","vector":[1]},"score_threshold":1,"limit":1}`, `{"vector":{"name":"v","vector":[-0.5,7]},"score_threshold":9,"limit":1}`, routing.Search{Vector: "v", Query: []float32{1}, Limit: 1, Threshold: proto.Float32(1), Narrowed: true}},
		{"search", `{"score_threshold":1.5,"limit":1,"vector":{"vector":[1],"name":"v"}}`, `{"score_threshold":9,"limit":1,"vector":{"vector":[-0.5,7],"name":"v"}}`, routing.Search{Vector: "v", Query: []float32{1}, Limit: 1, Threshold: proto.Float32(1.5), Narrowed: true}},
		{"query", `{"query":[1],"using":"v","prefetch":null}`, `{"query":[-0.5,7],"using":"v","prefetch":null}`, routing.Search{Vector: "v", Query: []float32{1}, Limit: 10}},
		{"query", `{"query":{"nearest":[1]},"offset":2,"params":{"exact":true}}`, `{"query":{"nearest":[-0.5,7]},"offset":2,"params":{"exact":true}}`, routing.Search{Query: []float32{1}, Limit: 10, Offset: 2, Exact: true, HasEF: true, HasExact: true, Narrowed: true}},
		{"query", `{"query":[1],"params":{"indexed_only":true,"exact":true}}`, `{"query":[-0.5,7],"params":{"indexed_only":true,"exact":true}}`, routing.Search{Query: []float32{1}, Limit: 10, HasEF: true, HasExact: true, Narrowed: true}},
		{"query", `{"query":[1],"params":{"quantization":{"ignore":true},"exact":true}}`, `{"query":[-0.5,7],"params":{"quantization":{"ignore":true},"exact":true}}`, routing.Search{Query: []float32{1}, Limit: 10, Exact: true, HasEF: true, HasExact: true, HasQuantization: true, Unquantized: true}},
		{"query/groups", `{"query":[1],"group_by":"n","limit":4}`, `{"query":[-0.5,7],"group_by":"n","limit":4}`, routing.Search{Query: []float32{1}, Limit: 4, Narrowed: true}},
		{"search/groups", `{"group_by":"n","vector":[1],"limit":4}`, `{"group_by":"n","vector":[-0.5,7],"limit":4}`, routing.Search{Query: []float32{1}, Limit: 4, Narrowed: true}},
		{"query/batch", `{"searches":[ {"query":[1]}]}`, `{"searches":[ {"query":[-0.5,7]}]}`, routing.Search{Query: []float32{1}, Limit: 10}},
		{"search", `{"limit":1,"vector":[1],"filter":{"must":[{"key":"vector","match":{"value":"\"vector\":[2]"}}]}}`, `{"limit":1,"vector":[-0.5,7],"filter":{"must":[{"key":"vector","match":{"value":"\"vector\":[2]"}}]}}`, routing.Search{Query: []float32{1}, Limit: 1, Narrowed: true}},
	} {
		found, err := searches[tc.path].locateJSON([]byte(tc.body), isRouted)
		if err != nil || len(found.searches) != 1 || !reflect.DeepEqual(found.searches[0], tc.search) {
			t.Errorf("%s: %+v, %v, want %+v", tc.body, found, err, tc.search)
			continue
		}
		got, err := rewriteJSON([]byte(tc.body), found.places, rewrittens(1, tc.search.Threshold != nil))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %s, %v, want %s", tc.body, got, err, tc.want)
		}
	}
	for path, bodies := range map[string][]string{
		"search": {`{}`, `{"vector":[]}`, `{"vector":[1],"vector":[1]}`, `{"vector":{"name":"v","vector":{"indices":[1],"values":[1]}}}`, `{"vector":{"vector":[1],"other":1}}`, `{"vector":[01]}`,
			`{"vector":[1.]}`, `{"vector":[nan]}`, `{"vector":[1,]}`, `{"vector":[1]`, `{"vector":[1]} x`, `{"vector":[1e60]}`, `[]`, `{"vector":"[1]"}`, `{"vector":[1],"score_threshold":"1"}`, `{"vector":[1],"limit":-1}`,
			`{"vector":[1],"newer":true}`},
		"query": {`{"query":1}`, `{"query":"id"}`, `{"query":[[1]]}`, `{"query":{"nearest":[1],"mmr":{}}}`, `{"query":{"nearest":3}}`, `{"query":{"indices":[1],"values":[1]}}`, `{"query":{"fusion":"rrf"},"prefetch":[{"query":[1]}]}`,
			`{"query":[1],"prefetch":[]}`, `{"query":[1],"prefetch":{}}`, `{"query":[1],"lookup_from":{"collection":"c"}}`, `{"query":[1],"using":1}`, `{"query":{"recommend":{"positive":[1]}}}`, `{"query":{"formula":"$score"}}`,
			`{"query":{"relevance_feedback":{"target":[1],"feedback":[],"strategy":{}}}}`, `{"query":[1],"newer":{}}`},
		"search/batch": {`{"vector":[1]}`, `{"searches":[{"vector":[1]},{}]}`, `{"searches":[{"vector":[1]}],"other":1}`, `{"searches":[{"vector":[1]}],"searches":[]}`},
	} {
		for _, body := range bodies {
			if got, err := searches[path].locateJSON([]byte(body), isRouted); err == nil {
				t.Errorf("%s: %+v", body, got)
			}
		}
	}
}

// TestScoresBeyondFloat32: a score that cannot be mapped degrades the answer.
func TestScoresBeyondFloat32(t *testing.T) {
	const body = `{"result":[{"id":1,"score":2}]}`
	if got, _, err := searches["search"].mapScoresJSON([]byte(body), []routing.Replacement{{Scale: math.MaxFloat32}}); !errors.Is(err, routing.Degraded{Reason: "score-not-finite"}) {
		t.Errorf("%s, %v", got, err)
	}
}

// TestTimeoutOfABatch: a batch has its own timeout, wherever it stands in the request; the timeouts of its queries do not count.
func TestTimeoutOfABatch(t *testing.T) {
	query := &qdrant.QueryPoints{CollectionName: "c", Query: qdrant.NewQueryDense([]float32{1}), Timeout: qdrant.PtrOf(uint64(3))}
	batch := encoded(t, &qdrant.QueryBatchPoints{CollectionName: "c", QueryPoints: []*qdrant.QueryPoints{query}})
	timeout := protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 7)
	for name, c := range map[string]struct {
		request []byte
		want    uint64
	}{"none": {batch, 0}, "first": {append(slices.Clone(timeout), batch...), 7}, "last": {append(slices.Clone(batch), timeout...), 7}} {
		if found, err := locate(c.request, queryLayout.inBatch(), func(string) bool { return true }); err != nil || found.timeout != c.want {
			t.Errorf("%s: %d, %v; want %d", name, found.timeout, err, c.want)
		}
	}
}

// A mapped body is the body with the numbers of its scores replaced, and every other byte
// as it was.
func TestMapScoresJSON(t *testing.T) {
	text := `{"result":%s,"status":"ok","time":0.5}`
	const row = `{"id":3,"version":1,"score": 3.0 ,"payload":{"score":3.0,"id":7}}`
	const mapped = `{"id":3,"version":1,"score": 7.0 ,"payload":{"score":3.0,"id":7}}`
	const uuid = `{"score":0.5,"id":"0e8d9e05-5a3c-4c6c-8d61-2fc2f10f8a8a"}`
	for path, result := range map[string][2]string{
		"search":        {"[" + row + "," + uuid + "]", "[" + mapped + `,{"score":2.0,"id":"0e8d9e05-5a3c-4c6c-8d61-2fc2f10f8a8a"}]`},
		"query":         {`{"points":[ ` + row + "]}", `{"points":[ ` + mapped + "]}"},
		"query/batch":   {`[{"points":[` + row + `]},{"points":[]}]`, `[{"points":[` + mapped + `]},{"points":[]}]`},
		"search/batch":  {`[[` + row + `],[]]`, `[[` + mapped + `],[]]`},
		"search/groups": {`{"groups":[{"id":3,"hits":[` + row + `],"lookup":{"id":3}},{"hits":[]}]}`, `{"groups":[{"id":3,"hits":[` + mapped + `],"lookup":{"id":3}},{"hits":[]}]}`},
		"query/groups":  {`{"groups":[{"hits":[` + row + `]}]}`, `{"groups":[{"hits":[` + mapped + `]}]}`},
	} {
		n := 1
		if searches[path].batch {
			n = 2
		}
		before := fmt.Sprintf(text, result[0])
		got, hits, err := searches[path].mapScoresJSON([]byte(before), rewrittens(n, false))
		if want := fmt.Sprintf(text, result[1]); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", path, got, err, want)
			continue
		}
		if len(hits) != n || len(hits[0]) == 0 || hits[0][0].ID != rerank.UintID(3) || hits[0][0].Score != 7 {
			t.Errorf("%s: hits %+v", path, hits)
		}
		if same, _, err := searches[path].mapScoresJSON([]byte(before), slices.Repeat([]routing.Replacement{{Scale: 1}}, n)); err != nil || string(same) != before {
			t.Errorf("%s: a score that stays changes the answer: %s, %v", path, same, err)
		}
	}
	for _, body := range []string{``, `{}`, `{"result":null}`, `{"result":{"points":[]}}`, `{"result":[{"id":1,"score":"1"}]}`, `{"result":[{"id":[],"score":1.0}]}`, `{"result":[]} x`, `{"result":[`} {
		if got, _, err := searches["search"].mapScoresJSON([]byte(body), rewrittens(1, false)); err == nil {
			t.Errorf("%s: %s", body, got)
		}
	}
}

// FuzzRewriteJSON compares with decoding: of valid JSON, only the vectors and thresholds
// differ.
func FuzzRewriteJSON(f *testing.F) {
	f.Add(false, []byte(`{"vector":[1,2.5],"limit":3,"score_threshold":0.5}`))
	f.Add(true, []byte(`{"query":{"nearest":[1]},"using":"v","a":{"\u0062":[1]}}`))
	f.Fuzz(func(t *testing.T, query bool, body []byte) {
		q := request{query: query}
		found, err := q.locateJSON(body, isRouted)
		if err != nil || found.queries != nil {
			return
		}
		all := rewrittens(1, found.searches[0].Threshold != nil)
		mended, err := rewriteJSON(body, found.places, all)
		if err != nil {
			t.Fatal(err)
		}
		if json.Valid(body) != json.Valid(mended) {
			t.Fatalf("%s: rewritten to %s", body, mended)
		}
		if !json.Valid(body) {
			return
		}
		again, err := q.locateJSON(mended, isRouted)
		if err != nil || !slices.Equal(again.searches[0].Query, all[0].Vector) || all[0].Threshold != nil && *again.searches[0].Threshold != *all[0].Threshold {
			t.Errorf("%s: %s: %+v, %v", body, mended, again, err)
		}
		same, err := rewriteJSON(mended, found.places, nil)
		if err == nil {
			t.Errorf("%s: rewritten by nothing", same)
		}
		var before, after map[string]any
		if json.Unmarshal(body, &before) != nil || json.Unmarshal(mended, &after) != nil {
			t.Fatalf("%s: %s", body, mended)
		}
		for _, m := range []map[string]any{before, after} {
			delete(m, "vector")
			delete(m, "query")
			delete(m, "score_threshold")
		}
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s: %s", body, mended)
		}
	})
}

// TestRefusalsOfQdrant: an error says that Qdrant refuses the caller, the request, or fails.
func TestRefusalsOfQdrant(t *testing.T) {
	for code, want := range map[codes.Code]error{
		codes.Unauthenticated: routing.ErrDenied, codes.PermissionDenied: routing.ErrDenied, codes.ResourceExhausted: routing.ErrDenied,
		codes.InvalidArgument: routing.Pass("refused"), codes.NotFound: routing.Pass("refused"), codes.Unimplemented: routing.Pass("refused"),
		codes.Unavailable: routing.Degraded{Reason: "unavailable"}, codes.Internal: routing.Degraded{Reason: "unavailable"},
	} {
		if got := refusal(status.Error(code, "x")); got != want { //nolint:errorlint // exactly this
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
}

// TestNarrowedSearches: each part of a request that keeps its answer from being the first rows
// of the collection is seen alone.
func TestNarrowedSearches(t *testing.T) {
	for name, change := range map[string]func(*qdrant.QueryPoints){
		"none":      nil,
		"offset":    func(q *qdrant.QueryPoints) { q.Offset = proto.Uint64(1) },
		"threshold": func(q *qdrant.QueryPoints) { q.ScoreThreshold = proto.Float32(0.5) },
		"filter": func(q *qdrant.QueryPoints) {
			q.Filter = &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatchInt("n", 1)}}
		},
		"shard key": func(q *qdrant.QueryPoints) {
			q.ShardKeySelector = &qdrant.ShardKeySelector{ShardKeys: []*qdrant.ShardKey{qdrant.NewShardKeyKeyword("k")}}
		},
		"indexed only": func(q *qdrant.QueryPoints) { q.Params = &qdrant.SearchParams{IndexedOnly: proto.Bool(true)} },
	} {
		q := &qdrant.QueryPoints{CollectionName: "c", Query: qdrant.NewQueryDense(numbers(2)), Limit: proto.Uint64(3)}
		if change != nil {
			change(q)
		}
		s, _, err := locateOne(encoded(t, q), queryLayout)
		if err != nil || s.Narrowed != (change != nil) || s.Limit != 3 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// TestSizeOfABatch: as many searches as the limit are answered, and no more.
func TestSizeOfABatch(t *testing.T) {
	for n, want := range map[int]error{1: nil, routing.MaxBatch: nil, routing.MaxBatch + 1: routing.Pass("batch")} {
		m := &qdrant.SearchBatchPoints{CollectionName: "c"}
		for range n {
			m.SearchPoints = append(m.SearchPoints, &qdrant.SearchPoints{Vector: numbers(2), Limit: 3})
		}
		if searches, err := searchesOf(m); err != want || err == nil && len(searches) != n { //nolint:errorlint // exactly this
			t.Errorf("%d searches: %d, %v, want %v", n, len(searches), err, want)
		}
	}
}

// TestKnownFields: the last field that each layout takes for known is the last one of the message, and a later one is
// no plain search.
func TestKnownFields(t *testing.T) {
	for _, c := range []struct {
		layout  layout
		message proto.Message
	}{
		{searchLayout, &qdrant.SearchPoints{}}, {queryLayout, &qdrant.QueryPoints{}}, {searchGroupsLayout, &qdrant.SearchPointGroups{}},
		{queryGroupsLayout, &qdrant.QueryPointGroups{}}, {prefetchLayout, &qdrant.PrefetchQuery{}},
	} {
		fields, last := c.message.ProtoReflect().Descriptor().Fields(), protowire.Number(0)
		for i := range fields.Len() {
			last = max(last, fields.Get(i).Number())
		}
		if name := c.message.ProtoReflect().Descriptor().Name(); last != c.layout.last {
			t.Errorf("%s has fields up to %d, want %d: look at the new ones", name, last, c.layout.last)
		}
	}
	plain := &qdrant.QueryPoints{CollectionName: "c", Query: qdrant.NewQueryDense([]float32{1})}
	newer := proto.Clone(plain)
	newer.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 200, protowire.VarintType), 1))
	feedback := &qdrant.QueryPoints{CollectionName: "c", Query: &qdrant.Query{Variant: &qdrant.Query_RelevanceFeedback{RelevanceFeedback: &qdrant.RelevanceFeedbackInput{}}}}
	for want, m := range map[bool]proto.Message{true: plain, false: newer} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locate(b, queryLayout, func(string) bool { return true }); (err == nil) != want {
			t.Errorf("%v: %v", m, err)
		}
	}
	b, err := proto.Marshal(feedback)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locate(b, queryLayout, func(string) bool { return true }); err == nil {
		t.Error("a query by relevance feedback is taken for a plain search")
	}
}
