package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
)

func TestReconcileUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "likeness.yaml")
	err := os.WriteFile(file, []byte(`
stores: {main: {kind: qdrant, address: "127.0.0.1:1"}}
models: {m: {path: m}}
routes:
  plain: {store: main, collection: things, model: m, placement: stored}
  forgetful: {store: main, collection: things, model: m, placement: stored, companion: things_mol}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		`"route" not set`:                    {},
		`has no route "other"`:               {"--config", file, "--route", "other"},
		"neither a live table":               {"--config", file, "--route", "plain"},
		"set state_dir, or give --compare":   {"--config", file, "--route", "forgetful"},
		`state_dir, which is not set`:        {"--config", file, "--route", "plain", "--set", "routes.plain.write_budget=1ms"},
		"has nothing that can follow writes": {"--config", file, "--route", "plain", "--set", "state_dir=x", "--set", "routes.plain.write_budget=1ms"},
		"0s is too small, at least 1ns":      {"--config", file, "--route", "plain", "--set", "routes.plain.write_budget=0s"},
		"-1 is too small, at least 0":        {"--config", file, "--route", "plain", "--set", "routes.plain.reconcile.rows_per_second=-1"},
		"reconcile takes no arguments; got":  {"things"},
	} {
		r := execute(t, "", append([]string{"reconcile"}, args...)...)
		if r.code != 2 && r.code != 3 || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("%v: code %d, want 2 or 3 with %q in\n%s", args, r.code, want, r.err)
		}
	}
}

// TestReconcile finds and repairs the differences that writes made since `likeness index`.
func TestReconcile(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	store, err := qdrant.Open(qdrant.Options{Address: server.Address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	schema := adapters.Schema{Collection: "things", Fields: []adapters.VectorField{{Dim: 384, Metric: adapters.Cosine}}}
	if err := store.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	write := func(first, rows uint64) {
		t.Helper()
		r := adapters.Rows{Vectors: []rerank.Matrix{rerank.NewMatrix(int(rows), 384)}}
		for i := range r.Vectors[0].Data {
			r.Vectors[0].Data[i] = float32(rng.NormFloat64())
		}
		for i := range rows {
			r.IDs = append(r.IDs, rerank.UintID(first+i))
		}
		if err := store.Write(t.Context(), "things", schema, r); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 50)
	dir := t.TempDir()
	model := filepath.Join(repository(t), "examples/models/banking77-mol")
	t.Chdir(dir) // index keeps its checkpoint in the working directory
	config := filepath.Join(dir, "likeness.yaml")
	err = os.WriteFile(config, fmt.Appendf(nil, `
state_dir: state
stores: {main: {kind: qdrant, address: %q}}
models: {m: {path: %q}}
routes:
  things: {store: main, collection: things, model: m, table: things.table, table_live: true, companion: things_mol}
`, server.Address, model), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if r := execute(t, "", "index", "--config", config, "--route", "things", "--strategies", "average"); r.code != 0 {
		t.Fatal(r.err)
	}
	write(45, 10) // 5 changed rows and 5 new ones
	if err := store.Delete(t.Context(), "things", []rerank.ID{rerank.UintID(7)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want reconciled
	}{
		{[]string{"--compare"}, outcome(false, 5, 5, 1)},
		{nil, outcome(true, 5, 5, 1)},
		{nil, outcome(true, 0, 0, 0)},
		{[]string{"--compare"}, outcome(false, 0, 0, 0)},
	} {
		r := execute(t, "", append([]string{"reconcile", "--config", config, "--route", "things", "--output", "json"}, c.args...)...)
		var got reconciled
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 0 || got != c.want {
			t.Errorf("%v: code %d, %+v, want %+v; %s", c.args, r.code, got, c.want, r.err)
		}
	}
	r := execute(t, "", "reconcile", "--config", config, "--route", "things", "--compare")
	if r.out != "54 rows compared: 0 missing, 0 changed, 0 surplus\n" {
		t.Errorf("%q", r.out)
	}
	write(60, 3) // unseen by the sidecar, which compares all rows once it runs
	reconcileServed(t, config, func() { write(70, 2) })
}

// reconcileServed asks a running sidecar, which holds the table and the journal.
func reconcileServed(t *testing.T, config string, behind func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	log, ended, ready := &announcements{ready: make(chan struct{})}, make(chan error, 1), filepath.Join(t.TempDir(), "ready.json")
	go func() {
		ended <- run(ctx, []string{"serve", "-c", config, "--listen", "127.0.0.1:0", "--admin", "", "--ready-file", ready}, strings.NewReader(""), io.Discard, log)
	}()
	select {
	case <-log.ready:
	case err := <-ended:
		t.Fatal(err)
	}
	at := readReadyFile(t, ready).GRPC
	ask := func(want int64) {
		t.Helper()
		r := execute(t, "", "reconcile", "--address", at, "--route", "things", "--output", "json")
		var got reconciled
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 0 || !got.Repaired || got.Rows != want {
			t.Errorf("code %d, %+v, want %d rows; %s", r.code, got, want, r.err)
		}
	}
	ask(57)
	behind()
	r := execute(t, "", "reconcile", "--address", at, "--route", "things")
	if r.out != "59 rows compared: 2 missing, 0 changed, 0 surplus; repaired\n" {
		t.Errorf("%q, %s", r.out, r.err)
	}
	ask(59)
	// The first step of an upgrade: validate checks the files of a sidecar that runs.
	if r := execute(t, "", "config", "validate", "--config", config, "--connect"); r.code != 0 {
		t.Errorf("validate beside the sidecar: code %d, %s", r.code, r.err)
	}
	for want, args := range map[string][]string{
		"--address":       {"--config", config, "--route", "things"},
		"ROUTE_NOT_FOUND": {"--address", at, "--route", "none"},
		"leave out all but one of --address, --compare": {"--address", at, "--route", "things", "--compare"},
	} {
		if r := execute(t, "", append([]string{"reconcile"}, args...)...); r.code == 0 || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("%v: code %d, want %q in %s", args, r.code, want, r.err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// outcome returns the report for the 54 rows of the collection.
func outcome(repaired bool, missing, changed, surplus int64) reconciled {
	r := reconciled{Route: "things", Repaired: repaired}
	r.Rows, r.Missing, r.Changed, r.Surplus = 54, missing, changed, surplus
	return r
}

// repository returns the root of the repository.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}
