// Package python runs the tests of the Python package against a real sidecar.
package python

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// cache is where virtual environments are kept between runs.
	cache = "../.cache/clients"
	token = "of-this-test"
	// configuration serves 77 topics, which questions of banking77 ask for.
	configuration = `
listen: {grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: "", auth: {tokens_file: %q}}
limits: {max_message_bytes: 128KiB}
stores: {files: {kind: embedded, collections: {intents: {vectors: ../examples/data/banking77/items_vectors.npy, payload: ../examples/data/banking77/items.jsonl, metric: cosine}}}}
models: {similar: {path: ../examples/models/banking77-questions-bilinear}}
routes: {intents: {store: files, collection: intents, model: similar, placement: stored, exact_search: true}}
`
)

// TestClient runs the tests of the clients.
func TestClient(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(tokens, []byte("- {name: python, token: "+token+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := sidecar(t, fmt.Sprintf(configuration, tokens))
	pytest(t, environment(t, "requirements.txt"), []string{"tests/test_client.py", "tests/test_retrievers.py"}, "LIKENESS_URL=http://"+at.REST, "LIKENESS_TOKEN="+token)
}

// environment makes a virtual environment of pinned packages.
func environment(t *testing.T, requirements string) *harness.Program {
	t.Helper()
	python, err := harness.Python(t.Context(), cache, filepath.Join("tests", requirements))
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return python
}

// pytest runs test files with the package as it lies in src.
func pytest(t *testing.T, python *harness.Program, files []string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python.Path, append([]string{"-m", "pytest", "-q"}, files...)...)
	cmd.Env = append(append(append(os.Environ(), python.Env...), "PYTHONPATH=src"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
}

// sidecar runs a sidecar until the test ends.
func sidecar(t *testing.T, configuration string) serve.Addresses {
	t.Helper()
	c, err := config.Parse("likeness.yaml", []byte(configuration), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{Logger: slog.New(slog.DiscardHandler), Ready: func(at serve.Addresses) { ready <- at }})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the sidecar ended with %v", err)
		}
	})
	select {
	case at := <-ready:
		return at
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return serve.Addresses{}
}
