package model_test

import (
	"bytes"
	"encoding/json"
	"errors"
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

const goldenDir = "../../testdata/golden/"

// hyperParameters of v_two_uids that the weights do not tell.
const unsaid = `{"temperature": 0.05, "dot_product_l2_norm": true, "gating_combination_type": "glu_silu",
	"query_nonlinearity": "swiglu", "softmax_dropout_rate": 0.2}`

// railsModel imports a state dict with its hyper-parameters.
func railsModel(t testing.TB, path string, config []byte) *model.Model {
	t.Helper()
	w, err := model.ReadWeights(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if config, err = model.Complete(config, w.Tensors); err != nil {
		t.Fatal(err)
	}
	p, err := model.Import(config, w.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	p.Name = "imported"
	m, err := model.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func goldenConfig(t testing.TB, name string) []byte {
	t.Helper()
	return bytes.ReplaceAll(read(t, goldenDir+"mol/"+name+"/config.json"), []byte("NaN"), []byte("null"))
}

// Each format of torch.save gives the golden scores, with the whole of the
// hyper-parameters and with those alone that the weights do not tell.
func TestTorchGoldenScores(t *testing.T) {
	for _, name := range []string{"state_dict", "legacy", "checkpoint", "bf16"} {
		tolerance := 5e-6
		want := goldenScores(t, "v_two_uids")
		if name == "bf16" { // of the weights as they are rounded to bfloat16
			want = scores(t, rounded(t), "v_two_uids")
		}
		for _, config := range [][]byte{goldenConfig(t, "v_two_uids"), []byte(unsaid)} {
			m := railsModel(t, goldenDir+"pt/v_two_uids."+name+".pt", config)
			compareScores(t, name, scores(t, roundTrip(t, m), "v_two_uids"), want, tolerance)
		}
	}
}

// rounded is v_two_uids with its weights rounded to bfloat16, to the nearest even.
func rounded(t *testing.T) *model.Model {
	t.Helper()
	p := golden(t, "v_two_uids").Parameters()
	for name, x := range p.Tensors {
		y := tensor.Tensor{Shape: x.Shape, Data: slices.Clone(x.Data)}
		for i, v := range y.Data {
			b := math.Float32bits(v)
			y.Data[i] = math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
		}
		p.Tensors[name] = y
	}
	return remake(t, p)
}

// Every golden model gives its scores when it comes as a state dict, components
// given or not.
func TestGoldenStateDicts(t *testing.T) {
	cases, err := filepath.Glob(goldenDir + "mol/*/weights.safetensors")
	if err != nil || len(cases) < 20 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, path := range cases {
		name := filepath.Base(filepath.Dir(path))
		t.Run(name, func(t *testing.T) {
			m := railsModel(t, path, goldenConfig(t, name))
			if m.Version != golden(t, name).Version {
				t.Error("the version differs from that of the directory")
			}
			compareScores(t, name, scores(t, m, name), goldenScores(t, name), 5e-6)
		})
	}
}

func goldenScores(t testing.TB, name string) rerank.Matrix {
	t.Helper()
	out, err := safetensors.ReadFile(goldenDir + "mol/" + name + "/outputs.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	return matrix(out.Tensors["scores"])
}

// scores returns the scores for a case's inputs.
func scores(t testing.TB, m *model.Model, name string) rerank.Matrix {
	t.Helper()
	in, err := safetensors.ReadFile(goldenDir + "mol/" + name + "/inputs.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	queries, items := flat(in.Tensors, "query_embeddings", "query_components"), flat(in.Tensors, "item_embeddings", "item_components")
	features := rerank.NewMatrix(items.Rows, m.Spec().Features)
	if err := m.EncodeItems(features, items); err != nil {
		t.Fatal(err)
	}
	got := rerank.NewMatrix(queries.Rows, items.Rows)
	for r := range queries.Rows {
		q := rerank.Query{Vector: queries.Row(r)}
		if users, ok := in.Ints["user_ids"]; ok {
			q.UserID, q.HasUserID = users.Data[r], m.Spec().UserIDs
		}
		e, err := m.Encode(q)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Score(got.Row(r), rerank.Items{Features: features}); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func flat(s tensor.Set, names ...string) rerank.Matrix {
	for _, name := range names {
		if t, ok := s[name]; ok {
			return rerank.Matrix{Rows: t.Shape[0], Cols: len(t.Data) / t.Shape[0], Data: t.Data}
		}
	}
	return rerank.Matrix{}
}

func compareScores(t *testing.T, name string, got, want rerank.Matrix, tolerance float64) {
	t.Helper()
	greatest := 1.0
	for _, v := range want.Data {
		greatest = max(greatest, math.Abs(float64(v)))
	}
	for i, v := range want.Data {
		if !(math.Abs(float64(got.Data[i]-v)) <= tolerance*greatest) {
			t.Fatalf("%s: score %d is %v, want %v", name, i, got.Data[i], v)
		}
	}
}

// The shapes of the weights must agree with the given hyperparameters.
func TestCompleteRefuses(t *testing.T) {
	w, err := model.ReadWeights(goldenDir+"pt/v_two_uids.checkpoint.pt", "module._ndp_module.")
	if err != nil || len(w.Dropped) != 1 || w.Dropped[0] != "module._embedding_module._item_emb.weight" {
		t.Fatal(w, err)
	}
	for key, value := range map[string]string{
		"query_embedding_dim": "13", "item_embedding_dim": "12", "dot_product_dimension": "8",
		"query_dot_product_groups": "2", "item_dot_product_groups": "4", "query_hidden_dim": "-1", "item_hidden_dim": "10",
		"gating_query_hidden_dim": "8", "gating_item_hidden_dim": "8", "gating_qi_hidden_dim": "0",
		"uid_embedding_hash_sizes": "[13]", "model_type": `"bilinear"`,
	} {
		config, err := model.Override([]byte(unsaid), map[string]json.RawMessage{key: json.RawMessage(value)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := model.Complete(config, w.Tensors); !errors.Is(err, model.ErrFile) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s = %s: %v", key, value, err)
		}
	}
	if _, err := model.ReadWeights(goldenDir+"pt/v_two_uids.legacy.pt", "other."); !errors.Is(err, model.ErrFile) {
		t.Errorf("a prefix that is not there: %v", err)
	}
	for _, key := range []string{"temperature", "dot_product_l2_norm", "gating_combination_type"} {
		config, err := model.Override([]byte(unsaid), map[string]json.RawMessage{key: json.RawMessage("null")})
		if err != nil {
			t.Fatal(err)
		}
		config, err = model.Complete(config, w.Tensors)
		if err == nil {
			_, err = model.Import(config, w.Tensors)
		}
		if !errors.Is(err, model.ErrFile) || !strings.Contains(err.Error(), key) {
			t.Errorf("without %s: %v", key, err)
		}
	}
}

// unscored is a similarity that scores nothing.
type unscored struct{ rerank.Similarity }

func (unscored) Encode(rerank.Query) (rerank.Encoded, error) { return nil, rerank.ErrQuery }

// TestScoresThatCannotBeKept: a model that scores nothing gets no scores to be verified by.
func TestScoresThatCannotBeKept(t *testing.T) {
	m := golden(t, "v_two_uids")
	m.Similarity = unscored{m.Similarity}
	if err := m.Embed(); !errors.Is(err, rerank.ErrQuery) || m.Provenance[model.SelfCheckKey] != "" {
		t.Errorf("%v, kept %q", err, m.Provenance[model.SelfCheckKey])
	}
}

func TestVerify(t *testing.T) {
	m := golden(t, "v_two_uids")
	if err := m.Embed(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := model.Write(path, m); err != nil {
		t.Fatal(err)
	}
	v, err := model.Verify(path)
	if err != nil || !v.Digest || !v.Scores || v.MaxError > 1e-5 || v.Version != m.Version {
		t.Errorf("%+v, %v", v, err)
	}
	m.Provenance[model.SelfCheckKey] = strings.Replace(m.Provenance[model.SelfCheckKey], "[[", "[[1", 1)
	if err := model.Write(path, m); err != nil {
		t.Fatal(err)
	}
	if _, err := model.Verify(path); !errors.Is(err, model.ErrFile) || !strings.Contains(err.Error(), "query 0 and item 0") {
		t.Errorf("other scores: %v", err)
	}
	b := read(t, path)
	b[len(b)-1] ^= 1
	write(t, path, b)
	if _, err := model.Verify(path); !errors.Is(err, model.ErrFile) || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("a changed weight: %v", err)
	}
	if v, err := model.Verify(examples + "banking77-mol"); err != nil || v.Digest || v.Scores {
		t.Errorf("a directory: %+v, %v", v, err)
	}
	if _, err := model.Verify(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestDiff(t *testing.T) {
	a := small(t)
	p := a.Parameters()
	w := tensor.Tensor{Shape: []int{3, 3}, Data: slices.Clone(p.Tensors["W"].Data)}
	w.Data[4] += 0.5
	p.Tensors = tensor.Set{"W": w, "probe.linear.W": square(3)}
	p.Provenance = maps.Clone(p.Provenance)
	p.Provenance["by"] = "hand"
	d := model.Diff(a, remake(t, p))
	if d.SameVersion || len(d.Tensors) != 2 || len(d.Config) != 0 || len(d.Provenance) != 1 {
		t.Fatalf("%+v", d)
	}
	if x := d.Tensors[0]; x.Name != "W" || x.Changed != 1 || x.Elements != 9 || x.MaxAbs != 0.5 {
		t.Errorf("%+v", x)
	}
	if x := d.Tensors[1]; x.Name != "probe.linear.W" || x.ShapeA != nil || x.Elements != 0 {
		t.Errorf("%+v", x)
	}
	if same := model.Diff(a, a); !same.SameVersion || len(same.Tensors)+len(same.Config)+len(same.Provenance) != 0 {
		t.Errorf("%+v", same)
	}
}

func FuzzComplete(f *testing.F) {
	w, err := model.ReadWeights(goldenDir+"pt/v_two_uids.legacy.pt", "")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(unsaid))
	f.Add(goldenConfig(f, "v_two_uids"))
	f.Fuzz(func(t *testing.T, config []byte) {
		config, err := model.Complete(config, w.Tensors)
		if err == nil {
			var p model.Parameters
			if p, err = model.Import(config, w.Tensors); err == nil {
				_, err = model.New(p)
			}
		}
		if err != nil && !errors.Is(err, model.ErrFile) {
			t.Errorf("%v is not ErrFile", err)
		}
	})
}
