package qdrant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/qdrant"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
)

// described is a store that only answers for descriptions.
type described struct {
	adapters.Store
	metric adapters.Metric
}

func (d described) Describe(context.Context, string) (adapters.Description, error) {
	return adapters.Description{Fields: []adapters.VectorField{{Dim: 2, Metric: d.metric}}}, nil
}

// searcher gives every search the same answer.
type searcher struct {
	search.Searcher
	route  route.Route
	answer func(search.Request) (search.Answer, error)
}

func (s searcher) Routes() []*route.Route { return []*route.Route{&s.route} }

func (s searcher) Route(string) (*route.Route, error) { return &s.route, nil }

func (s searcher) Search(_ context.Context, r search.Request) (search.Answer, error) {
	return s.answer(r)
}

func found(search.Request) (search.Answer, error) {
	return search.Answer{
		Hits:        []search.Hit{{ID: rerank.UintID(1<<64 - 1), Score: 1e-8}, {ID: rerank.UintID(2), Score: -3}},
		Certificate: rerank.Certificate{Status: rerank.StatusCalibrated},
	}, nil
}

func router(t testing.TB, metric adapters.Metric, failed route.FailurePolicy, answer func(search.Request) (search.Answer, error)) *qdrant.Router {
	t.Helper()
	r, err := routing.New(searcher{answer: answer, route: route.Route{
		Policy: route.Policy{Name: "r", Collection: "c", StoreName: "s", Ramp: 100, MaxK: 100, Depth: 50, Failure: failed},
		Parts:  route.Parts{Store: described{metric: metric}},
	}}, routing.Options{Store: "s", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return qdrant.New(r)
}

// Rewrite rewrites no query, so that every call passes once it was read.
func (searcher) Rewrite(context.Context, search.Request) (*search.Rewritten, error) {
	return nil, search.ErrNotRewritten
}

// rewriter makes a router whose route rewrites searches.
func rewriter(t testing.TB) *qdrant.Router {
	t.Helper()
	r, err := routing.New(searcher{route: route.Route{
		Policy: route.Policy{Name: "r", Collection: "c", StoreName: "s", Placement: route.PlacementRewrite},
		Parts:  route.Parts{Store: described{metric: adapters.Cosine}},
	}}, routing.Options{Store: "s", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return qdrant.New(r)
}

// accepted makes a router believe that its database accepted the anonymous caller lately.
func accepted(r *qdrant.Router) *qdrant.Router {
	r.InterceptREST(httptest.NewRequest(http.MethodPost, "/collections/c/points/recommend", nil), []byte("{}"), func(context.Context, string, []byte) rest.Answer {
		return rest.Answer{Status: http.StatusOK}
	})
	return r
}

const body = `{"vector":[1,2],"limit":2,"with_payload":true}`

func ask(r *qdrant.Router, body string, confirmed string) (rest.Reply, string) {
	in := httptest.NewRequest(http.MethodPost, "/collections/c/points/search", strings.NewReader(body))
	sent := ""
	reply := accepted(r).InterceptREST(in, []byte(body), func(_ context.Context, _ string, b []byte) rest.Answer {
		sent = string(b)
		return rest.Answer{Status: http.StatusOK, Header: http.Header{}, Body: []byte(confirmed)}
	})
	return reply, sent
}

func TestRESTAnswerIsTheConfirmedPointsInTheHitsOrder(t *testing.T) {
	const confirmed = `{"usage":null,"result":[{"id":2,"version":7,"score":9.0,"payload":{"n":1e308}},{"id":18446744073709551615,"score":1}],"status":"ok","time":1}`
	reply, sent := ask(router(t, adapters.Cosine, route.FailOpen, found), body, confirmed)
	if reply.Answer == nil || reply.Status != "rescored; route=r; certificate=calibrated" {
		t.Fatalf("%+v", reply)
	}
	const want = `{"usage":null,"result":[{"id":18446744073709551615,"score":0.00000001},{"id":2,"version":7,"score":-3.0,"payload":{"n":1e308}}],"status":"ok","time":`
	if got := string(reply.Answer.Body); !strings.HasPrefix(got, want) || !json.Valid(reply.Answer.Body) {
		t.Errorf("answer %s\nwant %s", got, want)
	}
	if sent != `{"vector":[1,2],"limit":2,"with_payload":true,"filter":{"must":[{"has_id":[18446744073709551615,2]}]},"params":{"exact":true}}` {
		t.Errorf("asked %s", sent)
	}
}

func TestFailures(t *testing.T) {
	broken := func(search.Request) (search.Answer, error) {
		return search.Answer{}, fmt.Errorf("%w: scorer", failure.ErrDegraded)
	}
	for name, tc := range map[string]struct {
		router    *qdrant.Router
		confirmed string
		status    string
		code      int // 0: the request goes on
	}{
		"fail open":         {router(t, adapters.Cosine, route.FailOpen, broken), "", "degraded; reason=failed", 0},
		"fail closed":       {router(t, adapters.Cosine, route.FailClosed, broken), "", "degraded; reason=failed", http.StatusServiceUnavailable},
		"panic":             {router(t, adapters.Cosine, route.FailOpen, func(search.Request) (search.Answer, error) { panic("x") }), "", "degraded; reason=panic", 0},
		"hidden point":      {router(t, adapters.Cosine, route.FailOpen, found), `{"result":[{"id":2,"score":9.0}],"status":"ok","time":1}`, "degraded; reason=confirm", 0},
		"another form":      {router(t, adapters.Cosine, route.FailOpen, found), `[]`, "degraded; reason=confirm", 0},
		"lower is better":   {router(t, adapters.L2, route.FailOpen, found), "", "passed; reason=metric", 0},
		"filter not valid":  {router(t, adapters.Cosine, route.FailOpen, func(search.Request) (search.Answer, error) { return search.Answer{}, adapters.ErrFilter }), "", "passed; reason=filter", 0},
		"caller not let in": {router(t, adapters.Cosine, route.FailOpen, func(search.Request) (search.Answer, error) { return search.Answer{}, adapters.ErrRefused }), "", "passed; reason=refused", 0},
	} {
		reply, _ := ask(tc.router, body, tc.confirmed)
		code := 0
		if reply.Answer != nil {
			code = reply.Answer.Status
		}
		if reply.Status != tc.status || code != tc.code {
			t.Errorf("%s: %q and code %d, want %q and %d", name, reply.Status, code, tc.status, tc.code)
		}
	}
}

func TestGRPCFailClosed(t *testing.T) {
	r := router(t, adapters.Cosine, route.FailClosed, func(search.Request) (search.Answer, error) { return search.Answer{}, failure.ErrDegraded })
	b, err := proto.Marshal(&client.SearchPoints{CollectionName: "c", Vector: []float32{1, 2}, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	down, err := rawgrpc.Dial("127.0.0.1:1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer down.Close()
	reply := accepted(r).Intercept(down)[client.Points_Search_FullMethodName].Answer(t.Context(), b)
	if status.Code(reply.Err) != codes.Unavailable || reply.Trailer.Get("likeness-status")[0] != "degraded; reason=failed" {
		t.Errorf("%+v", reply)
	}
}

func TestTwoRoutesOfOneVector(t *testing.T) {
	s := twice{searcher{route: route.Route{Policy: route.Policy{Name: "a", Collection: "c", StoreName: "s", Ramp: 100}}}}
	if _, err := routing.New(s, routing.Options{Store: "s", Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "proxy.routes") {
		t.Errorf("error %v", err)
	}
}

type twice struct{ searcher }

func (s twice) Routes() []*route.Route { return []*route.Route{&s.route, &s.route} }

// FuzzREST: the body of a search is answered in valid JSON, or forwarded with a reason.
func FuzzREST(f *testing.F) {
	r := router(f, adapters.Cosine, route.FailOpen, found)
	f.Add(body)
	f.Add(`{"vector":{"name":"","vector":[1,2]},"limit":2,"offset":0,"filter":{"must":[]},"params":{"quantization":{"ignore":true}}}`)
	f.Add(`{"limit":2,"limit":3}`)
	f.Fuzz(func(t *testing.T, body string) {
		reply, sent := ask(r, body, `{"result":[{"id":2,"score":9.0},{"id":18446744073709551615,"score":1}],"time":1}`)
		switch {
		case reply.Answer == nil && !strings.HasPrefix(reply.Status, "passed; reason="):
			t.Errorf("%q goes on with %q", body, reply.Status)
		case reply.Answer != nil && !(json.Valid([]byte(sent)) && json.Valid(reply.Answer.Body)):
			t.Errorf("%q became %q and %q", body, sent, reply.Answer.Body)
		}
	})
}

// FuzzGRPC: a request passes with a reason, or without one if it names no routed collection.
func FuzzGRPC(f *testing.F) {
	r := router(f, adapters.Cosine, route.FailOpen, func(search.Request) (search.Answer, error) { return search.Answer{}, adapters.ErrFilter })
	for method := range r.Intercept(nil) {
		f.Add(method, []byte{0x0a, 1, 'c', 0x12, 4, 0, 0, 0, 0, 0x20, 1})
		f.Add(method, []byte{0x0a, 1, 'c', 0xfa, 0xff, 0x0f})
	}
	f.Fuzz(func(t *testing.T, method string, request []byte) {
		intercept := r.Intercept(nil)[method].Answer
		if intercept == nil {
			t.Skip("no search")
		}
		accepted(r)
		reply := intercept(t.Context(), request)
		if reply.Message != nil || reply.Err != nil {
			t.Errorf("%x is answered: %+v", request, reply)
		}
		for _, s := range reply.Trailer.Get("likeness-status") {
			if !strings.HasPrefix(s, "passed; reason=") {
				t.Errorf("%x: %q", request, s)
			}
		}
	})
}

// TestOtherSearchesSayWhyTheyPass: kinds of searches that are never answered are forwarded with the
// reason.
func TestOtherSearchesSayWhyTheyPass(t *testing.T) {
	r := accepted(router(t, adapters.Cosine, route.FailOpen, found))
	for path, want := range map[string]string{
		"c/points/recommend": "passed; reason=not-nearest", "c/points/discover/batch": "passed; reason=not-nearest",
		"c/points/search/groups": "passed; reason=groups", "c/points/query/groups": "passed; reason=groups",
		"c/points/scroll": "", "c/points/search/batch/x": "", "other/points/recommend": "",
	} {
		reply := r.InterceptREST(httptest.NewRequest(http.MethodPost, "/collections/"+path, strings.NewReader("{}")), []byte("{}"), nil)
		if reply.Answer != nil || reply.Status != want {
			t.Errorf("%s: %+v, want %q", path, reply, want)
		}
	}
	for path, want := range map[string]string{"recommend": "passed; reason=not-nearest", "search": "passed; reason=malformed"} {
		if reply := r.InterceptREST(httptest.NewRequest(http.MethodPost, "/collections/c/points/"+path, nil), nil, nil); reply.Answer != nil || reply.Status != want {
			t.Errorf("%s without a body: %+v, want %q", path, reply, want)
		}
	}
	methods := r.Intercept(nil)
	for method, want := range map[string]string{
		client.Points_Recommend_FullMethodName: "passed; reason=not-nearest", client.Points_SearchGroups_FullMethodName: "passed; reason=groups",
	} {
		for collection, want := range map[string][]string{"c": {want}, "other": nil} {
			request, err := proto.Marshal(&client.RecommendPoints{CollectionName: collection})
			if err != nil {
				t.Fatal(err)
			}
			reply := methods[method].Answer(t.Context(), request)
			if got := reply.Trailer.Get(routing.StatusKey); reply.Message != nil || reply.Err != nil || !slices.Equal(got, want) {
				t.Errorf("%s of %q: %+v, want %q", method, collection, reply, want)
			}
		}
	}
}

// TestARefusedCallerLearnsThatAlone: where the route permits no other answer, a caller whom the database refuses gets the
// database's refusal, and others learn that the route does not answer.
func TestARefusedCallerLearnsThatAlone(t *testing.T) {
	broken := func(search.Request) (search.Answer, error) { return search.Answer{}, failure.ErrDegraded }
	for database, want := range map[int]int{http.StatusForbidden: http.StatusForbidden, http.StatusUnauthorized: http.StatusUnauthorized, http.StatusOK: http.StatusServiceUnavailable} {
		in := httptest.NewRequest(http.MethodPost, "/collections/c/points/search", strings.NewReader(body))
		reply := accepted(router(t, adapters.Cosine, route.FailClosed, broken)).InterceptREST(in, []byte(body), func(context.Context, string, []byte) rest.Answer {
			return rest.Answer{Status: database, Header: http.Header{}}
		})
		if reply.Answer == nil || reply.Answer.Status != want || (reply.Status == "") != (want != http.StatusServiceUnavailable) {
			t.Errorf("the database answers %d: %+v, want %d", database, reply, want)
		}
	}
}
