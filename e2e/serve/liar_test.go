package serve_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// liarFor is how long liars lie before a database: the usual time, or LIAR_FOR, which is 30 minutes at length.
func liarFor(t *testing.T, usual time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("LIAR_FOR")
	switch {
	case text != "":
		d, err := time.ParseDuration(text)
		must2(t, err)
		return d
	case os.Getenv("LIKENESS_SOAK") != "":
		return 30 * time.Minute
	}
	return usual
}

// liar is a client that knows every protocol of a sidecar and has no right to what it asks
// for. It is not safe for concurrent use.
type liar struct {
	random        *rand.Rand
	at            serve.Addresses
	proxy, api    *grpc.ClientConn
	client        *http.Client
	readers, none []metadata.MD           // credentials that may read and not write the routed collection; that may do neither
	rightless     []metadata.MD           // credentials of users of Milvus who may do neither
	ways          []func(context.Context) // each lies once
	answers       *atomic.Pointer[string] // the id of the honest client's last answer
	told          func(format string, args ...any)
}

// newLiar returns a liar to some addresses, which knows the lies about likeness's own listeners.
func newLiar(t *testing.T, at serve.Addresses, answers *atomic.Pointer[string]) *liar {
	t.Helper()
	seed := rand.Uint64()
	l := &liar{
		random: rand.New(rand.NewPCG(seed, 0)), at: at, proxy: connect(t, at.Proxy.GRPC), api: connect(t, at.GRPC), answers: answers,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}},
		told:   func(format string, args ...any) { t.Errorf("seed %d: "+format, append([]any{seed}, args...)...) },
	}
	l.ways = []func(context.Context){l.askAPI, l.askGateway, l.sendFeedback, l.askAdmin, l.sendGarbage}
	t.Cleanup(l.client.CloseIdleConnections)
	return l
}

// one returns any of them.
func one[T any](l *liar, of []T) T { return of[l.random.IntN(len(of))] }

// noRights are credentials that do not let their owner see the routed collection.
func noRights() []metadata.MD {
	huge := strings.Repeat("k", 30<<10)
	return []metadata.MD{
		{}, metadata.Pairs("api-key", ""), metadata.Pairs("api-key", "wrong"), metadata.Pairs("api-key", key[1:]), metadata.Pairs("api-key", huge),
		metadata.Pairs("api-key", "wrong", "api-key", key+"x"), metadata.Pairs("authorization", "Basic "+key), metadata.Pairs("authorization", "Bearer x.y.z"),
		metadata.Pairs("authorization", "Bearer "+token(`[{"collection":"plain","access":"rw"}]`)),
		metadata.Pairs("api-key", token(`[{"collection":"plain","access":"r"}]`)),
		metadata.Pairs("authorization", "Bearer "+strings.Replace(token(`"m"`), ".", ".e30", 1)),
	}
}

// onlyReading are credentials that let their owner read the routed collection.
func onlyReading(readOnly string) []metadata.MD {
	return []metadata.MD{
		metadata.Pairs("api-key", readOnly), metadata.Pairs("authorization", "Bearer "+token(`"r"`)),
		metadata.Pairs("authorization", "Bearer "+token(`[{"collection":"routed","access":"r"}]`)),
	}
}

// lie lies at each tick until ctx ends, and returns when each lie was under way.
func (l *liar) lie(ctx context.Context, tick <-chan time.Time) (lies []interval) {
	for {
		select {
		case <-ctx.Done():
			return lies
		case <-tick:
		}
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		if l.random.IntN(10) == 0 { // it leaves at any time
			time.AfterFunc(time.Duration(l.random.IntN(3000))*time.Microsecond, cancel)
		}
		began := time.Now()
		one(l, l.ways)(within)
		cancel()
		lies = append(lies, interval{began, time.Now()})
	}
}

// interval is the time that a call took.
type interval struct{ began, ended time.Time }

func (i interval) overlaps(other interval) bool {
	return i.began.Before(other.ended) && other.began.Before(i.ended)
}

// credentials returns credentials with which a search is refused. Now and then they are new.
func (l *liar) credentials() metadata.MD {
	if l.random.IntN(4) == 0 {
		return metadata.Pairs("api-key", fmt.Sprint(l.random.Uint64()), "token", fmt.Sprint(l.random.Uint64()))
	}
	return one(l, append(l.rightless, l.none...))
}

