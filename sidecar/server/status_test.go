package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/server"
)

// details holds the details of a status.
type details struct {
	info  *errdetails.ErrorInfo
	bad   *errdetails.BadRequest
	retry *errdetails.RetryInfo
	id    string // of the request
}

func detailsOf(err error) details {
	var d details
	for _, any := range status.Convert(err).Details() {
		switch v := any.(type) {
		case *errdetails.ErrorInfo:
			d.info = v
		case *errdetails.BadRequest:
			d.bad = v
		case *errdetails.RetryInfo:
			d.retry = v
		case *errdetails.RequestInfo:
			d.id = v.GetRequestId()
		}
	}
	return d
}

// Every sentinel has a code, a reason and a text; text that may hold what is
// not the caller's business ("canary") is left out.
func TestErrorsBecomeStatuses(t *testing.T) {
	limit := &adapters.LimitError{Limit: "max_depth", Value: 9, Max: 5, Remedy: "ask for less"}
	field := &plan.FieldError{Field: "k", Problem: "is 99, at most 30"}
	tests := []struct {
		err    error
		code   codes.Code
		reason string
		public bool
		retry  bool
	}{
		{route.ErrUnknown, codes.NotFound, "ROUTE_NOT_FOUND", true, false},
		{field, codes.InvalidArgument, "FIELD_INVALID", true, false},
		{rerank.ErrQuery, codes.InvalidArgument, "QUERY_INVALID", true, false},
		{rerank.ErrStrategy, codes.InvalidArgument, "STRATEGY_INVALID", true, false},
		{adapters.ErrFilter, codes.InvalidArgument, "FILTER_INVALID", true, false},
		{adapters.ErrID, codes.InvalidArgument, "ID_INVALID", true, false},
		{adapters.ErrDimension, codes.InvalidArgument, "DIMENSION_MISMATCH", true, false},
		{limit, codes.InvalidArgument, "LIMIT_EXCEEDED", true, false},
		{follow.ErrRoute, codes.FailedPrecondition, "ROUTE_NOT_FOLLOWED", true, false},
		{follow.ErrClosed, codes.Unavailable, "ENDING", true, false},
		{route.ErrSetup, codes.FailedPrecondition, "ROUTE_NOT_SERVABLE", true, false},
		{adapters.ErrNotFound, codes.FailedPrecondition, "COLLECTION_NOT_FOUND", true, false},
		{adapters.ErrField, codes.FailedPrecondition, "FIELD_NOT_FOUND", true, false},
		{adapters.ErrMetric, codes.FailedPrecondition, "METRIC_NOT_SUPPORTED", true, false},
		{adapters.ErrUnsupported, codes.FailedPrecondition, "NOT_SUPPORTED_BY_STORE", true, false},
		{adapters.ErrRefused, codes.PermissionDenied, "STORE_REFUSED", false, false},
		{adapters.ErrUnavailable, codes.Unavailable, "STORE_UNAVAILABLE", false, true},
		{failure.ErrDegraded, codes.Unavailable, "NOT_RESCORED", false, true},
		{ranker.ErrQuery, codes.InvalidArgument, "QUERY_INVALID", true, false},
		{errors.Join(failure.ErrDegraded, ranker.ErrUnavailable), codes.Unavailable, "RANKER_UNAVAILABLE", false, true},
		{errors.Join(failure.ErrDegraded, ranker.ErrAnswer), codes.Unavailable, "RANKER_FAILED", false, true},
		{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED", false, false},
		{context.Canceled, codes.Canceled, "CANCELLED", false, false},
		{adapters.ErrStore, codes.Internal, "STORE_FAILED", false, false},
		{events.ErrDisk, codes.Unavailable, "EVENTS_FAILED", false, true},
		{events.ErrFull, codes.ResourceExhausted, "OVERLOADED", true, true},
		{events.ErrClosed, codes.Unavailable, "ENDING", true, false},
		{errors.New("anything else"), codes.Internal, "INTERNAL", false, false},
		{status.Error(codes.DataLoss, "of the store"), codes.Internal, "INTERNAL", false, false},
	}
	for _, tc := range tests {
		t.Run(tc.reason, func(t *testing.T) {
			w := start(t, answering(func(context.Context, search.Request) (search.Answer, error) {
				return search.Answer{}, fmt.Errorf("canary: %w", tc.err)
			}))
			_, err := w.search.Search(t.Context(), question())
			d := detailsOf(err)
			switch {
			case status.Code(err) != tc.code:
				t.Errorf("code %v, want %v", status.Code(err), tc.code)
			case d.info.GetReason() != tc.reason || d.info.GetDomain() != server.Domain:
				t.Errorf("info %v", d.info)
			case strings.Contains(err.Error(), "canary") != tc.public:
				t.Errorf("text %q", err)
			case (d.retry != nil) != tc.retry:
				t.Errorf("retry %v", d.retry)
			}
			if errors.Is(tc.err, limit) && !maps.Equal(d.info.GetMetadata(), map[string]string{"limit": "max_depth", "value": "9", "max": "5"}) {
				t.Errorf("limit %v", d.info.GetMetadata())
			}
			if errors.Is(tc.err, field) && d.bad.GetFieldViolations()[0].GetField() != "k" {
				t.Errorf("field %v", d.bad)
			}
			for named, err := range map[string]error{"query": rerank.ErrQuery, "strategy": rerank.ErrStrategy, "filter": adapters.ErrFilter} {
				if errors.Is(tc.err, err) && d.bad.GetFieldViolations()[0].GetField() != named {
					t.Errorf("field %v, want %q", d.bad, named)
				}
			}
			if !tc.public && tc.code != codes.Canceled && tc.code != codes.DeadlineExceeded && !strings.Contains(w.log.String(), "canary") {
				t.Error("the log does not have the error")
			}
		})
	}
}

func TestBadRequestsAreNamed(t *testing.T) {
	nan := float32(math.NaN())
	tests := []struct {
		name   string
		change func(*likenessv1.SearchRequest)
		code   codes.Code
		field  string // "" where the text names it
		text   string
	}{
		{"k of zero", func(r *likenessv1.SearchRequest) { r.K = 0 }, codes.InvalidArgument, "k", ""},
		{"negative k", func(r *likenessv1.SearchRequest) { r.K = -1 }, codes.InvalidArgument, "k", ""},
		{"k over the limit", func(r *likenessv1.SearchRequest) { r.K = 31 }, codes.InvalidArgument, "k", "30"},
		{"no route", func(r *likenessv1.SearchRequest) { r.Route = "" }, codes.InvalidArgument, "route", ""},
		{"unknown route", func(r *likenessv1.SearchRequest) { r.Route = "nowhere" }, codes.NotFound, "", "nowhere"},
		{"no query", func(r *likenessv1.SearchRequest) { r.Query = nil }, codes.InvalidArgument, "query", ""},
		{"empty vector", func(r *likenessv1.SearchRequest) { r.Query.Vector = nil }, codes.InvalidArgument, "query.vector", ""},
		{"long vector", func(r *likenessv1.SearchRequest) { r.Query.Vector = make([]float32, 65537) }, codes.InvalidArgument, "query.vector", "65536"},
		{"NaN", func(r *likenessv1.SearchRequest) { r.Query.Vector[2] = nan }, codes.InvalidArgument, "query.vector[2]", ""},
		{"infinity", func(r *likenessv1.SearchRequest) { r.Query.Vector[0] = float32(math.Inf(1)) }, codes.InvalidArgument, "query.vector[0]", ""},
		{"dimension", func(r *likenessv1.SearchRequest) { r.Query.Vector = make([]float32, 5) }, codes.InvalidArgument, "", "5"},
		{"context", func(r *likenessv1.SearchRequest) { r.Query.Context = map[string]float32{"a": 1} }, codes.InvalidArgument, "query.context", ""},
		{"strategy", func(r *likenessv1.SearchRequest) { r.Strategy = 99 }, codes.InvalidArgument, "strategy", ""},
		{"scan without a table", func(r *likenessv1.SearchRequest) { r.Strategy = likenessv1.Strategy_STRATEGY_SCAN }, codes.InvalidArgument, "", ""},
		{"depth", func(r *likenessv1.SearchRequest) { r.Depth = math.MaxInt32 }, codes.InvalidArgument, "", ""},
		{"gap", func(r *likenessv1.SearchRequest) { r.MaxGap = &nan }, codes.InvalidArgument, "max_gap", ""},
		{"filter", func(r *likenessv1.SearchRequest) { r.Filter = "{" }, codes.InvalidArgument, "", ""},
		{"payload field", func(r *likenessv1.SearchRequest) { r.Payload = &likenessv1.PayloadSelector{Fields: []string{""}} }, codes.InvalidArgument, "payload.fields[0]", ""},
	}
	w := start(t)
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := question()
			tc.change(r)
			_, err := w.search.Search(t.Context(), r)
			if status.Code(err) != tc.code || !strings.Contains(status.Convert(err).Message(), tc.text) {
				t.Fatalf("error %v, want %v with %q", err, tc.code, tc.text)
			}
			d := detailsOf(err)
			if d.info.GetReason() == "" {
				t.Errorf("no ErrorInfo in %v", err)
			}
			if tc.field != "" && (len(d.bad.GetFieldViolations()) == 0 || d.bad.GetFieldViolations()[0].GetField() != tc.field) {
				t.Errorf("violations %v, want field %s", d.bad, tc.field)
			}
		})
	}
}

