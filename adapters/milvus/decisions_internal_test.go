package milvus

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

func columnOf(metric adapters.Metric, index string) column {
	return column{vectorColumn: vectorColumn{name: "v", dim: 2, kind: schemapb.DataType_FloatVector, metric: metric, index: index, native: string(metric)}, field: "v", dim: 2}
}

// TestMeaningOfScores: what Milvus's scores say of inner products, and how wrong they can be.
func TestMeaningOfScores(t *testing.T) {
	probe := rerank.Probe{Vector: []float32{3, 4}} // of norm 5
	for name, c := range map[string]struct {
		metric  adapters.Metric
		unit    bool
		longest float64
		score   float32
		product float64
		epsilon float32
	}{
		"inner product":         {adapters.InnerProduct, false, 7, 11, 11, adapters.Epsilon32(2, 5, 7)},
		"a longer row is seen":  {adapters.InnerProduct, false, 1, 50, 50, adapters.Epsilon32(2, 5, 10)},
		"of unit vectors":       {adapters.InnerProduct, true, 7, 4, 4, adapters.Epsilon32(2, 5, 1)},
		"cosine":                {adapters.Cosine, false, 0, 0.5, 2.5, adapters.Epsilon32(20, 5, 1)},
		"L2, of unit vectors":   {adapters.L2, true, 0, 1, 2.5, adapters.Epsilon32(2, 5*(1./2+2), 1)},
		"L2, the opposite side": {adapters.L2, true, 0, 4, -5, adapters.Epsilon32(2, 5*(4./2+2), 1)},
	} {
		f := fieldSearch{col: columnOf(c.metric, "FLAT"), request: adapters.SearchRequest{UnitVectors: c.unit, Probes: []rerank.Probe{probe}}, longest: c.longest}
		score := f.scorer(probe)(c.score)
		if got := f.epsilon(probe, []row{{score: score}}); !(math.Abs(float64(score)-c.product) <= 1e-5) || !(math.Abs(float64(got/c.epsilon)-1) <= 1e-6) {
			t.Errorf("%s: a score of %v is the inner product %v ± %v, want %v ± %v", name, c.score, score, got, c.product, c.epsilon)
		}
	}
}

