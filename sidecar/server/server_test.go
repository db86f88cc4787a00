package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dim = 4

// rows is the collection: row i is i/rows in every element.
const rows = 50

// world is a server over a real pipeline over an embedded store.
type world struct {
	server  *server.Server
	conn    *grpc.ClientConn
	search  likenessv1.SearchServiceClient
	catalog likenessv1.CatalogServiceClient
	address string
	log     *record
	counts  *counts
}

type change func(*server.Options)

func start(t testing.TB, changes ...change) *world {
	t.Helper()
	w := &world{log: &record{}, counts: &counts{codes: map[codes.Code]int{}}}
	m := &model.Model{Name: "plain", Version: "0123456789abcdef", Provenance: map[string]string{"tool": "by hand"}, Similarity: similarity(t)}
	o := server.Options{
		Searcher: newPipeline(t, m), Models: func() []*model.Model { return []*model.Model{m} }, Logger: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Recorder: w.counts,
		Limits:   server.Limits{MaxMessageBytes: 1 << 20, MaxConcurrentStreams: 100, MaxBatch: 8, BatchParallelism: 4},
	}
	for _, c := range changes {
		c(&o)
	}
	s, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Drain(10 * time.Second)
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	w.server, w.address = s, listener.Addr().String()
	w.conn = dial(t, w.address, insecure.NewCredentials())
	w.search, w.catalog = likenessv1.NewSearchServiceClient(w.conn), likenessv1.NewCatalogServiceClient(w.conn)
	return w
}

func dial(t testing.TB, address string, c credentials.TransportCredentials, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(c))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func similarity(t testing.TB) rerank.Similarity {
	t.Helper()
	s, err := dot.New(dot.Config{Dim: dim}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newPipeline(t testing.TB, m *model.Model) *search.Engine {
	t.Helper()
	matrix := rerank.NewMatrix(rows, dim)
	payloads := make([]json.RawMessage, rows)
	for r := range rows {
		for i := range dim {
			matrix.Row(r)[i] = float32(r) / rows
		}
		payloads[r] = json.RawMessage(fmt.Sprintf(`{"n": %d, "even": %v}`, r, r%2 == 0))
	}
	store := embedded.New()
	err := store.Load("things", embedded.Collection{
		Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: matrix}}, Payloads: payloads,
	})
	if err != nil {
		t.Fatal(err)
	}
	rt := func(name string) *route.Route {
		return &route.Route{
			Policy: route.Policy{Name: name, Collection: "things", StoreName: "memory", Placement: route.PlacementStored, Strategy: rerank.Average, Depth: 20, ExactSearch: true, Timeout: 5 * time.Second, Failure: route.FailOpen, MaxK: 30, MaxDepth: 40, MaxRounds: 4},
			Parts:  route.Parts{Store: store, Model: route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}},
		}
	}
	p, err := search.New([]*route.Route{rt("things"), rt("other")}, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func question() *likenessv1.SearchRequest {
	return &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: []float32{1, 1, 1, 1}}, K: 3}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// record keeps what was logged.
type record struct {
	mu   sync.Mutex
	text []byte
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, b...)
	return len(b), nil
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.text)
}

// counts is a Recorder.
type counts struct {
	mu     sync.Mutex
	codes  map[codes.Code]int
	panics int
}

func (c *counts) CallStarted(context.Context, string) func(codes.Code) {
	return func(code codes.Code) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.codes[code]++
	}
}

func (c *counts) of(code codes.Code) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.codes[code]
}

func (c *counts) Panicked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.panics++
}

// searcher answers searches by a function, and other calls by the embedded Searcher.
type searcher struct {
	search.Searcher
	search func(context.Context, search.Request) (search.Answer, error)
}

func (s searcher) Search(ctx context.Context, r search.Request) (search.Answer, error) {
	return s.search(ctx, r)
}

// answering replaces the pipeline's Search.
func answering(f func(context.Context, search.Request) (search.Answer, error)) change {
	return func(o *server.Options) { o.Searcher = searcher{o.Searcher, f} }
}