// searchGRPC searches the routed collection.
func (l *liar) searchGRPC(ctx context.Context) {
	limit, vector := uint64(l.random.IntN(30)), one(l, [][]float32{query, nil, {1}, {0, 0, 0, 0}, make([]float32, 10_000)})
	search := &qdrant.SearchPoints{CollectionName: "routed", Vector: vector, Limit: limit, Filter: one(l, []*qdrant.Filter{nil, deepFilter(60), {}})}
	batch := make([]*qdrant.SearchPoints, l.random.IntN(300))
	for i := range batch {
		batch[i] = search
	}
	ctx = metadata.NewOutgoingContext(ctx, l.credentials())
	var trailer metadata.MD
	var err error
	switch points := qdrant.NewPointsClient(l.proxy); l.random.IntN(5) {
	case 0:
		_, err = points.SearchBatch(ctx, &qdrant.SearchBatchPoints{CollectionName: "routed", SearchPoints: batch}, grpc.Trailer(&trailer))
	case 1:
		_, err = points.Query(ctx, &qdrant.QueryPoints{CollectionName: "routed", Query: qdrant.NewQueryDense(vector), Limit: &limit}, grpc.Trailer(&trailer))
	case 2:
		_, err = points.Recommend(ctx, &qdrant.RecommendPoints{CollectionName: "routed", Positive: []*qdrant.PointId{qdrant.NewIDNum(1)}, Limit: limit}, grpc.Trailer(&trailer))
	case 3:
		_, err = points.SearchGroups(ctx, &qdrant.SearchPointGroups{CollectionName: "routed", Vector: vector, Limit: 3, GroupBy: "n", GroupSize: 2}, grpc.Trailer(&trailer))
	default:
		_, err = points.Search(ctx, search, grpc.Trailer(&trailer))
	}
	if err == nil || len(trailer.Get("likeness-status")) > 0 {
		l.told("a search over gRPC: %v, trailer %v", err, trailer)
	}
}

// deepFilter nests a filter in itself.
func deepFilter(levels int) *qdrant.Filter {
	f := &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatchInt("n", 1)}}
	for range levels {
		f = &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewFilterAsCondition(f)}}
	}
	return f
}

// searchREST searches the routed collection, by many spellings of its path and body.
func (l *liar) searchREST(ctx context.Context) {
	many := func(part string, n int) string { return strings.Repeat(part+",", l.random.IntN(n)+1) + part }
	body := one(l, []string{
		plainBody, `{`, `{}`, ``, `[1]`, `{"vector":[1,-2,0.5,3],"limit":0}`, `{"vector":[` + many("1", 20_000) + `],"limit":3}`,
		`{"vector":[1,-2,0.5,3],"limit":3,"filter":` + strings.Repeat(`{"must":[`, 20) + strings.Repeat(`]}`, 20) + `}`,
		`{"searches":[` + many(plainBody, 400) + `]}`, `{` + many(`"limit":1`, 10_000) + `}`, `{"vector":[1,-2,0.5,3],"limit":3,"` + strings.Repeat("k", 300_000) + `":1}`,
		`{"query":[1,-2,0.5,3],"prefetch":` + strings.Repeat(`{"prefetch":`, 9) + `{}` + strings.Repeat(`}`, 9) + `}`,
	})
	path := one(l, []string{"search", "search/batch", "query", "query/batch", "search/groups", "recommend", "discover", "search#x", "search/", "search?timeout=1", "query/groups?x=y"})
	collection := one(l, []string{"routed", "%72outed", "routed/", "/routed"})
	status, header := l.send(ctx, http.MethodPost, "/collections/"+collection+"/points/"+path, body, l.credentials(), 0)
	if status == http.StatusOK || header.Get("Likeness-Status") != "" {
		l.told("POST %s/points/%s: %d %v", collection, path, status, header)
	}
}

