package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
)

// TestFitRBE runs the commands from a matrix of scores to a table.
func TestFitRBE(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	rng := rand.New(rand.NewPCG(7, 7))
	scores := rerank.NewMatrix(60, 80)
	vector := func() (v [4]float64) {
		for i := range v {
			v[i] = rng.NormFloat64()
		}
		return v
	}
	var queries [80][4]float64
	for q := range queries {
		queries[q] = vector()
	}
	for x := range scores.Rows {
		item := vector()
		for q, query := range queries {
			var dot float64
			for i, v := range item {
				dot += v * query[i]
			}
			scores.Row(x)[q] = float32(math.Tanh(dot))
		}
	}
	if err := npy.Write(path("scores.npy"), scores); err != nil {
		t.Fatal(err)
	}
	flags := []string{
		"fit", "rbe", "--scores", path("scores.npy"), "--out", path("m.safetensors"), "--base", path("base.npy"),
		"--supports", "8", "--hit-rates", "5:5,20:5", "--compare", "--hidden", "8", "--out-width", "4", "--rounds", "3",
	}
	r := execute(t, "", append(flags, "--output", "json")...)
	var report fitRBEResult
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("code %d, %v\n%s", r.code, err, r.err)
	}
	for name, text := range map[string]string{"own.txt": "41\n3\n17\n", "gone.txt": "41\n99\n"} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := []string{"fit", "rbe", "--scores", path("scores.npy"), "--out", path("own.safetensors"), "--output", "json", "--support-items"}
	var chosen fitRBEResult
	if r := execute(t, "", append(own, path("own.txt"))...); r.code != 0 || json.Unmarshal([]byte(r.out), &chosen) != nil ||
		!slices.Equal(chosen.Supports, []rerank.ID{rerank.UintID(41), rerank.UintID(3), rerank.UintID(17)}) {
		t.Errorf("own support items: code %d, %v\n%s", r.code, chosen.Supports, r.err)
	}
	if r := execute(t, "", append(own, path("gone.txt"), "--force")...); r.code != 2 || !strings.Contains(r.err, "item 99") {
		t.Errorf("a support item without scores: code %d\n%s", r.code, r.err)
	}
	m, err := model.Open(path("m.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	spec := m.Spec()
	if m.Version != report.Version || spec.Kind != rerank.KindRBE || spec.QueryDim != 8 || spec.ItemDim != 56 || len(report.Supports) != 8 ||
		len(report.Compared) != len(selections()) || report.CUR.HitRates[1].Mean < 0.6 {
		t.Errorf("%+v of %+v", spec, report)
	}
	for want, args := range map[string][]string{
		"HitRate(5,5)":    append(append([]string{}, flags...), "--force"),
		"60 items in 60":  {"index", "--model", path("m.safetensors"), "--items", path("base.npy"), "--collection", "c", "--table", path("t")},
		"scores   as in":  {"model", "verify", path("m.safetensors")},
		"companion c_rbe": {"index", "--model", path("m.safetensors"), "--items", path("base.npy"), "--collection", "c", "--companion", "c_rbe", "--files", path("files")},
	} {
		if text := execute(t, "", args...); text.code != 0 || !strings.Contains(text.out, want) {
			t.Errorf("code %d, want %q in\n%s%s", text.code, want, text.out, text.err)
		}
	}
	for want, args := range map[string][]string{
		`selection "best" is none`: {"--select", "best"},
		"want P:T":                 {"--hit-rates", "5"},
		"lambda is -1":             {"--lambda", "-1"},
	} {
		if r := execute(t, "", append(append([]string{}, flags...), append(args, "--force")...)...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("code %d, want 2 with %q in\n%s", r.code, want, r.err)
		}
	}
}
