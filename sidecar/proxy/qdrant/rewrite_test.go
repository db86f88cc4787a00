package qdrant_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/proxy/recording"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// identity and rotation are W of bilinear models: a rotation maps the vectors x to W⁻¹x.
var (
	identity = []float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}
	rotation = []float32{0, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0.6, 0.8, 0, 0, -0.8, 0.6}
)

// rotated returns Wᵀv. Its inner product with a rotated item equals the inner product of v with the
// item.
func rotated(w, v []float32) []float32 {
	out := make([]float32, 4)
	for j := range out {
		sum := 0.0
		for i := range v {
			sum += float64(w[4*i+j]) * float64(v[i])
		}
		out[j] = float32(sum)
	}
	return out
}

// rewriting serves a route of a collection that rewrites searches by W.
func rewriting(t *testing.T, grpcAddress, rest, collection string, w []float32, normalise bool, rules string) (at serve.Addresses, stop func()) {
	t.Helper()
	m, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Name: "w", Tensors: tensor.Set{"W": {Shape: []int{4, 4}, Data: w}},
		Config: fmt.Appendf(nil, `{"query_embedding_dim":4,"item_embedding_dim":4,"normalise":%t,"form":"full"}`, normalise)})
	if err != nil {
		t.Fatal(err)
	}
	return recording.Sidecar(t, fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {main: {kind: qdrant, address: %q, api_key_env: OWN_KEY}}
models: {w: {path: w.safetensors}}
routes: {things: {store: main, collection: %s, vector: vec, model: w, placement: rewrite%s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, grpcAddress, collection, rules, rest), map[string]*model.Model{"w.safetensors": m}, "OWN_KEY="+ownKey)
}

// withGroups returns askings and the calls that only rewriting answers.
func withGroups(t *testing.T) []asking {
	filter, vec := byNumber(), proto.String("vec")
	return append(askings(t),
		asking{method: client.Points_SearchGroups_FullMethodName, request: &client.SearchPointGroups{CollectionName: "routed", Vector: asked, VectorName: vec, Filter: filter, Limit: 2, GroupBy: "n", GroupSize: 3, WithPayload: client.NewWithPayload(true)}},
		asking{method: client.Points_QueryGroups_FullMethodName, request: &client.QueryPointGroups{CollectionName: "routed", Query: client.NewQueryDense(asked), Using: vec, GroupBy: "n", GroupSize: proto.Uint64(3), ScoreThreshold: proto.Float32(-1000)}},
		asking{path: "search/groups", body: `{"vector":{"name":"vec","vector":[1,-2,0.5,3]},"group_by":"n","group_size":3,"limit":2,"with_payload":true}`},
		asking{path: "query/groups", body: `{"query":{"nearest":[1,-2,0.5,3]},"using":"vec","group_by":"n","group_size":3,"limit":2, "with_vector":true}`},
	)
}

