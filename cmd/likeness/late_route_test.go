package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"

	qdrantapi "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/client"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// tokens are texts of several random vectors: row by row, and the number of rows of each.
type tokens struct {
	rerank.Matrix
	counts []int64
}

func randomTokens(rng *rand.Rand, texts, dim int) tokens {
	t := tokens{Matrix: rerank.Matrix{Cols: dim}}
	for range texts {
		n := 1 + rng.IntN(6)
		t.counts, t.Rows = append(t.counts, int64(n)), t.Rows+n
		for range n * dim {
			t.Data = append(t.Data, float32(rng.NormFloat64()))
		}
	}
	return t
}

func (t tokens) of(text int) (rows [][]float32) {
	from := 0
	for _, n := range t.counts[:text] {
		from += int(n)
	}
	for r := range int(t.counts[text]) {
		rows = append(rows, t.Row(from+r))
	}
	return rows
}

// write writes the files name.npy and name-counts.npy.
func (t tokens) write(tb testing.TB, name string) {
	tb.Helper()
	if err := npy.Write(name+".npy", t.Matrix); err != nil {
		tb.Fatal(err)
	}
	if err := npy.WriteInts(name+"-counts.npy", t.counts); err != nil {
		tb.Fatal(err)
	}
}

// writeTokens creates a collection with a multi-vector field, and a field of each item's first vector, and writes the items, whose ids are their numbers.
func writeTokens(tb testing.TB, address string, items tokens) {
	tb.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	_, err = qdrantapi.NewCollectionsClient(conn).Create(tb.Context(), &qdrantapi.CreateCollection{
		CollectionName: "texts", VectorsConfig: qdrantapi.NewVectorsConfigMap(map[string]*qdrantapi.VectorParams{
			"first": {Size: uint64(items.Cols), Distance: qdrantapi.Distance_Cosine},
			"tokens": {
				Size: uint64(items.Cols), Distance: qdrantapi.Distance_Cosine, MultivectorConfig: &qdrantapi.MultiVectorConfig{Comparator: qdrantapi.MultiVectorComparator_MaxSim},
			},
		}),
	})
	if err != nil {
		tb.Fatal(err)
	}
	var points []*qdrantapi.PointStruct
	for i := range items.counts {
		points = append(points, &qdrantapi.PointStruct{
			Id: qdrantapi.NewIDNum(uint64(i)), Vectors: qdrantapi.NewVectorsMap(map[string]*qdrantapi.Vector{
				"first": qdrantapi.NewVectorDense(items.of(i)[0]), "tokens": qdrantapi.NewVectorMulti(items.of(i)),
			}),
		})
	}
	if _, err := qdrantapi.NewPointsClient(conn).Upsert(tb.Context(), &qdrantapi.UpsertPoints{CollectionName: "texts", Wait: proto.Bool(true), Points: points}); err != nil {
		tb.Fatal(err)
	}
}

