package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

const configuration = `
listen: {grpc: "127.0.0.1:0", admin: ""}
stores: {files: {kind: embedded, collections: {intents: {vectors: ../data/banking77/items_vectors.npy, metric: cosine}}}}
models: {similar: {path: ../models/banking77-questions-bilinear}}
routes: {intents: {store: files, collection: intents, model: similar, placement: stored, exact_search: true}}
`

// TestClient asks a running sidecar.
func TestClient(t *testing.T) {
	c, err := config.Parse("likeness.yaml", []byte(configuration), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	listening, done := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		done <- serve.Run(ctx, c, serve.Options{
			Logger: slog.New(slog.DiscardHandler), Listening: func(a serve.Addresses) { listening <- a },
		})
	}()
	var at serve.Addresses
	select {
	case at = <-listening:
	case err := <-done:
		t.Fatal(err)
	}
	questions, err := npy.Open("../data/banking77/test_vectors.npy")
	if err != nil {
		t.Fatal(err)
	}
	defer questions.Close()
	vector, err := json.Marshal(questions.Row(0))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(ctx, []string{"-address", at.GRPC, "-route", "intents", "-k", "3"}, bytes.NewReader(vector), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[3], "exact") {
		t.Errorf("the client prints\n%s\nwant three items and an exact certificate", &out)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the sidecar ended with %v", err)
	}
}
