package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
)

// fitFiles writes a log in which every other axis of the queries has the wrong sign, and returns
// the flags that name it.
func fitFiles(t *testing.T) (dir string, flags []string) {
	t.Helper()
	dir = t.TempDir()
	rng := rand.New(rand.NewPCG(31, 32))
	items, queries := rerank.NewMatrix(30, 8), rerank.NewMatrix(400, 8)
	for i := range items.Data {
		items.Data[i] = float32(rng.NormFloat64())
	}
	var pairs strings.Builder
	pairs.WriteString("query,item\n")
	for q := range queries.Rows {
		x := rng.IntN(items.Rows)
		for i, v := range items.Row(x) {
			queries.Row(q)[i] = v*float32(1-2*(i%2)) + 0.3*float32(rng.NormFloat64())
		}
		fmt.Fprintf(&pairs, "%d,%d\n", q, x)
	}
	pairs.WriteString("0,0\n0,0\n")
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, m := range map[string]rerank.Matrix{"items.npy": items, "queries.npy": queries} {
		if err := npy.Write(path(name), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path("pairs.csv"), []byte(pairs.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, []string{"fit", "bilinear", "--items", path("items.npy"), "--queries", path("queries.npy"), "--pairs", path("pairs.csv"), "--out", path("m.safetensors")}
}

func TestFitBilinear(t *testing.T) {
	dir, flags := fitFiles(t)
	r := execute(t, "", append(flags, "--output", "json")...)
	var report fitResult
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("code %d, %v\n%s", r.code, err, r.err)
	}
	m, err := model.Open(filepath.Join(dir, "m.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != report.Version || m.Name != "m" || report.Logged.Gain < 0.1 || report.Log.DuplicatePairs != 1 {
		t.Errorf("model %s %s of a report %+v", m.Name, m.Version, report)
	}
	for _, key := range []string{"tool", "data.items", "data.pairs", "fit.options", "fit.report"} {
		if m.Provenance[key] == "" {
			t.Errorf("the provenance has no %q: %v", key, m.Provenance)
		}
	}
	if again := execute(t, "", flags...); again.code != 2 || !strings.Contains(again.err, "--force") {
		t.Errorf("a second fit replaces the file: code %d, %s", again.code, again.err)
	}
	text := execute(t, "", append(flags, "--force", "--cut", "auto")...)
	for _, want := range []string{"1 rows of a pair given before", "90% of the energy", "chosen", "wrote "} {
		if text.code != 0 || !strings.Contains(text.out, want) {
			t.Errorf("code %d, want %q in\n%s%s", text.code, want, text.out, text.err)
		}
	}
	if m, err = model.Open(filepath.Join(dir, "m.safetensors")); err != nil || !strings.Contains(string(m.Parameters().Config), `"low_rank"`) {
		t.Errorf("cut to a rank: %v", err)
	}
}

// TestFitRefuses: bad input is wrong usage. The error says what is wrong and where, and nothing is
// written.
func TestFitRefuses(t *testing.T) {
	dir, flags := fitFiles(t)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	matrix := func(name string, m rerank.Matrix) string {
		path := filepath.Join(dir, name)
		if err := npy.Write(path, m); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nan := rerank.NewMatrix(30, 8)
	nan.Data[9] = float32(math.NaN())
	for want, args := range map[string][]string{
		"row 1, column 1 is NaN":    {"--items", matrix("nan.npy", nan)},
		"fit full or low_rank":      {"--items", matrix("wide.npy", rerank.NewMatrix(30, 9)), "--form", "diagonal"},
		"two items":                 {"--items", matrix("one.npy", rerank.NewMatrix(1, 8)), "--pairs", file("one.csv", "query,item\n0,0\n")},
		"there is nothing to tell":  {"--pairs", file("same.csv", "query,item\n0,4\n1,4\n")},
		"line 2: item is row 99":    {"--pairs", file("far.csv", "query,item\n0,99\n")},
		"the file is empty":         {"--pairs", file("empty.csv", "")},
		"npy file is not valid":     {"--queries", file("short.npy", "\x93NUMPY")},
		"no such file":              {"--queries", filepath.Join(dir, "none.npy")},
		"2 ids for 30 rows":         {"--item-ids", file("ids.txt", "a\nb\n"), "--pairs", file("ids.csv", "query,item\n0,a\n")},
		"its directory":             {"--out", filepath.Join(dir, "none", "m.safetensors")},
		`--cut "half"`:              {"--cut", "half"},
		`form "cubic" is none`:      {"--form", "cubic"},
		"rank is 99, want 1 to the": {"--form", "low_rank", "--rank", "99"},
	} {
		r := execute(t, "", append(append([]string{}, flags...), args...)...)
		if r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("code %d, want 2 with %q in\n%s", r.code, want, r.err)
		}
		if _, err := os.Stat(filepath.Join(dir, "m.safetensors")); err == nil {
			t.Fatalf("%v wrote a model", args)
		}
	}
}
