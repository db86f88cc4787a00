package text_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/testbinary"
	"github.com/likenessdb/likeness/rerank/npy"
)

// rowsOf reads every nth line of a file of BANKING77.
func rowsOf(t *testing.T, file string, n int) (texts []string, items []int) {
	t.Helper()
	b, err := os.ReadFile(data + file)
	must(t, err)
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if i%n > 0 {
			continue
		}
		var row struct {
			Text string
			Item int
		}
		must(t, json.Unmarshal([]byte(line), &row))
		texts, items = append(texts, row.Text), append(items, row.Item)
	}
	return texts, items
}

// TestTry: `likeness try` learns from a log of texts, refuses an embedder that made other
// vectors, and writes a configuration that embeds texts.
func TestTry(t *testing.T) {
	atLength(t, "it fits by a sentence model")
	db, embedder := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}), startModel(t)
	vectors, err := npy.Open(data + "items_vectors.npy")
	must(t, err)
	defer vectors.Close()
	names, _ := rowsOf(t, "items.jsonl", 1)
	points := make([]map[string]any, vectors.Rows)
	for i := range points {
		points[i] = map[string]any{"id": i, "vector": vectors.Row(i), "payload": map[string]any{"name": names[i], "other": "weather of tomorrow in the mountains"}}
	}
	put(t, db.REST+"/collections/topics", map[string]any{"vectors": map[string]any{"size": 384, "distance": "Cosine"}})
	put(t, db.REST+"/collections/topics/points?wait=true", map[string]any{"points": points})
	dir := t.TempDir()
	var lines strings.Builder
	texts, items := rowsOf(t, "train.jsonl", 100)
	for i, text := range texts {
		quoted, err := json.Marshal(text)
		must(t, err)
		fmt.Fprintf(&lines, "{\"query\": %s, \"item\": %d}\n", quoted, items[i])
	}
	must(t, os.WriteFile(filepath.Join(dir, "log.jsonl"), []byte(lines.String()), 0o600))
	binary := testbinary.Likeness(t)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "EMBEDDER_API_KEY="+key)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	try := func(field string) (string, error) {
		return run("try", db.REST, "topics", "--questions", "log.jsonl", "--embedder", embedder+"/v1/embeddings#all-minilm-l6-v2", "--text", field)
	}
	if out, err := try("other"); err == nil || !strings.Contains(out, `makes other vectors of field "other" than the unnamed vector`) {
		t.Errorf("a field that was not embedded: %v\n%s", err, out)
	}
	out, err := try("name")
	if err != nil {
		t.Fatal(out)
	}
	for _, want := range []string{"their cosine is 1.000", "mrr@10", "name (string, shown in examples)", "card"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	written, err := os.ReadFile(filepath.Join(dir, "likeness-try", "likeness.yaml"))
	must(t, err)
	if !strings.Contains(string(written), "embedder: questions") || strings.Contains(string(written), key) {
		t.Errorf("no embedder in\n%s", written)
	}
	if out, err := run("config", "validate", "--config", "likeness-try/likeness.yaml", "--connect"); err != nil || !strings.Contains(out, "1 routes") {
		t.Errorf("%v\n%s", err, out)
	}
}
