// Package pythonclient runs the Python client against a real sidecar.
package pythonclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	data          = "../data/banking77/"
	token         = "of-this-test"
	configuration = `
listen: {grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: "", auth: {tokens_file: %q}}
limits: {max_message_bytes: 128KiB}
stores: {files: {kind: embedded, collections: {intents: {vectors: ../data/banking77/items_vectors.npy, payload: ../data/banking77/items.jsonl, metric: cosine}}}}
models: {similar: {path: ../models/banking77-questions-bilinear}}
routes: {intents: {store: files, collection: intents, model: similar, placement: stored, exact_search: true}}
`
)

func TestPythonClient(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.yaml")
	if err := os.WriteFile(tokens, []byte("- {name: python, token: "+token+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("likeness.yaml", fmt.Appendf(nil, configuration, tokens), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		done <- serve.Run(ctx, c, serve.Options{Logger: slog.New(slog.DiscardHandler), Ready: func(a serve.Addresses) { ready <- a }})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the sidecar ended with %v", err)
		}
	}()
	var at serve.Addresses
	select {
	case at = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	check := exec.CommandContext(ctx, "python3", filepath.Join("testdata", "check.py"))
	check.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "LIKENESS_URL=http://"+at.REST, "LIKENESS_TOKEN="+token, "LIKENESS_QUESTIONS="+questions(t, dir))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// questions writes the first questions and their vectors as JSON.
func questions(t *testing.T, dir string) string {
	t.Helper()
	vectors, err := npy.Open(data + "test_vectors.npy")
	if err != nil {
		t.Fatal(err)
	}
	defer vectors.Close()
	text, err := os.ReadFile(data + "test.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(text))
	for row := 0; row < 5 && lines.Scan(); row++ {
		var question struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(lines.Bytes(), &question); err != nil {
			t.Fatal(err)
		}
		key, _ := json.Marshal(question.Text)
		vector, _ := json.Marshal(vectors.Row(row))
		fmt.Fprintf(&b, ",%s:%s", key, vector)
	}
	file := filepath.Join(dir, "questions.json")
	if err := os.WriteFile(file, []byte("{"+strings.TrimPrefix(b.String(), ",")+"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