// TestRewrittenCallsReachTheDatabaseWhole: for one call of each client the database gets every
// field and credential, and only the vector differs.
func TestRewrittenCallsReachTheDatabaseWhole(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db)
	up := recording.Before(t, db.Address, db.REST)
	quarter := []float32{0, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 1, 0, 0, -1, 0} // which rounds nothing
	at, stop := rewriting(t, up.GRPC, up.REST, "routed", quarter, false, ", opt_in: [score-threshold]")
	conn := dial(t, at.Proxy.GRPC)
	calls := withGroups(t)
	for _, a := range calls {
		if state := a.send(t, conn, "http://"+at.Proxy.REST, a.name()); !strings.HasPrefix(state, "rewritten; route=things; certificate=") {
			t.Errorf("%s: %q", a.name(), state)
		}
	}
	_ = conn.Close()
	restClient.CloseIdleConnections()
	stop()
	got := byCaller(up.Requests(t))
	vector := rotated(quarter, asked)
	for _, a := range calls {
		theirs := slices.DeleteFunc(got[a.name()], func(e harness.Exchange) bool {
			return isSample(e) || strings.HasPrefix(e.Method(), "/qdrant.Collections/") // what the collection is, every 30 s
		})
		if len(theirs) != 1 {
			t.Errorf("%s: %d calls reached the database: %v", a.name(), len(theirs), theirs)
			continue
		}
		a.wantCaller(t, theirs[0])
		if a.path != "" {
			numbers, _ := json.Marshal(vector)
			want := strings.ReplaceAll(a.body, "[1,-2,0.5,3]", string(numbers))
			want = strings.ReplaceAll(want, `"score_threshold":-1000.0`, `"score_threshold":-1000`)
			if string(theirs[0].Body) != want || theirs[0].Call != "POST /collections/routed/points/"+a.path+arguments {
				t.Errorf("%s: %s %s, want %s", a.name(), theirs[0].Call, theirs[0].Body, want)
			}
			continue
		}
		sent, want := a.request.ProtoReflect().New().Interface(), proto.Clone(a.request)
		for _, m := range parts(want) {
			switch m := m.(type) {
			case *client.SearchPoints:
				m.Vector = vector
			case *client.SearchPointGroups:
				m.Vector = vector
			case *client.QueryPoints:
				m.Query = client.NewQueryDense(vector)
			case *client.QueryPointGroups:
				m.Query = client.NewQueryDense(vector)
			}
		}
		if err := proto.Unmarshal(theirs[0].Body, sent); err != nil || !proto.Equal(sent, want) || theirs[0].Method() != a.method {
			t.Errorf("%s: %v differs in %q from %v", a.name(), sent, recording.Changed(sent, want), want)
		}
	}
	for _, own := range got[ownKey] {
		if strings.HasPrefix(own.Method(), "/qdrant.Points/") && !isSample(own) {
			t.Errorf("%s is asked with the sidecar's own key", own.Call)
		}
	}
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// invoke makes a gRPC call. It removes times and usage from the answer.
func invoke(t *testing.T, conn *grpc.ClientConn, a asking) (answer proto.Message, trailer metadata.MD) {
	t.Helper()
	answer = map[string]proto.Message{
		client.Points_Search_FullMethodName: &client.SearchResponse{}, client.Points_Query_FullMethodName: &client.QueryResponse{},
		client.Points_SearchBatch_FullMethodName: &client.SearchBatchResponse{}, client.Points_QueryBatch_FullMethodName: &client.QueryBatchResponse{},
		client.Points_SearchGroups_FullMethodName: &client.SearchGroupsResponse{}, client.Points_QueryGroups_FullMethodName: &client.QueryGroupsResponse{},
	}[a.method]
	if err := conn.Invoke(t.Context(), a.method, a.request, answer, grpc.Trailer(&trailer)); err != nil {
		t.Fatal(a.name(), err)
	}
	m := answer.ProtoReflect()
	for _, name := range []protoreflect.Name{"time", "usage"} {
		if f := m.Descriptor().Fields().ByName(name); f != nil {
			m.Clear(f)
		}
	}
	return answer, trailer
}

// post makes a REST request. It removes time and usage from the answer.
func post(t *testing.T, base string, a asking) (answer string, header http.Header) {
	t.Helper()
	return postTo(t, base+"/collections/routed/points/"+a.path, a.body)
}

func postTo(t *testing.T, url, body string) (answer string, header http.Header) {
	t.Helper()
	in, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	in.Header.Set("Content-Type", "application/json")
	out, err := restClient.Do(in)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	got, err := io.ReadAll(out.Body)
	if err != nil || out.StatusCode != http.StatusOK {
		t.Fatal(url, body, out.Status, err, string(got))
	}
	i := bytes.LastIndex(got, []byte(`,"time":`))
	if i < 0 {
		t.Fatalf("%s: %s", body, got)
	}
	return string(got[:i]), out.Header
}

// TestRewritingByTheIdentityChangesNothing: if W is the identity and the scale 1, the answer is the
// database's own, byte for byte.
func TestRewritingByTheIdentityChangesNothing(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db)
	at, _ := rewriting(t, db.Address, db.REST, "routed", identity, false, ", opt_in: [score-threshold]")
	conn, direct := dial(t, at.Proxy.GRPC), dial(t, db.Address)
	for _, a := range withGroups(t) {
		if a.path == "" {
			got, trailer := invoke(t, conn, a)
			want, _ := invoke(t, direct, a)
			if !proto.Equal(got, want) || !strings.HasPrefix(strings.Join(trailer.Get("likeness-status"), ","), "rewritten; ") {
				t.Errorf("%s: %v, %q, want %v", a.name(), got, trailer, want)
			}
			continue
		}
		got, header := post(t, "http://"+at.Proxy.REST, a)
		want, _ := post(t, db.REST, a)
		if got != want || !strings.HasPrefix(header.Get("Likeness-Status"), "rewritten; ") {
			t.Errorf("%s: %s, %q, want %s", a.name(), got, header, want)
		}
	}
}

