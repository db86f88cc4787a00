package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
)

// TestFitBridge fits a bridge whose old model knows half of the numbers of the new one.
func TestFitBridge(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, m rerank.Matrix) string {
		path := filepath.Join(dir, name)
		if err := npy.Write(path, m); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rng := rand.New(rand.NewPCG(1, 2))
	texts, queries := rerank.NewMatrix(400, 12), rerank.NewMatrix(100, 12)
	for i := range texts.Data {
		texts.Data[i] = float32(rng.NormFloat64())
	}
	var pairs strings.Builder
	pairs.WriteString("query,item\n")
	for q := range queries.Rows {
		for k, v := range texts.Row(q) {
			queries.Row(q)[k] = v + float32(0.3*rng.NormFloat64())
		}
		fmt.Fprintf(&pairs, "%d,%d\n", q, q)
	}
	half := func(m rerank.Matrix) rerank.Matrix {
		out := rerank.NewMatrix(m.Rows, 6)
		for r := range m.Rows {
			copy(out.Row(r), m.Row(r))
		}
		return out
	}
	pairsFile, out := filepath.Join(dir, "pairs.csv"), filepath.Join(dir, "bridge.safetensors")
	if err := os.WriteFile(pairsFile, []byte(pairs.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"fit", "bridge", "--old", write("old.npy", half(texts)), "--new", write("new.npy", texts), "--out", out}
	asked := []string{"--queries-old", write("qo.npy", half(queries)), "--queries-new", write("qn.npy", queries)}
	r := execute(t, "", append(append(flags, asked...), "--pairs", pairsFile, "--output", "json")...)
	var report bridgeResult
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("code %d, %v\n%s", r.code, err, r.err)
	}
	if len(report.Ways) != 4 || report.Verdict.Choose != "a new index" || report.Queries != 100 || report.Items != 400 {
		t.Errorf("%+v", report)
	}
	m, err := model.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	if s := m.Spec(); m.Version != report.Version || s.QueryDim != 12 || s.ItemDim != 6 || !strings.HasPrefix(m.Provenance["data.old"], "old.npy sha256:") || m.Provenance["fit.report"] == "" {
		t.Errorf("%+v, provenance %v", s, m.Provenance)
	}
	if r := execute(t, "", append(flags, "--force")...); r.code != 0 || !strings.Contains(r.out, "agreement of 80 queries with the new model's own first ten of 320 texts") ||
		!strings.Contains(r.err, "there are no pairs") {
		t.Errorf("without pairs: code %d\n%s%s", r.code, r.out, r.err)
	}
	for want, more := range map[string][]string{
		"give --queries-old and --queries-new":     {"--force", "--pairs", pairsFile},
		"exists; replace it with --force":          {},
		"embedded again is 1":                      {"--force", "--lazy", "1"},
		"--queries-old, --queries-new go together": {"--force", "--queries-old", pairsFile},
		"no such file":                             {"--force", "--old", filepath.Join(dir, "none.npy")},
	} {
		if r := execute(t, "", append(flags, more...)...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%s: code %d\n%s", want, r.code, r.err)
		}
	}
}
