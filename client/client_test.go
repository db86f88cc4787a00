package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/client"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sidecar(t *testing.T, listen string) *running {
	t.Helper()
	s, err := startSidecar(t.TempDir(), listen)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *running) stopped(t *testing.T) {
	t.Helper()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

func dial(t *testing.T, target string, o client.Options) *client.Client {
	t.Helper()
	c, err := client.Dial(target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func things(k int) client.Search {
	return client.Search{Route: "things", Query: client.Query{Vector: []float32{1, 2}}, K: k}
}

func TestErrors(t *testing.T) {
	s := sidecar(t, "")
	defer s.stopped(t)
	c := dial(t, s.address, client.Options{})
	search := func(s client.Search) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.Search(ctx, s)
			return err
		}
	}
	wrong := things(1)
	wrong.Strategy = "guess"
	short := things(1)
	short.Query.Vector = []float32{1}
	large := things(1)
	large.Query.Vector = make([]float32, 2000)
	for _, test := range []struct {
		name   string
		call   func(context.Context) error
		is     error
		reason string
	}{
		{"k", search(things(0)), client.ErrInvalid, "FIELD_INVALID"},
		{"k beyond the schema's numbers", search(things(math.MaxInt)), client.ErrInvalid, "FIELD_INVALID"},
		{"strategy", search(wrong), client.ErrInvalid, "FIELD_INVALID"},
		{"dimension", search(short), client.ErrInvalid, "QUERY_INVALID"},
		{"route", search(client.Search{Route: "none", Query: client.Query{Vector: []float32{1, 2}}, K: 1}), client.ErrNotFound, "ROUTE_NOT_FOUND"},
		{"size", search(large), client.ErrTooLarge, ""},
		{"batch", func(ctx context.Context) error {
			_, err := c.SearchBatch(ctx, make([]client.Search, 5))
			return err
		}, client.ErrInvalid, "LIMIT_EXCEEDED"},
		{"deadline", func(ctx context.Context) error {
			ctx, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
			defer cancel()
			return search(things(1))(ctx)
		}, context.DeadlineExceeded, ""},
		{"cancelled", func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return search(things(1))(ctx)
		}, client.ErrCanceled, ""},
	} {
		err := test.call(client.WithRequestID(t.Context(), "mine"))
		var e *client.Error
		if !errors.Is(err, test.is) || !errors.As(err, &e) || e.Reason != test.reason || e.Temporary() {
			t.Errorf("%s: %v, want %v (%s)", test.name, err, test.is, test.reason)
		}
	}
	_, err := c.Search(client.WithRequestID(t.Context(), "mine"), things(0))
	var e *client.Error
	if !errors.As(err, &e) || e.RequestID != "mine" || e.Fields[0].Name != "k" {
		t.Errorf("%+v: want the request id mine and the field k", e)
	}
	results, err := c.SearchBatch(t.Context(), []client.Search{things(1), things(0)})
	if err != nil || results[0].Err != nil || !results[0].Answer.Certificate.Exact() || !errors.Is(results[1].Err, client.ErrInvalid) {
		t.Errorf("a batch: %+v, %v", results, err)
	}
	_ = c.Close()
	if _, err := c.Routes(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a closed client: %v", err)
	}
}

func TestCatalogAndScores(t *testing.T) {
	s := sidecar(t, "")
	defer s.stopped(t)
	c := dial(t, s.address, client.Options{})
	routes, err := c.Routes(t.Context())
	if err != nil || len(routes) != 1 || routes[0].Name != "things" || routes[0].Placement != "stored" || !routes[0].FailOpen {
		t.Errorf("routes %+v, %v", routes, err)
	}
	models, err := c.Models(t.Context())
	if err != nil || len(models) != 1 || models[0].Kind != "dot" || models[0].QueryDim != 2 {
		t.Errorf("models %+v, %v", models, err)
	}
	scores, err := c.Score(t.Context(), "things", things(1).Query, client.Items{IDs: []client.ID{client.Text("7"), client.Text("zz")}})
	if err != nil || scores.Scores[0] != 2 || !math.IsNaN(float64(scores.Scores[1])) || scores.Missing[0] != client.Text("zz") {
		t.Errorf("scores by id %+v, %v", scores, err)
	}
	scores, err = c.Score(t.Context(), "things", things(1).Query, client.Items{Vectors: [][]float32{{2, 2}}})
	if err != nil || scores.Scores[0] != 6 {
		t.Errorf("scores of vectors %+v, %v", scores, err)
	}
}

