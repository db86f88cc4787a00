package qdrant

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestRepliesOfARoute: a caller whom the database refuses gets its refusal and learns nothing of the route.
func TestRepliesOfARoute(t *testing.T) {
	answer := func(status int) rest.Answer { return rest.Answer{Status: status} }
	for name, c := range map[string]struct {
		outcome routing.Outcome[rest.Answer]
		status  string
		code    int // 0: the request goes on to the database
	}{
		"answered": {routing.Outcome[rest.Answer]{Answered: true, Answer: answer(200), Status: "s"}, "s", 200},
		"refused":  {routing.Outcome[rest.Answer]{Answered: true, Answer: answer(http.StatusForbidden), Status: "s"}, "", http.StatusForbidden},
		"no key":   {routing.Outcome[rest.Answer]{Answered: true, Answer: answer(http.StatusUnauthorized), Status: "s"}, "", http.StatusUnauthorized},
		"passed":   {routing.Outcome[rest.Answer]{Status: "s"}, "s", 0},
		"closed":   {routing.Outcome[rest.Answer]{Refused: "no", Status: "s"}, "s", http.StatusServiceUnavailable},
	} {
		reply := replyOf(c.outcome, func(time.Duration) {})
		if reply.Answer != nil {
			if code := reply.Answer.Status; code != c.code || reply.Status != c.status {
				t.Errorf("%s: %d with status %q, want %d, %q", name, code, reply.Status, c.code, c.status)
			}
		} else if c.code != 0 || reply.Status != c.status || reply.Passed == nil {
			t.Errorf("%s: %+v", name, reply)
		}
	}
}

