package model_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

const examples = "../../examples/models/"

func open(t testing.TB, path string) *model.Model {
	t.Helper()
	m, err := model.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// roundTrip writes a model, reads it, writes it again, and returns what was read.
func roundTrip(t *testing.T, m *model.Model) *model.Model {
	t.Helper()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a.safetensors"), filepath.Join(dir, "b.safetensors")
	if err := model.Write(first, m); err != nil {
		t.Fatal(err)
	}
	got := open(t, first)
	if err := model.Write(second, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, first), read(t, second)) {
		t.Error("written again, the file differs")
	}
	if got.Version != m.Version || got.Name != m.Name {
		t.Errorf("read %s %s, wrote %s %s", got.Name, got.Version, m.Name, m.Version)
	}
	want, have := describe(t, m), describe(t, got)
	if want != have {
		t.Errorf("read  %s\nwrote %s", have, want)
	}
	return got
}

func describe(t *testing.T, m *model.Model) string {
	t.Helper()
	b, err := json.Marshal(m.Describe())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDescribeUnbounded: of a similarity of raw vectors no greatest score is known, and JSON has no infinity.
func TestDescribeUnbounded(t *testing.T) {
	for _, unit := range []bool{false, true} {
		m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "m", Config: json.RawMessage(fmt.Sprintf(`{"dim":2,"normalise":%t}`, unit))})
		if err != nil {
			t.Fatal(err)
		}
		if text := describe(t, m); strings.Contains(text, "max_score") != unit {
			t.Errorf("normalised %t: %s", unit, text)
		}
	}
}

func TestShippedModels(t *testing.T) {
	for name, want := range map[string]struct {
		kind       rerank.Kind
		parameters int
		probes     []string
	}{
		"banking77-mol":                {rerank.KindMoL, 295_968, nil},
		"banking77-questions-mol":      {rerank.KindMoL, 304_016 + 689_024, []string{"residual", "linear"}},
		"banking77-questions-bilinear": {rerank.KindBilinear, 147_456, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, examples+name)
			d := m.Describe()
			if m.Name != name || d.Kind != want.kind || d.Parameters != want.parameters || !slices.Equal(d.Probes, want.probes) {
				t.Errorf("%s %s: %d parameters, probes %v", m.Name, d.Kind, d.Parameters, d.Probes)
			}
			if !d.Normalise || d.QueryDim != 384 || d.ItemDim != 384 {
				t.Errorf("normalise %t, %d and %d dimensions", d.Normalise, d.QueryDim, d.ItemDim)
			}
			if !strings.HasPrefix(strings.Join(keys(d.Provenance), " "), "quality.") {
				t.Errorf("provenance %v", d.Provenance)
			}
			roundTrip(t, m)
		})
	}
}

func keys(m map[string]string) []string {
	var k []string
	for key := range m {
		k = append(k, key)
	}
	slices.Sort(k)
	return k
}

// TestShippedScores holds a model that went through a native file against the
// scores that were made when it was trained.
func TestShippedScores(t *testing.T) {
	dir := examples + "banking77-mol"
	m := roundTrip(t, open(t, dir))
	inputs, err := safetensors.ReadFile(dir + "/inputs.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	expected, err := safetensors.ReadFile(dir + "/expected.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	items := matrix(inputs.Tensors["item_embeddings"])
	queries, want := matrix(inputs.Tensors["query_embeddings"]), matrix(expected.Tensors["scores"])
	features := rerank.NewMatrix(items.Rows, m.Spec().Features)
	if err := m.EncodeItems(features, items); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, items.Rows)
	for r := range queries.Rows {
		encoded, err := m.Encode(rerank.Query{Vector: queries.Row(r)})
		if err != nil {
			t.Fatal(err)
		}
		if err := encoded.Score(got, rerank.Items{Features: features}); err != nil {
			t.Fatal(err)
		}
		for i, score := range got {
			if !(math.Abs(float64(score-want.Row(r)[i])) <= 1e-4) {
				t.Fatalf("query %d, item %d: score %v, want %v", r, i, score, want.Row(r)[i])
			}
		}
	}
}

func matrix(t tensor.Tensor) rerank.Matrix {
	return rerank.Matrix{Rows: t.Shape[0], Cols: t.Shape[1], Data: t.Data}
}

// TestGoldenModels imports every model of the golden files.
func TestGoldenModels(t *testing.T) {
	cases, err := filepath.Glob("../../testdata/golden/mol/*/config.json")
	if err != nil || len(cases) < 20 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, config := range cases {
		name := filepath.Base(filepath.Dir(config))
		t.Run(name, func(t *testing.T) {
			roundTrip(t, golden(t, name))
		})
	}
}

