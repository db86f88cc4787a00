package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// TestCommandsOnRoutesWithVersions runs every command that takes a route on a route
// whose model, table and companion are named by its versions alone.
func TestCommandsOnRoutesWithVersions(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	dir := t.TempDir()
	root := repository(t)
	t.Chdir(dir)
	vectors := writeThings(t, server.Address, "things", 60)
	writeThings(t, server.Address, "things_alone", 3)
	if err := npy.Write("queries.npy", vectors); err != nil {
		t.Fatal(err)
	}
	pairs := []byte("query,item\n")
	for i := range vectors.Rows {
		pairs = fmt.Appendf(pairs, "%d,%d\n", i, (i+1)%vectors.Rows)
	}
	if err := os.WriteFile("pairs.csv", pairs, 0o600); err != nil {
		t.Fatal(err)
	}
	config, reachable := filepath.Join(dir, "likeness.yaml"), filepath.Join(dir, "reachable.yaml")
	text := fmt.Sprintf(`
state_dir: state
stores: {main: {kind: qdrant, address: %q}, other: {kind: qdrant, address: "127.0.0.1:1"}}
models: {m: {path: %q}, later: {path: not-there.safetensors}}
routes:
  things:
    store: main
    collection: things
    table_live: true
    active: v1
    versions:
      v1: {model: m, table: v1.table, companion: things_v1}
      v2: {model: m, table: v2.table, companion: things_v2}
      v3: {model: later, table: v3.table}
  elsewhere: {store: other, collection: others, placement: stored, active: v1, versions: {v1: {model: m}}}
`, server.Address, filepath.Join(root, "examples/models/banking77-mol"))
	here, _, _ := strings.Cut(text, "  elsewhere:")
	for file, text := range map[string]string{config: text, reachable: here} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tried := map[string]bool{}
	try := func(t *testing.T, command string, args ...string) {
		t.Helper()
		tried[command] = true
		line := append(strings.Fields(command), args...)
		if r := execute(t, "", line...); r.code != 0 {
			t.Errorf("likeness %s: code %d\n%s", strings.Join(line, " "), r.code, r.err)
		}
	}
	of := []string{"--config", config, "--route", "things"}
	with := func(more ...string) []string { return append(slices.Clone(of), more...) }
	try(t, "index", with("--strategies", "average")...)
	try(t, "index", with("--strategies", "average", "--version", "v2")...)
	try(t, "index", with("--strategies", "average", "--only", "companion", "--companion", "things_tried")...)
	dropCompanion(t, of)
	tried["drop-companion"] = true
	for _, version := range []string{"", "v2"} {
		try(t, "index", with("--verify", "--version", version)...)
		try(t, "calibrate", with("--queries", "queries.npy", "--depths", "60", "--k", "1", "--recall", "0.1", "--share", "0.5", "--dry-run", "--version", version)...)
	}
	try(t, "reconcile", with("--compare")...)
	try(t, "reconcile", of...)
	try(t, "bench search", with("--queries", "queries.npy", "--searches", "2", "--k", "1")...)
	try(t, "eval", with("--queries", "queries.npy", "--pairs", "pairs.csv", "--model", filepath.Join(root, "examples/models/banking77-mol"), "--resamples", "10")...)
	try(t, "fit bilinear", with("--queries", "queries.npy", "--pairs", "pairs.csv", "--out", "bilinear.safetensors", "--rounds", "1", "--steps", "20", "--scale", "20")...)
	try(t, "fit mol", with("--queries", "queries.npy", "--pairs", "pairs.csv", "--out", "mol.safetensors", "--rounds", "1", "--pairs-query", "2", "--pairs-item", "2")...)
	try(t, "config validate", "--config", config)
	try(t, "config validate", "--config", reachable, "--connect")
	served(t, config, func(at string) {
		here := []string{"--address", at, "--route", "things"}
		try(t, "query", append(slices.Clone(here), "--vector-file", "queries.npy", "--row", "0", "--explain")...)
		try(t, "health", here...)
		try(t, "reconcile", here...)
		try(t, "bench serve", append(slices.Clone(here), "--queries", "queries.npy", "--duration", "100ms", "--warm-up", "0s", "--rate", "20", "--timeout", "10s")...)
		try(t, "model list", here...)
		try(t, "model activate", append(slices.Clone(here), "v2")...)
		try(t, "model rollback", here...)
		try(t, "model gc", here...)
		try(t, "config validate", "--config", reachable, "--connect") // while a sidecar has the live table open
		try(t, "model activate", append(slices.Clone(here), "v2")...)
	})
	// Commands open the version that was activated last, so files that only v1 needs may be gone.
	if err := os.Remove("v1.table"); err != nil {
		t.Fatal(err)
	}
	try(t, "config validate", "--config", reachable, "--connect")
	try(t, "index", with("--verify")...)
	try(t, "calibrate", with("--queries", "queries.npy", "--depths", "60", "--k", "1", "--recall", "0.1", "--share", "0.5", "--dry-run")...)
	try(t, "reconcile", with("--compare")...)
	try(t, "reconcile", of...)
	try(t, "bench search", with("--queries", "queries.npy", "--searches", "2", "--k", "1")...)
	elsewhere := []string{
		"bench gpu", "bench rerank", "fit maxsim", "fit rbe", "fit distilled", "fit companion", // their own tests run them; they read a route as fit mol does, or need a device or documents
		"events export",                // reads what a route kept, and opens no route
		"bridge fill", "bridge finish", // take a bridge; their own test runs them, and they open a route as index does
		"refit", "experiment status", // take an experiment; their own tests run them on a route with versions
	}
	visitRouteCommands(t, func(path string) {
		if !tried[path] && !slices.Contains(elsewhere, path) {
			t.Errorf("likeness %s takes a route and was not tried on one with versions", path)
		}
	})
}

