package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math"
	"net"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/client"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// scripted is a sidecar whose answers a test writes.
type scripted struct {
	likenessv1.UnimplementedSearchServiceServer
	likenessv1.UnimplementedCatalogServiceServer
	likenessv1.UnimplementedFeedbackServiceServer
	address string
	health  *health.Server
	fails   error // every call
	batches int
	calls   int
	tokens  []string
	timed   bool // the last search had a deadline
}

func (s *scripted) Search(ctx context.Context, _ *likenessv1.SearchRequest) (*likenessv1.SearchResponse, error) {
	_, s.timed = ctx.Deadline()
	s.calls++
	s.tokens = metadata.ValueFromIncomingContext(ctx, "authorization")
	return &likenessv1.SearchResponse{}, s.fails
}

func (s *scripted) SearchBatch(ctx context.Context, r *likenessv1.SearchBatchRequest) (*likenessv1.SearchBatchResponse, error) {
	if s.batches++; s.batches == 2 {
		return nil, status.Error(codes.InvalidArgument, "no")
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-request-id", "mine"))
	out := &likenessv1.SearchBatchResponse{}
	for range r.GetSearches() {
		out.Results = append(out.Results, &likenessv1.SearchResult{Result: &likenessv1.SearchResult_Error{Error: &likenessv1.Error{Code: int32(codes.NotFound), Message: "text"}}})
	}
	return out, s.fails
}

func (s *scripted) Score(context.Context, *likenessv1.ScoreRequest) (*likenessv1.ScoreResponse, error) {
	return &likenessv1.ScoreResponse{Scores: []float32{3}, Missing: []*likenessv1.ItemId{{Id: &likenessv1.ItemId_Number{Number: 7}}}, Model: &likenessv1.ModelRef{Name: "m", Version: "v"}}, s.fails
}

func (s *scripted) Explain(context.Context, *likenessv1.ExplainRequest) (*likenessv1.ExplainResponse, error) {
	return &likenessv1.ExplainResponse{Explanations: []*likenessv1.Explanation{{Score: 3, Terms: []*likenessv1.Term{{Logit: 4}}}}, Missing: []*likenessv1.ItemId{{Id: &likenessv1.ItemId_Text{Text: "k"}}}}, s.fails
}

func (s *scripted) GetRoute(_ context.Context, r *likenessv1.GetRouteRequest) (*likenessv1.GetRouteResponse, error) {
	return &likenessv1.GetRouteResponse{Route: &likenessv1.Route{Name: r.GetName(), Depth: 5}}, s.fails
}

func (s *scripted) ListRoutes(context.Context, *likenessv1.ListRoutesRequest) (*likenessv1.ListRoutesResponse, error) {
	return &likenessv1.ListRoutesResponse{Routes: []*likenessv1.Route{{Name: "a"}, {Name: "b"}}}, s.fails
}

func (s *scripted) ListModels(context.Context, *likenessv1.ListModelsRequest) (*likenessv1.ListModelsResponse, error) {
	return &likenessv1.ListModelsResponse{Models: []*likenessv1.Model{{Name: "m", Version: "v", Kind: "mol", QueryDim: 2, ItemDim: 3, UserIds: true, Provenance: map[string]string{"k": "v"}}}}, s.fails
}

func (s *scripted) Feedback(context.Context, *likenessv1.FeedbackRequest) (*likenessv1.FeedbackResponse, error) {
	return &likenessv1.FeedbackResponse{}, s.fails
}

// startScripted runs a sidecar, with TLS where credentials are given.
func startScripted(t *testing.T, o ...grpc.ServerOption) *scripted {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, server := &scripted{address: listener.Addr().String(), health: health.NewServer()}, grpc.NewServer(o...)
	s.health.SetServingStatus(likenessv1.SearchService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	likenessv1.RegisterSearchServiceServer(server, s)
	likenessv1.RegisterCatalogServiceServer(server, s)
	likenessv1.RegisterFeedbackServiceServer(server, s)
	grpc_health_v1.RegisterHealthServer(server, s.health)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
	return s
}

// TestCalls: each call has the sidecar's answer, and its error where the sidecar refuses.
func TestCalls(t *testing.T) {
	s := startScripted(t)
	c := dial(t, s.address, client.Options{})
	items := client.Items{IDs: []client.ID{client.Number(1)}}
	type explained struct {
		all     []client.Explanation
		missing []client.ID
	}
	for name, call := range map[string]struct {
		do   func() (any, error)
		want any
	}{
		"Route":  {func() (any, error) { return c.Route(t.Context(), "things") }, &client.Route{Name: "things", Depth: 5}},
		"Routes": {func() (any, error) { return c.Routes(t.Context()) }, []client.Route{{Name: "a"}, {Name: "b"}}},
		"Models": {func() (any, error) { return c.Models(t.Context()) }, []client.Model{{Name: "m", Version: "v", Kind: "mol", QueryDim: 2, ItemDim: 3, UserIDs: true, Provenance: map[string]string{"k": "v"}}}},
		"Score":  {func() (any, error) { return c.Score(t.Context(), "things", client.Query{}, items) }, &client.Scores{Scores: []float32{3}, Missing: []client.ID{client.Number(7)}, Model: "m", ModelVersion: "v"}},
		"Explain": {func() (any, error) {
			all, missing, err := c.Explain(t.Context(), "things", client.Query{}, items)
			return explained{all, missing}, err
		}, explained{[]client.Explanation{{Score: 3, Terms: []client.Term{{Logit: 4}}}}, []client.ID{client.Text("k")}}},
		"Search":      {func() (any, error) { return c.Search(t.Context(), things(1)) }, &client.Answer{Hits: []client.Hit{}}},
		"SearchBatch": {func() (any, error) { return c.SearchBatch(t.Context(), nil) }, []client.Result{}},
		"Feedback":    {func() (any, error) { return c.Feedback(t.Context(), "things", nil) }, &client.Receipt{}},
	} {
		s.fails = nil
		if got, err := call.do(); err != nil || !reflect.DeepEqual(got, call.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, call.want)
		}
		s.fails, s.batches = status.Error(codes.PermissionDenied, "no"), 0
		if got, err := call.do(); !errors.Is(err, client.ErrForbidden) {
			t.Errorf("%s: %+v, %v where the sidecar refuses", name, got, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := grpc_health_v1.NewHealthClient(c.Conn()).Check(t.Context(), nil); status.Code(err) != codes.Canceled {
		t.Errorf("the connection of a closed client: %v", err)
	}
}

// TestEachGoesOn: a call that fails is the error of each of its searches, and the next ones are sent, until the reader leaves.
func TestEachGoesOn(t *testing.T) {
	s := startScripted(t)
	c := dial(t, s.address, client.Options{})
	searches := slices.Repeat([]client.Search{things(1)}, 5)
	want := []error{client.ErrNotFound, client.ErrNotFound, client.ErrInvalid, client.ErrInvalid, client.ErrNotFound}
	for i, r := range c.Each(t.Context(), slices.Values(searches), 2) {
		var e *client.Error
		if !errors.Is(r.Err, want[i]) || !errors.As(r.Err, &e) || (e.RequestID == "mine") != (want[i] == client.ErrNotFound) { //nolint:errorlint // the very same
			t.Errorf("search %d: %+v, want %v", i, r.Err, want[i])
		}
	}
	for _, batch := range []int{1, 0, -1, 2, 5, 9} { // fewer than one is one
		s.batches = 2
		for range c.Each(t.Context(), slices.Values(searches), batch) {
			break
		}
		if n := s.batches - 2; n != 1 {
			t.Errorf("batches of %d: %d calls for a reader that leaves after one result", batch, n)
		}
		s.batches = 2
		for range c.Each(t.Context(), slices.Values(searches), batch) {
		}
		if n, size := s.batches-2, max(batch, 1); n != (len(searches)+size-1)/size {
			t.Errorf("batches of %d: %d calls for %d searches", batch, n, len(searches))
		}
	}
}

// TestSidecarsThatAreNotReady: a sidecar that does not answer searches gets none.
func TestSidecarsThatAreNotReady(t *testing.T) {
	first, second := startScripted(t), startScripted(t)
	second.health.SetServingStatus(likenessv1.SearchService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	for _, target := range []string{first.address + ", " + second.address, startScripted(t).address + "," + first.address} {
		c := dial(t, target, client.Options{Timeout: -1})
		first.calls = 0
		for first.calls == 0 { // the client connects to its sidecars in any order
			if _, err := c.Search(t.Context(), things(1)); err != nil {
				t.Fatal(err)
			}
		}
		if first.timed {
			t.Error("a client without a limit of time sends one")
		}
	}
	if second.calls > 0 {
		t.Errorf("a sidecar that is not ready got %d searches", second.calls)
	}
}

// TestSecureCalls: with TLS, the sidecar's certificate is verified, and a token goes with each call.
func TestSecureCalls(t *testing.T) {
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	defer web.Close()
	s := startScripted(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: web.TLS.Certificates, NextProtos: []string{"h2"}})))
	trusted := x509.NewCertPool()
	trusted.AddCert(web.Certificate())
	token := client.StaticToken("open")
	if _, err := dial(t, s.address, client.Options{TLS: &tls.Config{RootCAs: trusted}, Token: token}).Search(t.Context(), things(1)); err != nil || !slices.Equal(s.tokens, []string{"Bearer open"}) {
		t.Errorf("came with %q, %v", s.tokens, err)
	}
	s.calls = 0
	for name, o := range map[string]client.Options{"plain text": {}, "an unknown authority": {TLS: &tls.Config{RootCAs: x509.NewCertPool()}}} {
		o.NoRetry = true
		if _, err := dial(t, s.address, o).Search(t.Context(), things(1)); !errors.Is(err, client.ErrUnavailable) || s.calls > 0 {
			t.Errorf("%s: %v, %d calls", name, err, s.calls)
		}
	}
	failing := func(context.Context) (string, error) { return "", errors.New("expired") }
	if _, err := dial(t, s.address, client.Options{TLS: &tls.Config{RootCAs: trusted}, Token: failing}).Search(t.Context(), things(1)); !errors.Is(err, client.ErrUnauthenticated) || !strings.Contains(err.Error(), "expired") || s.calls > 0 {
		t.Errorf("without its token: %v, %d calls", err, s.calls)
	}
}

// TestOptionsThatAreRefused: an option out of range is an error before anything is sent.
func TestOptionsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		o  client.Options
		ok bool
	}{
		"the default":      {client.Options{}, true},
		"the least":        {client.Options{MaxMessageBytes: 1}, true},
		"the most":         {client.Options{MaxMessageBytes: math.MaxInt32}, true},
		"fewer than none":  {client.Options{MaxMessageBytes: -1}, false},
		"more than gRPC's": {client.Options{MaxMessageBytes: math.MaxInt32 + 1}, false},
		"of another's":     {client.Options{Dial: []grpc.DialOption{grpc.WithDefaultServiceConfig("{")}}, false},
	} {
		got, err := client.Dial("localhost:1", c.o)
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, client.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = got.Close()
		}
	}
}
