// Package text_test sends text through likeness: an embedder that computes a real sentence model,
// real Qdrant, the command, and the rerank clients of others.
package text_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/internal/testbinary"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// atLength skips a test that takes minutes, unless it is run at length.
func atLength(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("LIKENESS_SOAK") == "" {
		t.Skip(why + "; set LIKENESS_SOAK=1")
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	cache = "../../.cache/clients"
	data  = "../../examples/data/banking77/"
	key   = "canary-key"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// python returns an interpreter with the packages of a file, or skips the test where they cannot be
// installed.
func python(t testing.TB, requirements string) string {
	t.Helper()
	program, err := harness.Python(t.Context(), cache, requirements)
	if err != nil {
		t.Skipf("the packages of %s cannot be installed: %v", requirements, err)
	}
	return program.Path
}

// startModel starts the server of the sentence model and returns its address.
func startModel(t testing.TB) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, python(t, "requirements.txt"), "embed_server.py", "--key", key)
	out, err := cmd.StdoutPipe()
	must(t, err)
	var wrote bytes.Buffer
	cmd.Stderr = &wrote
	must(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log("the model's server wrote: ", wrote.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("the model's server said %q, %v: %s", line, err, wrote.String())
	}
	return url
}

// questions are the first questions of the test split, every nth.
func questions(t testing.TB, n int) (texts []string, rows []int) {
	t.Helper()
	b, err := os.ReadFile(data + "test.jsonl")
	must(t, err)
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if i%n > 0 {
			continue
		}
		var q struct{ Text string }
		must(t, json.Unmarshal([]byte(line), &q))
		texts, rows = append(texts, q.Text), append(rows, i)
	}
	return texts, rows
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}

// TestEmbed: both forms give the vectors that PyTorch computed of these questions, which lie in
// examples/data.
func TestEmbed(t *testing.T) {
	url := startModel(t)
	texts, rows := questions(t, 160)
	stored, err := npy.Open(data + "test_vectors.npy")
	must(t, err)
	defer stored.Close()
	for form, o := range map[string]embed.Options{
		"openai": {URL: url + "/v1/embeddings", Model: "all-minilm-l6-v2"}, "tei": {URL: url + "/embed"},
	} {
		o.Name, o.Token, o.Timeout = form, key, harnessTimeout
		client, err := embed.New(o)
		must(t, err)
		vectors, err := client.Embed(t.Context(), texts)
		must(t, err)
		for i, v := range vectors {
			if c := cosine(v, stored.Row(rows[i])); !(c > 0.99999) {
				t.Errorf("%s: the vector of %q has the cosine %v to that of PyTorch", form, texts[i], c)
			}
		}
		must(t, client.Close())
	}
	refused, err := embed.New(embed.Options{Name: "refused", URL: url + "/embed", Token: "wrong", Timeout: harnessTimeout})
	must(t, err)
	defer refused.Close()
	if _, err := refused.Embed(t.Context(), texts[:1]); !errors.Is(err, embed.ErrUnavailable) || !strings.Contains(err.Error(), "invalid API key") {
		t.Errorf("a wrong key: %v", err)
	}
}

const settings = `
listen: {grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: "127.0.0.1:0"}
shutdown: {grace: 10s}
stores:
  files:
    kind: embedded
    collections: {questions: {vectors: DATA/train_vectors.npy, payload: DATA/train.jsonl, metric: cosine}}
  qdrant: {kind: qdrant, address: "QDRANT"}
models:
  questions: {path: DATA/../../models/banking77-questions-bilinear}
  plain: {path: plain.safetensors}
  short: {path: short.safetensors}
embedders:
  mini: {url: "MODEL/v1/embeddings", model: all-minilm-l6-v2, token_env: MODEL_KEY, timeout: 1m}
  tei: {url: "MODEL/embed", token_env: MODEL_KEY, timeout: 1m}
  gone: {url: "http://127.0.0.1:1/embed", timeout: 1s}
routes:
  questions: {store: files, collection: questions, model: questions, exact_search: true, embedder: mini, timeout: 1m}
  topics: {store: qdrant, collection: topics, model: plain, placement: stored, exact_search: true, embedder: tei, timeout: 1m}
  gone: {store: qdrant, collection: topics, model: plain, embedder: gone}
  ids: {store: qdrant, collection: topics, model: plain}
`

const harnessTimeout = 60e9 // one call on a busy machine

// world is a sidecar over the questions of BANKING77 and its topics, which lie in a real Qdrant.
type world struct {
	dir, model string
	at         serve.Addresses
	search     likenessv1.SearchServiceClient
}

