package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

const key = "secret"

// proxied is a sidecar before a real Qdrant with two collections of the same
// points: routed has a route, plain has none.
type proxied struct {
	direct, proxy, api *grpc.ClientConn
	restDirect, rest   string
}

func startProxied(t *testing.T, version string) *proxied {
	t.Helper()
	db := servers.QdrantForTest(t, version, servers.Options{APIKey: key})
	p := &proxied{direct: connect(t, db.Address), restDirect: db.REST}
	fill(t, p.direct)
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, exact_search: true, depth: 20}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, db.Address, db.REST))
	p.api, p.proxy, p.rest = connect(t, at.GRPC), connect(t, at.Proxy.GRPC), "http://"+at.Proxy.REST
	return p
}

// startSidecar runs a sidecar with the bilinear model w of four dimensions until
// the test ends; rest are the parts of its configuration.
func startSidecar(t *testing.T, rest string) serve.Addresses {
	t.Helper()
	return startListening(t, `listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
models: {w: {path: w.safetensors}}
`+rest)
}

func startListening(t *testing.T, text string) serve.Addresses {
	t.Helper()
	dir := t.TempDir()
	err := model.Write(filepath.Join(dir, "w.safetensors"), testModel(t))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "likeness.yaml"), []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{File: filepath.Join(dir, "likeness.yaml"), Environ: []string{"QDRANT_KEY=" + key}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{Logger: slog.New(slog.DiscardHandler), Build: buildinfo.Read(buildinfo.Stamp{}),
			Ready: func(at serve.Addresses) { ready <- at }})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case at := <-ready:
		return at
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return serve.Addresses{}
	}
}

