package serve_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

// TestProxyOfAnOnlyNamedVector: a route without a vector field serves a collection's only one.
// Clients name it as the database requires.
func TestProxyOfAnOnlyNamedVector(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	direct, wait := connect(t, db.Address), true
	_, err := qdrant.NewCollectionsClient(direct).Create(asUser(t.Context()), &qdrant.CreateCollection{CollectionName: "routed",
		VectorsConfig: qdrant.NewVectorsConfigMap(map[string]*qdrant.VectorParams{"img": {Size: 4, Distance: qdrant.Distance_Dot}})})
	var points []*qdrant.PointStruct
	for i := range 30 {
		x := float32(i)
		vector := qdrant.NewVectorDense([]float32{x / 7, 2 - x/5, x * x / 100, 1 / (1 + x)})
		points = append(points, &qdrant.PointStruct{Id: qdrant.NewIDNum(uint64(i)), Vectors: qdrant.NewVectorsMap(map[string]*qdrant.Vector{"img": vector})})
	}
	if err == nil {
		_, err = qdrant.NewPointsClient(direct).Upsert(asUser(t.Context()), &qdrant.UpsertPoints{CollectionName: "routed", Wait: &wait, Points: points})
	}
	if err != nil {
		t.Fatal(err)
	}
	p, at := startRuled(t, db, "")
	want := p.expected(t, 5, "")
	named := plainSearch("routed")
	named.VectorName = qdrant.PtrOf("img")
	got, state := p.ask(t, p.proxy, p.rest, named, `{"vector":{"name":"img","vector":[1,-2,0.5,3]},"limit":5}`)
	if state != exactly {
		t.Errorf("by the vector's name: %q", state)
	}
	same(t, "by the vector's name", got, want)
	var trailer metadata.MD
	q, err := qdrant.NewPointsClient(p.proxy).Query(asUser(t.Context()),
		&qdrant.QueryPoints{CollectionName: "routed", Query: qdrant.NewQueryDense(query), Using: qdrant.PtrOf("img"), Limit: qdrant.PtrOf(uint64(5))}, grpc.Trailer(&trailer))
	if err != nil {
		t.Fatal(err)
	}
	rescored(t, trailer.Get("likeness-status"))
	same(t, "query", hitsOf(q.GetResult()), want)

	// Without a name Qdrant refuses the search, and so it does through the proxy.
	for i := range 20 {
		_, err = qdrant.NewPointsClient(p.proxy).Search(asUser(t.Context()), plainSearch("routed"), grpc.Trailer(&trailer))
		_, own := qdrant.NewPointsClient(p.direct).Search(asUser(t.Context()), plainSearch("routed"))
		if own == nil || status.Convert(err).String() != status.Convert(own).String() || strings.Join(trailer.Get("likeness-status"), "|") != "passed; reason=vector" {
			t.Fatalf("search %d without a name: %v, %v, directly %v", i, err, trailer, own)
		}
	}
	const says = "No search through the proxy is rescored: the last 20"
	if page := admin(t, at, http.MethodGet, "/"); !strings.Contains(page, says) || !strings.Contains(page, "passed; reason=vector") {
		t.Errorf("the status page does not say that every search passes:\n%s", page)
	}
	if twin := admin(t, at, http.MethodGet, "/status.json"); !strings.Contains(twin, fmt.Sprintf(`"proxy_unanswered": {
        "status": %q,
        "searches": 20`, "passed; reason=vector")) {
		t.Errorf("status.json does not say it:\n%s", twin)
	}
	if _, state := p.ask(t, p.proxy, p.rest, named, `{"vector":{"name":"img","vector":[1,-2,0.5,3]},"limit":5}`); state != exactly {
		t.Errorf("status %q", state)
	}
	if strings.Contains(admin(t, at, http.MethodGet, "/"), says) {
		t.Error("the status page says so after an answer")
	}
}
