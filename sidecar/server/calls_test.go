package server_test

import (
	"context"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
)

// telling is an Admin that records its calls, and answers.
type telling struct{ calls []any }

func (a *telling) List(route string) ([]rollout.Info, error) {
	a.calls = append(a.calls, route)
	return []rollout.Info{{Name: "v1", Previous: true}, {Name: "v2", Active: true, Activated: time.Unix(9, 0)}}, nil
}

func (a *telling) Activate(_ context.Context, route, version string, force bool) (rollout.Activation, error) {
	a.calls = append(a.calls, [3]any{route, version, force})
	return rollout.Activation{Version: rollout.Info{Name: version}, Before: "v1"}, nil
}

func (a *telling) RollBack(_ context.Context, route string) (rollout.Activation, error) {
	a.calls = append(a.calls, route)
	return rollout.Activation{Version: rollout.Info{Name: "v1"}, Before: "v2"}, nil
}

func (a *telling) Collect(_ context.Context, route string, remove bool) ([]rollout.Garbage, error) {
	a.calls = append(a.calls, [2]any{route, remove})
	return []rollout.Garbage{{Version: "v0", Removed: remove}}, nil
}

// TestAdminCalls: what an operator asks is what is done, with the operator's route, version and consent.
func TestAdminCalls(t *testing.T) {
	a := &telling{}
	w := start(t, func(o *server.Options) { o.Admin, o.OpenAdmin = a, true })
	c := likenessv1.NewAdminServiceClient(w.conn)
	list, err := c.ListVersions(t.Context(), &likenessv1.ListVersionsRequest{Route: "things"})
	if v := list.GetVersions(); err != nil || len(v) != 2 || v[0].GetName() != "v1" || !v[0].GetPrevious() || v[0].GetActivated() != nil || !v[1].GetActive() || v[1].GetActivated().GetSeconds() != 9 {
		t.Errorf("versions %v, %v", list, err)
	}
	for _, force := range []bool{false, true} {
		r, err := c.ActivateVersion(t.Context(), &likenessv1.ActivateVersionRequest{Route: "things", Version: "v2", Force: force})
		if err != nil || r.GetActivation().GetVersion().GetName() != "v2" || r.GetActivation().GetPrevious() != "v1" {
			t.Errorf("activated %v, %v", r, err)
		}
	}
	back, err := c.RollBack(t.Context(), &likenessv1.RollBackRequest{Route: "things"})
	if err != nil || back.GetActivation().GetVersion().GetName() != "v1" {
		t.Errorf("rolled back to %v, %v", back, err)
	}
	for _, remove := range []bool{false, true} {
		r, err := c.CollectVersions(t.Context(), &likenessv1.CollectVersionsRequest{Route: "things", Remove: remove})
		if g := r.GetGarbage(); err != nil || len(g) != 1 || g[0].GetVersion() != "v0" || g[0].GetRemoved() != remove {
			t.Errorf("collected %v, %v", r, err)
		}
	}
	want := []any{"things", [3]any{"things", "v2", false}, [3]any{"things", "v2", true}, "things", [2]any{"things", false}, [2]any{"things", true}}
	if !reflect.DeepEqual(a.calls, want) {
		t.Errorf("asked for %v, want %v", a.calls, want)
	}
	if _, err := c.Reconcile(t.Context(), &likenessv1.ReconcileRequest{Route: "things"}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a sidecar that follows nothing: %v", err)
	}
}

// incoming returns a context with the headers of a call that came over another listener.
func incoming(t *testing.T, pairs ...string) context.Context {
	t.Helper()
	return metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))
}

