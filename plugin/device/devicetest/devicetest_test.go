package devicetest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/plugin/device/cpu"
	"github.com/likenessdb/likeness/plugin/device/devicetest"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/rerank/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden files of the kit")

// TestCPU: the device in plain memory, by the oracle's kernels and by the fastest.
func TestCPU(t *testing.T) {
	for _, set := range []*kernel.Set{kernel.Go(), kernel.Best()} {
		t.Run(set.Name(), func(t *testing.T) {
			devicetest.Run(t, cpu.New(cpu.Options{Kernels: set}), devicetest.Options{})
		})
	}
}

// TestGoldenFiles: the kit's golden cases equal the cases in testdata/golden.
func TestGoldenFiles(t *testing.T) {
	for _, name := range []string{"v_base", "v_3x5_odd"} {
		dir := filepath.Join("..", "..", "..", "testdata", "golden", "mol", name)
		m := goldenModel(t, dir)
		in, err := safetensors.ReadFile(filepath.Join(dir, "inputs.safetensors"))
		must(t, err)
		out, err := safetensors.ReadFile(filepath.Join(dir, "outputs.safetensors"))
		must(t, err)
		items, queries := in.Tensors["item_embeddings"], in.Tensors["query_embeddings"]
		base := rerank.Matrix{Rows: items.Shape[0], Cols: items.Shape[1], Data: items.Data}
		rows := rerank.NewMatrix(base.Rows, m.Spec().Features)
		must(t, m.WithKernels(kernel.Go()).EncodeItems(rows, base))
		var file, scores bytes.Buffer
		must(t, model.Encode(&file, m))
		must(t, safetensors.Write(&scores, &safetensors.File{Tensors: tensor.Set{
			"rows": {Shape: []int{rows.Rows, rows.Cols}, Data: rows.Data}, "queries": queries, "scores": out.Tensors["scores"],
		}}))
		same(t, name+".model.safetensors", file.Bytes())
		same(t, name+".scores.safetensors", scores.Bytes())
	}
}

// goldenModel reads a case in RAILS's form.
func goldenModel(t *testing.T, dir string) *model.Model {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	must(t, err)
	var outer struct {
		Parameters mol.Config `json:"hyper_parameters"`
	}
	must(t, json.Unmarshal(bytes.ReplaceAll(raw, []byte(": NaN"), []byte(": null")), &outer)) // Python writes it, JSON has none
	config, err := json.Marshal(outer.Parameters)
	must(t, err)
	weights, err := safetensors.ReadFile(filepath.Join(dir, "weights.safetensors"))
	must(t, err)
	m, err := model.New(model.Parameters{Kind: rerank.KindMoL, Name: filepath.Base(dir), Config: config, Tensors: weights.Tensors})
	must(t, err)
	return m
}

func same(t *testing.T, name string, wants []byte) {
	t.Helper()
	path := filepath.Join("golden", name)
	if *update {
		must(t, os.WriteFile(path, wants, 0o600))
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, wants) {
		t.Errorf("%s is not what testdata/golden gives (%v); run with -update", path, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
