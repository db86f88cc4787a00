package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
)

// deaf is a Recorder that counts nothing.
type deaf struct{}

func (deaf) CallStarted(context.Context, string) func(codes.Code) { return func(codes.Code) {} }
func (deaf) Panicked()                                            {}

func newGateway(t *testing.T, g *gate.Gate) *Gateway {
	t.Helper()
	s, err := server.New(server.Options{
		Models: func() []*model.Model { return nil }, Logger: slog.New(slog.DiscardHandler), Recorder: deaf{}, Gate: g,
		Limits: server.Limits{MaxMessageBytes: 1 << 20, MaxConcurrentStreams: 10, MaxBatch: 8, BatchParallelism: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Drain(0) })
	out, err := New(Options{Server: s, Private: true, MaxMessageBytes: 1 << 20, MaxConcurrentStreams: 7, Gate: g, Recorder: deaf{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Drain(0) })
	return out
}

// TestLimitsOfTheListener: bodies come only as far as the gate counts them.
func TestLimitsOfTheListener(t *testing.T) {
	h := newGateway(t, nil).http
	if got := *h.HTTP2; got.MaxConcurrentStreams != 7 || got.MaxReceiveBufferPerStream != gate.BodyWindowBytes || got.MaxReceiveBufferPerConnection != gate.BodiesWindowBytes {
		t.Errorf("HTTP/2 has the limits %+v", got)
	}
	if h.MaxHeaderBytes != maxHeaderBytes || h.ReadHeaderTimeout <= 0 || h.IdleTimeout <= 0 {
		t.Errorf("a head has %d bytes and %s, a connection %s without a request", h.MaxHeaderBytes, h.ReadHeaderTimeout, h.IdleTimeout)
	}
}

// TestRefusals: a client learns when to come again, rounded up to seconds, and which token is
// wanted; of HTTP/1 it is told that the rest of its body is not read.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		code  codes.Code
		after time.Duration
		want  string
	}{
		"soon": {codes.ResourceExhausted, 100 * time.Millisecond, "1"}, "in a second": {codes.Unavailable, time.Second, "1"},
		"in more than one": {codes.Unavailable, 1200 * time.Millisecond, "2"}, "never": {codes.InvalidArgument, 0, ""},
	} {
		st := status.New(c.code, "x")
		if c.after > 0 {
			var err error
			if st, err = st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(c.after)}); err != nil {
				t.Fatal(err)
			}
		}
		answer := httptest.NewRecorder()
		write(answer, 0, st)
		if got := answer.Header().Get("Retry-After"); got != c.want || answer.Code < 400 || answer.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: status %d, Retry-After %q, want %q", name, answer.Code, got, c.want)
		}
	}
	tooLarge, err := status.New(codes.ResourceExhausted, "x").WithDetails(&errdetails.ErrorInfo{Reason: "MESSAGE_TOO_LARGE"})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	if write(answer, 0, tooLarge); answer.Code != http.StatusRequestEntityTooLarge || answer.Header().Get("Retry-After") != "" {
		t.Errorf("too large: status %d, Retry-After %q", answer.Code, answer.Header().Get("Retry-After"))
	}
	g := newGateway(t, nil)
	for major, want := range map[int]string{1: "close", 2: ""} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/search", strings.NewReader("{}"))
		r.Host, r.ProtoMajor = "other.example", major // which a page of another site asks for
		answer := httptest.NewRecorder()
		g.guard(http.NotFoundHandler()).ServeHTTP(answer, r)
		if answer.Code != http.StatusForbidden || answer.Header().Get("Connection") != want {
			t.Errorf("HTTP/%d: status %d, Connection %q, want %q", major, answer.Code, answer.Header().Get("Connection"), want)
		}
	}
}

// ended is a Recorder that counts the calls that ended, by method and code.
type ended map[string]int

func (e ended) CallStarted(_ context.Context, method string) func(codes.Code) {
	return func(code codes.Code) { e[method+" "+code.String()]++ }
}
func (ended) Panicked() {}

// TestRefusedRequestsAreCounted: a request that becomes no call counts once, with the code of its answer.
func TestRefusedRequestsAreCounted(t *testing.T) {
	g := newGateway(t, nil)
	for url, want := range map[string]string{
		"http://localhost/v2/rerank": "rest InvalidArgument", "http://localhost/nothing": "rest NotFound", "http://other.example/v2/rerank": "rest PermissionDenied",
	} {
		counted := ended{}
		g.options.Recorder = counted
		g.http.Handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, url, strings.NewReader("{}")))
		if !maps.Equal(counted, ended{want: 1}) {
			t.Errorf("%s: counted as %v, want one %s", url, counted, want)
		}
	}
}

