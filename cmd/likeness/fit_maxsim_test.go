package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/model"
)

// TestFitMaxSim runs the commands from a log to a table and a companion in files.
func TestFitMaxSim(t *testing.T) {
	dir, flags := fitFiles(t)
	flags[1] = "maxsim"
	plot := filepath.Join(dir, "budgets.svg")
	flags = append(flags, "--mavg", "0.5,1,2", "--plot", plot)
	r := execute(t, "", append(flags, "--output", "json")...)
	var report fitMaxSimResult
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("code %d, %v\n%s", r.code, err, r.err)
	}
	path := filepath.Join(dir, "m.safetensors")
	m, err := model.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := m.Similarity.(*maxsim.Similarity)
	if !ok || m.Version != report.Version || len(report.Trials) != 5 || report.VectorFiles != maxsim.Beside(path) {
		t.Fatalf("model %+v of a report %+v", m.Spec(), report)
	}
	v, err := maxsim.OpenVectors(report.VectorFiles, s.VectorsDigest())
	if err != nil || v.Rows != report.Vectors {
		t.Fatalf("%v, %+v", err, report)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if drawn, err := os.ReadFile(plot); err != nil || !strings.Contains(string(drawn), "vectors an item") {
		t.Errorf("%v\n%s", err, drawn)
	}
	table := filepath.Join(dir, "t")
	text := execute(t, "", append([]string{"index", "--model", path, "--collection", "c", "--table", table, "--companion", "c_learned",
		"--files", filepath.Join(dir, "files")}, itemFlags(flags)...)...)
	for _, want := range []string{"table " + table, "companion c_learned: fields vector", "owner: likeness_owner", "owners: "} {
		if text.code != 0 || !strings.Contains(text.out, want) {
			t.Errorf("code %d, want %q in\n%s%s", text.code, want, text.out, text.err)
		}
	}
	for want, args := range map[string][]string{
		"fit with normalise": {"--normalise=false"},
		"beta is 2":          {"--beta", "2"},
		"ascending":          {"--mavg", "3,1"},
		"does not exist":     {"--plot", filepath.Join(dir, "no", "p.svg")},
	} {
		r := execute(t, "", append(append([]string{}, flags...), append(args, "--force")...)...)
		if r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("code %d, want 2 with %q in\n%s", r.code, want, r.err)
		}
	}
	if err := os.Remove(report.VectorFiles + ".owners.jsonl"); err != nil {
		t.Fatal(err)
	}
	gone := execute(t, "", append([]string{"index", "--model", path, "--collection", "c", "--table", table + "2"}, itemFlags(flags)...)...)
	if gone.code != 2 || !strings.Contains(gone.err, "likeness fit maxsim") {
		t.Errorf("code %d without the owners\n%s", gone.code, gone.err)
	}
}

// TestUpdateMaxSim updates a model with the lines of a day.
func TestUpdateMaxSim(t *testing.T) {
	dir, flags := fitFiles(t)
	flags[1] = "maxsim"
	path := func(name string) string { return filepath.Join(dir, name) }
	whole, err := os.ReadFile(path("pairs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	for name, text := range map[string]string{"old.csv": strings.Join(lines[:390], ""), "new.csv": lines[0] + strings.Join(lines[390:], "")} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := execute(t, "", append(flags, "--pairs", path("old.csv"), "--out", path("old.safetensors"), "--mavg", "2")...); r.code != 0 {
		t.Fatal(r.err)
	}
	update := slices.Concat(flags, []string{"--new-pairs", path("new.csv"), "--output", "json"})
	r := execute(t, "", append(update, "--update", path("old.safetensors"))...)
	var report fitMaxSimResult
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("code %d, %v\n%s", r.code, err, r.err)
	}
	if report.UpdatedItems == 0 || report.UpdatedItems > 13 || report.MAvg != 2 || report.Vectors == 0 {
		t.Errorf("%+v", report)
	}
	if text := execute(t, "", append(flags, "--new-pairs", path("new.csv"), "--update", path("m.safetensors"), "--force")...); text.code != 0 || !strings.Contains(text.out, "all others kept theirs") {
		t.Errorf("an update of an update, in place: code %d\n%s%s", text.code, text.out, text.err)
	}
	flags[1] = "bilinear"
	if r := execute(t, "", append(flags, "--out", path("w.safetensors"))...); r.code != 0 {
		t.Fatal(r.err)
	}
	if r := execute(t, "", append(append([]string{"fit", "maxsim"}, update[2:]...), "--update", path("w.safetensors"), "--force")...); r.code != 2 || !strings.Contains(r.err, "no behavioural vectors") {
		t.Errorf("an update of a bilinear form: code %d\n%s", r.code, r.err)
	}
}

// itemFlags returns the flags that name the items from the flags of a fit.
func itemFlags(flags []string) []string {
	for i, f := range flags {
		if f == "--items" {
			return flags[i : i+2]
		}
	}
	return nil
}