// raw sends bytes as they are.
type raw struct{}

func (raw) Name() string                    { return "proto" }
func (raw) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (raw) Unmarshal(b []byte, v any) error { *(v.(*[]byte)) = b; return nil }

func TestMessages(t *testing.T) {
	w := start(t)
	send := func(message []byte, options ...grpc.CallOption) error {
		var answer []byte
		return w.conn.Invoke(t.Context(), likenessv1.SearchService_Search_FullMethodName, message, &answer,
			append(options, grpc.ForceCodec(raw{}))...)
	}
	big := make([]byte, 2<<20)
	tests := []struct {
		name string
		err  error
		code codes.Code
		text string
	}{
		{"malformed", send([]byte{0xff, 0xff, 0xff}), codes.InvalidArgument, "likeness.v1.SearchRequest"},
		{"not UTF-8", send([]byte{0x0a, 0x01, 0xff}), codes.InvalidArgument, "likeness.v1.SearchRequest"},
		{"empty", send(nil), codes.InvalidArgument, "route"},
		{"huge", send(big), codes.ResourceExhausted, "1048576"},
		{"bomb", send(big, grpc.UseCompressor(gzip.Name)), codes.ResourceExhausted, "limits.max_message_bytes"},
	}
	for _, tc := range tests {
		if status.Code(tc.err) != tc.code || !strings.Contains(tc.err.Error(), tc.text) {
			t.Errorf("%s: error %v, want %v with %q", tc.name, tc.err, tc.code, tc.text)
		}
		if tc.code == codes.InvalidArgument && detailsOf(tc.err).info == nil {
			t.Errorf("%s: no ErrorInfo", tc.name)
		}
	}
	if !strings.Contains(w.log.String(), "limits.max_message_bytes") {
		t.Error("the log does not name the setting")
	}
}