// TestRerankWithinTheProcess: a call of another listener has the checks, the count and the errors of a gRPC call.
func TestRerankWithinTheProcess(t *testing.T) {
	n := &noting{scores: search.ScoreAnswer{Scores: []float32{3}}}
	w := start(t, tokensOf(t, "- {name: one, token: token-one, routes: [other]}\n- {name: all, token: token-all}\n"), func(o *server.Options) {
		n.Searcher = o.Searcher
		o.Searcher = n
	})
	text := []search.Document{{Text: "words"}}
	for name, c := range map[string]struct {
		token, route string
		documents    []search.Document
		code         codes.Code
		asked        string // the route
	}{
		"of any route":         {"token-all", "things", text, codes.OK, "things"},
		"of the only route":    {"token-one", "", text, codes.OK, "other"},
		"of two routes":        {"token-all", "", text, codes.InvalidArgument, ""},
		"of another's route":   {"token-one", "things", text, codes.PermissionDenied, ""},
		"without a token":      {"", "things", text, codes.Unauthenticated, ""},
		"of an empty document": {"token-all", "things", []search.Document{{}}, codes.InvalidArgument, ""},
	} {
		n.all = nil
		before := w.counts.of(c.code)
		ctx := incoming(t, "x-request-id", "mine")
		if c.token != "" {
			ctx = incoming(t, "authorization", "Bearer "+c.token)
		}
		answer, err := w.server.Rerank(ctx, search.ScoreRequest{Route: c.route, Documents: c.documents})
		if status.Code(err) != c.code || w.counts.of(c.code) != before+1 || (err == nil) != slices.Equal(answer.Scores, []float32{3}) {
			t.Errorf("%s: %v, %v, want %s; counted %d times", name, answer, err, c.code, w.counts.of(c.code)-before)
		}
		if err != nil && len(n.all) > 0 || err == nil && (n.last(t).ScoreRequest.Route != c.asked || !slices.Equal(n.last(t).Documents, c.documents)) {
			t.Errorf("%s: asked for %+v", name, n.all)
		}
	}
	for header, ok := range map[string]bool{"Bearer token-all": true, "Bearer guess": false, "": false} {
		if _, err := w.server.Authenticate([]string{header}); (err == nil) != ok || !ok && server.StatusOf(err).Code() != codes.Unauthenticated {
			t.Errorf("%q: %v", header, err)
		}
	}
	if caller, err := start(t).server.Authenticate(nil); err != nil || caller != "" {
		t.Errorf("without a tokens file: %v", err)
	}
	if got := server.RequestID("mine"); got != "mine" || server.RequestID("") == "" {
		t.Errorf("a request has the id %q", got)
	}
}

// TestDocumentsOfACall: the limits of documents, each of them and just beyond.
func TestDocumentsOfACall(t *testing.T) {
	n := &noting{}
	w := startNoting(t, n)
	for name, c := range map[string]struct {
		documents []search.Document
		field     string // "": allowed
	}{
		"most":         {slices.Repeat([]search.Document{{Text: "x"}}, server.MaxDocuments), ""},
		"one more":     {slices.Repeat([]search.Document{{Text: "x"}}, server.MaxDocuments+1), "documents:"},
		"a long text":  {[]search.Document{{Text: strings.Repeat("x", server.MaxTextBytes)}}, ""},
		"a longer one": {[]search.Document{{Text: "x"}, {Text: strings.Repeat("x", server.MaxTextBytes+1)}}, "documents[1]:"},
		"a long id":    {[]search.Document{{ID: rerank.TextID(strings.Repeat("x", 65535))}}, ""},
		"a longer id":  {[]search.Document{{ID: rerank.TextID(strings.Repeat("x", 65536))}}, "documents[0]:"},
		"the number 0": {[]search.Document{{ID: rerank.UintID(0)}}, ""},
		"nothing":      {[]search.Document{{Text: "x"}, {Text: "x"}, {}}, "documents[2]:"},
	} {
		_, err := w.server.Rerank(incoming(t), search.ScoreRequest{Route: "things", Documents: c.documents})
		if (err == nil) != (c.field == "") || err != nil && !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v, want an error of %q", name, err, c.field)
		}
	}
	none := &likenessv1.ScoreRequest{Route: "things", Query: question().GetQuery(), Items: &likenessv1.ScoreRequest_Documents{Documents: &likenessv1.Documents{}}}
	if _, err := w.search.Score(t.Context(), none); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "documents") {
		t.Errorf("a list of no documents: %v", err)
	}
}

