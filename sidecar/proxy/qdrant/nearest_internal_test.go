package qdrant

import (
	"slices"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestNearestOf: a query has the vector that it names. A fusion has one if all its dense prefetches
// search the same field by the same vector.
func TestNearestOf(t *testing.T) {
	one, two := []float32{1, 2}, []float32{2, 1}
	near := func(field string, vector []float32) *qdrant.PrefetchQuery {
		return &qdrant.PrefetchQuery{Using: &field, Query: qdrant.NewQueryDense(vector)}
	}
	sparse := &qdrant.PrefetchQuery{Query: qdrant.NewQuerySparse([]uint32{1}, one)}
	fusion := func(prefetch ...*qdrant.PrefetchQuery) *qdrant.QueryPoints {
		return &qdrant.QueryPoints{Query: qdrant.NewQueryFusion(qdrant.Fusion_RRF), Prefetch: prefetch}
	}
	for name, c := range map[string]struct {
		query *qdrant.QueryPoints
		field string
		want  []float32
	}{
		"nearest":              {&qdrant.QueryPoints{Using: qdrant.PtrOf("v"), Query: qdrant.NewQueryDense(one), Prefetch: []*qdrant.PrefetchQuery{near("w", two)}}, "v", one},
		"by id":                {&qdrant.QueryPoints{Using: qdrant.PtrOf("v"), Query: qdrant.NewQueryID(qdrant.NewIDNum(1))}, "v", nil},
		"a fusion of one":      {fusion(near("v", one), sparse), "v", one},
		"a fusion of the same": {fusion(sparse, near("v", one), near("v", slices.Clone(one))), "v", one},
		"of two vectors":       {fusion(near("v", one), near("v", two)), "", nil},
		"of two fields":        {fusion(near("v", one), near("w", one)), "", nil},
		"of sparse ones":       {fusion(sparse), "", nil},
		"the order of a key":   {&qdrant.QueryPoints{Query: qdrant.NewQueryOrderBy(&qdrant.OrderBy{Key: "k"}), Prefetch: []*qdrant.PrefetchQuery{near("v", one)}}, "", nil},
	} {
		if field, vector := nearestOf(c.query); field != c.field || !slices.Equal(vector, c.want) {
			t.Errorf("%s: %q, %v", name, field, vector)
		}
	}
}

// TestSeveralVectors: a query searches by several vectors if all have one length and are no more than a
// similarity takes, in gRPC and JSON alike.
func TestSeveralVectors(t *testing.T) {
	many := func(n int) [][]float32 {
		out := make([][]float32, n)
		for i := range out {
			out[i] = []float32{float32(i), 1}
		}
		return out
	}
	for name, c := range map[string]struct {
		vectors [][]float32
		text    string
		want    int
	}{
		"two":             {many(2), `[[0,1],[1,1]]`, 2},
		"one":             {many(1), `[[0,1]]`, 1},
		"the most":        {many(rerank.MaxQueryVectors), "", rerank.MaxQueryVectors},
		"one too many":    {many(rerank.MaxQueryVectors + 1), "", 0},
		"unequal":         {[][]float32{{0, 1}, {1}}, `[[0,1],[1]]`, 0},
		"an empty one":    {[][]float32{{}}, `[[]]`, 0},
		"none":            {nil, `[]`, 0},
		"a text in it":    {nil, `[[0,1],"a"]`, 0},
		"a number in it":  {nil, `[[0,1],1]`, 0},
		"no end":          {nil, `[[0,1]`, 0},
		"no array":        {nil, `{"indices":[1],"values":[2]}`, 0},
		"deeper than two": {nil, `[[[0,1]]]`, 0},
	} {
		if got := vectorsOf(&qdrant.QueryPoints{Query: qdrant.NewQueryMulti(c.vectors)}); got.Rows != c.want || len(got.Data) != 2*c.want {
			t.Errorf("%s: %d rows of %d numbers, want %d rows", name, got.Rows, len(got.Data), c.want)
		}
		if c.text == "" {
			continue
		}
		staged := &qdrant.QueryPoints{Query: qdrant.NewQueryMulti(c.vectors), Prefetch: []*qdrant.PrefetchQuery{{}}}
		if _, err := queryOf(staged); err != routing.Pass(passesPrefetch) { //nolint:errorlint // itself
			t.Errorf("%s, with a prefetch: %v", name, err)
		}
		if got := readVectors([]byte(c.text)); got.Rows != c.want || c.want > 1 && got.Row(1)[0] != 1 {
			t.Errorf("%s: %s: %+v, want %d rows", name, c.text, got, c.want)
		}
	}
}

// TestSparseSearchesPass: the values of a sparse vector are not those of a dense one.
func TestSparseSearchesPass(t *testing.T) {
	sparse := &qdrant.SearchPoints{Vector: []float32{1, 2}, SparseIndices: &qdrant.SparseIndices{Data: []uint32{3, 7}}}
	if _, err := searchOf(sparse); err != routing.Pass("not-nearest") { //nolint:errorlint // itself
		t.Errorf("a search by a sparse vector: %v", err)
	}
}

// TestConfirmingReadsAreWhole: the read that confirms hits compares each of them, whatever the caller's
// parameters say, and asks for no more.
func TestConfirmingReadsAreWhole(t *testing.T) {
	hits := []routing.Ranked{{Hits: []search.Hit{{ID: rerank.UintID(4)}, {ID: rerank.UintID(9)}}}}
	params := &qdrant.SearchParams{HnswEf: qdrant.PtrOf(uint64(1)), IndexedOnly: qdrant.PtrOf(true)}
	query := &qdrant.QueryPoints{Query: qdrant.NewQueryDense([]float32{1}), Params: params, Offset: qdrant.PtrOf(uint64(3))}
	points := &qdrant.SearchPoints{Vector: []float32{1}, Params: params, Offset: qdrant.PtrOf(uint64(3))}
	for name, m := range map[string]interface {
		proto.Message
		common
		GetLimit() uint64
	}{"query": query, "search": points} {
		narrow(m, "things", hits)
		if !proto.Equal(m.GetParams(), &qdrant.SearchParams{Exact: qdrant.PtrOf(true)}) || m.GetLimit() != 2 || m.GetOffset() != 0 {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// TestCandidatesOfAQuery: the candidates of a query with prefetches are the best rows of the whole query, read as consistently as
// the query, or the batch around it, asks.
func TestCandidatesOfAQuery(t *testing.T) {
	all := &qdrant.ReadConsistency{Value: &qdrant.ReadConsistency_Type{Type: qdrant.ReadConsistencyType_All}}
	majority := &qdrant.ReadConsistency{Value: &qdrant.ReadConsistency_Type{Type: qdrant.ReadConsistencyType_Majority}}
	query := func(consistency *qdrant.ReadConsistency) *qdrant.QueryPoints {
		return &qdrant.QueryPoints{Query: qdrant.NewQueryFusion(qdrant.Fusion_RRF), Prefetch: []*qdrant.PrefetchQuery{{Query: qdrant.NewQueryDense([]float32{1})}},
			Filter: &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatchInt("n", 1)}}, ReadConsistency: consistency, Limit: qdrant.PtrOf(uint64(3))}
	}
	for name, c := range map[string]struct{ of, own, want *qdrant.ReadConsistency }{
		"neither": {nil, nil, nil}, "the query's": {nil, majority, majority}, "the batch's": {all, nil, all}, "both": {all, majority, all},
	} {
		m := query(c.own)
		m.CollectionName, m.Offset, m.ScoreThreshold, m.WithPayload, m.WithVectors = "alias", qdrant.PtrOf(uint64(2)), qdrant.PtrOf(float32(0.5)), qdrant.NewWithPayload(true), qdrant.NewWithVectors(true)
		want := query(c.want)
		want.CollectionName, want.Limit, want.WithPayload, want.WithVectors = "things", qdrant.PtrOf(uint64(40)), qdrant.NewWithPayload(false), qdrant.NewWithVectors(false)
		if got := idsOnly(m, &qdrant.QueryBatchPoints{QueryPoints: []*qdrant.QueryPoints{m}, ReadConsistency: c.of}, "things", 40); !proto.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if c.of == nil && !proto.Equal(idsOnly(m, m, "things", 40), want) {
			t.Errorf("%s, outside a batch: want %v", name, want)
		}
	}
}
