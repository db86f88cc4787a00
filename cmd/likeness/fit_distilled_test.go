package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank/model"
)

func TestFitDistilled(t *testing.T) {
	dir, flags := fitFiles(t)
	base := filepath.Join(dir, "m.safetensors")
	if r := execute(t, "", flags...); r.code != 0 {
		t.Fatalf("code %d: %s", r.code, r.err)
	}
	out := filepath.Join(dir, "probes.safetensors")
	flags = []string{"fit", "distilled", "--model", base, "--items", filepath.Join(dir, "items.npy"),
		"--queries", filepath.Join(dir, "queries.npy"), "--out", out, "--depths", "10,15", "--k", "5"}
	r := execute(t, "", append(flags, "--output", "json")...)
	var report distilledResult
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("code %d, %v\n%s", r.code, err, r.err)
	}
	before, err := model.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != report.Version || m.Version == before.Version || report.Base != before.Version || len(report.Stages) < 3 {
		t.Errorf("version %s of %s, reported %+v", m.Version, before.Version, report)
	}
	for _, key := range []string{"fit.report", "distilled.fit.report", "distilled.data.queries", "distilled.model", "data.pairs"} {
		if m.Provenance[key] == "" {
			t.Errorf("the provenance has no %q: %v", key, m.Provenance)
		}
	}
	have, want := m.Parameters().Tensors["W"], before.Parameters().Tensors["W"]
	if !slices.Equal(have.Data, want.Data) || len(m.Parameters().Tensors) != len(before.Parameters().Tensors)+3 {
		t.Errorf("the model's own tensors changed")
	}
	text := execute(t, "", append(flags, "--force", "--head", "linear")...)
	for _, want := range []string{"exact", "distilled linear", "share of the exact top 5", "Keep the strategy average", "wrote "} {
		if text.code != 0 || !strings.Contains(text.out, want) {
			t.Errorf("code %d, want %q in\n%s%s", text.code, want, text.out, text.err)
		}
	}
}

func TestFitDistilledRefuses(t *testing.T) {
	dir, flags := fitFiles(t)
	if r := execute(t, "", flags...); r.code != 0 {
		t.Fatalf("code %d: %s", r.code, r.err)
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	good := []string{"fit", "distilled", "--model", path("m.safetensors"), "--items", path("items.npy"), "--queries", path("queries.npy"), "--out", path("p.safetensors")}
	for want, more := range map[string][]string{
		`head "deep"`:    {"--head", "deep"},
		"says nothing":   {"--cold", "guard"},
		"not valid":      {"--model", path("items.npy")},
		"no such file":   {"--model", path("none.safetensors")},
		"pairs.csv":      {"--queries", path("pairs.csv")},
		"needs the time": {"--split", "time"},
	} {
		r := execute(t, "", append(slices.Clone(good), more...)...)
		if r.code == 0 || !strings.Contains(r.err, want) || (r.code != 2 && want != "no such file") {
			t.Errorf("%q: code %d, want 2 with %q: %s", more, r.code, want, r.err)
		}
	}
}