// writeGRPC writes, as a caller who may not.
func (l *liar) writeGRPC(ctx context.Context) {
	ctx = metadata.NewOutgoingContext(ctx, l.noWriter())
	points, collections := qdrant.NewPointsClient(l.proxy), qdrant.NewCollectionsClient(l.proxy)
	wait := l.random.IntN(2) == 0
	var err error
	switch l.random.IntN(7) {
	case 0:
		_, err = points.Upsert(ctx, &qdrant.UpsertPoints{CollectionName: "routed", Wait: &wait, Points: []*qdrant.PointStruct{{Id: qdrant.NewIDNum(l.random.Uint64N(40)), Vectors: qdrant.NewVectors(query...)}}})
	case 1:
		_, err = points.Delete(ctx, &qdrant.DeletePoints{CollectionName: "routed", Wait: &wait, Points: qdrant.NewPointsSelectorFilter(&qdrant.Filter{})})
	case 2:
		_, err = points.SetPayload(ctx, &qdrant.SetPayloadPoints{CollectionName: "routed", Payload: qdrant.NewValueMap(map[string]any{"n": int64(9)})})
	case 3:
		_, err = collections.Delete(ctx, &qdrant.DeleteCollection{CollectionName: "routed"})
	case 4:
		actions := []*qdrant.AliasOperations{qdrant.NewAliasCreate(one(l, []string{"routed", "plain", "x"}), one(l, []string{"plain", "routed"}))}
		_, err = collections.UpdateAliases(ctx, &qdrant.ChangeAliases{Actions: actions})
	case 5:
		_, err = points.UpdateBatch(ctx, &qdrant.UpdateBatchPoints{CollectionName: "routed", Operations: make([]*qdrant.PointsUpdateOperation, l.random.IntN(3000))})
	case 6:
		_, err = points.DeleteFieldIndex(ctx, &qdrant.DeleteFieldIndexCollection{CollectionName: "routed", FieldName: "n"})
	}
	if err == nil {
		l.told("a write over gRPC was carried out")
	}
}

// noWriter returns credentials that do not let their owner write to the routed collection.
func (l *liar) noWriter() metadata.MD {
	if l.random.IntN(2) == 0 {
		return one(l, l.readers)
	}
	return l.credentials()
}

// restLies are writes over REST.
var restLies = [][2]string{
	{"PUT /collections/routed/points?wait=true", `{"points":[{"id":1,"vector":[9,9,9,9]}]}`},
	{"POST /collections/routed/points/delete", `{"filter":{}}`},
	{"POST /collections/routed/points/delete", `{"points":[1,2,3]}`},
	{"POST /collections/routed/points/payload", `{"payload":{"n":1},"filter":{}}`},
	{"POST /collections/routed/points/batch", `{"operations":[{"delete":{"points":[1]}},{"clear_payload":{"filter":{}}}]}`},
	{"PUT /collections/routed/points/vectors", `{"points":[{"id":1,"vector":[9,9,9,9]}]}`},
	{"DELETE /collections/routed", ``},
	{"PUT /collections/routed", `{"vectors":{"size":4,"distance":"Dot"}}`},
	{"POST /collections/aliases", `{"actions":[{"create_alias":{"collection_name":"plain","alias_name":"routed"}}]}`},
	{"POST /collections/aliases", `{"actions":`},
	{"PUT /collections/routed/snapshots/recover", `{"location":"file:///x"}`},
	{"POST /collections/routed/cluster", `{"drop_replica":{"shard_id":0,"peer_id":1}}`},
	{"POST /collections/routed/shards/delete", `{"shard_key":"x"}`},
}

// writeREST writes, as a caller who may not.
func (l *liar) writeREST(ctx context.Context) {
	w := one(l, restLies)
	method, path, _ := strings.Cut(w[0], " ")
	if l.random.IntN(3) == 0 {
		path = strings.Replace(path, "/routed", one(l, []string{"//routed", "/%72outed", "/routed/"}), 1)
	}
	status, _ := l.send(ctx, method, path, w[1], l.noWriter(), 0)
	if status == http.StatusOK {
		l.told("%s was carried out", w[0])
	}
}

// slowWrite begins a write and lets its body trickle, or not end.
func (l *liar) slowWrite(ctx context.Context) {
	w := one(l, restLies)
	method, path, _ := strings.Cut(w[0], " ")
	within, cancel := context.WithTimeout(ctx, time.Duration(l.random.IntN(300))*time.Millisecond)
	defer cancel()
	l.send(within, method, path, w[1], l.noWriter(), one(l, []int{1, 70_000, 40 << 20}))
}