// testModel is the model w.
func testModel(t *testing.T) *model.Model {
	t.Helper()
	w := tensor.Tensor{Shape: []int{4, 4}, Data: []float32{0, 1, 0, 0, 2, 0, 0, 0, 0, 0, -1, 0, 0.5, 0, 0, 1}}
	m, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Name: "w", Tensors: tensor.Set{"W": w},
		Config: []byte(`{"query_embedding_dim":4,"item_embedding_dim":4,"normalise":false,"form":"full"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func connect(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func asUser(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "api-key", key)
}

func fill(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	ctx, wait := asUser(t.Context()), true
	var points []*qdrant.PointStruct
	for i := range 30 {
		id := qdrant.NewIDNum(uint64(i))
		switch i {
		case 7:
			id = qdrant.NewIDNum(1<<64 - 1)
		case 8:
			id = qdrant.NewIDUUID("5c56c793-69f3-4fbf-87e6-c4bf54c28c26")
		}
		x := float32(i)
		points = append(points, &qdrant.PointStruct{Id: id, Vectors: qdrant.NewVectors(x/7, 2-x/5, x*x/100, 1/(1+x)),
			Payload: qdrant.NewValueMap(map[string]any{"n": int64(i % 3), "big": int64(1<<63 - 1), "t": "<&>"})})
	}
	for _, name := range []string{"routed", "plain"} {
		_, err := qdrant.NewCollectionsClient(conn).Create(ctx, &qdrant.CreateCollection{CollectionName: name,
			VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: 4, Distance: qdrant.Distance_Dot})})
		if err == nil {
			_, err = qdrant.NewPointsClient(conn).Upsert(ctx, &qdrant.UpsertPoints{CollectionName: name, Wait: &wait, Points: points})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hit is an id and a score, as text.
type hit struct {
	id    string
	score float32
}

var query = []float32{1, -2, 0.5, 3}

// expected asks likeness's own API.
func (p *proxied) expected(t *testing.T, k int32, filter string) []hit {
	t.Helper()
	r, err := likenessv1.NewSearchServiceClient(p.api).Search(t.Context(), &likenessv1.SearchRequest{
		Route: "things", Query: &likenessv1.Query{Vector: query}, K: k, Filter: filter,
	})
	if err != nil {
		t.Fatal(err)
	}
	var hits []hit
	for _, h := range r.GetHits() {
		id := h.GetId().GetText()
		if id == "" {
			id = strconv.FormatUint(h.GetId().GetNumber(), 10)
		}
		hits = append(hits, hit{id, h.GetScore()})
	}
	return hits
}

func hitsOf(points []*qdrant.ScoredPoint) []hit {
	var hits []hit
	for _, p := range points {
		id := p.GetId().GetUuid()
		if id == "" {
			id = strconv.FormatUint(p.GetId().GetNum(), 10)
		}
		hits = append(hits, hit{id, p.GetScore()})
	}
	return hits
}

func eachVersion(t *testing.T, test func(*testing.T, *proxied)) {
	t.Helper()
	for _, version := range []string{servers.QdrantOldest, servers.QdrantNewest} {
		t.Run(version, func(t *testing.T) { test(t, startProxied(t, version)) })
	}
}

func TestProxyRescoresGRPC(t *testing.T) {
	eachVersion(t, func(t *testing.T, p *proxied) {
		ctx, points := asUser(t.Context()), qdrant.NewPointsClient(p.proxy)
		var trailer metadata.MD
		search := &qdrant.SearchPoints{CollectionName: "routed", Vector: query, Limit: 5, Offset: qdrant.PtrOf(uint64(2)), WithPayload: qdrant.NewWithPayload(true), WithVectors: qdrant.NewWithVectors(true)}
		r, err := points.Search(ctx, search, grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		rescored(t, trailer.Get("likeness-status"))
		all := p.expected(t, 20, "")
		same(t, "search", hitsOf(r.GetResult()), all[2:7])
		if !slices.ContainsFunc(all, func(h hit) bool { return h.id == "18446744073709551615" }) {
			t.Error("the greatest id is not among the hits")
		}
		p.sameRows(t, r.GetResult())

		filter := &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatchInt("n", 1)}, MustNot: []*qdrant.Condition{qdrant.NewHasID(qdrant.NewIDNum(4))}}
		wanted := p.expected(t, 10, `{"must":[{"key":"n","match":{"value":1}}],"must_not":[{"has_id":[4]}]}`)
		one := &qdrant.QueryPoints{CollectionName: "routed", Query: qdrant.NewQueryDense(query), Filter: filter}
		q, err := points.Query(ctx, one, grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		rescored(t, trailer.Get("likeness-status"))
		same(t, "query", hitsOf(q.GetResult()), wanted)

		qb, err := points.QueryBatch(ctx, &qdrant.QueryBatchPoints{CollectionName: "routed", QueryPoints: []*qdrant.QueryPoints{
			one, {CollectionName: "routed", Query: qdrant.NewQueryDense(query)},
		}}, grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		rescored(t, trailer.Get("likeness-status"))
		same(t, "query batch", hitsOf(qb.GetResult()[0].GetResult()), wanted)
		same(t, "query batch", hitsOf(qb.GetResult()[1].GetResult()), all[:10])
		sb, err := points.SearchBatch(ctx, &qdrant.SearchBatchPoints{CollectionName: "routed", SearchPoints: []*qdrant.SearchPoints{search}}, grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		rescored(t, trailer.Get("likeness-status"))
		same(t, "search batch", hitsOf(sb.GetResult()[0].GetResult()), all[2:7])
	})
}

func rescored(t *testing.T, status []string) {
	t.Helper()
	if !slices.Equal(status, []string{"rescored; route=things; certificate=exact"}) {
		t.Errorf("status %q", status)
	}
}

func same(t *testing.T, what string, got, want []hit) {
	t.Helper()
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("%s: hits\n%v, want\n%v", what, got, want)
	}
}

// sameRows: payload, vectors and version are those that the database gives.
func (p *proxied) sameRows(t *testing.T, got []*qdrant.ScoredPoint) {
	t.Helper()
	r, err := qdrant.NewPointsClient(p.direct).Search(asUser(t.Context()), &qdrant.SearchPoints{CollectionName: "routed", Vector: query, Limit: 30,
		WithPayload: qdrant.NewWithPayload(true), WithVectors: qdrant.NewWithVectors(true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range got {
		for _, want := range r.GetResult() {
			if proto.Equal(g.GetId(), want.GetId()) {
				want.Score = g.GetScore()
				if !proto.Equal(g, want) {
					t.Errorf("point %v, want %v", g, want)
				}
			}
		}
	}
}

// What is not understood on a routed collection is answered by the database.
func TestProxyPassesGRPC(t *testing.T) {
	eachVersion(t, func(t *testing.T, p *proxied) {
		base := &qdrant.SearchPoints{CollectionName: "routed", Vector: query, Limit: 3}
		// The database accepts the caller: an error would not show that.
		if _, err := qdrant.NewPointsClient(p.proxy).Search(asUser(t.Context()), base); err != nil {
			t.Fatal(err)
		}
		for reason, change := range map[string]func(*qdrant.SearchPoints){
			"score-threshold": func(s *qdrant.SearchPoints) { s.ScoreThreshold = qdrant.PtrOf(float32(0)) },
			"depth":           func(s *qdrant.SearchPoints) { s.Offset = qdrant.PtrOf(uint64(18)) },
			"limit":           func(s *qdrant.SearchPoints) { s.Limit = 0 },
			"vector":          func(s *qdrant.SearchPoints) { s.VectorName = qdrant.PtrOf("other") },
			"request":         func(s *qdrant.SearchPoints) { s.Vector = query[:2] },
			"consistency": func(s *qdrant.SearchPoints) {
				s.ReadConsistency = qdrant.NewReadConsistencyType(qdrant.ReadConsistencyType_All)
			},
			"indexed-only": func(s *qdrant.SearchPoints) { s.Params = &qdrant.SearchParams{IndexedOnly: qdrant.PtrOf(true)} },
			"filter":       func(s *qdrant.SearchPoints) { s.Filter = &qdrant.Filter{Must: []*qdrant.Condition{{}}} },
			"no-candidates": func(s *qdrant.SearchPoints) {
				s.Filter = &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatchInt("n", 9)}}
			},
			"unknown-field": func(s *qdrant.SearchPoints) {
				s.Filter = &qdrant.Filter{}
				s.GetFilter().ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
			},
		} {
			s := proto.Clone(base).(*qdrant.SearchPoints)
			change(s)
			var trailer metadata.MD
			got, gotErr := qdrant.NewPointsClient(p.proxy).Search(asUser(t.Context()), s, grpc.Trailer(&trailer))
			want, wantErr := qdrant.NewPointsClient(p.direct).Search(asUser(t.Context()), s)
			if status.Convert(gotErr).String() != status.Convert(wantErr).String() || fmt.Sprint(hitsOf(got.GetResult())) != fmt.Sprint(hitsOf(want.GetResult())) {
				t.Errorf("%s: %v %v, directly %v %v", reason, got, gotErr, want, wantErr)
			}
			if s := trailer.Get("likeness-status"); !slices.Equal(s, []string{"passed; reason=" + reason}) {
				t.Errorf("%s: status %q", reason, s)
			}
		}
		var trailer metadata.MD
		if _, err := qdrant.NewPointsClient(p.proxy).Search(asUser(t.Context()), &qdrant.SearchPoints{CollectionName: "plain", Vector: query, Limit: 1}, grpc.Trailer(&trailer)); err != nil || len(trailer.Get("likeness-status")) > 0 {
			t.Errorf("a collection without a route: %v, %v", err, trailer)
		}
	})
}

// A caller without the database's key gets the database's refusal: the sidecar's
// own key is not used for it.
func TestProxyUsesTheCallersCredentials(t *testing.T) {
	eachVersion(t, func(t *testing.T, p *proxied) {
		s := &qdrant.SearchPoints{CollectionName: "routed", Vector: query, Limit: 3}
		for _, ctx := range []context.Context{t.Context(), metadata.AppendToOutgoingContext(t.Context(), "api-key", "wrong")} {
			got, err := qdrant.NewPointsClient(p.proxy).Search(ctx, s)
			_, want := qdrant.NewPointsClient(p.direct).Search(ctx, s)
			if status.Code(err) != codes.Unauthenticated && status.Code(err) != codes.PermissionDenied || err.Error() != want.Error() {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
		}
		code, _, body := post(t, p.rest, "routed/points/search", `{"vector":[1,-2,0.5,3],"limit":3}`, "wrong")
		if code != http.StatusUnauthorized {
			t.Errorf("REST: %d %s", code, body)
		}
	})
}

func post(t *testing.T, base, path, body, apiKey string) (code int, status string, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/collections/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Api-Key", apiKey)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	b, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, got.Header.Get("Likeness-Status"), string(b)
}

func restHits(t *testing.T, list json.RawMessage) []hit {
	t.Helper()
	var points []struct {
		ID    json.RawMessage
		Score float32
	}
	if err := json.Unmarshal(list, &points); err != nil {
		t.Fatal(err, string(list))
	}
	var hits []hit
	for _, p := range points {
		hits = append(hits, hit{strings.Trim(string(p.ID), `"`), p.Score})
	}
	return hits
}