// TestIncomingHeaders: a call takes along its id and its trace, and nothing else.
func TestIncomingHeaders(t *testing.T) {
	for header, want := range map[string]bool{"X-Request-Id": true, "Traceparent": true, "Tracestate": true, "Cookie": false, "X-Forwarded-For": false} {
		if name, ok := incoming(header); ok != want || ok && name != header {
			t.Errorf("%s: %q, %t, want %t", header, name, ok, want)
		}
	}
}

// TestABodyHoldsWhatItHas: a compressed body is let in as the largest that it may become, and
// holds only its own bytes while its call is answered.
func TestABodyHoldsWhatItHas(t *testing.T) {
	counting := gate.New(gate.Options{ReceivedBytes: 8 << 20})
	g := newGateway(t, counting)
	const length = 100 << 10
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(bytes.Repeat([]byte(" "), length)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/search", &packed)
	r.Header.Set("Content-Encoding", "gzip")
	answered := false
	g.guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		answered = true
		if held := counting.ReceivedBytes(); held != length {
			t.Errorf("a body of %d bytes holds %d while it is answered", length, held)
		}
		if b, err := io.ReadAll(r.Body); err != nil || len(b) != length {
			t.Errorf("the call has %d bytes, %v", len(b), err)
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
	if held := counting.ReceivedBytes(); !answered || held != 0 {
		t.Errorf("after it was answered (%t) a body holds %d bytes", answered, held)
	}
}

// TestDocuments: a document is an id, or a text that may name an item. A null id counts as left out.
func TestDocuments(t *testing.T) {
	for text, want := range map[string]search.Document{
		`7`: {ID: rerank.UintID(7)}, `-7`: {ID: rerank.IntID(-7)}, `"7"`: {Text: "7"}, `{"text": "a"}`: {Text: "a"}, `{"id": 7, "text": "a"}`: {ID: rerank.UintID(7)},
		`{"id": "7"}`: {ID: rerank.TextID("7")}, `{"id": null, "text": "a"}`: {Text: "a"}, `{"text": "a", "id": null, "more": {}}`: {Text: "a"},
		`{"id": null}`: {}, `{"text": 7}`: {}, `" "`: {}, `1.5`: {}, `true`: {}, `{}`: {},
	} {
		if got, err := documentOf([]byte(text), false); got != want || (err != nil) != (want == search.Document{}) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	if got, err := documentOf([]byte(`"7"`), true); err != nil || got != (search.Document{ID: rerank.TextID("7")}) {
		t.Errorf("as an id: %+v, %v", got, err)
	}
}

// TestAnswersAreReserved: the JSON of an answer takes memory, by its caller's share, before it is made.
func TestAnswersAreReserved(t *testing.T) {
	g := newGateway(t, gate.New(gate.Options{ReceivedBytes: 256 << 10}))
	answer := func(bytes int) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("x", bytes))}}
	}
	if err := g.answering(t.Context(), httptest.NewRecorder(), answer(30<<10)); err != nil {
		t.Errorf("30 KiB, whose JSON takes 180: %v", err)
	}
	if err := g.answering(t.Context(), httptest.NewRecorder(), answer(50<<10)); !errors.Is(err, gate.ErrTooLarge) {
		t.Errorf("50 KiB, whose JSON takes 300: %v", err)
	}
}

// left is a ResponseWriter whose client has left.
type left struct{ http.ResponseWriter }

func (left) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestWhatIsNotPrinted: grpc-gateway, which prints to standard error what it cannot send or parse, does not learn of it.
func TestWhatIsNotPrinted(t *testing.T) {
	g, served := newGateway(t, nil), false
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/routes", http.NoBody)
	r.Header.Set("Content-Type", strings.Repeat("/", 60<<10))
	g.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served = true
		if n, err := w.Write([]byte("{}")); n != 2 || err != nil || r.Header.Get("Content-Type") != "" {
			t.Errorf("wrote %d bytes, %v; Content-Type of %d bytes", n, err, len(r.Header.Get("Content-Type")))
		}
	})).ServeHTTP(left{httptest.NewRecorder()}, r)
	if !served {
		t.Error("the request is refused")
	}
}

// TestACallerIsItsToken, or the address of the client where there are no tokens.
func TestACallerIsItsToken(t *testing.T) {
	for file, want := range map[string]string{"": "192.0.2.1", "tokens": "caller shop"} {
		g := newGateway(t, nil)
		if file != "" {
			file = filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(file, []byte("- {name: shop, token: secret, routes: [things]}"), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := server.New(server.Options{Models: func() []*model.Model { return nil }, Logger: slog.New(slog.DiscardHandler), Recorder: deaf{}, TokensFile: file})
			if err != nil {
				t.Fatal(err)
			}
			g.options.Server = s
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/routes", http.NoBody)
		r.RemoteAddr = "192.0.2.1:1234"
		r.Header.Set("Authorization", "Bearer secret")
		got := ""
		g.guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = gate.CallerOf(r.Context()) })).ServeHTTP(httptest.NewRecorder(), r)
		if got != want {
			t.Errorf("it counts for %q, want %q", got, want)
		}
	}
}