// send sends a request over REST and returns the status of its answer, or 0 without an answer, and
// the header. If padding is not 0, that many spaces follow the body, slower than the sidecar waits
// for them.
func (l *liar) send(ctx context.Context, method, path, body string, credentials metadata.MD, padding int) (status int, header http.Header) {
	var content io.Reader = strings.NewReader(body)
	if padding > 0 {
		content = io.MultiReader(content, &trickle{ctx, padding})
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+l.at.Proxy.REST, content)
	if err != nil {
		l.told("%v", err)
		return 0, nil
	}
	r.URL.Opaque = path
	r.Header.Set("Content-Type", one(l, []string{"application/json", "application/json", ""}))
	for name, values := range credentials {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	if l.random.IntN(3) == 0 { // as if it came from likeness itself
		r.Header.Set("Likeness-Status", "rescored; route=things")
		r.Header.Set("X-Request-Id", strings.Repeat("i", l.random.IntN(4000)))
		r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	}
	answer, err := l.client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode, answer.Header
}

// trickle yields spaces, half of them a tenth of a second late.
type trickle struct {
	ctx  context.Context
	left int
}

func (s *trickle) Read(b []byte) (int, error) {
	if s.left <= 0 {
		return 0, io.EOF
	}
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-time.After(100 * time.Millisecond):
	}
	n := min(len(b), (s.left+1)/2)
	s.left -= n
	return copy(b, bytes.Repeat([]byte{' '}, n)), nil
}

// askAPI calls any method of likeness's own API, without a token that allows it.
func (l *liar) askAPI(ctx context.Context) {
	authorization := one(l, []string{"", "Bearer wrong", "Bearer " + key, "bearer", "Basic eDp5", "Bearer token-of-the-ap", "Bearer token-of-the-api ", otherRoute})
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
	file := one(l, []protoreflect.FileDescriptor{
		likenessv1.File_likeness_v1_search_proto, likenessv1.File_likeness_v1_admin_proto, likenessv1.File_likeness_v1_catalog_proto, likenessv1.File_likeness_v1_feedback_proto,
	})
	service := file.Services().Get(0)
	method := service.Methods().Get(l.random.IntN(service.Methods().Len()))
	in, out := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	for _, name := range []protoreflect.Name{"route", "name"} {
		if f := method.Input().Fields().ByName(name); f != nil {
			in.Set(f, protoreflect.ValueOfString("things"))
		}
	}
	err := l.api.Invoke(ctx, fmt.Sprintf("/%s/%s", service.FullName(), method.Name()), in, out)
	if mayAnswer := authorization == otherRoute && (method.Name() == "ListRoutes" || method.Name() == "ListModels"); err == nil && !mayAnswer {
		l.told("the API answered %s with the authorization %q: %v", method.FullName(), authorization, out)
	}
}

// otherRoute is the authorization of a caller of the API that may search another route than things.
const otherRoute = "Bearer token-of-another-route"

// askGateway calls the API, and rerank APIs, over REST, without a token that allows it.
func (l *liar) askGateway(ctx context.Context) {
	call := one(l, []string{
		"POST /v1/routes/things:search", "POST /v1/search:batch", "POST /v1/routes/things:score", "POST /v1/routes/things:explain", "POST /v1/feedback", "POST /v1/rerank", "POST /v2/rerank",
		"POST /rerank", "POST /v1/routes/things/rerank", "GET /v1/routes/things", "GET /v1/routes/things/versions", "POST /v1/routes/things/versions/x:activate",
		"POST /v1/routes/things:rollBack", "POST /v1/routes/things:reconcile", "POST /v1/routes/things:collectVersions", "GET /v1/models/w", "PUT /v1/routes/things", "GET /nothing",
	})
	body := one(l, []string{
		``, `{`, `{"route":"things","k":1,"query":{"vector":[1,-2,0.5,3]}}`, `{"model":"things","query":"x","documents":["a","b"]}`, `{"query":"x","texts":["` + strings.Repeat("t", 100_000) + `"]}`,
		`{"route":"things","events":[{"answer_id":"x","kind":"click"}]}`, `{"searches":[` + strings.Repeat(`{},`, 5000) + `{}]}`,
	})
	method, path, _ := strings.Cut(call, " ")
	if l.random.IntN(4) == 0 {
		path = l.spellPath(path)
	}
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n%s", method, path, one(l, []string{"localhost", "attacker.example"}),
		one(l, []string{"", "Bearer wrong", "bearer token", "Basic eDp5", otherRoute}), len(body), body)
	for _, answer := range l.converse(ctx, l.at.REST, request) {
		if answer.StatusCode < 300 {
			l.told("the API answered %.200q: %d", request, answer.StatusCode)
		}
	}
}