// TestConfirmingReadsOverREST: a read of the hits that failed, or that the database broke off, confirms nothing.
func TestConfirmingReadsOverREST(t *testing.T) {
	body := `{"vector":[1],"limit":1}`
	whole, err := readObject([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	all := []routing.Ranked{{Hits: []search.Hit{{ID: rerank.UintID(4), Score: 2}}, Limit: 1}}
	const found = `{"result":[{"id":4,"version":1,"score":1}],"status":"ok","time":0.1}`
	for name, c := range map[string]struct {
		answer rest.Answer
		ok     bool
	}{
		"whole":   {rest.Answer{Status: 200, Header: http.Header{}, Body: []byte(found)}, true},
		"cut":     {rest.Answer{Status: 200, Header: http.Header{}, Body: []byte(found), Cut: true}, false},
		"failed":  {rest.Answer{Status: 500, Header: http.Header{}, Body: []byte(found)}, false},
		"another": {rest.Answer{Status: 200, Header: http.Header{}, Body: []byte(`{"result":7}`)}, false},
	} {
		call := &restCall{body: []byte(body), whole: whole, searches: []object{whole}, began: time.Now(), forward: func(context.Context, string, []byte) rest.Answer { return c.answer }}
		got, err := call.Confirm(t.Context(), all)
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, errConfirm) || c.ok && !strings.Contains(string(got.Body), `"score":2`) {
			t.Errorf("%s: %s, %v", name, got.Body, err)
		}
	}
}

// TestConfirmedReplies: a confirmed reply has the database's own header and trailer, and rows in the order of the hits. One that
// cannot be read, or has lists too few, confirms nothing.
func TestConfirmedReplies(t *testing.T) {
	point := func(id uint64) *qdrant.ScoredPoint { return &qdrant.ScoredPoint{Id: qdrant.NewIDNum(id), Score: 1} }
	message, err := proto.Marshal(&qdrant.SearchResponse{Result: []*qdrant.ScoredPoint{point(4), point(9)}, Time: 3})
	if err != nil {
		t.Fatal(err)
	}
	all := []routing.Ranked{{Hits: []search.Hit{{ID: rerank.UintID(9), Score: 2}, {ID: rerank.UintID(4), Score: 1.5}}, Limit: 2}}
	c := &call{answer: (&qdrant.SearchResponse{}).ProtoReflect().Type(), began: time.Now()}
	header, trailer := metadata.Pairs("x-served-by", "node 1"), metadata.Pairs("x-usage", "7")
	got, err := c.rebuild(t.Context(), rawgrpc.Reply{Message: message, Header: header, Trailer: trailer}, all)
	if err != nil || !reflect.DeepEqual(got.Header, header) || !reflect.DeepEqual(got.Trailer, trailer) {
		t.Fatalf("%+v, %v", got, err)
	}
	answer := &qdrant.SearchResponse{}
	if err := proto.Unmarshal(got.Message, answer); err != nil || len(answer.GetResult()) != 2 || answer.GetResult()[0].GetId().GetNum() != 9 || answer.GetResult()[0].GetScore() != 2 || answer.GetResult()[1].GetId().GetNum() != 4 || answer.GetTime() >= 3 {
		t.Errorf("%v, %v", answer, err)
	}
	if _, err := c.rebuild(t.Context(), rawgrpc.Reply{Message: message}, append(all, all...)); !errors.Is(err, errConfirm) {
		t.Errorf("one list for two searches: %v", err)
	}
	if _, err := c.rebuild(t.Context(), rawgrpc.Reply{Message: []byte{0xff}}, all); !errors.Is(err, errConfirm) {
		t.Errorf("no message: %v", err)
	}
}

// TestWhatAStatusMeans for the caller's right to read, and for a search that was rewritten.
func TestWhatAStatusMeans(t *testing.T) {
	unavailable := routing.Degraded{Reason: "unavailable"}
	for name, c := range map[string]struct {
		answer  rest.Answer
		access  routing.Access
		refusal error
	}{
		"answered":     {rest.Answer{Status: 200}, routing.AccessGranted, nil},
		"cut off":      {rest.Answer{Status: 200, Cut: true}, routing.AccessUnknown, unavailable},
		"no key":       {rest.Answer{Status: 401}, routing.AccessDenied, routing.ErrDenied},
		"no right":     {rest.Answer{Status: 403}, routing.AccessDenied, routing.ErrDenied},
		"too often":    {rest.Answer{Status: 429}, routing.AccessUnknown, routing.ErrDenied},
		"wrong":        {rest.Answer{Status: 400}, routing.AccessUnknown, routing.Pass("refused")},
		"not found":    {rest.Answer{Status: 404}, routing.AccessUnknown, routing.Pass("refused")},
		"failed":       {rest.Answer{Status: 500}, routing.AccessUnknown, unavailable},
		"not reached":  {rest.Answer{Status: 502}, routing.AccessUnknown, unavailable},
		"gone astray":  {rest.Answer{Status: 302}, routing.AccessUnknown, unavailable},
		"empty status": {rest.Answer{}, routing.AccessUnknown, unavailable},
	} {
		if got := (&restCall{}).Access(c.answer); got != c.access {
			t.Errorf("%s: access %v, want %v", name, got, c.access)
		}
		if got := refusalREST(c.answer); !errors.Is(got, c.refusal) || (got == nil) != (c.refusal == nil) {
			t.Errorf("%s: %v, want %v", name, got, c.refusal)
		}
	}
}

// TestConsistencyOfARequest: a search that asks for a read consistency needs a route that permits it.
func TestConsistencyOfARequest(t *testing.T) {
	for query, want := range map[string][]string{"": nil, "?timeout=3": nil, "?consistency=majority": {"consistency"}} {
		c := &restCall{in: httptest.NewRequest(http.MethodPost, "/collections/c/points/search"+query, nil), body: []byte(`{"vector":[1],"limit":1}`)}
		if asked, err := c.readNow(t.Context()); err != nil || len(asked.Searches) != 1 || !slices.Equal(asked.Searches[0].Needs, want) {
			t.Errorf("%q: %+v, %v; want the needs %v", query, asked, err, want)
		}
	}
}

// TestCollectionsThatChangeMeanwhile: if a row of an exact ranking is gone, the search is ranked again, and not given up.
func TestCollectionsThatChangeMeanwhile(t *testing.T) {
	asked := object{{"vector", []byte("[1]")}, {"limit", []byte("1")}}
	all := []routing.Ranked{{Hits: []search.Hit{{ID: rerank.UintID(5), Score: 2}}, Limit: 1, Certificate: rerank.StatusExact}}
	call := &restCall{whole: asked, searches: []object{asked}, began: time.Now(), forward: func(context.Context, string, []byte) rest.Answer {
		return rest.Answer{Status: 200, Header: http.Header{}, Body: []byte(`{"result":[]}`)}
	}}
	if _, err := call.Confirm(t.Context(), all); !errors.Is(err, routing.ErrChanged) {
		t.Errorf("%v, want ErrChanged", err)
	}
}

// TestTypesOfValues: a search with a value that Qdrant refuses is left to Qdrant.
func TestTypesOfValues(t *testing.T) {
	for key, values := range map[string]map[string]routing.Pass{
		"using":       {`"v"`: "", "null": "", "7": "malformed"},
		"with_vector": {`true`: "", `["a"]`: "", `[1]`: "malformed", `"a"`: "malformed"},
		"filter":      {`{}`: "", `[]`: "malformed"},
	} {
		for value, want := range values {
			if got := checkTypes(object{{key, []byte(value)}}); got != want {
				t.Errorf("%s %s: %q, want %q", key, value, got, want)
			}
		}
	}
}

// TestListsOfAnAnswer: each kind of request has its points in another place of the answer.
func TestListsOfAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		of   request
		body string
		want string
	}{
		"search":       {request{}, `{"result":[{"id":1}]}`, `[{"id":1}]`},
		"searches":     {request{batch: true}, `{"result":[[{"id":1}],[]]}`, `[{"id":1}] []`},
		"query":        {request{query: true}, `{"result":{"points":[{"id":1}]}}`, `[{"id":1}]`},
		"queries":      {request{query: true, batch: true}, `{"result":[{"points":[{"id":1}]},{"points":[]}]}`, `[{"id":1}] []`},
		"groups":       {request{query: true, groups: true}, `{"result":{"groups":[{"hits":[{"id":1}]},{"hits":[{"id":2}]}]}}`, `[{"id":1},{"id":2}]`},
		"another form": {request{query: true}, `{"result":7}`, ""},
		"no batch":     {request{batch: true}, `{"result":{}}`, ""},
		"not JSON":     {request{}, `{`, ""},
	} {
		lists, err := c.of.lists([]byte(c.body))
		var got []string
		for _, list := range lists {
			got = append(got, string(list))
		}
		if text := strings.Join(got, " "); (err != nil) != (c.want == "") || err == nil && text != c.want {
			t.Errorf("%s: %s, %v, want %s", name, text, err, c.want)
		}
	}
}

