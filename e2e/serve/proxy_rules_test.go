package serve_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// startRuled is a sidecar before a real Qdrant whose route has more rules.
func startRuled(t *testing.T, db *servers.Server, rules string) (*proxied, serve.Addresses) {
	t.Helper()
	return startPlaced(t, db, "placement: stored, "+rules)
}

// startPlaced is startRuled with a placement of the route.
func startPlaced(t *testing.T, db *servers.Server, rules string) (*proxied, serve.Addresses) {
	t.Helper()
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, exact_search: true, depth: 20, %s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, db.Address, rules, db.REST))
	return &proxied{direct: connect(t, db.Address), restDirect: db.REST, api: connect(t, at.GRPC), proxy: connect(t, at.Proxy.GRPC), rest: "http://" + at.Proxy.REST}, at
}

func filled(t *testing.T, o servers.Options) *servers.Server {
	t.Helper()
	o.APIKey = key
	db := servers.QdrantForTest(t, servers.QdrantNewest, o)
	fill(t, connect(t, db.Address))
	return db
}

// ask searches over gRPC and over REST, which agree. It asks twice where they do not, since a
// route that has just opened may become fresh between the two.
func (p *proxied) ask(t *testing.T, conn *grpc.ClientConn, rest string, s *qdrant.SearchPoints, body string) (hits []hit, state string) {
	t.Helper()
	var r *qdrant.SearchResponse
	var code int
	var restState, text string
	for tries := 0; tries == 0 || restState != state && tries < 2; tries++ {
		var trailer metadata.MD
		var err error
		r, err = qdrant.NewPointsClient(conn).Search(asUser(t.Context()), s, grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		state = strings.Join(trailer.Get("likeness-status"), "|")
		code, restState, text = post(t, rest, s.GetCollectionName()+"/points/search", body, key)
	}
	if restState != state {
		t.Errorf("gRPC says %q, REST %q", state, restState)
	}
	if got := restHits(t, resultOf(t, code, text)); fmt.Sprint(got) != fmt.Sprint(hitsOf(r.GetResult())) {
		t.Errorf("REST has %v, gRPC %v", got, hitsOf(r.GetResult()))
	}
	return hitsOf(r.GetResult()), state
}

const plainBody = `{"vector":[1,-2,0.5,3],"limit":5}`

func plainSearch(collection string) *qdrant.SearchPoints {
	return &qdrant.SearchPoints{CollectionName: collection, Vector: query, Limit: 5}
}

const exactly = "rescored; route=things; certificate=exact"

func TestProxyUnderstandsAliases(t *testing.T) {
	db := filled(t, servers.Options{})
	p, _ := startRuled(t, db, "")
	collections := qdrant.NewCollectionsClient(p.proxy)
	point := func(to string) {
		t.Helper()
		actions := []*qdrant.AliasOperations{qdrant.NewAliasCreate("also", to)}
		if _, err := collections.UpdateAliases(asUser(t.Context()), &qdrant.ChangeAliases{Actions: actions}); err != nil {
			t.Fatal(err)
		}
	}
	point("routed")
	if got, state := p.ask(t, p.proxy, p.rest, plainSearch("also"), plainBody); state != exactly || !slices.Equal(got, p.expected(t, 5, "")) {
		t.Errorf("by an alias: %q, %v", state, got)
	}
	batch := &qdrant.SearchBatchPoints{CollectionName: "also", SearchPoints: []*qdrant.SearchPoints{plainSearch("also")}}
	var trailer metadata.MD
	if _, err := qdrant.NewPointsClient(p.proxy).SearchBatch(asUser(t.Context()), batch, grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	rescored(t, trailer.Get("likeness-status"))
	if _, state := p.ask(t, p.proxy, p.rest, plainSearch("plain"), plainBody); state != "" {
		t.Errorf("a collection without a route: %q", state)
	}
}

// The threshold of a request is compared with the score that the route's rule selects.
func TestProxyScoresAndThresholds(t *testing.T) {
	db := filled(t, servers.Options{})
	p, _ := startRuled(t, db, "score: store")
	own := map[string]float32{}
	all, _ := p.ask(t, p.direct, p.restDirect, &qdrant.SearchPoints{CollectionName: "routed", Vector: query, Limit: 30}, `{"vector":[1,-2,0.5,3],"limit":30}`)
	for _, h := range all {
		own[h.id] = h.score
	}
	got, state := p.ask(t, p.proxy, p.rest, plainSearch("routed"), plainBody)
	for i, want := range p.expected(t, 5, "") {
		if state != exactly || got[i].id != want.id || got[i].score != own[want.id] {
			t.Errorf("%q, row %d is %v, want %s with %g", state, i, got[i], want.id, own[want.id])
		}
	}
	threshold := all[7].score // seven rows exceed it, and it is not among them
	var want []hit
	for _, h := range p.expected(t, 30, "") { // of the last ones, so that a deeper ranking is needed
		if own[h.id] > threshold && len(want) < 2 {
			want = append(want, hit{h.id, own[h.id]})
		}
	}
	s := plainSearch("routed")
	s.Limit, s.ScoreThreshold = 2, &threshold
	body := fmt.Sprintf(`{"vector":[1,-2,0.5,3],"limit":2,"score_threshold":%v}`, threshold)
	if got, state := p.ask(t, p.proxy, p.rest, s, body); state != unproved || fmt.Sprint(got) != fmt.Sprint(want) { // rows below it are as if they were gone
		t.Errorf("above the store's %g: %q, %v, want %v", threshold, state, got, want)
	}

	p, _ = startRuled(t, db, "opt_in: [score-threshold, indexed-only, consistency]")
	learned := p.expected(t, 5, "")
	s, threshold = plainSearch("routed"), learned[3].score
	s.ScoreThreshold, s.Params, s.ReadConsistency = &threshold, &qdrant.SearchParams{IndexedOnly: qdrant.PtrOf(true)}, qdrant.NewReadConsistencyType(qdrant.ReadConsistencyType_All)
	body = fmt.Sprintf(`{"vector":[1,-2,0.5,3],"limit":5,"score_threshold":%v,"params":{"indexed_only":true}}`, threshold)
	if got, state := p.ask(t, p.proxy, p.rest, s, body); state != exactly || !slices.Equal(got, learned[:3]) {
		t.Errorf("above the learned %g: %q, %v, want %v", threshold, state, got, learned[:3])
	}
}

// Qdrant's threshold is exceeded, not reached: the learned one is the same.
func TestQdrantsThresholdIsExceeded(t *testing.T) {
	p, _ := startRuled(t, filled(t, servers.Options{}), "")
	all, _ := p.ask(t, p.direct, p.restDirect, plainSearch("routed"), plainBody)
	s := plainSearch("routed")
	s.ScoreThreshold = &all[2].score
	r, err := qdrant.NewPointsClient(p.direct).Search(asUser(t.Context()), s)
	if err != nil || len(r.GetResult()) != 2 && len(r.GetResult()) != 3 {
		t.Fatal(len(r.GetResult()), err)
	}
	if len(r.GetResult()) != 2 {
		t.Errorf("%d rows at a threshold that the third reaches", len(r.GetResult()))
	}
}

func TestProxyShadowRampAndSwitch(t *testing.T) {
	db := filled(t, servers.Options{})
	shadowed, at := startRuled(t, db, "shadow: {share: 1}")
	own, _ := shadowed.ask(t, shadowed.direct, shadowed.restDirect, plainSearch("routed"), plainBody)
	if got, state := shadowed.ask(t, shadowed.proxy, shadowed.rest, plainSearch("routed"), plainBody); state != "shadow; route=things" || !slices.Equal(got, own) {
		t.Errorf("in shadow: %q, %v, the database has %v", state, got, own)
	}
	for !strings.Contains(admin(t, at, http.MethodGet, "/metrics"), `likeness_proxy_shadow_overlap_count{route="things"} 2`) {
		if t.Context().Err() != nil {
			t.Fatal("nothing is compared")
		}
	}
	ramped, _ := startRuled(t, db, "ramp: 0")
	if got, state := ramped.ask(t, ramped.proxy, ramped.rest, plainSearch("routed"), plainBody); state != "passed; reason=ramp" || !slices.Equal(got, own) {
		t.Errorf("at 0 %%: %q, %v", state, got)
	}
	p, at := startRuled(t, db, "")
	for _, step := range []struct{ path, state, metric string }{
		{"/proxy/off?route=things", "passed; reason=off", `likeness_proxy_off{route="things"} 1`},
		{"/proxy/on", exactly, `likeness_proxy_off{route="things"} 0`},
	} {
		if said := admin(t, at, http.MethodPost, step.path); !strings.Contains(said, `{"things":"o`) {
			t.Errorf("%s says %s", step.path, said)
		}
		if _, state := p.ask(t, p.proxy, p.rest, plainSearch("routed"), plainBody); state != step.state {
			t.Errorf("after %s: %q", step.path, state)
		}
		if !strings.Contains(admin(t, at, http.MethodGet, "/metrics"), step.metric) {
			t.Errorf("after %s the metrics lack %s", step.path, step.metric)
		}
	}
}

func admin(t *testing.T, at serve.Addresses, method, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+at.Admin+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Whatever the fallback, a client of a database that is down sees what it would
// have seen.
func TestProxyWithTheDatabaseDown(t *testing.T) {
	for _, rules := range []string{"", "latency_budget: 2s", "fallback: eager", "shadow: {share: 1}"} {
		db := filled(t, servers.Options{})
		p, _ := startRuled(t, db, rules)
		// Both ways have answered once; where the original races rescoring, either may win each of them.
		_, before := qdrant.NewPointsClient(p.proxy).Search(asUser(t.Context()), plainSearch("routed"))
		must2(t, before)
		if code, state, body := post(t, p.rest, "routed/points/search", plainBody, key); code != http.StatusOK {
			t.Errorf("%q over REST, before: %d %q %s", rules, code, state, body)
		}
		if err := db.Kill(); err != nil {
			t.Fatal(err)
		}
		_, err := qdrant.NewPointsClient(p.proxy).Search(asUser(t.Context()), plainSearch("routed"))
		_, want := qdrant.NewPointsClient(connect(t, db.Address)).Search(asUser(t.Context()), plainSearch("routed"))
		if status.Code(err) != status.Code(want) {
			t.Errorf("%q: %v, directly %v", rules, err, want)
		}
		if code, state, body := post(t, p.rest, "routed/points/search", plainBody, key); code != http.StatusBadGateway {
			t.Errorf("%q over REST: %d %q %s", rules, code, state, body)
		}
	}
}

// token is a token of Qdrant for those collections.
func token(access string) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(`{"access":`+access+`}`))
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}

// A caller gets what its own credentials show it, or the database's refusal.
func TestProxyWithTokens(t *testing.T) {
	const readOnly = "only-to-read"
	db := filled(t, servers.Options{Env: []string{"QDRANT__SERVICE__JWT_RBAC=true", "QDRANT__SERVICE__READ_ONLY_API_KEY=" + readOnly}})
	p, _ := startRuled(t, db, "latency_budget: 5s")
	want := p.expected(t, 5, "")
	for name, tc := range map[string]struct {
		headers metadata.MD
		may     bool
	}{
		"read-only key":                  {metadata.Pairs("api-key", readOnly), true},
		"token of the collection":        {metadata.Pairs("authorization", "Bearer "+token(`[{"collection":"routed","access":"r"}]`)), true},
		"token of the collection as key": {metadata.Pairs("api-key", token(`[{"collection":"routed","access":"r"}]`)), true},
		"token of everything":            {metadata.Pairs("authorization", "Bearer "+token(`"r"`)), true},
		"token of some of the points":    {metadata.Pairs("authorization", "Bearer "+token(`[{"collection":"routed","access":"r","payload":{"n":1}}]`)), false},
		"token of another collection":    {metadata.Pairs("authorization", "Bearer "+token(`[{"collection":"plain","access":"r"}]`)), false},
		"a broken token":                 {metadata.Pairs("authorization", "Bearer x.y.z"), false},
		"nothing":                        {metadata.MD{}, false},
	} {
		ctx := metadata.NewOutgoingContext(t.Context(), tc.headers)
		var trailer metadata.MD
		got, err := qdrant.NewPointsClient(p.proxy).Search(ctx, plainSearch("routed"), grpc.Trailer(&trailer))
		_, refused := qdrant.NewPointsClient(p.direct).Search(ctx, plainSearch("routed"))
		if (err == nil) != tc.may || status.Convert(err).String() != status.Convert(refused).String() {
			t.Errorf("%s: %v, directly %v", name, err, refused)
		}
		code, header, body := postAs(t, p.rest, tc.headers)
		if wantCode, _, wantBody := postAs(t, p.restDirect, tc.headers); code != wantCode || !tc.may && timeless(body) != timeless(wantBody) {
			t.Errorf("%s over REST: %d %s, directly %d %s", name, code, body, wantCode, wantBody)
		}
		if !tc.may {
			continue
		}
		rescored(t, trailer.Get("likeness-status"))
		rescored(t, []string{header})
		same(t, name, hitsOf(got.GetResult()), want)
		same(t, name+" over REST", restHits(t, resultOf(t, code, body)), want)
	}
	if _, err := likenessv1.NewSearchServiceClient(p.api).Search(t.Context(), &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: query}, K: 1}); err != nil {
		t.Errorf("the sidecar itself: %v", err)
	}
}

func postAs(t *testing.T, base string, headers metadata.MD) (code int, state, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/collections/routed/points/search", strings.NewReader(plainBody))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range headers {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header.Get("Likeness-Status"), string(b)
}
