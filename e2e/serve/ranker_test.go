package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	fitrbe "github.com/likenessdb/likeness/learn/fit/rbe"
	"github.com/likenessdb/likeness/plugin"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// articles are texts, a scorer of them in a process of its own, and a relevance-based
// model of that scorer.
type articles struct {
	dir    string
	texts  []string
	scorer plugin.Scorer
}

const (
	articleCount    = 80
	articleSupports = 10
)

const articleConfig = `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
shutdown: {grace: 10s}
stores:
  files: {kind: embedded, collections: {articles: {vectors: base.npy, payload: articles.jsonl}}}
models: {relevance: {path: relevance.safetensors}}
plugins:
  bm25: {path: scorer, args: [-field, text, -corpus, DIR/articles.jsonl]}
  gone: {path: nobody}
rankers:
  words: {plugin: bm25}
  gone: {plugin: gone}
routes:
  articles: {store: files, collection: articles, model: relevance, placement: stored, ranker: words, calls: 30}
  all: {store: files, collection: articles, model: relevance, placement: stored, ranker: words, calls: 100, rank_rounds: 2}
  gone: {store: files, collection: articles, model: relevance, placement: stored, ranker: gone, calls: 30}
`

// writeArticles builds the scorer, asks it for what a fit needs, and writes what
// articleConfig names.
func writeArticles(t *testing.T) *articles {
	t.Helper()
	a := &articles{dir: t.TempDir()}
	binary := filepath.Join(a.dir, "scorer")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../examples/scorer_go").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	words := func(n int) string {
		var out []string
		for range n {
			out = append(out, fmt.Sprintf("word%d", min(rng.IntN(40), rng.IntN(40))))
		}
		return strings.Join(out, " ")
	}
	var lines strings.Builder
	for i := range articleCount {
		a.texts = append(a.texts, words(14))
		fmt.Fprintf(&lines, "{\"text\": %q, \"n\": %d}\n", a.texts[i], i)
	}
	must(t, os.WriteFile(filepath.Join(a.dir, "articles.jsonl"), []byte(lines.String()), 0o600))
	must(t, os.WriteFile(filepath.Join(a.dir, "likeness.yaml"), []byte(strings.ReplaceAll(articleConfig, "DIR", a.dir)), 0o600))
	p, err := plugins.Start(t.Context(), plugins.Options{Name: "bm25", Path: binary, Args: []string{"-corpus", filepath.Join(a.dir, "articles.jsonl")}})
	must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	must(t, p.Ready(t.Context()))
	a.scorer = p.Scorer()
	scores := rerank.NewMatrix(articleCount, 30)
	for q := range scores.Cols {
		for i, score := range a.relevance(t, words(4)) {
			scores.Row(i)[q] = score
		}
	}
	a.fit(t, scores)
	return a
}

// relevance is R of every article.
func (a *articles) relevance(t *testing.T, text string) []float32 {
	t.Helper()
	items := make([]plugin.Item, len(a.texts))
	for i, text := range a.texts {
		payload, err := json.Marshal(map[string]string{"text": text})
		must(t, err)
		items[i] = plugin.Item{ID: rerank.UintID(uint64(i)), Payload: payload}
	}
	scores, err := a.scorer.Score(t.Context(), plugin.Query{Text: text}, items)
	must(t, err)
	return scores
}

func (a *articles) fit(t *testing.T, scores rerank.Matrix) {
	t.Helper()
	o := fitrbe.DefaultOptions()
	o.Supports, o.Lambda, o.Judged = articleSupports, 0.1, nil
	fitted, err := fitrbe.Fit(t.Context(), scores, o)
	must(t, err)
	id := func(n int) rerank.ID { return rerank.UintID(uint64(n)) }
	settings, err := json.Marshal(fitted.Config(id, id))
	must(t, err)
	m, err := model.New(model.Parameters{Kind: rerank.KindRBE, Name: "relevance", Config: settings, Tensors: fitted.Tensors})
	must(t, err)
	must(t, model.Write(filepath.Join(a.dir, "relevance.safetensors"), m))
	base := rerank.NewMatrix(scores.Rows, len(fitted.SupportQueries))
	for i := range base.Rows {
		for c, q := range fitted.SupportQueries {
			base.Row(i)[c] = scores.Row(i)[q]
		}
	}
	must(t, npy.Write(filepath.Join(a.dir, "base.npy"), base))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs a sidecar over the articles.
func (a *articles) serve(t *testing.T) *sidecar {
	t.Helper()
	c, err := config.Load(config.Source{File: filepath.Join(a.dir, "likeness.yaml"), Environ: []string{}})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	addresses, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	o := serve.Options{Logger: slog.New(slog.DiscardHandler), Build: buildinfo.Read(buildinfo.Stamp{}), Ready: func(at serve.Addresses) { addresses <- at }}
	go func() { ended <- serve.Run(ctx, c, o) }()
	s := &sidecar{stop: stop, wait: func() error { return <-ended }}
	select {
	case s.at = <-addresses:
	case err := <-ended:
		t.Fatal(err)
	}
	s.conn, err = grpc.NewClient(s.at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = s.conn.Close() })
	return s
}

