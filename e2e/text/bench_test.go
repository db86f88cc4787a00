package text_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/bench"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// BenchmarkRerank is POST /v2/rerank of 1,000 ids, from a client in this process. It reports the medians of a call, of
// what embedding and scoring take of it, and of the difference, which is HTTP, JSON, admission and the connection between
// them. The embedder has the query in its cache: its service answers once.
func BenchmarkRerank(b *testing.B) {
	call := bench.Rerank{URL: serveQuestions(b), Route: "questions", Query: "where is my card", Calls: b.N}
	for i := range 1000 {
		call.Documents = append(call.Documents, json.RawMessage(fmt.Sprintf(`"%d"`, 7*i)))
	}
	b.ResetTimer()
	took, err := call.Run(b.Context(), &http.Client{})
	must(b, err)
	b.ReportMetric(1e3*took.Whole.P50, "p50-µs")
	b.ReportMetric(1e3*took.Scoring.P50, "p50-scoring-µs")
	b.ReportMetric(1e3*took.Beyond.P50, "p50-beyond-µs")
}

// TestBenchRerank: likeness bench rerank reports the times of the calls that it makes, and what a sidecar says of one that it refuses.
func TestBenchRerank(t *testing.T) {
	url := serveQuestions(t)
	call := bench.Rerank{URL: url + "/", Route: "questions", Query: "where is my card", Calls: 5, Documents: []json.RawMessage{[]byte(`1`), []byte(`{"id":"2"}`), []byte(`99999999`)}}
	took, err := call.Run(t.Context(), &http.Client{})
	must(t, err)
	if took.Documents != 3 || took.Missing != 1 || took.Calls != 5 || !(took.Scoring.P50 > 0) || !(took.Whole.P50 > took.Beyond.P50) || !(took.Beyond.P50 > 0) {
		t.Errorf("%+v", took)
	}
	call.Route = "answers"
	if _, err := call.Run(t.Context(), &http.Client{}); err == nil || !strings.Contains(err.Error(), "ROUTE_NOT_FOUND") {
		t.Errorf("a call of a route that is not there: %v", err)
	}
	call.URL = strings.Replace(url, "http:", "ftp:", 1)
	if _, err := call.Run(t.Context(), &http.Client{}); err == nil {
		t.Error("an address that is no REST address is called")
	}
}

// serveQuestions serves the shipped questions with a bilinear form, and returns the sidecar's REST address. The sidecar's
// embedder gives every text the same vector.
func serveQuestions(t testing.TB) string {
	t.Helper()
	embedder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "[["+strings.Repeat("0.5,", 383)+"0.5]]")
	}))
	t.Cleanup(embedder.Close)
	where, err := filepath.Abs(data)
	must(t, err)
	file := filepath.Join(t.TempDir(), "likeness.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `
listen: {grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: ""}
stores: {files: {kind: embedded, collections: {questions: {vectors: %[1]s/train_vectors.npy, metric: cosine}}}}
models: {questions: {path: %[1]s/../../models/banking77-questions-bilinear}}
embedders: {one: {url: %[2]s/embed}}
routes: {questions: {store: files, collection: questions, model: questions, placement: stored, embedder: one}}
`, where, embedder.URL), 0o600))
	c, err := config.Load(config.Source{File: file, Environ: []string{}})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{
			Logger: slog.New(slog.DiscardHandler), Build: buildinfo.Read(buildinfo.Stamp{}), Ready: func(at serve.Addresses) { ready <- at },
		})
	}()
	at := <-ready
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	return "http://" + at.REST
}