// What exceeds a route's rate says which setting it is and when to come again; a
// batch is charged for each of its searches.
func TestRates(t *testing.T) {
	w := start(t, func(o *server.Options) {
		o.Searcher = admitted(o.Searcher, 9, gate.Limit{Rate: 1e-3, Burst: 3})
	})
	searches := []*likenessv1.SearchRequest{question(), question(), question(), question()}
	r, err := w.search.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{Searches: searches})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, one := range r.GetResults() {
		if codes.Code(one.GetError().GetCode()) == codes.ResourceExhausted && strings.Contains(one.GetError().GetMessage(), "routes.things.rate") {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d of 4 were refused", refused)
	}
	_, err = w.search.Search(t.Context(), question())
	d := detailsOf(err)
	if status.Code(err) != codes.ResourceExhausted || d.info.GetMetadata()["setting"] != "routes.things.rate" {
		t.Errorf("error %v, %v", err, d.info)
	}
	if after := d.retry.GetRetryDelay().AsDuration().Seconds(); after < 500 || after > 1000 {
		t.Errorf("to be sent again after %g s", after)
	}
}

// admitted returns a searcher behind a gate for so many searches, with a limit of route things.
func admitted(s search.Searcher, most int, things gate.Limit) search.Searcher {
	return search.Admitted{Searcher: s, By: gate.New(gate.Options{Limits: gate.Limits{MaxSearches: most, Routes: map[string]gate.Limit{"things": things}}})}
}

// While there is no memory searches are refused before they are read, and
// everything else is answered.
func TestNoMemory(t *testing.T) {
	w := start(t, func(o *server.Options) { o.Gate = gate.New(gate.Options{}) })
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1))
	_, err := w.search.Search(t.Context(), question())
	first := detailsOf(err)
	if status.Code(err) != codes.ResourceExhausted || first.retry == nil || first.info.GetMetadata()["setting"] != "limits.memory" {
		t.Errorf("search: %v", err)
	}
	_, err = w.search.Search(t.Context(), question())
	if d := detailsOf(err); first.id == "" || d.id == "" || d.id == first.id {
		t.Errorf("the ids of two refused requests: %q, %q", first.id, d.id)
	}
	_, err = w.search.Search(metadata.AppendToOutgoingContext(t.Context(), server.RequestIDHeader, "mine"), question())
	if d := detailsOf(err); d.id != "mine" || d.retry == nil {
		t.Errorf("the caller's id: %+v", d)
	}
	if n := w.counts.of(codes.ResourceExhausted); n != 3 {
		t.Errorf("%d refused calls are counted, want 3", n)
	}
	if _, err := w.catalog.ListRoutes(t.Context(), &likenessv1.ListRoutesRequest{}); err != nil {
		t.Errorf("catalog: %v", err)
	}
	if _, err := grpc_health_v1.NewHealthClient(w.conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
}