// TestToken: a token does not cross a network in plain text unless that is said.
func TestToken(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(tokens, []byte("- {name: shop, token: open}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sidecar(t, fmt.Sprintf(", auth: {tokens_file: %q}", tokens))
	defer s.stopped(t)
	for token, want := range map[string]error{"open": nil, "guess": client.ErrUnauthenticated} {
		c := dial(t, s.address, client.Options{Token: client.StaticToken(token)})
		if _, err := c.Search(t.Context(), things(1)); !errors.Is(err, want) {
			t.Errorf("token %s: %v, want %v", token, err, want)
		}
	}
	if _, err := dial(t, s.address, client.Options{}).Search(t.Context(), things(1)); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("no token: %v", err)
	}
	o := client.Options{Token: client.StaticToken("open")}
	if _, err := client.Dial("likeness.example:7600", o); !errors.Is(err, client.ErrOptions) {
		t.Errorf("plain text to a network: %v", err)
	}
	o.AllowPlainToken = true
	dial(t, "likeness.example:7600", o)
}

// TestBalancing: calls go to all sidecars, and none fails when one of them ends.
func TestBalancing(t *testing.T) {
	first, second := sidecar(t, ""), sidecar(t, "")
	defer second.stopped(t)
	c := dial(t, first.address+", "+second.address, client.Options{})
	search := func(n int) {
		t.Helper()
		for range n {
			if _, err := c.Search(t.Context(), things(1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	search(50)
	ended := make(chan error, 1)
	go func() { ended <- first.stop() }()
	search(200)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	search(50)
}

// outage is a service that takes no call.
type outage struct {
	likenessv1.UnimplementedSearchServiceServer
	calls atomic.Int64
}

func (o *outage) Search(context.Context, *likenessv1.SearchRequest) (*likenessv1.SearchResponse, error) {
	o.calls.Add(1)
	return nil, status.Error(codes.Unavailable, "out of service")
}

// TestRetriesAreFewInAnOutage: no more than 1.1 calls for one that is asked for.
func TestRetriesAreFewInAnOutage(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, out, well := grpc.NewServer(), &outage{}, health.NewServer()
	well.SetServingStatus(likenessv1.SearchService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	likenessv1.RegisterSearchServiceServer(server, out)
	grpc_health_v1.RegisterHealthServer(server, well)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	c := dial(t, listener.Addr().String(), client.Options{})
	const asked = 100
	for range asked {
		_, err := c.Search(t.Context(), things(1))
		var e *client.Error
		if !errors.Is(err, client.ErrUnavailable) || !errors.As(err, &e) || !e.Temporary() || !strings.Contains(e.Error(), "out of service") {
			t.Fatal(err)
		}
	}
	if n := out.calls.Load(); n > asked*11/10 || n <= asked {
		t.Errorf("%d calls for %d, want a few more and at most 110", n, asked)
	}
}

func TestIDs(t *testing.T) {
	for text, id := range map[string]client.ID{"18446744073709551615": client.Number(math.MaxUint64), "-5": client.Int(-5), "5": client.Int(5), "k": client.Text("k")} {
		if id.String() != text {
			t.Errorf("%s, want %s", id, text)
		}
	}
	if client.Int(5) != client.Number(5) || client.Text("5") == client.Number(5) {
		t.Error("a number is one whichever way it was made, and no text is one")
	}
	if _, ok := client.Number(math.MaxUint64).Int(); ok {
		t.Error("it does not fit")
	}
}