func start(t *testing.T) *world {
	t.Helper()
	db := servers.QdrantForTest(t, "1.17.0", servers.Options{})
	w := &world{dir: t.TempDir(), model: startModel(t)}
	fill(t, db.REST)
	for name, dim := range map[string]int{"plain": 384, "short": 3} {
		m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: name, Config: fmt.Appendf(nil, `{"dim":%d,"normalise":true}`, dim)})
		must(t, err)
		must(t, model.Write(filepath.Join(w.dir, name+".safetensors"), m))
	}
	where, err := filepath.Abs(data)
	must(t, err)
	text := strings.NewReplacer("DATA", where, "QDRANT", db.Address, "MODEL", w.model).Replace(strings.ReplaceAll(settings, "MODEL_KEY", "EMBED_KEY"))
	must(t, os.WriteFile(w.config(), []byte(text), 0o600))
	c, err := config.Load(config.Source{File: w.config(), Environ: []string{"EMBED_KEY=" + key}})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{
			Logger: slog.New(slog.DiscardHandler), Build: buildinfo.Read(buildinfo.Stamp{}), Ready: func(at serve.Addresses) { ready <- at },
		})
	}()
	select {
	case w.at = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(w.at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() {
		must(t, conn.Close())
		stop()
		must(t, <-ended)
	})
	w.search = likenessv1.NewSearchServiceClient(conn)
	return w
}

func (w *world) config() string { return filepath.Join(w.dir, "likeness.yaml") }

// fill writes the topics, whose ids are numbers, over Qdrant's REST API.
func fill(t *testing.T, rest string) {
	t.Helper()
	vectors, err := npy.Open(data + "items_vectors.npy")
	must(t, err)
	defer vectors.Close()
	points := make([]map[string]any, vectors.Rows)
	for i := range points {
		points[i] = map[string]any{"id": i, "vector": vectors.Row(i)}
	}
	put(t, rest+"/collections/topics", map[string]any{"vectors": map[string]any{"size": 384, "distance": "Cosine"}})
	put(t, rest+"/collections/topics/points?wait=true", map[string]any{"points": points})
}

func put(t *testing.T, url string, body any) {
	t.Helper()
	b, err := json.Marshal(body)
	must(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, bytes.NewReader(b))
	must(t, err)
	answer, text := do(t, r)
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, text)
	}
}

