package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/model"
)

func TestFitCompanion(t *testing.T) {
	base, data := "../../examples/models/banking77-mol", "../../examples/data/banking77/"
	out := filepath.Join(t.TempDir(), "companion.safetensors")
	flags := []string{"fit", "companion", "--model", base, "--items", data + "items_vectors.npy", "--queries", data + "test_vectors.npy",
		"--out", out, "--depths", "40,20", "--dim", "24", "--anchors", "600", "--hidden", "0"}
	r := execute(t, "", append(flags, "--output", "json")...)
	var report companionResult
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("code %d, %v\n%s", r.code, err, r.err)
	}
	m, err := model.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != report.Version || report.Dim != 24 || report.Anchors != 600 || len(report.Stages) < 3 || report.Stages[0].Strategy != rerank.Companion || report.Stages[0].Recall[0] < 0.8 {
		t.Errorf("%+v", report)
	}
	if found := m.FirstStages(); !slices.Equal(found.Depths, []int{20, 40}) || found.Find(rerank.Companion, "") == nil || found.Find(rerank.Average, "") == nil {
		t.Errorf("the model keeps %+v of its first stages", found)
	}
	if m.Provenance["companion.fit.report"] == "" || m.Provenance["companion.model"] == "" || !m.Parameters().Tensors.Has(companion.Out) {
		t.Errorf("provenance %v", m.Provenance)
	}
	if r := execute(t, "", "model", "show", out); !strings.Contains(r.out, "24 numbers an item") {
		t.Errorf("model show:\n%s", r.out)
	}
	if r := execute(t, "", append(flags, "--force", "--model", out)...); r.code != 0 || !strings.Contains(r.out, "share of the exact top 10") {
		t.Errorf("fitted again: code %d\n%s%s", r.code, r.out, r.err)
	}
	for want, more := range map[string][]string{
		"--normalise says nothing to fit companion": {"--normalise=false"},
		"exists; replace it with --force":           {},
		"want positive numbers":                     {"--force", "--dim", "0"},
	} {
		if r := execute(t, "", append(flags, more...)...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%s: code %d\n%s", want, r.code, r.err)
		}
	}
}
