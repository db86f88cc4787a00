package harness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	qdrantapi "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/examples/banking77"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// routedRows is the number of shipped questions in the collection.
const routedRows = 2000

// question is a search on the routed collection.
type question struct {
	Step   string    `json:"step"`
	Vector []float32 `json:"vector"`
	Limit  int       `json:"limit"`
	Offset int       `json:"offset"`
	Below  int       `json:"below,omitempty"` // filter: item < below
}

// TestQdrantRoutedCollections makes every client send real questions to a routed collection. Ids
// and scores equal those of likeness's own API to the bit.
func TestQdrantRoutedCollections(t *testing.T) {
	db := qdrant(servers.QdrantNewest).start(t)
	questions := fillQuestions(t, db, qdrantapi.Distance_Cosine, slices.Clone)
	model, err := filepath.Abs("../../examples/models/banking77-questions-bilinear")
	if err != nil {
		t.Fatal(err)
	}
	at := startSidecar(t, db, model, "placement: stored, exact_search: true, depth: 50")
	want := answers(t, at.GRPC, questions)
	for _, c := range askingClients(t, questions) {
		t.Run(c.Name, func(t *testing.T) {
			p := tapProxy(t, at)
			var queries, searches []harness.Step
			for _, s := range runs(t, c, p.at)[0] {
				if name, ok := strings.CutPrefix(s.Name, "search "); ok {
					searches = append(searches, harness.Step{Name: name, Result: s.Result, Error: s.Error})
				} else {
					queries = append(queries, s)
				}
			}
			report(t, "queries and the sidecar's own API", harness.Compare(queries, want, nil))
			if len(searches) > 0 { // the older method, which has no batch here
				report(t, "searches and the sidecar's own API", harness.Compare(searches, want[:len(questions)], nil))
			}
			crossed, _ := p.exchanges(t)
			checkStatus(t, crossed, "rescored; route=questions; certificate=exact", len(questions))
		})
	}
}

// TestQdrantRewrittenCollections makes every client send real questions to a collection whose route
// rewrites them. With the identity, the answers equal the database's own to the bit. With a
// rotation, on a collection of rotated vectors, they have the same rows in the same order.
func TestQdrantRewrittenCollections(t *testing.T) {
	db, other := qdrant(servers.QdrantNewest).start(t), qdrant(servers.QdrantNewest).start(t)
	questions := fillQuestions(t, db, qdrantapi.Distance_Dot, slices.Clone)
	fillQuestions(t, other, qdrantapi.Distance_Dot, func(v []float32) []float32 { return rotate(v, -1) })
	dim := len(questions[0].Vector)
	routes := map[string]struct {
		serve.Addresses
		rules []harness.Rule
	}{
		"identity": {startSidecar(t, db, bilinearModel(t, dim, slices.Clone), "placement: rewrite"), nil},
		"rotation": {startSidecar(t, other, bilinearModel(t, dim, func(v []float32) []float32 { return rotate(v, -1) }), "placement: rewrite"),
			[]harness.Rule{{Why: "the bits of scores, which are rounded elsewhere", Text: regexp.MustCompile(`^\d{8,}$`)}}},
	}
	for _, c := range askingClients(t, questions) {
		want := runs(t, c, db)[0]
		for name, r := range routes {
			t.Run(c.Name+", "+name, func(t *testing.T) {
				p := tapProxy(t, r.Addresses)
				report(t, "the proxy and the database", harness.Compare(runs(t, c, p.at)[0], want, r.rules))
				crossed, _ := p.exchanges(t)
				checkStatus(t, crossed, "rewritten; route=questions; certificate=unknown", len(questions))
			})
		}
	}
}

// rotate rotates each pair of numbers of a vector by an angle of the 3-4-5 triangle, or back if way
// is -1.
func rotate(v []float32, way float64) []float32 {
	out := make([]float32, len(v))
	for i := 0; i < len(v); i += 2 {
		a, b := float64(v[i]), float64(v[i+1])
		out[i], out[i+1] = float32(0.6*a-way*0.8*b), float32(way*0.8*a+0.6*b)
	}
	return out
}