// golden imports a model of the golden files.
func golden(t testing.TB, name string) *model.Model {
	t.Helper()
	dir := "../../testdata/golden/mol/" + name
	weights, err := safetensors.ReadFile(filepath.Join(dir, "weights.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	// One file has statistics that are NaN, which Python writes and JSON does not have.
	config := bytes.ReplaceAll(read(t, filepath.Join(dir, "config.json")), []byte("NaN"), []byte("null"))
	p, err := model.Import(config, weights.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	p.Name = name
	m, err := model.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestKinds writes and reads a model of every kind that is made by hand, with a
// learned probe.
func TestKinds(t *testing.T) {
	probe := square(2)
	for name, p := range map[string]model.Parameters{
		"dot":      {Kind: rerank.KindDot, Config: json.RawMessage(`{"dim": 2, "normalise": false}`)},
		"cosine":   {Kind: rerank.KindDot, Config: json.RawMessage(`{"normalise": true, "dim": 2}`)},
		"maxsim":   {Kind: rerank.KindMaxSim, Config: json.RawMessage(`{"dim": 2, "normalise": true}`)},
		"bilinear": bilinearOf("full", tensor.Set{"W": square(2)}),
		"low rank": bilinearOf("low_rank", tensor.Set{"P": square(2), "Q": square(2)}),
		"identity": bilinearOf("identity_low_rank", tensor.Set{"P": square(2), "Q": square(2)}),
		"diagonal": bilinearOf("diagonal", tensor.Set{"w": {Shape: []int{2}, Data: []float32{1, 2}}}),
	} {
		t.Run(name, func(t *testing.T) {
			p.Name = name
			p.Tensors = maps.Clone(p.Tensors)
			if p.Tensors == nil {
				p.Tensors = tensor.Set{}
			}
			p.Tensors["probe.linear.W"] = probe
			m := roundTrip(t, remake(t, p))
			if d := m.Describe(); d.Kind != p.Kind || !slices.Equal(d.Probes, []string{"linear"}) {
				t.Errorf("kind %s, probes %v", d.Kind, d.Probes)
			}
		})
	}
}

func square(n int) tensor.Tensor {
	t := tensor.Tensor{Shape: []int{n, n}, Data: make([]float32, n*n)}
	for i := range t.Data {
		t.Data[i] = float32(i + 1)
	}
	return t
}

func bilinearOf(form string, t tensor.Set) model.Parameters {
	config := fmt.Sprintf(`{"query_embedding_dim": 2, "item_embedding_dim": 2, "normalise": false, "form": %q}`, form)
	return model.Parameters{Kind: rerank.KindBilinear, Config: json.RawMessage(config), Tensors: t}
}

// TestVersion: what decides a score decides the version, and nothing else does.
func TestVersion(t *testing.T) {
	base := small(t)
	renamed := base.Parameters()
	renamed.Name, renamed.Provenance = "another", map[string]string{"by": "hand"}
	if m := remake(t, renamed); m.Version != base.Version {
		t.Error("a name changes the version")
	}
	weight := base.Parameters()
	w := tensor.Tensor{Shape: weight.Tensors["W"].Shape, Data: slices.Clone(weight.Tensors["W"].Data)}
	w.Data[0] += 0.5
	weight.Tensors["W"] = w
	if m := remake(t, weight); m.Version == base.Version {
		t.Error("a weight leaves the version")
	}
	config := base.Parameters()
	config.Config = bytes.Replace(config.Config, []byte(`"normalise":true`), []byte(`"normalise":false`), 1)
	if m := remake(t, config); m.Version == base.Version || m.Spec().Normalise {
		t.Error("the configuration leaves the version")
	}
}

func remake(t *testing.T, p model.Parameters) *model.Model {
	t.Helper()
	m, err := model.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// small is a bilinear model of 3 x 3.
func small(t testing.TB) *model.Model {
	t.Helper()
	p, err := model.Import([]byte(smallConfig), tensor.Set{"W": {Shape: []int{3, 3}, Data: []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}}})
	if err != nil {
		t.Fatal(err)
	}
	p.Name = "small"
	m, err := model.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const smallConfig = `{"model_type": "bilinear", "query_embedding_dim": 3, "item_embedding_dim": 3, "normalise": true, "quality": {"mrr": 0.5}}`

func TestNameOfFile(t *testing.T) {
	m := small(t)
	m.Name = ""
	path := filepath.Join(t.TempDir(), "products.safetensors")
	if err := model.Write(path, m); err != nil {
		t.Fatal(err)
	}
	if got := open(t, path); got.Name != "products" || got.Provenance["quality.mrr"] != "0.5" {
		t.Errorf("name %q, provenance %v", got.Name, got.Provenance)
	}
}

func TestWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := model.Write(filepath.Join(dir, "none", "m"), small(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v, want os.ErrNotExist", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := model.Write(filepath.Join(dir, "taken"), small(t)); err == nil {
		t.Error("a directory was replaced")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%v stayed", left)
	}
}

// Python writes NaN where JSON has none.
func TestImportNamesTheRemedyForNaN(t *testing.T) {
	_, err := model.Import([]byte(`{"model_type": "mol", "quality": {"mrr": NaN}}`), nil)
	if !errors.Is(err, model.ErrFile) || !strings.Contains(err.Error(), "write null") {
		t.Errorf("got %v", err)
	}
}
