// Package modelfrompython runs the example and opens what it writes.
package modelfrompython

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank/model"
)

func TestModelFromPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if out, err := exec.CommandContext(t.Context(), python, "write_model.py", path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	v, err := model.Verify(path)
	if err != nil || !v.Digest || !v.Scores || v.MaxError > 1e-6 || v.Name != "from-python" {
		t.Fatalf("%+v, %v", v, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := strings.Replace(string(b), "from-python", "from-pythom", 1)
	if err := os.WriteFile(path, []byte(spoilt), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := model.Verify(path); !errors.Is(err, model.ErrFile) {
		t.Errorf("a changed file: %v", err)
	}
}