func TestSearch(t *testing.T) {
	w := start(t)
	q := question()
	q.Payload = &likenessv1.PayloadSelector{Fields: []string{"n"}}
	q.Filter = `{"must":[{"key":"even","match":{"value":true}}]}`
	q.Explain = true
	r, err := w.search.Search(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	for _, h := range r.GetHits() {
		ids = append(ids, h.GetId().GetNumber())
	}
	c := r.GetCertificate()
	switch {
	case !slices.Equal(ids, []uint64{48, 46, 44}):
		t.Errorf("ids %v", ids)
	case r.GetHits()[0].GetPayloadJson() == "" || r.GetHits()[0].GetExplanation() == nil:
		t.Errorf("hit %v lacks a payload or an explanation", r.GetHits()[0])
	case c.GetStatus() != likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT || c.GetProof() == likenessv1.Proof_PROOF_UNSPECIFIED:
		t.Errorf("certificate %v", c)
	case r.GetModel().GetVersion() != "0123456789abcdef" || r.GetStrategy() != likenessv1.Strategy_STRATEGY_AVERAGE:
		t.Errorf("model %v, strategy %v", r.GetModel(), r.GetStrategy())
	}
}

func TestThePlanIsTold(t *testing.T) {
	const plan = "scan: 2 ms, the first stage took 9 ms"
	w := start(t, answering(func(context.Context, search.Request) (search.Answer, error) {
		return search.Answer{Strategy: rerank.Scan, Plan: plan}, nil
	}))
	r, err := w.search.Search(t.Context(), question())
	if err != nil || r.GetPlan() != plan {
		t.Errorf("plan %q, %v", r.GetPlan(), err)
	}
}

func TestSearchBatchKeepsEachResult(t *testing.T) {
	w := start(t)
	unknown, nothing := question(), question()
	unknown.Route = "thing"
	nothing.K = 0
	r, err := w.search.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{
		Searches: []*likenessv1.SearchRequest{question(), unknown, nothing, question()},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []codes.Code{codes.OK, codes.NotFound, codes.InvalidArgument, codes.OK}
	for i, result := range r.GetResults() {
		if got := codes.Code(result.GetError().GetCode()); got != want[i] {
			t.Errorf("search %d: %v %s, want %v", i, got, result.GetError().GetMessage(), want[i])
		}
		if want[i] == codes.OK && len(result.GetResponse().GetHits()) != 3 {
			t.Errorf("search %d: %v", i, result.GetResponse())
		}
	}
	for _, code := range []string{"NotFound", "InvalidArgument"} {
		if !hasLine(w.log.String(), []string{`"msg":"call failed"`, `"code":"` + code + `"`, `"method":"/likeness.v1.SearchService/SearchBatch"`}) {
			t.Errorf("no line of the search that failed with %s in\n%s", code, w.log)
		}
	}
}

func TestScoreAndExplain(t *testing.T) {
	w := start(t)
	query := question().GetQuery()
	ids := &likenessv1.ItemIds{Ids: []*likenessv1.ItemId{
		{Id: &likenessv1.ItemId_Number{Number: 49}}, {Id: &likenessv1.ItemId_Number{Number: 1000}},
	}}
	s, err := w.search.Score(t.Context(), &likenessv1.ScoreRequest{Route: "things", Query: query, Items: &likenessv1.ScoreRequest_Ids{Ids: ids}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.GetScores(); len(got) != 2 || got[0] < 3.9 || got[1] == got[1] || s.GetMissing()[0].GetNumber() != 1000 {
		t.Errorf("scores %v, missing %v; want 49·4/50 and NaN", got, s.GetMissing())
	}
	vectors := &likenessv1.Vectors{Vectors: []*likenessv1.Vector{{Values: []float32{1, 2, 3, 4}}}}
	e, err := w.search.Explain(t.Context(), &likenessv1.ExplainRequest{Route: "things", Query: query, Items: &likenessv1.ExplainRequest_Vectors{Vectors: vectors}})
	if err != nil {
		t.Fatal(err)
	}
	if got := e.GetExplanations(); len(got) != 1 || got[0].GetScore() != 10 {
		t.Errorf("explanations %v, want a score of 1+2+3+4", got)
	}
}

func TestCatalog(t *testing.T) {
	w := start(t)
	models, err := w.catalog.ListModels(t.Context(), &likenessv1.ListModelsRequest{})
	if err != nil || len(models.GetModels()) != 1 || models.GetModels()[0].GetQueryDim() != dim {
		t.Errorf("models %v, %v", models, err)
	}
	routes, err := w.catalog.ListRoutes(t.Context(), &likenessv1.ListRoutesRequest{})
	if err != nil || len(routes.GetRoutes()) != 2 || routes.GetRoutes()[1].GetMaxK() != 30 {
		t.Errorf("routes %v, %v", routes, err)
	}
	if _, err := w.catalog.GetModel(t.Context(), &likenessv1.GetModelRequest{Name: "plane"}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown model: %v", err)
	}
	if r, err := w.catalog.GetRoute(t.Context(), &likenessv1.GetRouteRequest{Name: "things"}); err != nil || r.GetRoute().GetStore() != "memory" {
		t.Errorf("route: %v, %v", r, err)
	}
	if _, err := w.catalog.GetRoute(t.Context(), &likenessv1.GetRouteRequest{Name: "thing"}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown route: %v", err)
	}
}

// TestModelsOfACaller: a caller sees the model of its route, whichever other routes have it too.
func TestModelsOfACaller(t *testing.T) {
	for route, want := range map[string]int{"other": 1, "things": 1, "foreign": 0} {
		w := start(t, tokensOf(t, "- {name: one, token: canary, routes: ["+route+"]}\n"))
		if models, err := w.catalog.ListModels(bearing(t, "canary"), &likenessv1.ListModelsRequest{}); err != nil || len(models.GetModels()) != want {
			t.Errorf("a caller of %q: models %v, %v; want %d", route, models, err, want)
		}
	}
}

// The log never holds a vector, at any level, whatever happens to the search.
func TestNoVectorIsLogged(t *testing.T) {
	outcomes := []func(context.Context, search.Request) (search.Answer, error){
		func(context.Context, search.Request) (search.Answer, error) { return search.Answer{}, nil },
		func(context.Context, search.Request) (search.Answer, error) {
			return search.Answer{}, adapters.ErrStore
		},
		func(_ context.Context, r search.Request) (search.Answer, error) {
			panic(fmt.Sprint(r.Query.Vector))
		},
	}
	for _, outcome := range outcomes {
		w := start(t, answering(outcome))
		r := question()
		r.Query.Vector = []float32{8675309, 1, 1, 1}
		_, _ = w.search.Search(t.Context(), r)
		r.Query.Vector = append(r.Query.Vector, 2)
		_, _ = w.search.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{Searches: []*likenessv1.SearchRequest{r}})
		if log := w.log.String(); strings.Contains(log, "8675309") || strings.Contains(log, "8.675309") {
			t.Errorf("the log holds a vector:\n%s", log)
		}
	}
}
