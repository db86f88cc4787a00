package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
)

func TestFitMoL(t *testing.T) {
	dir, flags := fitFiles(t)
	flags[1] = "mol"
	flags = append(flags, "--pairs-query", "4", "--pairs-item", "2", "--rounds", "6", "--rate", "0.01", "--gate-query-hidden", "16")
	r := execute(t, "", append(flags, "--output", "json")...)
	var report fitMoLResult
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("code %d, %v\n%s", r.code, err, r.err)
	}
	m, err := model.Open(filepath.Join(dir, "m.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	spec := m.Similarity.Spec()
	if m.Version != report.Version || report.Logged.Gain < 0.1 || !spec.SingleInnerProduct || spec.PairsQuery != 4 {
		t.Errorf("model %s %+v of a report %+v", m.Version, spec, report)
	}
	if len(report.Usage.Mass) != 8 || len(report.Recall) == 0 || len(report.History) == 0 || !strings.Contains(m.Provenance["fit.report"], "recall") {
		t.Errorf("reported %+v, provenance %v", report, m.Provenance)
	}
	users := make([]int64, 400)
	for i := range users {
		users[i] = int64(i % 7)
	}
	if err := npy.WriteInts(filepath.Join(dir, "users.npy"), users); err != nil {
		t.Fatal(err)
	}
	text := execute(t, "", append(flags, "--force", "--gates", "full", "--user-ids", filepath.Join(dir, "users.npy"), "--user-tables", "5", "--cold", "guard")...)
	for _, want := range []string{"1 rows of a pair given before", "mean gate", "per_embedding", "companion", "chosen", "wrote "} {
		if text.code != 0 || !strings.Contains(text.out, want) {
			t.Errorf("code %d, want %q in\n%s%s", text.code, want, text.out, text.err)
		}
	}
	for want, args := range map[string][]string{
		`gates "item" are neither`: {"--gates", "item"},
		"the log has none":         {"--user-tables", "10"},
		"temperature is -1":        {"--temperature", "-1"},
	} {
		r := execute(t, "", append(append([]string{}, flags...), append(args, "--force")...)...)
		if r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("code %d, want 2 with %q in\n%s", r.code, want, r.err)
		}
	}
}