func TestProxyRescoresREST(t *testing.T) {
	eachVersion(t, func(t *testing.T, p *proxied) {
		const vector, filter = `[1,-2,0.5,3]`, `{"must":[{"key":"n","match":{"value":1}}]}`
		all, filtered := p.expected(t, 20, ""), p.expected(t, 10, filter)
		type list struct{ Points json.RawMessage }
		for path, tc := range map[string]struct {
			body string
			want [][]hit
		}{
			"search":       {`{"vector":` + vector + `,"limit":5,"offset":2,"with_payload":true,"with_vector":true}`, [][]hit{all[2:7]}},
			"query":        {`{"query":{"nearest":` + vector + `},"filter":` + filter + `,"params":{"hnsw_ef":16}}`, [][]hit{filtered}},
			"search/batch": {`{"searches":[{"vector":` + vector + `,"limit":4},{"vector":` + vector + `,"limit":10,"filter":` + filter + `}]}`, [][]hit{all[:4], filtered}},
			"query/batch":  {`{"searches":[{"query":` + vector + `,"limit":20},{"query":` + vector + `,"filter":` + filter + `}]}`, [][]hit{all, filtered}},
		} {
			code, status, body := post(t, p.rest, "routed/points/"+path+"?timeout=30", tc.body, key)
			var answer struct {
				Result json.RawMessage
				Status string
				Time   float64
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil || code != http.StatusOK || answer.Status != "ok" || answer.Time <= 0 {
				t.Fatalf("%s: %d %s", path, code, body)
			}
			rescored(t, []string{status})
			lists := []json.RawMessage{answer.Result}
			if strings.HasSuffix(path, "batch") {
				if err := json.Unmarshal(answer.Result, &lists); err != nil {
					t.Fatal(err)
				}
			}
			for i, l := range lists {
				if strings.HasPrefix(path, "query") {
					var inner list
					if err := json.Unmarshal(l, &inner); err != nil {
						t.Fatal(err)
					}
					l = inner.Points
				}
				same(t, path, restHits(t, l), tc.want[i])
			}
			if path == "search" && !(strings.Contains(body, `"big":9223372036854775807`) && strings.Contains(body, `"vector":[`) && strings.Contains(body, `"t":"<&>"`)) {
				t.Errorf("payload or vector is missing in %s", body)
			}
		}
	})
}

func TestProxyPassesREST(t *testing.T) {
	eachVersion(t, func(t *testing.T, p *proxied) {
		for _, tc := range []struct{ reason, path, body string }{
			{"unknown-field", "search", `{"vector":[1,-2,0.5,3],"limit":3,"tomorrow":1}`},
			{"unknown-field", "search", `{"vector":[1,-2,0.5,3],"limit":3,"filter":{"must":[{"key":"n","tomorrow":1,"match":{"value":1}}]}}`},
			{"unknown-field", "query", `{"query":[1,-2,0.5,3],"params":{"hnsw":1}}`},
			{"score-threshold", "search", `{"vector":[1,-2,0.5,3],"limit":3,"score_threshold":0.5}`},
			{"prefetch", "query", `{"query":{"fusion":"rrf"},"prefetch":[{"query":[1,-2,0.5,3]}]}`},
			{"not-nearest", "query", `{"query":{"recommend":{"positive":[1]}}}`},
			{"not-nearest", "query", `{"query":5}`},
			{"not-nearest", "query", `{"limit":4}`},
			{"vector", "search", `{"vector":{"name":"other","vector":[1,-2,0.5,3]},"limit":3}`},
			{"limit", "search", `{"vector":[1,-2,0.5,3]}`},
			{"limit", "search", `{"vector":[1,-2,0.5,3],"limit":-1}`},
			{"depth", "search", `{"vector":[1,-2,0.5,3],"limit":21}`},
			{"request", "search", `{"vector":[1,-2],"limit":3}`},
			{"malformed", "search", `{"vector":[1,-2,0.5,3],"limit":3`},
			{"malformed", "search", `{"vector":[1,-2,0.5,3],"limit":3,"limit":4}`},
			{"query-argument", "search?timeout=x", `{"vector":[1,-2,0.5,3],"limit":3}`},
			{"consistency", "search?consistency=all", `{"vector":[1,-2,0.5,3],"limit":3}`},
			{"batch", "search/batch", `{"searches":[]}`},
		} {
			code, status, got := post(t, p.rest, "routed/points/"+tc.path, tc.body, key)
			wantCode, _, want := post(t, p.restDirect, "routed/points/"+tc.path, tc.body, key)
			if code != wantCode || timeless(got) != timeless(want) {
				t.Errorf("%s: %d %s, directly %d %s", tc.body, code, got, wantCode, want)
			}
			if status != "passed; reason="+tc.reason {
				t.Errorf("%s: status %q", tc.body, status)
			}
		}
	})
}

func timeless(body string) string {
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &o) != nil {
		return body
	}
	delete(o, "time")
	delete(o, "usage")
	var b bytes.Buffer
	for _, name := range []string{"result", "status"} {
		b.Write(o[name])
	}
	return b.String()
}

// resultOf returns the result in a successful answer of Qdrant's REST API.
func resultOf(t *testing.T, code int, body string) json.RawMessage {
	t.Helper()
	var answer struct{ Result json.RawMessage }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	return answer.Result
}