func do(t *testing.T, r *http.Request) (answer *http.Response, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	must(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer, string(b)
}

// TestSearchByText: a text finds what its vector finds, one by one and in a batch, and the answer
// says how long the embedder took.
func TestSearchByText(t *testing.T) {
	w := start(t)
	texts, rows := questions(t, 300)
	stored, err := npy.Open(data + "test_vectors.npy")
	must(t, err)
	defer stored.Close()
	batch := &likenessv1.SearchBatchRequest{}
	for _, text := range texts {
		batch.Searches = append(batch.Searches, &likenessv1.SearchRequest{Route: "questions", Query: &likenessv1.Query{Text: text}, K: 5})
	}
	answers, err := w.search.SearchBatch(t.Context(), batch)
	must(t, err)
	for i, text := range texts {
		byVector, err := w.search.Search(t.Context(), &likenessv1.SearchRequest{Route: "questions", Query: &likenessv1.Query{Vector: stored.Row(rows[i])}, K: 5})
		must(t, err)
		byText := answers.GetResults()[i].GetResponse()
		if byText.GetTimings().GetEmbed().AsDuration() <= 0 || byVector.GetTimings().GetEmbed().AsDuration() != 0 {
			t.Errorf("embedding took %v by text, %v by vector", byText.GetTimings().GetEmbed().AsDuration(), byVector.GetTimings().GetEmbed().AsDuration())
		}
		// The stored vectors of the questions are rounded to float16.
		for rank, hit := range byText.GetHits() {
			if want := byVector.GetHits()[rank].GetScore(); !(math.Abs(float64(hit.GetScore()-want)) <= 2e-3) {
				t.Errorf("%q, rank %d: score %v, by vector %v", text, rank+1, hit.GetScore(), want)
			}
		}
		if len(byText.GetHits()) != 5 || byText.GetCertificate().GetStatus() != likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT {
			t.Errorf("%q: %v", text, answers.GetResults()[i])
		}
	}
	for name, tc := range map[string]struct {
		route string
		query *likenessv1.Query
		code  codes.Code
		want  string
	}{
		"an embedder that is gone": {"gone", &likenessv1.Query{Text: "card"}, codes.Unavailable, "embedder is unavailable"},
		"a vector all the same":    {"gone", &likenessv1.Query{Vector: stored.Row(0)}, codes.OK, ""},
		"no embedder":              {"ids", &likenessv1.Query{Text: "card"}, codes.InvalidArgument, "has no embedder"},
		"text and vector":          {"topics", &likenessv1.Query{Text: "card", Vector: stored.Row(0)}, codes.InvalidArgument, "leave one of them out"},
		"neither":                  {"topics", &likenessv1.Query{}, codes.InvalidArgument, "neither text nor a vector"},
	} {
		_, err := w.search.Search(t.Context(), &likenessv1.SearchRequest{Route: tc.route, Query: tc.query, K: 3})
		if st := status.Convert(err); st.Code() != tc.code || !strings.Contains(st.Message(), tc.want) {
			t.Errorf("%s: %v, want %v with %q", name, err, tc.code, tc.want)
		}
	}
}

// TestDimension: an embedder whose vectors the model does not take is a wrong configuration.
func TestDimension(t *testing.T) {
	w := start(t)
	text, err := os.ReadFile(w.config())
	must(t, err)
	vectors := filepath.Join(w.dir, "short.npy")
	must(t, npy.Write(vectors, rerank.Matrix{Rows: 1, Cols: 3, Data: []float32{1, 0, 0}}))
	wrong := strings.Replace(string(text), "collections: {", "collections: {short: {vectors: "+vectors+", metric: cosine}, ", 1) +
		"  short: {store: files, collection: short, model: short, embedder: mini}\n"
	must(t, os.WriteFile(w.config(), []byte(wrong), 0o600))
	c, err := config.Load(config.Source{File: w.config(), Environ: []string{"EMBED_KEY=" + key}})
	must(t, err)
	_, err = serve.Check(t.Context(), c, serve.CheckOptions{Connect: true})
	if err == nil || !strings.Contains(err.Error(), `embedder "mini" makes vectors of 384 elements and its model takes 3`) {
		t.Error(err)
	}
}

// TestCommands: query, fit, eval and calibrate take text.
func TestCommands(t *testing.T) {
	atLength(t, "it fits and evaluates by a sentence model")
	w := start(t)
	binary := testbinary.Likeness(t)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = append(os.Environ(), "EMBED_KEY="+key, "EMBEDDER_API_KEY="+key)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("likeness %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	asked := "Do you know if there is a tracking number for the new card you sent me?"
	if out := run("query", "--address", w.at.GRPC, "--route", "questions", "--text", asked, "--k", "1", "--payload"); !strings.Contains(out, "Is there a tracking number for the card you sent me?") || !strings.Contains(out, "embed ") {
		t.Error(out)
	}
	log := filepath.Join(w.dir, "log.jsonl")
	var lines strings.Builder
	b, err := os.ReadFile(data + "train.jsonl")
	must(t, err)
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if i%40 > 0 {
			continue
		}
		var q struct {
			Text string
			Item int
		}
		must(t, json.Unmarshal([]byte(line), &q))
		text, _ := json.Marshal(q.Text)
		fmt.Fprintf(&lines, "{\"query\": %s, \"item\": %d}\n", text, q.Item)
	}
	must(t, os.WriteFile(log, []byte(lines.String()), 0o600))
	fitted := filepath.Join(w.dir, "fitted.safetensors")
	run("fit", "bilinear", "--config", w.config(), "--route", "topics", "--queries", log, "--pairs", log, "--out", fitted, "--form", "diagonal")
	out := run("eval", "--model", fitted, "--items", data+"items_vectors.npy", "--queries", log, "--pairs", log,
		"--embedder", w.model+"/v1/embeddings#all-minilm-l6-v2", "--output", "json", "--resamples", "50")
	var report struct {
		Metrics, Baseline map[string]float64
	}
	_, object, _ := strings.Cut(out, "{") // progress comes first
	must(t, json.Unmarshal([]byte("{"+object), &report))
	if !(report.Metrics["mrr@10"] > report.Baseline["mrr@10"] && report.Baseline["mrr@10"] > 0.6) {
		t.Errorf("MRR@10 %.3f, of cosine %.3f", report.Metrics["mrr@10"], report.Baseline["mrr@10"])
	}
	if out := run("calibrate", "--config", w.config(), "--route", "topics", "--queries", log, "--dry-run", "--recall", "0.5", "--share", "0.8"); !strings.Contains(out, "sha256:") {
		t.Error(out)
	}
}