// visitRouteCommands calls visit for every command that has the flag --route.
func visitRouteCommands(t *testing.T, visit func(path string)) {
	t.Helper()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() && cmd.Flags().Lookup("route") != nil {
			visit(strings.TrimPrefix(cmd.CommandPath(), "likeness "))
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(newRootCommand(&app{}))
}

// writeThings creates a collection with random vectors of 384 elements.
func writeThings(t *testing.T, address, collection string, rows int) rerank.Matrix {
	t.Helper()
	store, err := qdrant.Open(qdrant.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	schema := adapters.Schema{Collection: collection, Fields: []adapters.VectorField{{Dim: 384, Metric: adapters.Cosine}}}
	if err := store.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	r := adapters.Rows{Vectors: []rerank.Matrix{rerank.NewMatrix(rows, 384)}}
	for i := range r.Vectors[0].Data {
		r.Vectors[0].Data[i] = float32(rng.NormFloat64())
	}
	for i := range rows {
		r.IDs = append(r.IDs, rerank.UintID(uint64(i)))
	}
	if err := store.Write(t.Context(), collection, schema, r); err != nil {
		t.Fatal(err)
	}
	return r.Vectors[0]
}

// served runs a sidecar while do is running.
func served(t *testing.T, config string, do func(address string)) {
	t.Helper()
	servedAt(t, config, func(at serve.Addresses) { do(at.GRPC) })
}

// servedAt runs a sidecar while do runs.
func servedAt(t *testing.T, config string, do func(serve.Addresses)) {
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
	do(readReadyFile(t, ready))
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// TestValidateRefusesWhatServeRefuses: validate and serve print the same error.
func TestValidateRefusesWhatServeRefuses(t *testing.T) {
	dir := t.TempDir()
	text := fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: ""}
stores: {db: {kind: qdrant, address: "127.0.0.1:1"}}
models: {m: {path: %q}}
routes:
  one: {store: db, collection: things, model: m, placement: stored}
  two: {store: db, collection: things, model: m, placement: stored}
proxy: {store: db, listen_grpc: "127.0.0.1:0", `, filepath.Join(repository(t), "examples/models/banking77-mol"))
	for want, rest := range map[string]string{
		"name one of them in proxy.routes": "}\n",
		"which speaks gRPC":                "routes: [one], listen_rest: \"127.0.0.1:0\", rest_url: \"http://127.0.0.1:1\"}\n",
		"not the URL of a REST API":        "routes: [one], listen_rest: \"127.0.0.1:0\", rest_url: \"127.0.0.1:2\"}\n",
	} {
		file := filepath.Join(dir, "likeness.yaml")
		if err := os.WriteFile(file, []byte(text+rest), 0o600); err != nil {
			t.Fatal(err)
		}
		validated, ran := execute(t, "", "config", "validate", "-c", file), execute(t, "", "serve", "-c", file)
		if ran.code != 3 || validated.code != 3 || !strings.Contains(ran.err, want) || !strings.HasSuffix(ran.err, validated.err) {
			t.Errorf("serve: code %d, %s\nvalidate: code %d, %s\nwant %q", ran.code, ran.err, validated.code, validated.err, want)
		}
	}
}

// dropCompanion: only a companion that no route names is dropped, and only with --yes.
func dropCompanion(t *testing.T, of []string) {
	t.Helper()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"things_tried"}, 0, "collection things_tried of store main: 60 rows, fields mean\nnothing was deleted; --yes deletes it\n"},
		{[]string{"things", "--yes"}, 1, `route "things" names collection "things"`},
		{[]string{"things_v2", "--yes"}, 1, `route "things" names collection "things_v2"`},
		{[]string{"things_alone", "--yes"}, 1, "is no companion of the model of route"},
		{[]string{"things_tried", "--yes"}, 0, "fields mean\ndropped\n"},
		{[]string{"things_tried", "--yes"}, 1, "things_tried"},
	} {
		r := execute(t, "", append(append([]string{"drop-companion"}, of...), append([]string{"--companion"}, c.args...)...)...)
		if r.code != c.code || !strings.Contains(r.out+r.err, c.want) {
			t.Errorf("drop-companion %q: code %d, want %d and %q in\n%s%s", c.args, r.code, c.code, c.want, r.out, r.err)
		}
	}
}