// TestWhichFieldsAreSearched: those with an index, by a metric from which inner products follow.
func TestWhichFieldsAreSearched(t *testing.T) {
	for name, c := range map[string]struct {
		col  column
		unit bool
		want error
	}{
		"inner product":        {columnOf(adapters.InnerProduct, "HNSW"), false, nil},
		"no index":             {columnOf(adapters.InnerProduct, ""), false, adapters.ErrUnavailable},
		"another metric":       {columnOf("", "HNSW"), true, adapters.ErrMetric},
		"L2 of any vectors":    {columnOf(adapters.L2, "HNSW"), false, adapters.ErrMetric},
		"L2 of unit vectors":   {columnOf(adapters.L2, "HNSW"), true, nil},
		"cosine of any length": {columnOf(adapters.Cosine, "HNSW"), false, nil},
	} {
		collection := &collection{name: "c", vectors: []vectorColumn{c.col.vectorColumn}}
		if _, err := collection.searchable("v", c.unit); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestPlanOfSearches: the probes of a field share a search of the greatest depth.
func TestPlanOfSearches(t *testing.T) {
	c := &collection{name: "c", vectors: []vectorColumn{columnOf(adapters.InnerProduct, "FLAT").vectorColumn, {name: "w", dim: 2, kind: schemapb.DataType_FloatVector, metric: adapters.InnerProduct, index: "FLAT"}}}
	s := &Store{server: server{options: Options{}.withDefaults()}}
	probe := func(depth int, field string) rerank.Probe {
		return rerank.Probe{Vector: []float32{1, 0}, Depth: depth, Field: field}
	}
	got, err := s.planSearches(c, adapters.SearchRequest{Collection: "c", Vector: "v", Probes: []rerank.Probe{probe(9, ""), probe(3, "w"), probe(5, "v"), probe(7, "w")}})
	if err != nil || len(got) != 2 || !slices.Equal(got[0].probes, []int{0, 2}) || got[0].depth != 9 || !slices.Equal(got[1].probes, []int{1, 3}) || got[1].depth != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.planSearches(c, adapters.SearchRequest{Vector: "v", Probes: []rerank.Probe{{Vector: []float32{1}, Depth: 1}}}); !errors.Is(err, adapters.ErrDimension) {
		t.Errorf("a probe of another dimension: %v", err)
	}
}

// TestListsOfAReply: a list is cut at its probe's depth, sorted, without a row twice, and holds
// every row only where the server had no more to give.
func TestListsOfAReply(t *testing.T) {
	number := func(n int64) key { return key{num: n} }
	const dropped = 7 // an excluded id that no expression selects
	for name, c := range map[string]struct {
		index     string
		keys      []int64
		scores    []float32
		depth     int // of the probe; the search has 4, and one more for the dropped id
		want      []int64
		exact     bool
		exhausted bool
	}{
		"fewer than were asked for":  {"FLAT", []int64{3, 1, 2}, []float32{9, 8, 8}, 4, []int64{3, 1, 2}, true, true},
		"as many":                    {"FLAT", []int64{3, 1, 2, 4}, []float32{9, 8, 8, 7}, 4, []int64{3, 1, 2, 4}, true, false},
		"cut":                        {"FLAT", []int64{3, 1, 2}, []float32{9, 8, 8}, 2, []int64{3, 1}, true, false},
		"an approximate index":       {"HNSW", []int64{3, 1, 2}, []float32{9, 8, 8}, 4, []int64{3, 1, 2}, false, false},
		"ties in the wrong order":    {"FLAT", []int64{2, 1}, []float32{8, 8}, 4, []int64{1, 2}, true, true},
		"a row twice":                {"FLAT", []int64{3, 3, 1}, []float32{9, 9, 8}, 4, []int64{3, 1}, true, true},
		"as many and one dropped":    {"FLAT", []int64{3, dropped, 1, 2, 4}, []float32{9, 9, 8, 8, 7}, 4, []int64{3, 1, 2, 4}, true, false},
		"fewer, of them one dropped": {"FLAT", []int64{3, dropped, 1, 2}, []float32{9, 9, 8, 8}, 4, []int64{3, 1, 2}, true, true},
	} {
		f := fieldSearch{c: &collection{name: "c", ids: plainIDs{}}, col: columnOf(adapters.InnerProduct, c.index), depth: 4}
		if slices.Contains(c.keys, dropped) {
			f.exclude.dropped = map[rerank.ID]bool{rerank.IntID(dropped): true}
		}
		reply := newReply()
		reply.scores = c.scores
		reply.keys = nil
		for _, k := range c.keys {
			reply.keys = append(reply.keys, number(k))
		}
		l, err := f.makeList(rerank.Probe{Vector: []float32{1, 0}, Depth: c.depth}, reply, 0, len(c.keys), nil)
		if err != nil {
			t.Fatal(err)
		}
		var ids []int64
		for _, id := range l.IDs {
			n, _ := id.Int64()
			ids = append(ids, n)
		}
		if !slices.Equal(ids, c.want) || l.Exact != c.exact || l.Exhausted != c.exhausted {
			t.Errorf("%s: rows %v, exact %t, exhausted %t; want %+v", name, ids, l.Exact, l.Exhausted, c)
		}
	}
}

// TestItemsThatLackAComponent are left out with all their vectors.
func TestItemsThatLackAComponent(t *testing.T) {
	ids := func(n ...uint64) (all []rerank.ID) {
		for _, x := range n {
			all = append(all, rerank.UintID(x))
		}
		return all
	}
	part := func(first float32, n ...uint64) adapters.Rows {
		m := rerank.NewMatrix(len(n), 1)
		for i, x := range n {
			m.Data[i] = first + float32(x)
		}
		return adapters.Rows{IDs: ids(n...), Vectors: []rerank.Matrix{m}}
	}
	got, err := reading{}.joinComponents([]adapters.Rows{part(0, 1, 2, 3, 5), part(10, 3, 1, 4, 5), part(20, 5, 3, 1)}, ids(5, 4, 3, 2, 1))
	if err != nil || !slices.Equal(got.IDs, ids(5, 3, 1)) || !slices.Equal(got.Vectors[0].Data, []float32{5, 3, 1}) || !slices.Equal(got.Vectors[1].Data, []float32{15, 13, 11}) || !slices.Equal(got.Vectors[2].Data, []float32{25, 23, 21}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got := lastOfEach(ids(1, 2, 1, 3, 2)); !slices.Equal(got, []int{2, 3, 4}) {
		t.Errorf("of rows that come again the kept ones are %v", got)
	}
}

// TestLimitsThatTheServerTells are kept, where they are lower.
func TestLimitsThatTheServerTells(t *testing.T) {
	s := &Store{server: server{options: Options{Limits: adapters.Limits{MaxDepth: 100, MaxProbes: 10, MaxMessageBytes: 8000}}.withDefaults()}}
	s.loweredLimits = s.options.Limits
	for _, told := range []adapters.LimitError{{Limit: limitDepth, Max: 50}, {Limit: limitDepth, Max: 70}, {Limit: limitProbes, Max: 0}, {Limit: limitMessage, Max: 1}} {
		s.lowerLimit(&told)
	}
	s.lowerLimit(errors.New("another error"))
	if l := s.limits(); l.MaxDepth != 50 || l.MaxProbes != 10 || l.MaxMessageBytes != 8000 {
		t.Errorf("%+v", l)
	}
	c := &collection{name: "c", pk: "id", vectors: []vectorColumn{columnOf(adapters.L2, "FLAT").vectorColumn}}
	r := s.read(reading{c: c, columns: []column{columnOf(adapters.L2, "FLAT")}})
	if n := r.pageRows(); n != 50 {
		t.Errorf("a page has %d rows, want the server's 50", n)
	}
	r.payload = true
	if n := r.pageRows(); n != 1 {
		t.Errorf("a page of payloads has %d rows", n)
	}
	if n := s.writeBatch(c, adapters.Rows{}); n != 4000/(64+8) {
		t.Errorf("%d rows are written at once", n)
	}
	if got := r.batches(make([]key, 3)); len(got) != 3 {
		t.Errorf("three keys are read in %d calls of a row", len(got))
	}
	for name, ok := range map[string]bool{"": true, "Strong": true, "Bounded": true, "Eventually": true, "Session": true, "Customized": false, "strong": false} {
		if _, err := consistencyLevel(name); (err == nil) != ok || err != nil && !errors.Is(err, adapters.ErrUnsupported) {
			t.Errorf("consistency %q: %v", name, err)
		}
	}
}

// TestRepliesThatContradictThemselves: lists that are longer than the scores, or more than the
// probes, are errors of the store.
func TestRepliesThatContradictThemselves(t *testing.T) {
	for name, topks := range map[string][]int64{"longer than the scores": {5}, "a negative length": {-1}, "more lists than probes": {1, 0}} {
		lies := func(_ context.Context, _ string, _, answer any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			r := answer.(*reply)
			r.topks, r.scores, r.keys = topks, []float32{1}, []key{{num: 1}}
			return nil
		}
		s, err := New(t.Context(), Options{Address: "localhost:1", DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(lies)}})
		if err != nil {
			t.Fatal(err)
		}
		f := fieldSearch{c: &collection{name: "c", ids: plainIDs{}}, col: columnOf(adapters.InnerProduct, "FLAT"), depth: 4, probes: []int{0},
			request: adapters.SearchRequest{Collection: "c", UnitVectors: true, Probes: []rerank.Probe{{Vector: []float32{1, 0}, Depth: 4}}}}
		if err := s.searchField(t.Context(), f, make([]rerank.List, 1)); !errors.Is(err, adapters.ErrStore) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestVectorsOfAZeroProbe: a field compared by L2 takes a probe of norm 1; a zero probe, which
// has no direction, is sent as zeros.
func TestVectorsOfAZeroProbe(t *testing.T) {
	f := fieldSearch{col: columnOf(adapters.L2, "FLAT"), probes: []int{0, 1}}
	f.col.dim = 2
	f.col.vectorColumn.dim = 2
	f.request.Probes = []rerank.Probe{{Vector: []float32{0, 0}}, {Vector: []float32{3, 4}}}
	for i, want := range [][]float32{{0, 0}, {0.6, 0.8}} {
		for j, x := range want {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(f.vectors()[i][4*j:])); got != x {
				t.Errorf("number %d of probe %d is sent as %v, want %v", j, i, got, x)
			}
		}
	}
}

// TestRowsExpire: only a time to live that Milvus acts on makes rows expire, and one that is not understood counts.
func TestRowsExpire(t *testing.T) {
	for seconds, want := range map[string]bool{"": false, "0": false, "-1": false, "1": true, "3600": true, "1.5": true} {
		if got := expires(pairs("collection.ttl.seconds", seconds)); got != want {
			t.Errorf("%q seconds: %t", seconds, got)
		}
	}
	if expires(nil) || expires(pairs("mmap.enabled", "true")) || !expires(pairs("ttl_field", "until")) {
		t.Error("other properties")
	}
}