// TestRewritingByARotation: a route whose W is a rotation finds in a rotated collection the same
// rows, with the same scores, as a direct search in the plain collection, for both metrics.
func TestRewritingByARotation(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	direct := dial(t, db.Address)
	for _, metric := range []client.Distance{client.Distance_Dot, client.Distance_Cosine} {
		for name, w := range map[string][]float32{"plain": identity, "turned": rotation} {
			collection := fmt.Sprint(name, metric)
			var points []*client.PointStruct
			for i := range 200 {
				x := float64(i + 1)
				v := []float32{float32(math.Sin(x)), float32(math.Cos(3 * x)), float32(math.Sin(7 * x)), float32(math.Cos(11*x) / 2)}
				points = append(points, &client.PointStruct{Id: client.NewIDNum(uint64(i)), Payload: client.NewValueMap(map[string]any{"n": int64(i % 3)}), Vectors: client.NewVectorsMap(map[string]*client.Vector{"vec": client.NewVectorDense(rotated(w, v))})})
			}
			_, err := client.NewCollectionsClient(direct).Create(t.Context(), &client.CreateCollection{CollectionName: collection, VectorsConfig: client.NewVectorsConfigMap(map[string]*client.VectorParams{"vec": {Size: 4, Distance: metric}})})
			if err == nil {
				_, err = client.NewPointsClient(direct).Upsert(t.Context(), &client.UpsertPoints{CollectionName: collection, Wait: proto.Bool(true), Points: points})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		// A model of a cosine field takes unit vectors. Twice the rotation gives twice the scores.
		w, times := rotation, float32(1)
		if metric == client.Distance_Cosine {
			w, times = slices.Clone(rotation), 2
			for i := range w {
				w[i] *= times
			}
		}
		at, stop := rewriting(t, db.Address, db.REST, fmt.Sprint("turned", metric), w, metric == client.Distance_Cosine, ", opt_in: [score-threshold]")
		conn := dial(t, at.Proxy.GRPC)
		cut := float32(0.1)
		for i := range 20 {
			vector := []float32{float32(i%5) - 2, 0.5, float32(i%7) - 3, 1}
			ask := func(collection string, threshold float32) asking {
				return asking{method: client.Points_Query_FullMethodName, request: &client.QueryPoints{CollectionName: collection, Query: client.NewQueryDense(vector), Using: proto.String("vec"),
					Limit: proto.Uint64(7), Offset: proto.Uint64(uint64(i % 3)), ScoreThreshold: &threshold, Params: &client.SearchParams{Exact: proto.Bool(true)}}}
			}
			got, trailer := invoke(t, conn, ask(fmt.Sprint("turned", metric), cut*times))
			want, _ := invoke(t, direct, ask(fmt.Sprint("plain", metric), cut))
			if state := strings.Join(trailer.Get("likeness-status"), ","); state != "rewritten; route=things; certificate=exact" {
				t.Errorf("%s: %q", metric, state)
			}
			rows, wanted := got.(*client.QueryResponse).GetResult(), want.(*client.QueryResponse).GetResult()
			if len(rows) == 0 || !slices.EqualFunc(rows, wanted, func(a, b *client.ScoredPoint) bool {
				score := float64(b.GetScore()) * float64(times)
				return a.GetId().GetNum() == b.GetId().GetNum() && math.Abs(float64(a.GetScore())-score) <= 1e-6*max(1, math.Abs(score))
			}) {
				t.Errorf("%s, query %d: %v, want %v", metric, i, rows, wanted)
			}
		}
		_ = conn.Close()
		stop()
	}
}

// TestWhatIsNotRewritten: searches that rewriting would change in meaning pass, and the client gets
// the database's errors.
func TestWhatIsNotRewritten(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db)
	at, _ := rewriting(t, db.Address, db.REST, "routed", slices.Repeat([]float32{0}, 16), false, "")
	conn := dial(t, at.Proxy.GRPC)
	vec := proto.String("vec")
	dense := client.NewQueryDense(asked)
	batch := func(q ...*client.QueryPoints) asking {
		for _, one := range q {
			one.CollectionName = "routed"
		}
		return asking{method: client.Points_QueryBatch_FullMethodName, request: &client.QueryBatchPoints{CollectionName: "routed", QueryPoints: q}}
	}
	query := func(q *client.QueryPoints) asking {
		q.CollectionName = "routed"
		return asking{method: client.Points_Query_FullMethodName, request: q}
	}
	for name, tc := range map[string]struct {
		asking
		want string
	}{
		"zero":      {query(&client.QueryPoints{Query: dense, Using: vec}), "passed; reason=not-rewritten"},
		"threshold": {query(&client.QueryPoints{Query: dense, Using: vec, ScoreThreshold: proto.Float32(1)}), "passed; reason=score-threshold"},
		"prefetch":  {query(&client.QueryPoints{Query: dense, Using: vec, Prefetch: []*client.PrefetchQuery{{Query: dense, Using: vec}}}), "passed; reason=prefetch"},
		"an id":     {query(&client.QueryPoints{Query: client.NewQueryID(client.NewIDNum(1)), Using: vec}), "passed; reason=not-nearest"},
		"MMR":       {query(&client.QueryPoints{Query: client.NewQueryMMR(client.NewVectorInputDense(asked), &client.Mmr{}), Using: vec}), "passed; reason=not-nearest"},
		"of a batch, one by id": {batch(&client.QueryPoints{Query: dense, Using: vec}, &client.QueryPoints{Query: client.NewQueryID(client.NewIDNum(1)), Using: vec}),
			"passed; reason=not-nearest"},
	} {
		got, trailer := invoke(t, conn, tc.asking)
		want, _ := invoke(t, dial(t, db.Address), tc.asking)
		if state := strings.Join(trailer.Get("likeness-status"), ","); state != tc.want || !proto.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, state, tc.want)
		}
	}
}