// TestARankerInAProcess: a text is searched by a heavy ranker alone, over the API, from
// its scores of the support items to its order of the hits.
func TestARankerInAProcess(t *testing.T) {
	a := writeArticles(t)
	s := a.serve(t)
	client := likenessv1.NewSearchServiceClient(s.conn)
	ask := func(route, text string, change func(*likenessv1.SearchRequest)) (*likenessv1.SearchResponse, error) {
		r := &likenessv1.SearchRequest{Route: route, Query: &likenessv1.Query{Text: text}, K: 5}
		if change != nil {
			change(r)
		}
		return client.Search(t.Context(), r)
	}
	a.wait(t, func() bool {
		_, err := ask("articles", "word1", nil)
		return err == nil
	})
	for _, text := range []string{"word1 word20", "word3", "word7 word9 word30 word31"} {
		truth := a.relevance(t, text)
		some, err := ask("articles", text, func(r *likenessv1.SearchRequest) { r.Explain = true; r.Payload = &likenessv1.PayloadSelector{} })
		must(t, err)
		k := some.GetRanking()
		if k.GetRanker() != "words" || k.GetCalls() != 30 || k.GetBudget() != 30 || k.GetRounds() != 1 || k.GetVersion() == "" || k.GetCut() != 0 || some.GetTimings().GetRank().AsDuration() <= 0 {
			t.Errorf("%+v, timings %+v", k, some.GetTimings())
		}
		wantTrue(t, some, truth)
		for _, h := range some.GetHits() {
			if h.GetExplanation() == nil || !strings.Contains(h.GetPayloadJson(), fmt.Sprintf(`"n": %d`, h.GetId().GetNumber())) {
				t.Errorf("%+v", h)
			}
		}
		all, err := ask("all", text, nil)
		must(t, err)
		wantTrue(t, all, truth)
		best := slices.Clone(truth)
		slices.Sort(best)
		for i, h := range all.GetHits() {
			if h.GetScore() != best[len(best)-1-i] {
				t.Errorf("hit %d of all scores %v, the ranker's own is %v", i, h.GetScore(), best[len(best)-1-i])
			}
		}
	}
	a.refusals(t, ask)
	batch, err := client.SearchBatch(t.Context(), &likenessv1.SearchBatchRequest{Searches: []*likenessv1.SearchRequest{
		{Route: "articles", Query: &likenessv1.Query{Text: "word1"}, K: 1}, {Route: "articles", Query: &likenessv1.Query{Text: "word2"}, K: 1},
	}})
	must(t, err)
	for _, r := range batch.GetResults() {
		if !r.GetResponse().GetHits()[0].GetRanked() {
			t.Errorf("%+v", r)
		}
	}
	if _, metrics := s.get(t, "/metrics"); !strings.Contains(metrics, `likeness_search_ranker_calls_count{route="articles"}`) || !strings.Contains(metrics, `likeness_plugin_up{plugin="bm25"} 1`) {
		t.Error("metrics lack the ranker")
	}
	if code, body := s.get(t, "/readyz"); code != 200 || !strings.Contains(body, "plugin gone: ") || strings.Contains(body, "plugin bm25") {
		t.Errorf("%d %s", code, body)
	}
	s.stop()
	must(t, s.wait())
}

// wait polls until something is so.
func (a *articles) wait(t *testing.T, so func() bool) {
	t.Helper()
	for !so() {
		if t.Context().Err() != nil {
			t.Fatal("not in time")
		}
	}
}

// wantTrue holds hits to the ranker's own scores, in their order.
func wantTrue(t *testing.T, r *likenessv1.SearchResponse, truth []float32) {
	t.Helper()
	if len(r.GetHits()) != 5 {
		t.Fatalf("%d hits", len(r.GetHits()))
	}
	for i, h := range r.GetHits() {
		if !h.GetRanked() || h.GetScore() != truth[h.GetId().GetNumber()] || i > 0 && h.GetScore() > r.GetHits()[i-1].GetScore() {
			t.Errorf("hit %d is %+v, its relevance %v", i, h, truth[h.GetId().GetNumber()])
		}
	}
}

// refusals: what cannot be asked, and what a route answers whose plugin never starts.
func (a *articles) refusals(t *testing.T, ask func(route, text string, change func(*likenessv1.SearchRequest)) (*likenessv1.SearchResponse, error)) {
	t.Helper()
	calls := func(n int32) func(*likenessv1.SearchRequest) {
		return func(r *likenessv1.SearchRequest) { r.Calls = &n }
	}
	for _, c := range []struct {
		route, text string
		change      func(*likenessv1.SearchRequest)
		code        codes.Code
		says        string
	}{
		{"articles", "", nil, codes.InvalidArgument, "query.text"},
		{"articles", "word1", calls(31), codes.InvalidArgument, "calls: 31"},
		{"articles", "word1", calls(3), codes.InvalidArgument, "10 support items"},
		{"gone", "word1", nil, codes.Unavailable, "ranker is unavailable"},
	} {
		_, err := ask(c.route, c.text, c.change)
		if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	vector := make([]float32, articleSupports)
	vector[0] = 1
	down, err := ask("gone", "word1", func(r *likenessv1.SearchRequest) { r.Query.Vector = vector })
	must(t, err)
	if down.GetDegraded().GetReason() != "ranker_failed" || down.GetHits()[0].GetRanked() || down.GetRanking().GetCut() != 30 || down.GetRanking().GetReason() != "failed" {
		t.Errorf("%+v, %+v", down.GetDegraded(), down.GetRanking())
	}
}
