package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/gpu/parity"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/bench"
)

// TestBenchRAILS measures a model of a file, as text and as JSON.
func TestBenchRAILS(t *testing.T) {
	dir := t.TempDir()
	m, err := parity.MoL(parity.Shape{PairsQuery: 2, PairsItem: 2, Dim: 8, Hidden: 8}, 1)
	must(t, err)
	path := filepath.Join(dir, "mol.safetensors")
	must(t, model.Write(path, m))
	vectors := rerank.NewMatrix(300, m.Spec().ItemDim)
	for i := range vectors.Data {
		vectors.Data[i] = float32(i*i%31) - 15
	}
	items, queries := filepath.Join(dir, "items.npy"), filepath.Join(dir, "queries.npy")
	must(t, npy.Write(items, vectors))
	must(t, npy.Write(queries, vectors.Slice(0, 40)))
	args := []string{"bench", "rails", "--checkpoint", path, "--items", items, "--queries", queries, "--k", "10,1", "--batch", "1,2", "--runs", "1", "--two-pass", "2"}
	r := execute(t, "", append(args, "--output", "json")...)
	var report bench.Retrieved
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	if report.Items != 300 || report.Queries != 40 || report.Pairs != 4 || report.K[0] != 1 || len(report.TwoPass) != 2 || report.Methods[0].Candidates != 300 {
		t.Errorf("%+v", report)
	}
	if r := execute(t, "", args...); r.code != 0 || !strings.Contains(r.out, "exact scan") || !strings.Contains(r.out, "second pass scores") {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	for _, wrong := range [][]string{
		{"bench", "rails", "--checkpoint", path}, {"bench", "rails", "--k", "0"}, {"bench", "rails", "--config", path},
		{"bench", "rails", "--shape", "4"}, {"bench", "rails", "--checkpoint", path, "--items", queries, "--queries", filepath.Join(dir, "none.npy")},
	} {
		if r := execute(t, "", wrong...); r.code == 0 {
			t.Errorf("%v: %s", wrong, r.out)
		}
	}
}