// TestARewritingRouteOrdersPrefetchedRows: if the route opts in to prefetches, the similarity
// orders the rows that the client's own query finds, as on other routes.
func TestARewritingRouteOrdersPrefetchedRows(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db)
	at, _ := rewriting(t, db.Address, db.REST, "routed", rotation, false, ", opt_in: [prefetch]")
	conn, dense, using := dial(t, at.Proxy.GRPC), client.NewQueryDense(asked), proto.String("vec")
	accept(t.Context(), t, conn)
	query := func(q *client.QueryPoints) (scores map[uint64]float32, state string) {
		q.CollectionName, q.Query, q.Using = "routed", dense, using
		answer, trailer := invoke(t, conn, asking{method: client.Points_Query_FullMethodName, request: q})
		scores = map[uint64]float32{}
		for _, p := range answer.(*client.QueryResponse).GetResult() {
			scores[p.GetId().GetNum()] = p.GetScore()
		}
		return scores, strings.Join(trailer.Get("likeness-status"), ",")
	}
	want, state := query(&client.QueryPoints{Limit: proto.Uint64(100)})
	if !strings.HasPrefix(state, "rewritten; ") {
		t.Fatal(state)
	}
	got, state := query(&client.QueryPoints{Limit: proto.Uint64(3), Prefetch: []*client.PrefetchQuery{{Query: dense, Using: using, Limit: proto.Uint64(5)}}})
	if len(got) != 3 || !strings.HasPrefix(state, "rescored; ") {
		t.Fatalf("%v, %q", got, state)
	}
	for id, score := range got {
		if !(math.Abs(float64(score-want[id])) <= 1e-5) {
			t.Errorf("point %d has %v, want %v", id, score, want[id])
		}
	}
}

