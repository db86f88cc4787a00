package qdrant

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/search"
)

// isRouted is true of the field "routed" alone.
func isRouted(field string) bool { return field == "routed" }

// leg is a prefetch by a vector of a field.
func leg(field string, number float32) *qdrant.PrefetchQuery {
	p := &qdrant.PrefetchQuery{Query: qdrant.NewQueryDense([]float32{number}), Using: proto.String(field), Limit: proto.Uint64(7), Params: &qdrant.SearchParams{}}
	p.GetParams().ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "unknown"))
	return p
}

// staged is a query with prefetches.
func staged(query *qdrant.Query, field string, legs ...*qdrant.PrefetchQuery) *qdrant.QueryPoints {
	return &qdrant.QueryPoints{CollectionName: "c", Query: query, Using: proto.String(field), Prefetch: legs, ScoreThreshold: proto.Float32(3), Offset: proto.Uint64(2), Timeout: proto.Uint64(4)}
}

// vectors returns the vectors by which the stages of a query search the routed field, and
// replaces them with their counterparts of all.
func vectors(query *qdrant.Query, field string, threshold **float32, legs []*qdrant.PrefetchQuery, all *[]routing.Replacement) (found [][]float32) {
	if dense := query.GetNearest().GetDense(); dense != nil && isRouted(field) {
		found = append(found, dense.GetData())
		if len(*all) > 0 {
			dense.Data = (*all)[0].Vector
			if *threshold != nil {
				*threshold = (*all)[0].Threshold
			}
			*all = (*all)[1:]
		}
	}
	for _, p := range legs {
		found = append(found, vectors(p.GetQuery(), p.GetUsing(), &p.ScoreThreshold, p.GetPrefetch(), all)...)
	}
	return found
}

// In a query with prefetches, the vectors and thresholds of all stages on a routed field are
// replaced, and nothing else.
func TestRewriteStages(t *testing.T) {
	dense, fusion := qdrant.NewQueryDense([]float32{1}), qdrant.NewQueryFusion(qdrant.Fusion_DBSF)
	sparse := &qdrant.PrefetchQuery{Query: qdrant.NewQuerySparse([]uint32{1}, []float32{1}), Using: proto.String("other")}
	cut := leg("routed", 5)
	cut.ScoreThreshold = proto.Float32(1)
	nested := leg("other", 9)
	nested.Prefetch = []*qdrant.PrefetchQuery{leg("routed", 8), {Query: fusion, Prefetch: []*qdrant.PrefetchQuery{leg("routed", 6), {Filter: &qdrant.Filter{}}}}}
	for name, tc := range map[string]struct {
		*qdrant.QueryPoints
		want [][]float32
	}{
		"fusion":        {staged(fusion, "", leg("routed", 2), leg("other", 3), sparse, cut), [][]float32{{2}, {5}}},
		"rrf":           {staged(qdrant.NewQueryRRF(&qdrant.Rrf{}), "routed", leg("routed", 2), leg("other", 3)), [][]float32{{2}}},
		"order":         {staged(qdrant.NewQueryOrderBy(&qdrant.OrderBy{Key: "n"}), "", leg("routed", 2)), [][]float32{{2}}},
		"own":           {staged(dense, "routed", leg("other", 3)), [][]float32{{1}}},
		"both":          {staged(dense, "routed", cut, leg("routed", 3)), [][]float32{{1}, {5}, {3}}},
		"other rescore": {staged(qdrant.NewQueryMulti([][]float32{{1}}), "other", leg("routed", 3)), [][]float32{{3}}},
		"nested":        {staged(fusion, "", nested, leg("routed", 4)), [][]float32{{8}, {6}, {4}}},
	} {
		sent := proto.Clone(tc.QueryPoints).(*qdrant.QueryPoints)
		found, err := locate(encoded(t, sent), queryLayout, isRouted)
		if err != nil || len(found.searches) != len(tc.want) || found.timeout != 4 {
			t.Errorf("%s: %+v, %v", name, found, err)
			continue
		}
		for i, s := range found.searches {
			if !slices.Equal(s.Query, tc.want[i]) || s.Vector != "routed" || !s.Staged || !s.Narrowed || s.Exact || s.Offset != 2 {
				t.Errorf("%s: search %d is %+v, want %v", name, i, s, tc.want[i])
			}
		}
		all := rewrittens(len(tc.want), true)
		for i, s := range found.searches {
			if s.Threshold == nil {
				all[i].Threshold = nil
			}
		}
		got, err := rewriteRequest(encoded(t, sent), queryLayout, found.queries, all)
		left := slices.Clone(all)
		vectors(sent.GetQuery(), sent.GetUsing(), &sent.ScoreThreshold, sent.GetPrefetch(), &left)
		if want := encoded(t, sent); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, %v, want %x", name, got, err, want)
		}
	}
}