func TestHugeAnswerNamesTheSetting(t *testing.T) {
	w := start(t, answering(func(context.Context, search.Request) (search.Answer, error) {
		return search.Answer{Hits: []search.Hit{{ID: rerank.UintID(1), Payload: bytes.Repeat([]byte("x"), 2<<20)}}}, nil
	}))
	_, err := w.search.Search(t.Context(), question())
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limits.max_message_bytes") {
		t.Errorf("error %v", err)
	}
}

func TestDegradedIsInTheTrailer(t *testing.T) {
	w := start(t, answering(func(context.Context, search.Request) (search.Answer, error) {
		return search.Answer{Degraded: &search.Degraded{Reason: failure.Scoring, Detail: "why"}}, nil
	}))
	var trailer metadata.MD
	r, err := w.search.Search(t.Context(), question(), grpc.Trailer(&trailer))
	if err != nil || r.GetDegraded().GetReason() != failure.Scoring {
		t.Fatalf("%v, %v", r, err)
	}
	if got := trailer.Get(server.StatusTrailer); len(got) != 1 || got[0] != "degraded; reason=scoring_failed" {
		t.Errorf("trailer %v", got)
	}
}

func TestPanicIsAnError(t *testing.T) {
	w := start(t, answering(func(context.Context, search.Request) (search.Answer, error) { panic("canary") }))
	_, err := w.search.Search(t.Context(), question())
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "canary") {
		t.Errorf("error %v", err)
	}
	r, err := w.search.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{Searches: []*likenessv1.SearchRequest{question()}})
	if err != nil || codes.Code(r.GetResults()[0].GetError().GetCode()) != codes.Internal {
		t.Errorf("in a batch: %v, %v", r, err)
	}
	if w.counts.panics != 2 || !strings.Contains(w.log.String(), "status_test.go") {
		t.Errorf("%d panics counted; log %s", w.counts.panics, w.log)
	}
}

func TestLimitsOfSearches(t *testing.T) {
	w := start(t, func(o *server.Options) { o.Limits.BatchParallelism = 1 })
	many := make([]*likenessv1.SearchRequest, 9)
	for i := range many {
		many[i] = question()
	}
	_, err := w.search.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{Searches: many})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "limits.max_batch is 8") {
		t.Errorf("batch of 9: %v", err)
	}
	_, err = w.search.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("empty batch: %v", err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	w = start(t, answering(func(context.Context, search.Request) (search.Answer, error) {
		close(entered)
		<-release
		return search.Answer{}, nil
	}), func(o *server.Options) { o.Searcher = admitted(o.Searcher, 1, gate.Limit{}) })
	first := make(chan error, 1)
	go func() {
		_, err := w.search.Search(context.WithoutCancel(t.Context()), question())
		first <- err
	}()
	<-entered
	_, err = w.search.Search(t.Context(), question())
	if d := detailsOf(err); status.Code(err) != codes.ResourceExhausted || d.retry == nil || d.info.GetReason() != "OVERLOADED" {
		t.Errorf("second search: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Errorf("first search: %v", err)
	}
}

func TestTimeoutReachesThePipeline(t *testing.T) {
	w := start(t, answering(func(ctx context.Context, _ search.Request) (search.Answer, error) {
		<-ctx.Done()
		return search.Answer{}, ctx.Err()
	}))
	r := question()
	r.Timeout = durationOf(1)
	if _, err := w.search.Search(t.Context(), r); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("error %v", err)
	}
}

func TestRequestID(t *testing.T) {
	w := start(t)
	for given, kept := range map[string]bool{"abc-1": true, strings.Repeat("x", 200): false, "": false} {
		var header metadata.MD
		ctx := metadata.AppendToOutgoingContext(t.Context(), server.RequestIDHeader, given)
		if _, err := w.search.Search(ctx, question(), grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if got := header.Get(server.RequestIDHeader); len(got) != 1 || got[0] == "" || (got[0] == given) != kept {
			t.Errorf("id %q for %q", got, given)
		}
	}
}
