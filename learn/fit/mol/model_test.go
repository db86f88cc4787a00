package mol

import (
	"bytes"
	"encoding/json"
	"math"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"

	"github.com/likenessdb/likeness/learn/fit"
)

// A fitted model, written to a file and opened again, scores as an independent
// program does that was written from the description of the format.
func TestMoLModelElsewhere(t *testing.T) {
	d := smallData(t)
	for i := range d.Items.Data { // what is not normalised is scaled, and the weights take it over
		d.Items.Data[i] *= 30
	}
	for name, change := range map[string]func(o *Options){
		"query gates": func(*Options) {},
		"raw vectors": func(o *Options) { o.Normalise = false },
		"full gates":  func(o *Options) { o.Gates, o.L2Norm, o.UserTables = GatesFull, true, []int{5} },
		"raw, full gates, gated side": func(o *Options) {
			o.Gates, o.Normalise, o.QueryHidden, o.QueryActivation, o.GatePairHidden = GatesFull, false, 9, mol.GeGLU, 0
		},
		"swiglu": func(o *Options) { o.QueryHidden = 20 },
	} {
		t.Run(name, func(t *testing.T) {
			o := smallMoL()
			o.Rounds, o.Cold = 2, fit.ColdIgnore
			change(&o)
			fitted, err := Fit(t.Context(), d, o)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "m.safetensors")
			compareElsewhere(t, path, written(t, path, fitted), d)
		})
	}
}

// written is the model, from its file.
func written(t *testing.T, path string, fitted *Fitted) *model.Model {
	t.Helper()
	config, err := json.Marshal(fitted.Config)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Parameters{Kind: rerank.KindMoL, Name: "m", Config: config, Tensors: fitted.Tensors})
	if err != nil {
		t.Fatal(err)
	}
	if err := model.Write(path, m); err != nil {
		t.Fatal(err)
	}
	if m, err = model.Open(path); err != nil {
		t.Fatal(err)
	}
	return m
}

func compareElsewhere(t *testing.T, path string, m *model.Model, d fit.Data) {
	t.Helper()
	const queries, items = 6, 9
	var in struct {
		Queries [][]float32 `json:"queries"`
		Users   []int64     `json:"users"`
		Items   [][]float32 `json:"items"`
	}
	for x := range items {
		in.Items = append(in.Items, d.Items.Row(x))
	}
	features := rerank.NewMatrix(items, m.Similarity.Spec().Features)
	if err := m.Similarity.EncodeItems(features, d.Items.Slice(0, items)); err != nil {
		t.Fatal(err)
	}
	scores := rerank.NewMatrix(queries, items)
	for q := range queries {
		in.Queries, in.Users = append(in.Queries, d.Queries.Row(q)), append(in.Users, d.UserIDs[q])
		e, err := m.Similarity.Encode(rerank.Query{Vector: d.Queries.Row(q), UserID: d.UserIDs[q], HasUserID: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Score(scores.Row(q), rerank.Items{Features: features}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/mol_scores.py", path)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	var want [][]float64
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	for q := range want {
		for x, v := range want[q] {
			if got := float64(scores.Row(q)[x]); !(math.Abs(got-v) <= 2e-5*max(1, math.Abs(v))) {
				t.Errorf("query %d, item %d: %.6f, elsewhere %.6f", q, x, got, v)
			}
		}
	}
}
