package qdrant

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// recordedCall is a call whose database answers with recorded bytes at once.
type recordedCall struct {
	*call
	recorded []byte
}

// Rewrite implements routing.Exchange.
func (c recordedCall) Rewrite(_ context.Context, all []routing.Replacement) (r rawgrpc.Reply, hits [][]search.Hit, err error) {
	if _, err := rewriteRequest(c.raw, c.layout, nil, all); err != nil {
		return r, nil, err
	}
	r.Message, hits, err = mapScores(slices.Clone(c.recorded), c.layout, all)
	return r, hits, err
}

// Original implements routing.Exchange: the database accepts the caller.
func (c recordedCall) Original(context.Context, bool) rawgrpc.Reply {
	return rawgrpc.Reply{Message: slices.Clone(c.recorded)}
}

// BenchmarkRewrite measures the proxy's time for a gRPC search of ten rows, without its transport,
// if the search is rewritten by a bilinear form and if it passes.
func BenchmarkRewrite(b *testing.B) {
	const dim = 384
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = rng.Float32() - 0.5
		}
		return v
	}
	router := newBenchRouter(b, dim, random(dim*dim))
	request := encode(b, &qdrant.QueryPoints{
		CollectionName: "c", Query: qdrant.NewQueryDense(random(dim)), Limit: proto.Uint64(10), WithPayload: qdrant.NewWithPayload(true),
	})
	answer := &qdrant.QueryResponse{Time: 0.001}
	for i := range uint64(10) {
		answer.Result = append(answer.Result, &qdrant.ScoredPoint{
			Id: qdrant.NewIDNum(i), Score: 1 - float32(i)/10, Version: 3, Payload: qdrant.NewValueMap(map[string]any{"title": "a question about nothing"}),
		})
	}
	recorded := encode(b, answer)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // clients set a deadline
	defer cancel()
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("api-key", "none", "user-agent", "a client"))
	for name, layout := range map[string]layout{"rewritten": queryLayout, "passed": {groups: true, vector: []protowire.Number{99}}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			replies := make(chan rawgrpc.Reply)
			for b.Loop() {
				go func() { // with a stack that grows, as a server's calls have
					target, _ := router.Names.Target(ctx, "c")
					replies <- routing.Reply(ctx, router, target, recordedCall{&call{target: target, layout: layout, raw: request, began: time.Now()}, recorded}, nil)
				}()
				if reply := <-replies; (reply.Message != nil) != (name == "rewritten") {
					b.Fatal(reply.Trailer)
				}
			}
		})
	}
}

func encode(b *testing.B, m proto.Message) []byte {
	b.Helper()
	out, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// newBenchRouter returns a router with one rewritten route, and with everything that a sidecar does
// for a search.
func newBenchRouter(b *testing.B, dim int, w []float32) *routing.Router {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	sim, err := bilinear.New(bilinear.Config{QueryDim: dim, ItemDim: dim, Normalise: true}, tensor.Set{"W": {Shape: []int{dim, dim}, Data: w}})
	must(err)
	store := embedded.New()
	must(store.Create(b.Context(), adapters.Schema{Collection: "c", Fields: []adapters.VectorField{{Dim: dim, Metric: adapters.Cosine}}}))
	r := &route.Route{
		Policy: route.Policy{Name: "r", StoreName: "s", Ramp: 100, Collection: "c"},
		Parts:  route.Parts{Store: store, Model: route.Model{Name: "m", Version: "v", Similarity: sim}},
	}
	metrics := telemetry.NewMetrics(buildinfo.Info{}, []*route.Route{r})
	names := []string{"r"}
	engine, err := search.New([]*route.Route{r}, search.Options{Observer: search.Observers{
		metrics, rollout.NewRecent(names), telemetry.NewSearchHistory(names), telemetry.NewQueryLog(slog.New(slog.DiscardHandler), 0, time.Second),
	}})
	must(err)
	must(engine.Open(b.Context()))
	if p := engine.Routes()[0].Placement; p != route.PlacementRewrite {
		b.Fatalf("placement %q", p)
	}
	g := gate.New(gate.Options{Limits: gate.Limits{MaxSearches: 64, Adaptive: true, Routes: map[string]gate.Limit{"r": {}}}})
	router, err := routing.New(search.Admitted{Searcher: engine, By: g}, routing.Options{
		Store: "s", Gate: g, Logger: slog.New(slog.DiscardHandler), Recorder: metrics,
	})
	must(err)
	b.Cleanup(func() { must(router.Close()) })
	return router
}