// TestLateRouteWithALearnedCompanion: a companion of late interaction is fitted from files and from the
// collection alike, index writes it, and a route that names no strategy finds its candidates by it.
func TestLateRouteWithALearnedCompanion(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	t.Chdir(t.TempDir())
	const dim = 8
	rng := rand.New(rand.NewPCG(3, 1))
	items, queries := randomTokens(rng, 150, dim), randomTokens(rng, 700, dim)
	items.write(t, "items")
	queries.write(t, "queries")
	writeTokens(t, server.Address, items)
	text := fmt.Sprintf(`
state_dir: state
stores: {main: {kind: qdrant, address: %q}}
models: {m: {path: found.safetensors}}
routes:
  texts: {store: main, collection: texts, vectors: tokens, model: m, depth: 60, companion: texts_learned}
  first: {store: main, collection: texts, vector: first, vectors: tokens, model: m, depth: 60, companion: texts_learned}
proxy: {store: main, routes: [first], listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, server.Address, server.REST)
	if err := os.WriteFile("likeness.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	likeness := func(code int, line string) string {
		t.Helper()
		r := execute(t, "", strings.Fields(line)...)
		if r.code != code {
			t.Fatalf("likeness %s: code %d, want %d\n%s%s", line, r.code, code, r.out, r.err)
		}
		return r.out
	}
	likeness(0, "model late plain.safetensors --normalise --dim 8")
	const fit = "fit companion --model plain.safetensors --queries queries.npy --query-counts queries-counts.npy --dim 64 --hidden 64 --depths 40 --output json "
	var report companionResult
	if err := json.Unmarshal([]byte(likeness(0, fit+"--items items.npy --item-counts items-counts.npy --out found.safetensors")), &report); err != nil {
		t.Fatal(err)
	}
	if found := report.Find(rerank.Companion, ""); report.Items != 150 || report.Queries != 700 || found == nil || found.Recall[0] < 0.7 {
		t.Errorf("%+v", report)
	}
	var scanned companionResult
	if err := json.Unmarshal([]byte(likeness(0, fit+"--config likeness.yaml --collection texts --vector tokens --out scanned.safetensors")), &scanned); err != nil {
		t.Fatal(err)
	}
	if scanned.Items != 150 || scanned.Find(rerank.Companion, "").Recall[0] < 0.7 {
		t.Errorf("from the collection: %+v", scanned)
	}
	likeness(2, "fit companion --model plain.safetensors --queries queries.npy --items items.npy --item-counts queries-counts.npy --out other.safetensors")
	// A fit of one vector an item refuses a field of several.
	likeness(2, "fit distilled --model plain.safetensors --queries queries.npy --config likeness.yaml --collection texts --vector tokens --out other.safetensors")

	evaluateLate(t, likeness, items, queries)
	likeness(0, "index --config likeness.yaml --route texts")
	likeness(0, "index --verify --config likeness.yaml --route texts")
	servedAt(t, "likeness.yaml", func(at serve.Addresses) {
		c, err := client.Dial(at.GRPC, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		found := 0
		for q := range 20 {
			answer, err := c.Search(t.Context(), client.Search{Route: "texts", Query: client.Query{Vectors: items.of(q)}, K: 3})
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := answer.Hits[0].ID.Number(); n == uint64(q) {
				found++
			}
			if answer.Strategy != client.Companion || answer.Certificate.Status != "unknown" || answer.Certificate.Candidates != 60 {
				t.Errorf("answered by %v, %+v", answer.Strategy, answer.Certificate)
			}
		}
		if found < 19 { // an item is the best answer to its own vectors
			t.Errorf("%d of 20 items find themselves", found)
		}
		askProxy(t, at, items)
		// A written item gets its companion row without another fit or index.
		writeByProxy(t, at, 150, queries.of(0))
		likeness(0, "reconcile --route texts --address "+at.GRPC)
		answer, err := c.Search(t.Context(), client.Search{Route: "texts", Query: client.Query{Vectors: queries.of(0)}, K: 1})
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := answer.Hits[0].ID.Number(); n != 150 {
			t.Errorf("the written item is not found: %v is first", answer.Hits[0])
		}
	})
	likeness(0, "index --verify --config likeness.yaml --route texts")
}

// writeByProxy writes an item through the proxy.
func writeByProxy(t *testing.T, at serve.Addresses, id uint64, vectors [][]float32) {
	t.Helper()
	conn, err := grpc.NewClient(at.Proxy.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = qdrantapi.NewPointsClient(conn).Upsert(t.Context(), &qdrantapi.UpsertPoints{CollectionName: "texts", Wait: proto.Bool(true), Points: []*qdrantapi.PointStruct{{
		Id: qdrantapi.NewIDNum(id), Vectors: qdrantapi.NewVectorsMap(map[string]*qdrantapi.Vector{
			"first": qdrantapi.NewVectorDense(vectors[0]), "tokens": qdrantapi.NewVectorMulti(vectors),
		}),
	}}})
	if err != nil {
		t.Fatal(err)
	}
}

// evaluateLate: eval reports the same of items from files and from the route's collection, and refuses counts
// that do not fit.
func evaluateLate(t *testing.T, likeness func(code int, line string) string, items, queries tokens) {
	t.Helper()
	var log strings.Builder
	_, _ = log.WriteString("query,item\n")
	for q := range 40 {
		best, at := math.Inf(-1), 0
		for x := range items.counts {
			if v := maxSim(queries.of(q), items.of(x)); v > best {
				best, at = v, x
			}
		}
		_, _ = fmt.Fprintf(&log, "%d,%d\n", q, at)
	}
	if err := os.WriteFile("log.csv", []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	const asked = "eval --model found.safetensors --queries queries.npy --query-counts queries-counts.npy --pairs log.csv --strategies companion:60,average:60 --resamples 200 --output json "
	for _, source := range []string{"--items items.npy --item-counts items-counts.npy", "--config likeness.yaml --route texts"} {
		var r struct {
			Metrics, Baseline map[string]float64
			Counts            eval.Counts
			Strategies        map[string]eval.Outcome
		}
		if err := json.Unmarshal([]byte(likeness(0, asked+source)), &r); err != nil {
			t.Fatal(err)
		}
		if r.Metrics["mrr@10"] != 1 || r.Baseline["mrr@10"] > 0.9 || r.Counts.Items != 150 || r.Counts.Queries != 40 {
			t.Errorf("%s: %+v", source, r)
		}
		if c := r.Strategies["companion:60"]; c.FirstStageRecall < 0.7 || c.Candidates != 60 {
			t.Errorf("%s: %+v", source, c)
		}
	}
	likeness(2, asked+"--items items.npy --item-counts queries-counts.npy")
	likeness(2, asked+"--items items.npy --item-counts items-counts.npy --trained-queries queries.npy")
}

// maxSim is Σ_i max_j cos(q_i, x_j).
func maxSim(query, item [][]float32) (sum float64) {
	for _, q := range query {
		best := math.Inf(-1)
		for _, x := range item {
			dot := 0.0
			for i, v := range q {
				dot += float64(v) * float64(x[i])
			}
			best = max(best, dot/rerank.Norm(q)/rerank.Norm(x))
		}
		sum += best
	}
	return sum
}

// askProxy: Qdrant's clients get searches by several vectors rescored; all others pass.
func askProxy(t *testing.T, at serve.Addresses, items tokens) {
	t.Helper()
	conn, err := grpc.NewClient(at.Proxy.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	own := items.of(7)
	query := &qdrantapi.QueryPoints{
		CollectionName: "texts", Query: qdrantapi.NewQueryMulti(own), Using: qdrantapi.PtrOf("tokens"), Limit: qdrantapi.PtrOf(uint64(3)),
		WithPayload: qdrantapi.NewWithPayload(true), WithVectors: qdrantapi.NewWithVectors(true),
	}
	prefetched := proto.Clone(query).(*qdrantapi.QueryPoints)
	prefetched.Prefetch = []*qdrantapi.PrefetchQuery{{Query: query.GetQuery(), Using: query.Using}}
	exact := proto.Clone(query).(*qdrantapi.QueryPoints)
	exact.Params = &qdrantapi.SearchParams{Exact: qdrantapi.PtrOf(true)}
	oneVector := proto.Clone(query).(*qdrantapi.QueryPoints)
	oneVector.Query, oneVector.Using = qdrantapi.NewQueryDense(own[0]), qdrantapi.PtrOf("first")
	for want, q := range map[string]*qdrantapi.QueryPoints{
		"rescored; route=first; certificate=unknown": query, "passed; reason=vector": oneVector, "passed; reason=prefetch": prefetched, "passed; reason=exact": exact,
	} {
		var trailer metadata.MD
		answer, err := qdrantapi.NewPointsClient(conn).Query(t.Context(), q, grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		if status := trailer.Get("likeness-status"); len(status) != 1 || status[0] != want {
			t.Errorf("gRPC: %q, want %q", status, want)
		}
		if q == oneVector {
			continue
		}
		checkOwn(t, answer.GetResult()[0].GetId().GetNum(), answer.GetResult()[0].GetScore(), len(own))
		if got := len(answer.GetResult()[0].GetVectors().GetVectors().GetVectors()["tokens"].GetMultiDense().GetVectors()); got != len(own) {
			t.Errorf("the answer has %d vectors of the item, want %d", got, len(own))
		}
	}
	vectors, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		string(vectors): "rescored; route=first; certificate=unknown", `{"nearest": ` + string(vectors) + `}`: "rescored; route=first; certificate=unknown",
		`{"recommend": {"positive": [7]}}`: "passed; reason=not-nearest",
	} {
		body := fmt.Sprintf(`{"query": %s, "using": "tokens", "limit": 3}`, query)
		r, err := http.Post("http://"+at.Proxy.REST+"/collections/texts/points/query", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Result struct {
				Points []struct {
					ID    uint64
					Score float32
				}
			}
		}
		err = json.NewDecoder(r.Body).Decode(&answer)
		if _ = r.Body.Close(); err != nil || len(answer.Result.Points) != 3 {
			t.Fatalf("REST: %s: %v, %+v", query, err, answer)
		}
		if got := r.Header.Get("Likeness-Status"); got != want {
			t.Errorf("REST: %q, want %q", got, want)
		}
		if strings.HasPrefix(want, "rescored") {
			checkOwn(t, answer.Result.Points[0].ID, answer.Result.Points[0].Score, len(own))
		}
	}
}

// checkOwn: item 7 is the best answer to its own n vectors, each of which meets itself.
func checkOwn(t *testing.T, id uint64, score float32, n int) {
	t.Helper()
	if id != 7 || !(math.Abs(float64(score)-float64(n)) <= 1e-4) {
		t.Errorf("item %d is first with %v, want item 7 with %d", id, score, n)
	}
}