// TestTheDatabaseRefusesARewrittenCall: the client gets the error, as for the unchanged call.
func TestTheDatabaseRefusesARewrittenCall(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db)
	at, _ := rewriting(t, db.Address, db.REST, "routed", rotation, false, "")
	refused := &client.QueryPoints{CollectionName: "routed", Query: client.NewQueryDense(asked), Using: proto.String("vec"), Limit: proto.Uint64(0)}
	ask := func(address string) (state string, err error) {
		var trailer metadata.MD
		err = dial(t, address).Invoke(t.Context(), client.Points_Query_FullMethodName, refused, &client.QueryResponse{}, grpc.Trailer(&trailer))
		return strings.Join(trailer.Get("likeness-status"), ","), err
	}
	accept(t.Context(), t, dial(t, at.Proxy.GRPC))
	state, got := ask(at.Proxy.GRPC)
	_, want := ask(db.Address)
	if status.Code(want) != codes.InvalidArgument || got.Error() != want.Error() || state != "passed; reason=refused" {
		t.Errorf("%v, %q, want %v", got, state, want)
	}
	answer, err := restClient.Post("http://"+at.Proxy.REST+"/collections/routed/points/query", "application/json", strings.NewReader(`{"query":[1,2,3,4],"using":"vec","limit":0}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode < 400 || answer.StatusCode >= 500 || answer.Header.Get("Likeness-Status") != "passed; reason=refused" {
		t.Errorf("%s, %v", answer.Status, answer.Header)
	}
}

// TestRewrittenStages: if a route rewrites prefetches, a query of a rotated collection through the
// proxy finds the same rows, with the same scores, as the query of the plain collection: fused,
// ordered by the routed vector or by another one, over gRPC and REST.
func TestRewrittenStages(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	direct := dial(t, db.Address)
	for name, w := range map[string][]float32{"plain": identity, "turned": rotation} {
		var points []*client.PointStruct
		for i := range 200 {
			x := float64(i + 1)
			v := []float32{float32(math.Sin(x)), float32(math.Cos(3 * x)), float32(math.Sin(7 * x)), float32(math.Cos(11*x) / 2)}
			other := []float32{float32(math.Sin(2 * x)), float32(math.Cos(5 * x))}
			points = append(points, &client.PointStruct{Id: client.NewIDNum(uint64(i)), Vectors: client.NewVectorsMap(map[string]*client.Vector{"vec": client.NewVectorDense(rotated(w, v)), "other": client.NewVectorDense(other)})})
		}
		_, err := client.NewCollectionsClient(direct).Create(t.Context(), &client.CreateCollection{CollectionName: name, VectorsConfig: client.NewVectorsConfigMap(map[string]*client.VectorParams{
			"vec": {Size: 4, Distance: client.Distance_Dot}, "other": {Size: 2, Distance: client.Distance_Dot},
		})})
		if err == nil {
			_, err = client.NewPointsClient(direct).Upsert(t.Context(), &client.UpsertPoints{CollectionName: name, Wait: proto.Bool(true), Points: points})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	double := slices.Clone(rotation) // has twice the scores, which fusions do not see
	for i := range double {
		double[i] *= 2
	}
	at, _ := rewriting(t, db.Address, db.REST, "turned", double, false, ", rewrite_legs: true, opt_in: [score-threshold]")
	conn, dense, vec, other := dial(t, at.Proxy.GRPC), client.NewQueryDense(asked), proto.String("vec"), proto.String("other")
	legs := func(cut float32) []*client.PrefetchQuery {
		return []*client.PrefetchQuery{
			{Query: dense, Using: vec, Limit: proto.Uint64(20), ScoreThreshold: &cut},
			{Query: client.NewQueryDense([]float32{1, -1}), Using: other, Limit: proto.Uint64(20), Prefetch: []*client.PrefetchQuery{{Query: dense, Using: vec, Limit: proto.Uint64(30)}}},
		}
	}
	for name, tc := range map[string]struct {
		query *client.Query
		using *string
		times float64 // the score of the route divided by the score of the plain search
	}{
		"rrf": {client.NewQueryFusion(client.Fusion_RRF), nil, 1}, "dbsf": {client.NewQueryFusion(client.Fusion_DBSF), nil, 1},
		"by the vector": {dense, vec, 2}, "by another": {client.NewQueryDense([]float32{1, 2}), other, 1},
	} {
		ask := func(collection string, cut float32) asking {
			return asking{method: client.Points_Query_FullMethodName, request: &client.QueryPoints{CollectionName: collection, Query: tc.query, Using: tc.using, Prefetch: legs(cut), Limit: proto.Uint64(100)}}
		}
		got, trailer := invoke(t, conn, ask("turned", 4))
		want, _ := invoke(t, direct, ask("plain", 2))
		if state := strings.Join(trailer.Get("likeness-status"), ","); state != "rewritten; route=things; certificate=unknown" {
			t.Errorf("%s: %q", name, state)
		}
		rows, wanted := scoresOf(got), scoresOf(want)
		same := len(rows) >= 10 && len(rows) == len(wanted)
		for id, score := range wanted {
			same = same && math.Abs(rows[id]-score*tc.times) <= 1e-6*max(1, math.Abs(rows[id]))
		}
		if !same {
			t.Errorf("%s: %v, want %v", name, rows, wanted)
		}
	}
	const body = `{"prefetch":[{"query":[1,-2,0.5,3],"using":"vec","limit":20},{"query":[1,-1],"using":"other"}],"query":{"fusion":"rrf"},"limit":100}`
	rows := func(url string) (scores []string, header http.Header) { // fusions order rows of one score at random
		answer, header := postTo(t, url+"/points/query", body)
		_, list, _ := strings.Cut(answer, "[{")
		list, _, _ = strings.Cut(list, "}]")
		return slices.Sorted(strings.SplitSeq(list, "},{")), header
	}
	got, header := rows("http://" + at.Proxy.REST + "/collections/turned")
	if want, _ := rows(db.REST + "/collections/plain"); len(got) < 20 || !slices.Equal(got, want) || header.Get("Likeness-Status") != "rewritten; route=things; certificate=unknown" {
		t.Errorf("%s, %q, want %s", got, header, want)
	}
}

// scoresOf returns the scores of the rows of an answer, by their ids.
func scoresOf(answer proto.Message) map[uint64]float64 {
	scores := map[uint64]float64{}
	for _, p := range answer.(*client.QueryResponse).GetResult() {
		scores[p.GetId().GetNum()] = float64(p.GetScore())
	}
	return scores
}

// TestRewrittenPrefetchesHaveAKey: without it, the prefetches of a route that rewrites pass,
// and their thresholds pass without an opt-in of their own.
func TestRewrittenPrefetchesHaveAKey(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db)
	fused := func(p *client.PrefetchQuery) asking {
		p.Query, p.Using = client.NewQueryDense(asked), proto.String("vec")
		return asking{method: client.Points_Query_FullMethodName, request: &client.QueryPoints{CollectionName: "routed", Query: client.NewQueryFusion(client.Fusion_RRF), Prefetch: []*client.PrefetchQuery{p}}}
	}
	for rules, want := range map[string][2]string{
		"":                     {"passed; reason=prefetch", "passed; reason=prefetch"},
		", rewrite_legs: true": {"rewritten; route=things; certificate=unknown", "passed; reason=score-threshold"},
		", opt_in: [prefetch]": {"rescored; route=things; certificate=unknown", "rescored; route=things; certificate=unknown"},
	} {
		at, stop := rewriting(t, db.Address, db.REST, "routed", rotation, false, rules)
		conn := dial(t, at.Proxy.GRPC)
		for i, p := range []*client.PrefetchQuery{{}, {ScoreThreshold: proto.Float32(-1000)}} {
			if _, trailer := invoke(t, conn, fused(p)); strings.Join(trailer.Get("likeness-status"), ",") != want[i] {
				t.Errorf("%q, leg %d: %q, want %q", rules, i, trailer.Get("likeness-status"), want[i])
			}
		}
		_ = conn.Close()
		stop()
	}
}

// TestRewrittenEF: the database gets a route's ef if the client sets none.
func TestRewrittenEF(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db)
	up := recording.Before(t, db.Address, db.REST)
	at, stop := rewriting(t, up.GRPC, up.REST, "routed", identity, false, ", ef: 77")
	conn := dial(t, at.Proxy.GRPC)
	of := func(p *client.SearchParams) asking {
		return asking{method: client.Points_Search_FullMethodName, request: &client.SearchPoints{CollectionName: "routed", Vector: asked, VectorName: proto.String("vec"), Limit: 3, Params: p}}
	}
	calls := map[string]asking{
		"none": of(nil), "5": of(&client.SearchParams{HnswEf: proto.Uint64(5)}), "exact": of(&client.SearchParams{Exact: proto.Bool(true)}),
		"rest": {path: "search", body: `{"vector":{"name":"vec","vector":[1,-2,0.5,3]},"limit":3}`},
	}
	for name, a := range calls {
		if state := a.send(t, conn, "http://"+at.Proxy.REST, name); !strings.HasPrefix(state, "rewritten; ") {
			t.Errorf("%s: %q", name, state)
		}
	}
	_ = conn.Close()
	restClient.CloseIdleConnections()
	stop()
	got := byCaller(up.Requests(t))
	for name, want := range map[string]uint64{"none": 77, "5": 5, "exact": 0} {
		for _, e := range got[name] {
			sent := &client.SearchPoints{}
			if e.Method() == client.Points_Search_FullMethodName && (proto.Unmarshal(e.Body, sent) != nil || sent.GetParams().GetHnswEf() != want) {
				t.Errorf("%s: %v, want %d", name, sent, want)
			}
		}
	}
	for _, e := range got["rest"] {
		if strings.HasPrefix(e.Call, "POST ") && !strings.Contains(string(e.Body), `"params":{"hnsw_ef":77}`) {
			t.Errorf("%s", e.Body)
		}
	}
}

// TestRewrittenExactSearch: exact_search makes a client's search exhaustive, and its certificate the
// one of the API, unless the client says how to search. Also where the field is quantized, but not where
// the database forbids exhaustive searches.
func TestRewrittenExactSearch(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	fillQdrant(t, db,
		&client.CreateCollection{CollectionName: "rounded", QuantizationConfig: client.NewQuantizationScalar(&client.ScalarQuantization{Type: client.QuantizationType_Int8, AlwaysRam: proto.Bool(true)})},
		&client.CreateCollection{CollectionName: "strict", StrictModeConfig: &client.StrictModeConfig{Enabled: proto.Bool(true), SearchAllowExact: proto.Bool(false)}})
	for collection, proved := range map[string]string{"routed": "exact", "rounded": "exact", "strict": "unknown"} {
		at, stop := rewriting(t, db.Address, db.REST, collection, identity, false, ", exact_search: true, ef: 77")
		conn, api := dial(t, at.Proxy.GRPC), dial(t, at.GRPC)
		answer, err := likenessv1.NewSearchServiceClient(api).Search(t.Context(), &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: asked}, K: 3})
		if err != nil || !strings.HasSuffix(answer.GetCertificate().GetStatus().String(), strings.ToUpper("_"+proved)) {
			t.Fatalf("%s: %v, %v", collection, answer, err)
		}
		body := func(params string) asking {
			return asking{path: "search", body: `{"vector":{"name":"vec","vector":[1,-2,0.5,3]},"limit":3` + params + `}`}
		}
		request := func(p *client.SearchParams) asking {
			return asking{method: client.Points_Search_FullMethodName, request: &client.SearchPoints{CollectionName: collection, Vector: asked, VectorName: proto.String("vec"), Limit: 3, Params: p}}
		}
		exact := []asking{request(nil), body(""), request(&client.SearchParams{Exact: proto.Bool(true)}), body(`,"params":{"exact":true,"quantization":null}`)}
		if proved == "unknown" {
			exact = exact[:2] // the database refuses the others
		}
		other := []asking{request(&client.SearchParams{HnswEf: proto.Uint64(5)}), request(&client.SearchParams{Exact: proto.Bool(false)}), body(`,"params":{"exact":false}`)}
		for i, calls := range [][]asking{exact, other} {
			certificate := []string{proved, "unknown"}[i]
			for _, a := range calls {
				var state string
				if a.path == "" {
					_, trailer := invoke(t, conn, a)
					state = strings.Join(trailer.Get("likeness-status"), ",")
				} else {
					_, header := postTo(t, "http://"+at.Proxy.REST+"/collections/"+collection+"/points/search", a.body)
					state = header.Get("Likeness-Status")
				}
				if state != "rewritten; route=things; certificate="+certificate {
					t.Errorf("%s: %v%s: %q, want %s", collection, a.request, a.body, state, certificate)
				}
			}
		}
		_ = conn.Close()
		stop()
	}
}