// bilinearModel writes a bilinear model and returns its path. Each row of W is a unit vector,
// transformed by turn.
func bilinearModel(t *testing.T, dim int, turn func([]float32) []float32) string {
	t.Helper()
	w := tensor.Tensor{Shape: []int{dim, dim}}
	for i := range dim {
		unit := make([]float32, dim)
		unit[i] = 1
		w.Data = append(w.Data, turn(unit)...)
	}
	m, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Name: "w", Tensors: tensor.Set{"W": w},
		Config: fmt.Appendf(nil, `{"query_embedding_dim":%d,"item_embedding_dim":%d,"normalise":false,"form":"full"}`, dim, dim)})
	path := filepath.Join(t.TempDir(), "w.safetensors")
	if err == nil {
		err = model.Write(path, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// askingClients returns the official clients, with scenarios that ask the questions.
func askingClients(t *testing.T, questions []question) []harness.Client {
	t.Helper()
	python, err := harness.Python(t.Context(), cache, script("qdrant/requirements.txt"))
	python = program(t, python, err)
	node, err := harness.Node(t.Context(), cache, script("qdrant"))
	node = program(t, node, err)
	file := requestFile(t, questions)
	args := []string{script("qdrant/routed.py"), "--url", "{rest}", "--grpc-port", "{port}", "--key", qdrantKey, "--requests", file}
	return []harness.Client{
		harness.Script("Python, REST", python, args...),
		harness.Script("Python, gRPC", python, append(args, "--grpc")...),
		harness.Script("JavaScript, REST", node, script("qdrant/routed.cjs"), "--rest", "{rest}", "--key", qdrantKey, "--requests", file),
		harness.Script("JavaScript, gRPC", node, script("qdrant/routed.cjs"), "--grpc", "http://{grpc}", "--key", qdrantKey, "--requests", file),
		goQuestions(questions),
	}
}

// tapProxy puts taps in front of a sidecar's proxy.
func tapProxy(t *testing.T, at serve.Addresses) *taps {
	t.Helper()
	p := &taps{at: harness.Address{}, stop: func() {}}
	for upstream, address := range map[string]*string{at.Proxy.GRPC: &p.at.GRPC, at.Proxy.REST: &p.at.REST} {
		tap, err := harness.NewTap(t.Context(), upstream)
		if err != nil {
			t.Fatal(err)
		}
		p.client, *address = append(p.client, tap), tap.Address()
	}
	p.at.REST = "http://" + p.at.REST
	return p
}

// checkStatus wants every search to have that status.
func checkStatus(t *testing.T, crossed []harness.Exchange, status string, least int) {
	t.Helper()
	searches := 0
	for _, e := range crossed {
		call := strings.ToLower(e.Call)
		if !strings.Contains(call, "/query") && !strings.Contains(call, "/search") {
			continue
		}
		searches++
		if !slices.Contains(e.Answer, "header likeness-status: "+status) {
			t.Errorf("%s: %q", e.Call, e.Answer)
		}
	}
	if searches < least {
		t.Errorf("%d searches crossed, want %d at least", searches, least)
	}
}

// fillQuestions writes shipped questions into a collection and returns other questions to ask.
func fillQuestions(t *testing.T, db harness.Address, metric qdrantapi.Distance, turn func([]float32) []float32) (out []question) {
	t.Helper()
	task, err := banking77.Questions("../../examples/data/banking77")
	if err != nil {
		t.Fatal(err)
	}
	defer task.Close()
	items, err := npy.Open(task.ItemFile)
	if err != nil {
		t.Fatal(err)
	}
	defer items.Close()
	c, err := connectGo(db, qdrantKey)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create := &qdrantapi.CreateCollection{CollectionName: "questions", VectorsConfig: qdrantapi.NewVectorsConfig(&qdrantapi.VectorParams{Size: uint64(items.Cols), Distance: metric})}
	if err := c.CreateCollection(t.Context(), create); err != nil {
		t.Fatal(err)
	}
	wait := true
	for from := 0; from < routedRows; from += 500 {
		var points []*qdrantapi.PointStruct
		for row := from; row < from+500; row++ {
			points = append(points, &qdrantapi.PointStruct{Id: qdrantapi.NewIDNum(uint64(row)), Vectors: qdrantapi.NewVectors(turn(items.Row(row))...), Payload: qdrantapi.NewValueMap(map[string]any{"item": task.Items[row].Item})})
		}
		if _, err := c.Upsert(t.Context(), &qdrantapi.UpsertPoints{CollectionName: "questions", Wait: &wait, Points: points}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 24 {
		q := question{Step: fmt.Sprintf("question %d", i), Vector: slices.Clone(task.Vector(i * 100)), Limit: 10, Offset: i % 3 * 2}
		if i%4 == 0 {
			q.Below = 10
		}
		out = append(out, q)
	}
	return out
}

// startSidecar serves a route on the questions with a model and rules, until the test ends.
func startSidecar(t *testing.T, db harness.Address, model, rules string) serve.Addresses {
	t.Helper()
	file := filepath.Join(t.TempDir(), "likeness.yaml")
	text := fmt.Sprintf(`listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
models: {questions: {path: %q}}
routes: {questions: {store: main, collection: questions, model: questions, %s, latency_budget: 20s}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, db.GRPC, model, rules, db.REST)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{File: file, Environ: []string{"QDRANT_KEY=" + qdrantKey}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Build: buildinfo.Read(buildinfo.Stamp{}), Ready: func(at serve.Addresses) { ready <- at }})
	}()
	select {
	case at := <-ready:
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return at
	case err := <-ended:
		stop()
		t.Fatal(err)
	case <-time.After(time.Minute):
		stop()
		t.Fatalf("no route was ready: %v, %s", <-ended, &log)
	}
	return serve.Addresses{}
}

// answers asks the questions over likeness's own API.
func answers(t *testing.T, address string, questions []question) (steps []harness.Step) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	add := func(name string, result any) {
		b, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, harness.Step{Name: name, Result: b})
	}
	var batch [][][2]uint64
	for _, q := range questions {
		request := &likenessv1.SearchRequest{Route: "questions", Query: &likenessv1.Query{Vector: q.Vector}, K: int32(q.Limit + q.Offset)}
		if q.Below > 0 {
			request.Filter = fmt.Sprintf(`{"must":[{"key":"item","range":{"lt":%d}}]}`, q.Below)
		}
		r, err := likenessv1.NewSearchServiceClient(conn).Search(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		hits := [][2]uint64{}
		for _, h := range r.GetHits()[q.Offset:] {
			hits = append(hits, [2]uint64{h.GetId().GetNumber(), uint64(math.Float32bits(h.GetScore()))})
		}
		add(q.Step, hits)
		batch = append(batch, hits)
	}
	add("batch", batch)
	return steps
}

// goQuestions asks with the Go client.
func goQuestions(questions []question) harness.Client {
	return harness.Client{Name: "Go, gRPC", Run: func(ctx context.Context, at harness.Address) ([]harness.Step, error) {
		c, err := connectGo(at, qdrantKey)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		hits := func(points []*qdrantapi.ScoredPoint) [][2]uint64 {
			out := [][2]uint64{}
			for _, p := range points {
				out = append(out, [2]uint64{p.GetId().GetNum(), uint64(math.Float32bits(p.GetScore()))})
			}
			return out
		}
		g := &goScenario{ctx: ctx, c: c}
		batch := &qdrantapi.QueryBatchPoints{CollectionName: "questions"}
		for _, q := range questions {
			r := &qdrantapi.QueryPoints{CollectionName: "questions", Query: qdrantapi.NewQueryDense(q.Vector), Limit: qdrantapi.PtrOf(uint64(q.Limit)), Offset: qdrantapi.PtrOf(uint64(q.Offset))}
			if q.Below > 0 {
				r.Filter = &qdrantapi.Filter{Must: []*qdrantapi.Condition{qdrantapi.NewRange("item", &qdrantapi.Range{Lt: qdrantapi.PtrOf(float64(q.Below))})}}
			}
			batch.QueryPoints = append(batch.QueryPoints, r)
			g.step(q.Step, func() (any, error) {
				points, err := c.Query(ctx, r)
				return hits(points), err
			})
		}
		g.step("batch", func() (any, error) {
			lists, err := c.QueryBatch(ctx, batch)
			all := [][][2]uint64{}
			for _, l := range lists {
				all = append(all, hits(l.GetResult()))
			}
			return all, err
		})
		return g.steps, nil
	}}
}