// TestAnswersMadeOfHits: an answer that is made from hits has the form of its request, and says how long it took.
func TestAnswersMadeOfHits(t *testing.T) {
	hits := func() []routing.Ranked {
		hit := search.Hit{ID: rerank.UintID(4), Score: 2, Version: 3}
		return []routing.Ranked{{Hits: []search.Hit{hit}, Limit: 1}}
	}
	began := time.Now().Add(-time.Second)
	points := []*qdrant.ScoredPoint{{Id: qdrant.NewIDNum(4), Score: 2, Version: 3}}
	lists := []*qdrant.BatchResult{{Result: points}}
	for _, c := range []struct{ request, want proto.Message }{
		{&qdrant.SearchPoints{}, &qdrant.SearchResponse{Result: points}},
		{&qdrant.QueryPoints{}, &qdrant.QueryResponse{Result: points}},
		{&qdrant.SearchBatchPoints{}, &qdrant.SearchBatchResponse{Result: lists}},
		{&qdrant.QueryBatchPoints{}, &qdrant.QueryBatchResponse{Result: lists}},
	} {
		r, err := (&call{request: c.request, began: began}).makeAnswer(t.Context(), hits())
		got := proto.Clone(c.want)
		proto.Reset(got)
		if err != nil || proto.Unmarshal(r.Message, got) != nil {
			t.Fatal(err)
		}
		took := got.ProtoReflect().Descriptor().Fields().ByName("time")
		if seconds := got.ProtoReflect().Get(took).Float(); seconds < 1 {
			t.Errorf("%T took %v seconds", got, seconds)
		}
		if got.ProtoReflect().Clear(took); !proto.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	const point = `{"id":4,"version":3,"score":2.0}`
	for want, of := range map[string]request{
		`{"result":[` + point + `],"status":"ok","time":1.`:              {},
		`{"result":{"points":[` + point + `]},"status":"ok","time":1.`:   {query: true},
		`{"result":[[` + point + `]],"status":"ok","time":1.`:            {batch: true},
		`{"result":[{"points":[` + point + `]}],"status":"ok","time":1.`: {query: true, batch: true},
	} {
		if a, err := (&restCall{request: of, began: began}).makeAnswer(t.Context(), hits()); err != nil || a.Status != http.StatusOK || !strings.HasPrefix(string(a.Body), want) {
			t.Errorf("%+v: %s, %v, want %s…", of, a.Body, err, want)
		}
	}
}

// TestFusionsThatAreOneSearch: a fusion is scored by its dense vector only if all its dense prefetches search the same
// field by the same vector.
func TestFusionsThatAreOneSearch(t *testing.T) {
	for name, c := range map[string]struct {
		prefetch string
		one      bool
	}{
		"one":            {`[{"query":[1,2],"using":"a"}]`, true},
		"twice the same": {`[{"query":[1,2],"using":"a"},{"query":[1,2],"using":"a","limit":5}]`, true},
		"sparse beside":  {`[{"query":[1,2],"using":"a"},{"query":{"indices":[1],"values":[1]},"using":"b"}]`, true},
		"two fields":     {`[{"query":[1,2],"using":"a"},{"query":[1,2],"using":"b"}]`, false},
		"two vectors":    {`[{"query":[1,2],"using":"a"},{"query":[1,3],"using":"a"}]`, false},
		"no vector":      {`[{"query":{"indices":[1],"values":[1]},"using":"b"}]`, false},
	} {
		o, err := readObject([]byte(`{"query":{"fusion":"rrf"},"prefetch":` + c.prefetch + `}`))
		if err != nil {
			t.Fatal(err)
		}
		got := fused(o)
		if one := string(got.get("query")) == "[1,2]" && string(got.get("using")) == `"a"`; one != c.one || !c.one && string(got.get("query")) != `{"fusion":"rrf"}` {
			t.Errorf("%s: searched by %s of %s", name, got.get("query"), got.get("using"))
		}
	}
}

// TestStagesProveNothing: the searches of a query's stages are no answers of their own, even if the client asks for exact
// ones, and they have the query's offset.
func TestStagesProveNothing(t *testing.T) {
	exact := leg("routed", 5)
	exact.Params = &qdrant.SearchParams{Exact: proto.Bool(true)}
	m := staged(qdrant.NewQueryFusion(qdrant.Fusion_RRF), "", exact, leg("routed", 6))
	var found located
	if err := found.readStages(encoded(t, m), layoutOf(m), isRouted); err != nil {
		t.Fatal(err)
	}
	for i, s := range found.searches {
		if !s.Staged || !s.Narrowed || s.Exact || s.Offset != 2 {
			t.Errorf("stage %d: %+v", i, s)
		}
	}
	if len(found.searches) != 2 {
		t.Errorf("%d searches are rewritten, want both", len(found.searches))
	}
}

// TestCallerOfARequest: what tells one caller from another, and for whom it asks, goes with our calls for it; other
// headers do not.
func TestCallerOfARequest(t *testing.T) {
	in := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	want := metadata.MD{}
	for _, name := range append(routing.CredentialHeaders(), routing.UserHeader) {
		in.Header.Set(name, "of "+name)
		want[name] = []string{"of " + name}
	}
	in.Header.Set("X-Other", "x")
	if got, _ := metadata.FromOutgoingContext(callerOf(in)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, _ := metadata.FromOutgoingContext(callerOf(httptest.NewRequest(http.MethodPost, "/", http.NoBody))); len(got) > 0 {
		t.Errorf("of nobody: %v", got)
	}
}