// TestServersInsideTheProcess: a gateway reaches every service, over one connection for all its callers. A hosted
// server counts the bytes of its messages.
func TestServersInsideTheProcess(t *testing.T) {
	waiting, release := make(chan struct{}), make(chan struct{})
	answer := func(context.Context, search.Request) (search.Answer, error) {
		waiting <- struct{}{}
		<-release
		return search.Answer{}, nil
	}
	plainModel := &model.Model{Name: "plain", Version: "1", Similarity: similarity(t)}
	for name, inside := range map[string]func(s *server.Server) *grpc.Server{
		"local": (*server.Server).Local,
		"hosted": func(s *server.Server) *grpc.Server {
			to := s.Hosted([]grpc.ServerOption{grpc.MaxConcurrentStreams(math.MaxUint32)})
			grpc_health_v1.RegisterHealthServer(to, hostHealth{})
			return to
		},
	} {
		budget := gate.New(gate.Options{ReceivedBytes: 4 << 20})
		s, err := server.New(server.Options{
			Searcher: searcher{newPipeline(t, plainModel), answer}, Models: func() []*model.Model { return nil }, Logger: discard(), Recorder: &counts{codes: map[codes.Code]int{}}, Gate: budget,
			Limits: server.Limits{MaxMessageBytes: 1 << 20, MaxConcurrentStreams: 1, MaxBatch: 1, BatchParallelism: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		to := inside(s)
		listener := bufconn.Listen(1 << 16)
		served := make(chan error, 1)
		go func() { served <- to.Serve(listener) }()
		conn := dial(t, "passthrough:///inside", insecure.NewCredentials(), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		long := question()
		long.Query.Vector = make([]float32, gate.UncountedBytes/4)
		ended := make(chan error, 2)
		for range cap(ended) {
			go func() {
				_, err := likenessv1.NewSearchServiceClient(conn).Search(t.Context(), long)
				ended <- err
			}()
		}
		<-waiting
		<-waiting // both are answered at once
		if held := budget.ReceivedBytes(); (held > 0) != (name == "hosted") {
			t.Errorf("%s: the messages hold %d bytes of the budget", name, held)
		}
		release <- struct{}{}
		release <- struct{}{}
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.SetRouteServing("things", true)
		for service, want := range map[string]grpc_health_v1.HealthCheckResponse_ServingStatus{"route/things": grpc_health_v1.HealthCheckResponse_SERVING, "likeness.v1.SearchService": grpc_health_v1.HealthCheckResponse_NOT_SERVING} {
			r, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
			if err != nil || r.GetStatus() != want {
				t.Errorf("%s: %s is %v, %v", name, service, r.GetStatus(), err)
			}
		}
		r, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "plugin"})
		if (err == nil && r.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING) != (name == "hosted") {
			t.Errorf("%s: a service of the host's is %v, %v", name, r.GetStatus(), err)
		}
		_ = conn.Close()
		to.Stop()
		<-served
		if s.Drain(time.Second) {
			t.Errorf("%s: calls were cut", name)
		}
	}
}

// hostHealth is the health of a host, which serves everything.
type hostHealth struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (hostHealth) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// TestFeedbackOfARoute: events are kept by the route that they name, and the caller learns what became of each.
func TestFeedbackOfARoute(t *testing.T) {
	kept, err := events.OpenRoute(t.TempDir(), "things", events.RouteOptions{Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}()
	w := start(t, func(o *server.Options) { o.Events = events.Book{"things": kept, "gone": kept} })
	feed := func(route string, n int) (*likenessv1.FeedbackResponse, error) {
		answer := events.AnswerID{Call: kept.NewCall()}
		item := &likenessv1.ItemId{Id: &likenessv1.ItemId_Text{Text: "a"}}
		all := slices.Repeat([]*likenessv1.FeedbackEvent{{AnswerId: answer.String(), Item: item, Kind: "click"}}, n)
		return likenessv1.NewFeedbackServiceClient(w.conn).Feedback(t.Context(), &likenessv1.FeedbackRequest{Route: route, Events: all})
	}
	for n, code := range map[int]codes.Code{0: codes.InvalidArgument, 1: codes.OK, 3: codes.OK, server.MaxFeedback: codes.OK, server.MaxFeedback + 1: codes.InvalidArgument} {
		r, err := feed("things", n)
		if status.Code(err) != code || err == nil && (r.GetAccepted() != int32(n) || r.GetKnown() != int32(n-1) || len(r.GetRefused()) > 0) {
			t.Errorf("%d events: %v, %v, want %s", n, r, err, code)
		}
	}
	for route, code := range map[string]codes.Code{"other": codes.FailedPrecondition, "nowhere": codes.NotFound, "gone": codes.NotFound} {
		if r, err := feed(route, 1); status.Code(err) != code {
			t.Errorf("route %s: %v, %v, want %s", route, r, err, code)
		}
	}
	r, err := likenessv1.NewFeedbackServiceClient(w.conn).Feedback(t.Context(), &likenessv1.FeedbackRequest{Route: "things", Events: []*likenessv1.FeedbackEvent{
		{AnswerId: events.AnswerID{Call: kept.NewCall()}.String(), Kind: "click", Item: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: 1}}}, {AnswerId: "x", Kind: "click"},
	}})
	if err != nil || r.GetAccepted() != 1 || len(r.GetRefused()) != 1 || r.GetRefused()[0].GetIndex() != 1 || r.GetRefused()[0].GetReason() == "" {
		t.Errorf("a batch with one event of no answer: %v, %v", r, err)
	}
	if err := kept.Close(); err != nil {
		t.Error(err)
	}
	if r, err := feed("things", 1); status.Code(err) != codes.Unavailable {
		t.Errorf("after the end: %v, %v", r, err)
	}
}

// TestCallsWithinTheProcessAreTraced: a rerank call of another listener has a span, like any other call.
func TestCallsWithinTheProcessAreTraced(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	n := &noting{}
	w := start(t, func(o *server.Options) {
		n.Searcher, o.TracerProvider = o.Searcher, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		o.Searcher = n
	})
	if _, err := w.server.Rerank(incoming(t), search.ScoreRequest{Route: "things", Documents: []search.Document{{Text: "words"}}}); err != nil {
		t.Fatal(err)
	}
	if all := spans.Ended(); len(all) != 1 || all[0].Name() != "likeness.v1.SearchService/Score" {
		t.Errorf("spans %v", all)
	}
}