// A query that uses a routed field otherwise than by a dense vector is not rewritten, nor is a
// formula over the scores of prefetches.
func TestStagesThatAreNotRewritten(t *testing.T) {
	dense, fusion := qdrant.NewQueryDense([]float32{1}), qdrant.NewQueryFusion(qdrant.Fusion_RRF)
	deep := leg("routed", 1)
	for range maxPrefetchLevels {
		deep = &qdrant.PrefetchQuery{Query: fusion, Prefetch: []*qdrant.PrefetchQuery{deep}}
	}
	looked := leg("routed", 1)
	looked.LookupFrom = &qdrant.LookupLocation{CollectionName: "d"}
	of := func(q *qdrant.Query) *qdrant.PrefetchQuery {
		return &qdrant.PrefetchQuery{Query: q, Using: proto.String("routed")}
	}
	for name, m := range map[string]*qdrant.QueryPoints{
		"no stage of a route": staged(fusion, "", leg("other", 1)),
		"by id":               staged(fusion, "", leg("routed", 1), of(qdrant.NewQueryID(qdrant.NewIDNum(1)))),
		"recommend":           staged(fusion, "", leg("routed", 1), of(qdrant.NewQueryRecommend(&qdrant.RecommendInput{}))),
		"MMR":                 staged(fusion, "", leg("routed", 1), of(qdrant.NewQueryMMR(qdrant.NewVectorInput(1), &qdrant.Mmr{}))),
		"MMR of all":          staged(qdrant.NewQueryMMR(qdrant.NewVectorInput(1), &qdrant.Mmr{}), "routed", leg("routed", 1)),
		"formula":             staged(qdrant.NewQueryFormula(&qdrant.Formula{}), "", leg("routed", 1)),
		"formula inside":      staged(dense, "routed", &qdrant.PrefetchQuery{Query: qdrant.NewQueryFormula(&qdrant.Formula{}), Prefetch: []*qdrant.PrefetchQuery{leg("routed", 1)}}),
		"lookup":              staged(fusion, "", looked),
		"too deep":            staged(fusion, "", deep),
		"too many":            staged(fusion, "", slices.Repeat([]*qdrant.PrefetchQuery{leg("routed", 1)}, maxPrefetches+1)...),
	} {
		if found, err := locate(encoded(t, m), queryLayout, isRouted); err == nil {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// A batch has a query with prefetches and one without. The rows of a fusion belong to no search,
// and their scores stay.
func TestStagesOfABatch(t *testing.T) {
	dense, fusion := qdrant.NewQueryDense([]float32{1}), qdrant.NewQueryFusion(qdrant.Fusion_RRF)
	m := &qdrant.QueryBatchPoints{CollectionName: "c", QueryPoints: []*qdrant.QueryPoints{
		{Query: dense, Using: proto.String("routed")}, staged(fusion, "", leg("routed", 2), leg("routed", 3)), staged(dense, "routed", leg("other", 4)), {Query: dense, Using: proto.String("other")},
	}}
	l := queryLayout.inBatch()
	found, err := locate(encoded(t, m), l, isRouted)
	if err != nil || len(found.searches) != 5 || found.timeout != 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	if want := []stage{{search: 0}, {search: passesAsIs, legs: []stage{{search: 1}, {search: 2}}}, {search: 3, legs: []stage{{search: passesAsIs}}}, {search: 4}}; !reflect.DeepEqual(found.queries, want) {
		t.Errorf("%+v, want %+v", found.queries, want)
	}
	all := rewrittens(5, false)
	answer := &qdrant.QueryBatchResponse{Result: []*qdrant.BatchResult{{Result: points(3)}, {Result: points(2)}, {Result: points(1)}, {Result: points(4)}}}
	mapped, rows, err := mapScores(encoded(t, answer), l, lastStages(found.queries, all))
	if err != nil || proto.Unmarshal(mapped, answer) != nil {
		t.Fatal(err)
	}
	var scores []float32
	for _, r := range answer.GetResult() {
		scores = append(scores, r.GetResult()[0].GetScore())
	}
	if want := []float32{all[0].Score(3), 2, all[3].Score(1), all[4].Score(4)}; !slices.Equal(scores, want) {
		t.Errorf("scores %v, want %v", scores, want)
	}
	hits := hitsOfStages(found.queries, rows, 5)
	if len(hits) != 5 || hits[1] != nil || hits[2] != nil || !reflect.DeepEqual([][]search.Hit{hits[0], hits[3], hits[4]}, [][]search.Hit{rows[0], rows[2], rows[3]}) {
		t.Errorf("hits %+v of rows %+v", hits, rows)
	}
}

// FuzzRewriteStages compares with decoding.
func FuzzRewriteStages(f *testing.F) {
	f.Add(encoded(f, staged(qdrant.NewQueryFusion(qdrant.Fusion_RRF), "", leg("routed", 2), leg("other", 3))))
	f.Add(encoded(f, staged(qdrant.NewQueryDense([]float32{1}), "routed", leg("routed", 2))))
	f.Fuzz(func(t *testing.T, request []byte) {
		want := &qdrant.QueryPoints{}
		found, err := locate(request, queryLayout, isRouted)
		if err != nil || found.queries == nil || proto.Unmarshal(request, want) != nil {
			return
		}
		all := rewrittens(len(found.searches), true)
		for i, s := range found.searches {
			if s.Threshold == nil {
				all[i].Threshold = nil
			}
		}
		mended, err := rewriteRequest(request, queryLayout, found.queries, all)
		if err != nil {
			t.Fatalf("%x is read and not rewritten: %v", request, err)
		}
		left := slices.Clone(all)
		if n := len(vectors(want.GetQuery(), want.GetUsing(), &want.ScoreThreshold, want.GetPrefetch(), &left)); n != len(all) {
			t.Errorf("%x: %d searches, want %d", request, len(all), n)
		}
		got := &qdrant.QueryPoints{}
		if err := proto.Unmarshal(mended, got); err != nil || !bytes.Equal(encoded(t, got), encoded(t, want)) {
			t.Errorf("%x: got %v (%v), want %v", request, got, err, want)
		}
	})
}

// A body's stages are rewritten in place, in whatever order its keys are.
func TestRewriteStagesJSON(t *testing.T) {
	const v, cut = `[-0.5,7]`, `"score_threshold":9`
	long := "[" + strings.TrimSuffix(strings.Repeat("0.5,7,", 21), ",") + "]"
	for _, tc := range []struct {
		path, body, want string
		searches         int
	}{
		{"query", `{"prefetch":[{"query":[2],"using":"routed"},{"query":{"indices":[1],"values":[1]},"using":"other"}],"query":{"fusion":"rrf"},"score_threshold":1}`,
			`{"prefetch":[{"query":` + v + `,"using":"routed"},{"query":{"indices":[1],"values":[1]},"using":"other"}],"query":{"fusion":"rrf"},"score_threshold":1}`, 1},
		{"query", `{"query":{"rrf":{"k":3}}, "prefetch" : {"using":"routed","score_threshold":1,"query":{"nearest":[2]}}}`, `{"query":{"rrf":{"k":3}}, "prefetch" : {"using":"routed",` + cut + `,"query":{"nearest":` + v + `}}}`, 1},
		{"query", `{"prefetch":[{"query":[2],"using":"routed"}],"query":[1],"using":"routed","score_threshold":1}`, `{"prefetch":[{"query":` + v + `,"using":"routed"}],"query":` + long + `,"using":"routed","score_threshold":10}`, 2},
		{"query", `{"query":[[1]],"using":"other","prefetch":{"query":[3],"using":"other","prefetch":[{"query":[2],"using":"routed"},{"filter":{}}]}}`,
			`{"query":[[1]],"using":"other","prefetch":{"query":[3],"using":"other","prefetch":[{"query":` + v + `,"using":"routed"},{"filter":{}}]}}`, 1},
		{"query/batch", `{"searches":[{"query":[1]},{"query":{"fusion":"dbsf"},"prefetch":[{"query":[2],"using":"routed"}]}]}`, `{"searches":[{"query":` + v + `},{"query":{"fusion":"dbsf"},"prefetch":[{"query":` + long + `,"using":"routed"}]}]}`, 2},
	} {
		found, err := searches[tc.path].locateJSON([]byte(tc.body), isRouted)
		if err != nil || len(found.searches) != tc.searches || found.queries == nil {
			t.Errorf("%s: %+v, %v", tc.body, found, err)
			continue
		}
		all := rewrittens(tc.searches, true)
		for i, s := range found.searches {
			if s.Threshold == nil {
				all[i].Threshold = nil
			}
			if s.Staged == (s.Vector == "") || s.Exact {
				t.Errorf("%s: %+v", tc.body, s)
			}
		}
		got, err := rewriteJSON([]byte(tc.body), found.places, all)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %s, %v, want %s", tc.body, got, err, tc.want)
		}
	}
	deep := `{"query":[1],"using":"routed"}`
	for range maxPrefetchLevels + 1 {
		deep = `{"query":{"fusion":"rrf"},"prefetch":` + deep + `}`
	}
	const good = `{"query":[1],"using":"routed"}`
	many := `{"query":{"fusion":"rrf"},"prefetch":[` + strings.Repeat(good+",", maxPrefetches) + good + `]}`
	for _, body := range []string{
		deep, many, `{"query":{"formula":"$score"},"prefetch":` + good + `}`, `{"query":{"fusion":"rrf"},"prefetch":[` + good + `,{"query":3,"using":"routed"}]}`, `{"query":{"fusion":"rrf"},"prefetch":{"query":[1],"using":"other"}}`,
		`{"query":{"fusion":"rrf"},"prefetch":[` + good + `,{"query":{"nearest":[1],"mmr":{}},"using":"routed"}]}`, `{"query":{"fusion":"rrf"},"prefetch":{"query":[1],"using":"routed","lookup_from":{"collection":"c"}}}`,
		`{"query":{"fusion":"rrf"},"prefetch":[` + good + `,{"query":{"new":1},"using":"routed"}]}`,
	} {
		if found, err := searches["query"].locateJSON([]byte(body), isRouted); err == nil {
			t.Errorf("%s: %+v", body, found)
		}
	}
}

// Parameters are added to those of a search, which stay.
func TestAddedParameters(t *testing.T) {
	ef, exact := routing.Replacement{Vector: []float32{2}, EF: 300}, routing.Replacement{Vector: []float32{2}, Exact: true, Unquantized: true}
	unquantized := routing.Replacement{Vector: []float32{2}, Threshold: proto.Float32(5), Unquantized: true}
	const text = `{"vector":%s,"score_threshold":%s%s}`
	for _, tc := range []struct {
		params string
		r      routing.Replacement
		want   string
	}{
		{``, ef, `,"params":{"hnsw_ef":300}`},
		{`,"params":null`, ef, `,"params":{"hnsw_ef":300}`},
		{`,"params":{}`, ef, `,"params":{"hnsw_ef":300}`},
		{`,"params":{ "indexed_only":true}`, ef, `,"params":{"hnsw_ef":300, "indexed_only":true}`},
		{`,"params":{"hnsw_ef" : null }`, ef, `,"params":{"hnsw_ef" : 300 }`},
		{``, exact, `,"params":{"exact":true,"quantization":{"ignore":true}}`},
		{`,"params":null`, exact, `,"params":{"exact":true,"quantization":{"ignore":true}}`},
		{`,"params":{ "hnsw_ef":null}`, exact, `,"params":{"exact":true,"quantization":{"ignore":true}, "hnsw_ef":null}`},
		{`,"params":{ "quantization":null, "newer":{}}`, exact, `,"params":{"exact":true, "quantization":{"ignore":true}, "newer":{}}`},
		{`,"params":{"exact":true}`, unquantized, `,"params":{"quantization":{"ignore":true},"exact":true}`},
		{`,"params":{"quantization":null,"exact":true}`, unquantized, `,"params":{"quantization":{"ignore":true},"exact":true}`},
	} {
		body := fmt.Appendf(nil, text, "[1]", "3", tc.params)
		found, err := searches["search"].locateJSON(body, isRouted)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		threshold := "3"
		if tc.r.Threshold != nil {
			threshold = "5"
		}
		if got, err := rewriteJSON(body, found.places, []routing.Replacement{tc.r}); err != nil || string(got) != fmt.Sprintf(text, "[2]", threshold, tc.want) {
			t.Errorf("%s: %s, %v", body, got, err)
		}
	}
	ignore := &qdrant.QuantizationSearchParams{Ignore: proto.Bool(true)}
	for name, params := range map[string]*qdrant.SearchParams{"none": nil, "empty": {}, "others": {IndexedOnly: proto.Bool(true)}} {
		for added, r := range map[*qdrant.SearchParams]routing.Replacement{
			{HnswEf: proto.Uint64(300)}:                                             ef,
			{Exact: proto.Bool(true), Quantization: ignore}:                         exact,
			{Quantization: &qdrant.QuantizationSearchParams{Ignore: ignore.Ignore}}: unquantized,
		} {
			m := &qdrant.SearchPoints{CollectionName: "c", Vector: []float32{1}, Limit: 3, ScoreThreshold: proto.Float32(3), Params: params}
			before := encoded(t, m)
			both := proto.Clone(added).(*qdrant.SearchParams)
			proto.Merge(both, params)
			m.Vector, m.Params = r.Vector, both
			if r.Threshold != nil {
				m.ScoreThreshold = r.Threshold
			}
			got := &qdrant.SearchPoints{}
			mended, err := rewriteRequest(before, searchLayout, nil, []routing.Replacement{r})
			if err != nil || proto.Unmarshal(mended, got) != nil || !proto.Equal(got, m) {
				t.Errorf("%s: %v, %v, want %v", name, got, err, m)
			}
		}
	}
}

// A request's own parameters are found, whatever their values.
func TestLocatedParameters(t *testing.T) {
	type has struct{ ef, exact, quantization bool }
	for params, want := range map[string]has{
		`{"hnsw_ef":3}`: {ef: true}, `{"exact":true}`: {ef: true, exact: true}, `{"exact":false}`: {exact: true}, `{"indexed_only":true}`: {exact: true}, `{"quantization":{}}`: {quantization: true},
		`{"hnsw_ef":null,"quantization":null,"indexed_only":false}`: {}, `null`: {}, `{}`: {},
	} {
		found, err := searches["search"].locateJSON([]byte(`{"vector":[1],"params":`+params+`}`), isRouted)
		if err != nil || (has{found.searches[0].HasEF, found.searches[0].HasExact, found.searches[0].HasQuantization}) != want {
			t.Errorf("%s: %+v, %v", params, found, err)
		}
	}
	for want, params := range map[has]*qdrant.SearchParams{
		{ef: true}: {HnswEf: proto.Uint64(3)}, {ef: true, exact: true}: {Exact: proto.Bool(true)}, {exact: true}: {Exact: proto.Bool(false)},
		{exact: true, quantization: true}: {IndexedOnly: proto.Bool(true), Quantization: &qdrant.QuantizationSearchParams{}}, {}: {IndexedOnly: proto.Bool(false)},
	} {
		found, err := locate(encoded(t, &qdrant.SearchPoints{Vector: []float32{1}, Params: params}), searchLayout, isRouted)
		if err != nil || (has{found.searches[0].HasEF, found.searches[0].HasExact, found.searches[0].HasQuantization}) != want {
			t.Errorf("%v: %+v, %v", params, found, err)
		}
	}
}
