package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// TestFitFromAServer: a fit and its evaluation read the items from a real server, with the server's
// ids.
func TestFitFromAServer(t *testing.T) {
	for name, start := range map[string]func() *servers.Server{
		"qdrant": func() *servers.Server {
			return servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
		},
		"milvus": func() *servers.Server { return servers.MilvusLiteForTest(t, servers.Options{}) },
	} {
		server := start()
		dir, flags := fitFiles(t)
		file := func(name, text string) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		configuration := file("likeness.yaml", fmt.Sprintf("stores:\n  db: {kind: %s, address: %s}\n", name, server.Address))
		uploadItems(t, configuration, filepath.Join(dir, "items.npy"))
		log, err := os.ReadFile(filepath.Join(dir, "pairs.csv"))
		if err != nil {
			t.Fatal(err)
		}
		var pairs strings.Builder
		for line := range strings.Lines(string(log)) {
			if query, item, ok := strings.Cut(strings.TrimSpace(line), ","); ok && item != "item" {
				fmt.Fprintf(&pairs, "{\"query\":%s,\"item\":1%03s}\n", query, item)
			}
		}
		pairs.WriteString(`{"query":0,"item":5}` + "\n")
		from := []string{
			"--config", configuration, "--collection", "shoes", "--vector", "vector",
			"--queries", flags[5], "--pairs", file("pairs.jsonl", pairs.String()), "--output", "json",
		}
		model := filepath.Join(dir, "m.safetensors")
		r := execute(t, "", append([]string{"fit", "bilinear", "--form", "diagonal", "--out", model}, from...)...)
		var report fitResult
		if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
			t.Fatalf("%s: code %d, %v\n%s", name, r.code, err, r.err)
		}
		if report.Log.Items != 30 || report.Log.UnknownItems != 1 || report.Logged.Gain < 0.1 {
			t.Errorf("%s: %+v", name, report)
		}
		if shown := execute(t, "", "model", "show", model, "--output", "json"); !strings.Contains(shown.out, "collection shoes sha256:") {
			t.Errorf("%s: %s%s", name, shown.out, shown.err)
		}
		if e := execute(t, "", append([]string{"eval", "--model", model}, from...)...); e.code != 0 || !strings.Contains(e.out, `"unknown_items": 1`) {
			t.Errorf("%s: eval ended with %d\n%s%s", name, e.code, e.out, e.err)
		}
		for want, change := range map[string][]string{
			`"boots"`: {"--collection", "boots"}, `vector`: {"--vector", "other"}, `--store "other"`: {"--store", "other"},
		} {
			bad := append([]string{"fit", "bilinear", "--out", model, "--force"}, append(append([]string{}, from...), change...)...)
			if e := execute(t, "", bad...); e.code != 2 || !strings.Contains(e.err, want) {
				t.Errorf("%s: %v ended with %d: %s", name, change, e.code, e.err)
			}
		}
	}
}

// uploadItems writes the items with ids from 1000 on.
func uploadItems(t *testing.T, configuration, file string) {
	t.Helper()
	c, err := config.Load(config.Source{File: configuration})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := wiring.Open(t.Context(), c, wiring.OnlyStore("db"))
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close()
	store := parts.Stores["db"]
	items, err := npy.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer items.Close()
	rows := adapters.Rows{Vectors: []rerank.Matrix{items.Matrix}}
	for r := range items.Rows {
		rows.IDs = append(rows.IDs, rerank.UintID(uint64(1000+r)))
	}
	schema := adapters.Schema{Collection: "shoes", Fields: []adapters.VectorField{{Name: "vector", Dim: items.Cols, Metric: adapters.InnerProduct}}}
	writer := store.(adapters.Writer)
	if err := writer.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	if err := writer.Write(t.Context(), "shoes", schema, rows); err != nil {
		t.Fatal(err)
	}
}
