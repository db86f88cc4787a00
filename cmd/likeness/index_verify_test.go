package main

import (
	"bytes"
	"encoding/json"
	"errors"

	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/follow"
)

// exit runs index, decodes its JSON output, and returns the exit code and stderr.
func (w *partWorld) exit(t *testing.T, into any, args ...string) (code int, complaint string) {
	t.Helper()
	var out, complaints bytes.Buffer
	c := w.command(t.Context(), t, &out, append(args, "--output", "json")...)
	c.Stderr = &complaints
	err := c.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(out.Bytes(), into); err != nil {
			t.Fatalf("%v: %s%s", err, &out, &complaints)
		}
	}
	return c.ProcessState.ExitCode(), complaints.String()
}

// TestIndexVerifies: a build reports its checks. --verify ends with 1 if rows of the collection
// have changed, and with 0 after another build.
func TestIndexVerifies(t *testing.T) {
	w := newPartWorld(t, servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}).Address, func(i int) rerank.ID { return rerank.UintID(uint64(i)) })
	type part struct{ Verified index.Verified }
	var made struct {
		Table, Companion part
		Drift            *follow.Drift
	}
	code, text := w.exit(t, &made, "--verify-all")
	if code != 0 || made.Table.Verified != (index.Verified{Rows: partRows, Counted: true}) ||
		made.Companion.Verified != (index.Verified{Rows: partRows, Counted: true, Compared: 1000}) ||
		made.Drift == nil || *made.Drift != (follow.Drift{Rows: partRows}) {
		t.Fatalf("exit %d, %+v, %v: %s", code, made, made.Drift, text)
	}
	var drift follow.Drift
	if code, text := w.exit(t, &drift, "--verify"); code != 0 || drift != (follow.Drift{Rows: partRows}) {
		t.Errorf("exit %d, %+v: %s", code, drift, text)
	}
	w.change(t)
	want := follow.Drift{Rows: partRows, Missing: 1, Changed: 2, Surplus: 1}
	if code, text := w.exit(t, &drift, "--verify"); code != 1 || drift != want || !strings.Contains(text, "--force") {
		t.Errorf("exit %d, %+v, want 1, %+v: %s", code, drift, want, text)
	}
	if code, text := w.exit(t, nil, "--verify-all", "--partition", "1/2"); code != 2 {
		t.Errorf("--verify-all of a part: exit %d: %s", code, text)
	}
	w.index(t, "--force")
	if code, text := w.exit(t, &drift, "--verify"); code != 0 || drift != (follow.Drift{Rows: partRows}) {
		t.Errorf("built again: exit %d, %+v: %s", code, drift, text)
	}
}

// change adds a row, removes a row, and changes the vector of one row and the payload of another.
func (w *partWorld) change(t *testing.T) {
	t.Helper()
	old, err := w.store.Fetch(t.Context(), adapters.FetchRequest{Collection: "items", IDs: []rerank.ID{rerank.UintID(5), rerank.UintID(6)}, Vectors: []string{""}})
	if err != nil {
		t.Fatal(err)
	}
	m := rerank.NewMatrix(3, partDim)
	copy(m.Row(0), old.Vectors[0].Row(0))
	m.Data[partDim], m.Data[2*partDim] = 1, 1
	rows := adapters.Rows{
		IDs: []rerank.ID{rerank.UintID(5), rerank.UintID(6), rerank.UintID(partRows)}, Vectors: []rerank.Matrix{m},
		Payloads: []json.RawMessage{json.RawMessage(`{"n":"other"}`), json.RawMessage(`{"n":6}`), json.RawMessage(`{}`)},
	}
	schema := adapters.Schema{Collection: "items", Fields: []adapters.VectorField{{Dim: partDim, Metric: adapters.InnerProduct}}}
	if err := w.store.Write(t.Context(), "items", schema, rows); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Delete(t.Context(), "items", []rerank.ID{rerank.UintID(9)}); err != nil {
		t.Fatal(err)
	}
}

// TestIndexVerifiesFiles: tables and companions of the embedded store are read back as well.
func TestIndexVerifiesFiles(t *testing.T) {
	dir := t.TempDir()
	items := rerank.NewMatrix(1200, 384)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range items.Data {
		items.Data[i] = float32(rng.NormFloat64())
	}
	if err := npy.Write(filepath.Join(dir, "items.npy"), items); err != nil {
		t.Fatal(err)
	}
	r := execute(t, "", "index", "--model", "../../examples/models/banking77-mol", "--items", filepath.Join(dir, "items.npy"), "--collection", "items",
		"--table", filepath.Join(dir, "items.table"), "--companion", "items_mol", "--files", filepath.Join(dir, "companion"))
	for _, want := range []string{"verified: checksums, 1200 rows, none of the collection is missing", "verified: 1000 rows read back, 1200 rows, none of the collection is missing"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%s%s: want %q", r.out, r.err, want)
		}
	}
	r = execute(t, "", "index", "--model", "../../examples/models/banking77-mol", "--items", filepath.Join(dir, "items.npy"), "--collection", "items",
		"--table", filepath.Join(dir, "other.table"), "--verify-all")
	if r.code != 2 {
		t.Errorf("--verify-all without a configuration: %+v", r)
	}
}
