package text_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// BenchmarkRerank is POST /v2/rerank of 1,000 ids, from a client in this process. It reports the
// median of a call, of what Score itself takes of it (reading the vectors and scoring them), and the
// difference, which is HTTP, JSON, admission and the connection between them. The embedder has the
// query in its cache: its service answers once.
func BenchmarkRerank(b *testing.B) {
	embedder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "[["+strings.Repeat("0.5,", 383)+"0.5]]")
	}))
	defer embedder.Close()
	where, err := filepath.Abs(data)
	must(b, err)
	file := filepath.Join(b.TempDir(), "likeness.yaml")
	must(b, os.WriteFile(file, fmt.Appendf(nil, `
listen: {grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: ""}
stores: {files: {kind: embedded, collections: {questions: {vectors: %[1]s/train_vectors.npy, metric: cosine}}}}
models: {questions: {path: %[1]s/../../models/banking77-questions-bilinear}}
embedders: {one: {url: %[2]s/embed}}
routes: {questions: {store: files, collection: questions, model: questions, placement: stored, embedder: one}}
`, where, embedder.URL), 0o600))
	c, err := config.Load(config.Source{File: file, Environ: []string{}})
	must(b, err)
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{
			Logger: slog.New(slog.DiscardHandler), Build: buildinfo.Read(buildinfo.Stamp{}), Ready: func(at serve.Addresses) { ready <- at },
		})
	}()
	at := <-ready
	conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(b, err)
	defer func() {
		must(b, conn.Close())
		stop()
		must(b, <-ended)
	}()
	documents := make([]*likenessv1.Document, 1000)
	texts := make([]string, len(documents))
	for i := range documents {
		documents[i] = &likenessv1.Document{Document: &likenessv1.Document_Number{Number: uint64(7 * i)}}
		texts[i] = fmt.Sprintf("%q", fmt.Sprint(7*i))
	}
	body := []byte(`{"model":"questions","query":"where is my card","documents":[` + strings.Join(texts, ",") + `]}`)
	request := &likenessv1.ScoreRequest{
		Route: "questions", Query: &likenessv1.Query{Text: "where is my card"},
		Items: &likenessv1.ScoreRequest_Documents{Documents: &likenessv1.Documents{Documents: documents}},
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var whole, scoring []time.Duration
	for b.Loop() {
		began := time.Now()
		answer, err := client.Post("http://"+at.REST+"/v2/rerank", "application/json", bytes.NewReader(body))
		must(b, err)
		n, err := io.Copy(io.Discard, answer.Body)
		must(b, err)
		if answer.StatusCode != http.StatusOK || n < 30000 {
			b.Fatalf("%s with %d bytes", answer.Status, n)
		}
		whole = append(whole, time.Since(began))
		must(b, answer.Body.Close())
		scored, err := likenessv1.NewSearchServiceClient(conn).Score(b.Context(), request)
		must(b, err)
		scoring = append(scoring, scored.GetTimings().GetTotal().AsDuration())
	}
	slices.Sort(whole)
	slices.Sort(scoring)
	p50, own := whole[len(whole)/2], scoring[len(scoring)/2]
	b.ReportMetric(float64(p50.Microseconds()), "p50-µs")
	b.ReportMetric(float64(own.Microseconds()), "p50-scoring-µs")
	b.ReportMetric(float64((p50 - own).Microseconds()), "p50-beyond-µs")
}