// sendFeedback claims clicks on answers: on made-up ones, on those of others, and on its own, under the name of another
// route.
func (l *liar) sendFeedback(ctx context.Context) {
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", otherRoute)
	theirs := cmp.Or(*l.answers.Load(), "x")
	spoiled := []byte(theirs)
	spoiled[l.random.IntN(len(spoiled))] = one(l, []byte("Ab0_-.?"))
	events := make([]*likenessv1.FeedbackEvent, 1+l.random.IntN(40))
	for i := range events {
		answer := one(l, []string{theirs, theirs + ".1", string(spoiled), "", "x", strings.Repeat("A", len(theirs)), fmt.Sprint(l.random.Uint64())})
		events[i] = &likenessv1.FeedbackEvent{AnswerId: answer, Item: &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: l.random.Uint64N(40)}}, Kind: one(l, []string{"click", "purchase", "\n"})}
	}
	route := one(l, []string{"another", "things", "../things", "another/../things"})
	r, err := likenessv1.NewFeedbackServiceClient(l.api).Feedback(ctx, &likenessv1.FeedbackRequest{Route: route, Events: events})
	if r.GetAccepted() > 0 || r.GetKnown() > 0 || err == nil && route != "another" {
		l.told("feedback of %s on %q: %v, %v", route, events, r, err)
	}
}

// qdrantLie returns a call over gRPC that changes the routed collection, or searches it.
func (l *liar) qdrantLie() grpcLie {
	wait := true
	return one(l, []grpcLie{
		{qdrant.Points_Search_FullMethodName, l.marshalled(plainSearch("routed")), l.credentials()},
		{qdrant.Points_Upsert_FullMethodName, l.marshalled(&qdrant.UpsertPoints{CollectionName: "routed", Wait: &wait, Points: []*qdrant.PointStruct{{Id: qdrant.NewIDNum(1), Vectors: qdrant.NewVectors(query...)}}}), l.noWriter()},
		{qdrant.Points_Delete_FullMethodName, l.marshalled(&qdrant.DeletePoints{CollectionName: "routed", Points: qdrant.NewPointsSelectorFilter(&qdrant.Filter{})}), l.noWriter()},
		{qdrant.Collections_Delete_FullMethodName, l.marshalled(&qdrant.DeleteCollection{CollectionName: "routed"}), l.noWriter()},
		{qdrant.Collections_UpdateAliases_FullMethodName, l.marshalled(&qdrant.ChangeAliases{Actions: []*qdrant.AliasOperations{qdrant.NewAliasCreate("routed", "plain")}}), l.noWriter()},
		{"/qdrant.Points/Nothing", l.marshalled(plainSearch("routed")), l.noWriter()},
		{"/qdrant.PointsInternal/Delete", l.marshalled(&qdrant.DeletePoints{CollectionName: "routed"}), l.noWriter()},
		{"/qdrant.Raft/Send", []byte("x"), l.noWriter()},
	})
}

// spellQdrant calls the proxy over gRPC by odd spellings.
func (l *liar) spellQdrant(ctx context.Context) {
	l.spellGRPC(ctx, one(l, []string{l.at.Proxy.GRPC, l.at.Proxy.GRPC, l.at.Proxy.GRPC, l.at.Proxy.REST, l.at.GRPC, l.at.REST}), l.qdrantLie())
}

