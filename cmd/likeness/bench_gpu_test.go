package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/gpu/parity"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/table"
)

// TestBenchGPU measures a device that runs in a process of its own, started from this test binary.
func TestBenchGPU(t *testing.T) {
	t.Setenv(asCommand, "1")
	r := execute(t, "", "bench", "gpu", "--plugin", os.Args[0], "--args", "plugin,device", "--env", asCommand+",GORACE",
		"--rows", "200", "--time", "1ms", "--case", "rescore-8x4x64,maxsim-256", "--output", "json")
	var report gpuReport
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil || len(report.Cases) != 2 {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	for _, c := range report.Cases {
		if c.Plugin.Batch.Runs < 1 || c.CPU.Batch.Runs < 1 || c.Rows != 200 {
			t.Errorf("%+v", c)
		}
	}
	if r := execute(t, "", "bench", "gpu", "--plugin", os.Args[0], "--case", "none"); r.code != 2 {
		t.Errorf("a case that is not there: exit code %d, %s", r.code, r.err)
	}
}

// TestBenchGPURoute measures the device, the model and the table of a route.
func TestBenchGPURoute(t *testing.T) {
	t.Setenv(asCommand, "1")
	const rows = 300
	dir := t.TempDir()
	m, err := parity.MoL(parity.Shape{PairsQuery: 2, PairsItem: 2, Dim: 8, Hidden: 8}, 1)
	must(t, err)
	must(t, model.Write(filepath.Join(dir, "mol.safetensors"), m))
	features, vectors, ids := parity.Rows(m, rows, 2), rerank.NewMatrix(rows, m.Spec().QueryDim), make([]rerank.ID, rows)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	for i := range vectors.Data {
		vectors.Data[i] = float32(i%7) - 3
	}
	must(t, npy.Write(filepath.Join(dir, "queries.npy"), vectors))
	w, err := table.NewWriter(filepath.Join(dir, "items.table"), table.Meta{Model: m.Name, ModelVersion: m.Version, Collection: "items", Kind: "mol", Features: features.Cols})
	must(t, err)
	must(t, w.Append(ids, features))
	must(t, w.Close())
	text := fmt.Sprintf(`
stores: {far: {kind: qdrant, address: "127.0.0.1:1"}}
models: {mol: {path: mol.safetensors}}
plugins:
  gpu: {path: %q, args: [plugin, device], env: [%s, GORACE], start_timeout: 1m}
  elsewhere: {address: %q, start_timeout: 1m}
routes:
  items: {store: far, collection: items, model: mol, table: items.table, strategy: scan, device: gpu}
  there: {store: far, collection: items, model: mol, table: items.table, strategy: scan, device: elsewhere}
  plain: {store: far, collection: items, model: mol, table: items.table, strategy: scan}
`, os.Args[0], asCommand, serveDevice(t, filepath.Join(dir, "own", "device.sock")))
	file, queries := filepath.Join(dir, "likeness.yaml"), filepath.Join(dir, "queries.npy")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	bench := func(flags ...string) result {
		return execute(t, "", append([]string{"bench", "gpu", "--config", file, "--queries", queries, "--time", "1ms", "--output", "json"}, flags...)...)
	}
	for _, flags := range [][]string{
		{"--route", "items", "--batch", "5"}, {"--route", "items", "--candidates", "100", "--k", "7"},
		{"--route", "items", "--rows", "50", "--cpu=false"}, {"--route", "there", "--batch", "2"},
	} {
		r := bench(flags...)
		var report gpuReport
		if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil || len(report.Cases) != 1 {
			t.Fatalf("%v: exit code %d, %v: %s%s", flags, r.code, err, r.out, r.err)
		}
		if c := report.Cases[0]; c.Name != flags[1] || c.Plugin.Batch.Runs < 1 || c.Rows > rows {
			t.Errorf("%v: %+v", flags, c)
		}
	}
	for wants, flags := range map[string][]string{
		"has no device": {"--route", "plain"}, "no route \"none\"": {"--route", "none"}, "start at 1": {"--route", "items", "--k", "0"},
		"leave out all but one of": {"--route", "items", "--plugin", "x"},
	} {
		if r := bench(flags...); r.code != 2 || !strings.Contains(r.err, wants) {
			t.Errorf("%v: exit code %d, %s", flags, r.code, r.err)
		}
	}
}

// serveDevice serves a device at a socket until the test ends, and returns its address.
func serveDevice(t *testing.T, socket string) string {
	t.Helper()
	address, ended := "unix://"+socket, make(chan error, 1)
	ctx, end := context.WithCancel(t.Context())
	go func() {
		ended <- device.Serve(ctx, cpu.New(cpu.Options{}), device.Limits{}, plugin.Listen(address, plugin.TLS{}))
	}()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return address
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
