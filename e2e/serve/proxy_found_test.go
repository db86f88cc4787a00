package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

// A route that takes what a prefetch or a fusion finds puts it in its own order.
func TestProxyOrdersWhatAPrefetchFinds(t *testing.T) {
	db := filled(t, servers.Options{})
	p, _ := startRuled(t, db, "opt_in: [prefetch]")
	near := &qdrant.PrefetchQuery{Query: qdrant.NewQueryDense(query), Limit: qdrant.PtrOf(uint64(9)),
		Filter: &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatchInt("n", 1)}}}
	byID := &qdrant.PrefetchQuery{Query: qdrant.NewQueryID(qdrant.NewIDNum(3)), Limit: qdrant.PtrOf(uint64(6))}
	const nearText = `{"query":[1,-2,0.5,3],"limit":9,"filter":{"must":[{"key":"n","match":{"value":1}}]}}`
	for name, c := range map[string]struct {
		query *qdrant.QueryPoints
		body  string
	}{
		"nearest": {&qdrant.QueryPoints{Query: qdrant.NewQueryDense(query), Prefetch: []*qdrant.PrefetchQuery{near}},
			`{"query":[1,-2,0.5,3],"prefetch":` + nearText},
		"fusion": {&qdrant.QueryPoints{Query: qdrant.NewQueryFusion(qdrant.Fusion_RRF), Prefetch: []*qdrant.PrefetchQuery{near, byID}},
			`{"query":{"fusion":"rrf"},"prefetch":[` + nearText + `,{"query":3,"limit":6}]`},
	} {
		t.Run(name, func(t *testing.T) {
			c.query.CollectionName, c.query.Limit = "routed", qdrant.PtrOf(uint64(20))
			found, err := qdrant.NewPointsClient(connect(t, db.Address)).Query(asUser(t.Context()), c.query)
			if err != nil {
				t.Fatal(err)
			}
			among := map[string]bool{}
			for _, h := range hitsOf(found.GetResult()) {
				among[h.id] = true
			}
			want := slices.DeleteFunc(p.expected(t, 30, ""), func(h hit) bool { return !among[h.id] })[1:5]

			c.query.Limit, c.query.Offset = qdrant.PtrOf(uint64(4)), qdrant.PtrOf(uint64(1))
			var trailer metadata.MD
			got, err := qdrant.NewPointsClient(p.proxy).Query(asUser(t.Context()), c.query, grpc.Trailer(&trailer))
			if err != nil {
				t.Fatal(err)
			}
			const state = "rescored; route=things; certificate=unknown"
			if s := trailer.Get("likeness-status"); fmt.Sprint(s) != "["+state+"]" || !slices.Equal(hitsOf(got.GetResult()), want) {
				t.Errorf("gRPC: %q, %v; want %v", s, hitsOf(got.GetResult()), want)
			}
			body := c.body + `,"limit":4,"offset":1}`
			code, s, text := post(t, p.rest, "routed/points/query", body, key)
			var result struct{ Points json.RawMessage }
			if err := json.Unmarshal(resultOf(t, code, text), &result); err != nil {
				t.Fatal(err)
			}
			if got := restHits(t, result.Points); s != state || !slices.Equal(got, want) {
				t.Errorf("REST: %q, %v; want %v", s, got, want)
			}
			code, s, text = post(t, p.rest, "routed/points/query/batch", `{"searches":[`+body+`]}`, key)
			if s != state || code != 200 || !strings.Contains(text, `"id":`+want[0].id) {
				t.Errorf("REST, in a batch: %d %q, %s; want %v", code, s, text, want)
			}
		})
	}
}

// The lists of a hybrid search have filters of their own, and so has what it finds.
func TestMilvusProxyOrdersWhatAHybridSearchFinds(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	fillMilvus(t, client.Config{Address: db.Address})
	p := startMilvusRuled(t, db, "opt_in: [hybrid]")
	one, two := milvusSearch("routed", [][]float32{query}, 4, 0, "id < 6"), milvusSearch("routed", [][]float32{query}, 4, 0, "id > 9")
	found, err := p.direct.HybridSearch(t.Context(), hybridOf(8, one, two))
	if err != nil {
		t.Fatal(err)
	}
	among := found.GetResults().GetIds().GetIntId().GetData()
	var want []int64
	for _, h := range p.expected(t, query, milvusRows, "") {
		if id := int64(h.GetId().GetNumber()) + h.GetId().GetNegative(); slices.Contains(among, id) && len(want) < 5 {
			want = append(want, id)
		}
	}
	var trailer metadata.MD
	got, err := p.proxy.HybridSearch(t.Context(), hybridOf(5, one, two), grpc.Trailer(&trailer))
	if err != nil {
		t.Fatal(err)
	}
	if s := trailer.Get("likeness-status"); fmt.Sprint(s) != "[rescored; route=things; certificate=unknown]" ||
		!slices.Equal(got.GetResults().GetIds().GetIntId().GetData(), want) {
		t.Errorf("%q, %v; want %v", s, got.GetResults().GetIds(), want)
	}
}