// askAdmin asks the admin port as a page of another site, or by another name, does.
func (l *liar) askAdmin(ctx context.Context) {
	path := one(l, []string{
		"/proxy/off", "/proxy/off?route=things", "/reload", "/", "/metrics", "/debug/pprof/heap", "/proxy/on", "/experiments", "/experiments/stop?route=things", "/experiments/restart?route=things",
		"/status.json", "/plugins", "//reload", "/x/../proxy/off", "/%70roxy/off", "/page/nothing",
	})
	r, err := http.NewRequestWithContext(ctx, one(l, []string{http.MethodPost, http.MethodGet, "OPTIONS"}), "http://"+l.at.Admin+path, http.NoBody)
	if err != nil {
		l.told("%v", err)
		return
	}
	if l.random.IntN(2) == 0 {
		r.Host = "attacker.example"
	} else {
		r.Header.Set("Origin", "https://attacker.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	}
	answer, err := l.client.Do(r)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode < 400 {
		l.told("the admin port answers %s %s: %d", r.Method, path, answer.StatusCode)
	}
}

// sendGarbage sends bytes that are no request, or a part of one, to any listener.
func (l *liar) sendGarbage(ctx context.Context) {
	address := one(l, []string{cmp.Or(l.at.Proxy.REST, l.at.REST), l.at.Proxy.GRPC, l.at.GRPC, l.at.Admin})
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	text := one(l, []string{
		"\x00\x01\x02", "GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 300_000), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + strings.Repeat("\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x01", 1000),
		"POST /collections/routed/points/search HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("e", 20_000),
		"DELETE /collections/routed HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
		"POST /collections/routed/points/delete HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n{",
		"POST /collections/routed/snapshots/upload HTTP/1.1\r\nHost: h\r\nConnection: content-length\r\nContent-Type: multipart/x\r\nContent-Length: 51\r\n\r\nDELETE /collections/routed HTTP/1.1\r\nHost: h\r\nX-Y: ",
		strings.Repeat("GET /collections/routed HTTP/1.1\r\nHost: h\r\n\r\n", 200),
	})
	_ = conn.SetDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = io.WriteString(conn, text)
	_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
}

// readOnly is a credential of the database that lets its owner read.
const readOnly = "only-to-read"

// apiBesideLiars configures likeness's own API beside liars, with an honest caller's token.
func apiBesideLiars(t *testing.T) string {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	must2(t, os.WriteFile(tokens, []byte("- {name: honest, token: token-of-the-api}\n- {name: another, token: token-of-another-route, routes: [another]}\n"), 0o600))
	return fmt.Sprintf(`listen: {grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: "127.0.0.1:0", auth: {tokens_file: %q}}
models: {w: {path: w.safetensors}, v: {path: w.safetensors}}
state_dir: %q
`, tokens, t.TempDir())
}

// startBesideLiars starts a Qdrant and a sidecar, and returns an honest client of the sidecar
// and a function that returns a liar to some addresses.
func startBesideLiars(t *testing.T) (h *honest, newQdrantLiar func(at serve.Addresses) *liar) {
	t.Helper()
	db := filled(t, servers.Options{Env: []string{"QDRANT__SERVICE__JWT_RBAC=true", "QDRANT__SERVICE__READ_ONLY_API_KEY=" + readOnly}})
	at := startListening(t, apiBesideLiars(t)+fmt.Sprintf(`stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes:
  things: {store: main, collection: routed, model: w, strategy: scan, table: %q, table_live: true, exact_search: true, rate: 200, burst: 20, events: {share: 1, keep: [vector, user]}}
  another: {store: main, collection: plain, model: v, placement: stored, exact_search: true, events: {share: 1}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q, routes: [things]}
`, db.Address, tableOf(t, db), db.REST))
	points, rest := qdrant.NewPointsClient(connect(t, at.Proxy.GRPC)), "http://"+at.Proxy.REST
	h = &honest{at: at, db: db, pace: 20 * time.Millisecond, ways: []func(ctx context.Context) ([]hit, string, error){
		func(ctx context.Context) ([]hit, string, error) {
			var trailer metadata.MD
			r, err := points.Search(asUser(ctx), plainSearch("routed"), grpc.Trailer(&trailer))
			return hitsOf(r.GetResult()), strings.Join(trailer.Get("likeness-status"), "|"), err
		},
		func(context.Context) ([]hit, string, error) {
			code, status, body := post(t, rest, "routed/points/search", plainBody, key)
			return restHits(t, resultOf(t, code, body)), status, nil
		},
	}}
	h.begin(t)
	return h, func(at serve.Addresses) *liar {
		l := newLiar(t, at, &h.answer)
		l.readers, l.none = onlyReading(readOnly), noRights()
		l.ways = append(l.ways, l.searchGRPC, l.writeGRPC, l.slowWrite)
		l.ways = append(l.ways, slices.Repeat([]func(context.Context){l.searchREST, l.writeREST, l.spellREST, l.spellQdrant}, 2)...)
		return l
	}
}

// besideLiars searches honestly for a time beside three liars, each of which a tick lets lie, and returns the searches
// and the lies.
func (h *honest) besideLiars(t *testing.T, lasts, tick time.Duration, newLiar func(at serve.Addresses) *liar) (searches []search, lies []interval) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	pace := time.NewTicker(tick) // most of the processors are left to tests beside this one
	defer pace.Stop()
	var liars sync.WaitGroup
	var of [3][]interval
	for i := range of {
		l := newLiar(h.at)
		liars.Go(func() { of[i] = l.lie(ctx, pace.C) })
	}
	searches = h.search(t, 0, ctx.Done())
	liars.Wait()
	return searches, slices.Concat(of[:]...)
}

// TestALiarChangesNothing: beside clients without rights that try whatever they can, an
// honest client gets the answers and the statuses that it gets without them, and no metric
// that counts searches, refusals, followed writes or events counts anything of theirs.
func TestALiarChangesNothing(t *testing.T) {
	h, newLiar := startBesideLiars(t)
	alone := h.search(t, 100, nil)
	before := h.count(t)
	lasts := liarFor(t, 45*time.Second)
	beside, lies := h.besideLiars(t, lasts, 10*time.Millisecond, newLiar)
	for n, s := range append(alone, beside...) {
		if s.status != h.status {
			t.Errorf("search %d: %q, want %q", n, s.status, h.status)
		}
	}
	h.wantOnly(t, len(beside), before)
	if len(lies) < 100 || len(beside) < 100 {
		t.Errorf("%d lies and %d honest searches", len(lies), len(beside))
	}
	t.Logf("reliability row=43 figure=%d lies in %v beside %d honest searches, 0 effects", len(lies), lasts, len(beside))
	t.Logf("p99 of an honest search: %v alone, %v beside the liar", quantile(alone, .99), quantile(beside, .99))
}

// liesASecond is the pace of liars whose effect on the times of others is measured.
const liesASecond = 200

// TestALiarIsNoSlowerThanAtTheDatabase measures how long an honest client's searches take
// beside lies at the sidecar, and beside as many of the same lies straight at the database,
// in turns: both share the processors with the liar and with the database that refuses it.
func TestALiarIsNoSlowerThanAtTheDatabase(t *testing.T) {
	if os.Getenv(soak) == "" && os.Getenv("LIAR_FOR") == "" {
		t.Skip("it measures times: make soak runs this, and so does LIAR_FOR=60s")
	}
	h, newLiar := startBesideLiars(t)
	database := h.at
	database.Proxy.GRPC, database.Proxy.REST = h.db.Address, strings.TrimPrefix(h.db.REST, "http://")
	const rounds = 5
	lasts := min(liarFor(t, 0), 5*time.Minute)
	names := [3]string{"alone", "beside lies at the database", "beside lies at the sidecar"}
	var took [3][]search
	var lies [3]atomic.Int64
	for range rounds {
		for n, at := range [3]*serve.Addresses{nil, &database, &h.at} {
			ctx, stop := context.WithTimeout(t.Context(), lasts/(rounds*time.Duration(len(names))))
			var liars sync.WaitGroup
			pace := time.NewTicker(time.Second / liesASecond)
			for range 8 {
				if at == nil {
					break
				}
				l := newLiar(*at)
				l.ways = []func(context.Context){l.searchGRPC, l.searchREST, l.writeGRPC, l.writeREST} // the database knows these too
				liars.Go(func() { lies[n].Add(int64(len(l.lie(ctx, pace.C)))) })
			}
			took[n] = append(took[n], h.search(t, 0, ctx.Done())...)
			liars.Wait()
			pace.Stop()
			stop()
		}
	}
	for n, name := range names {
		t.Logf("%d honest searches %s, %d lies: median %v, p99 %v", len(took[n]), name, lies[n].Load(), quantile(took[n], .5), quantile(took[n], .99))
	}
	if at, beside := quantile(took[1], .99), quantile(took[2], .99); os.Getenv(soak) != "" && beside > at*3/2 {
		t.Errorf("the p99 of an honest search is %v beside lies at the sidecar, and %v beside lies at the database: more than 1.5 times", beside, at)
	}
}

// quantile returns the q-quantile of the times of searches.
func quantile(searches []search, q float64) time.Duration {
	took := make([]time.Duration, len(searches))
	for i, s := range searches {
		took[i] = s.ended.Sub(s.began)
	}
	slices.Sort(took)
	return took[int(float64(len(took)-1)*q)]
}

// honest is a client with every right.
type honest struct {
	at     serve.Addresses
	db     *servers.Server
	pace   time.Duration // between two searches
	ways   []func(ctx context.Context) ([]hit, string, error)
	hits   []hit                  // of every answer
	status string                 // of every answer, without the id of the answer
	answer atomic.Pointer[string] // the id of the last answer
	shown  int                    // answers with an id, which are kept
}

// search is one search of the honest client.
type search struct {
	interval
	status string
}

// begin waits for the first answer that is certified, and wants every later one to have the same hits.
func (h *honest) begin(t *testing.T) {
	t.Helper()
	soon(t, "a certified answer", func(ctx context.Context) error {
		hits, status, err := h.ask(ctx, 0)
		if err == nil && (!strings.HasPrefix(status, "rescored; ") || strings.HasSuffix(status, "unknown")) {
			err = fmt.Errorf("status %q", status)
		}
		h.hits, h.status = hits, status
		return err
	})
}

// ask searches in one of the ways, and notes the id of the answer.
func (h *honest) ask(ctx context.Context, n int) ([]hit, string, error) {
	hits, status, err := h.ways[n%len(h.ways)](ctx)
	status, id, hasID := strings.Cut(status, "; answer=")
	if hasID {
		h.shown++
	}
	h.answer.Store(&id)
	return hits, status, err
}

// search searches in each way in turn, so many times or until done.
func (h *honest) search(t *testing.T, times int, done <-chan struct{}) (all []search) {
	t.Helper()
	tick := time.NewTicker(h.pace)
	defer tick.Stop()
	for n := 0; times == 0 || n < times; n++ {
		select {
		case <-done:
			return all
		case <-tick.C:
		}
		began := time.Now()
		hits, status, err := h.ask(t.Context(), n)
		all = append(all, search{interval{began, time.Now()}, status})
		if err != nil || !slices.Equal(hits, h.hits) {
			t.Errorf("search %d: %q, %v, %v; want %v", n, status, hits, err, h.hits)
		}
	}
	return all
}

// counted are the metrics that a stranger must not change.
var counted = regexp.MustCompile(`(?m)^(likeness_(?:proxy_searches_total|proxy_originals_total|proxy_off|admission_refused_total|follow_\w+|reconcile\w*|searches_total|events_(?:impressions|feedback)\w*)[^ ]*) (\S+)$`)

func (h *honest) count(t *testing.T) map[string]float64 {
	t.Helper()
	soon(t, "the events of the honest answers alone", func(context.Context) error { // they are written beside the answers
		kept := fmt.Sprintf(`likeness_events_impressions_total{route="things"} %d`, h.shown)
		if !strings.Contains(admin(t, h.at, http.MethodGet, "/metrics"), kept+"\n") {
			return fmt.Errorf("there is no %s", kept)
		}
		return nil
	})
	all := map[string]float64{}
	for _, m := range counted.FindAllStringSubmatch(admin(t, h.at, http.MethodGet, "/metrics"), -1) {
		var n float64
		if _, err := fmt.Sscan(m[2], &n); err != nil {
			t.Fatal(err)
		}
		all[m[1]] = n
	}
	return all
}

// wantOnly checks that nothing but the honest searches was counted since before.
func (h *honest) wantOnly(t *testing.T, searches int, before map[string]float64) {
	t.Helper()
	for name, n := range h.count(t) {
		grows := 0
		switch {
		case strings.Contains(name, `searches_total{outcome="rescored"`), name == `likeness_events_impressions_total{route="things"}`:
			grows = searches
		case strings.Contains(name, `route="another"`): // liars may search it, and claim what is refused
			continue
		}
		if n != before[name]+float64(grows) {
			t.Errorf("%s went from %g to %g, want %d more", name, before[name], n, grows)
		}
	}
}
