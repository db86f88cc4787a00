package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	qdrantapi "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// TestPointsWithoutTheVector runs every command that reads a collection's vectors on a collection
// in which every third point, from the first, lacks the named vector. Each command leaves those
// points out, and reports their number and the first of them.
func TestPointsWithoutTheVector(t *testing.T) {
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	const rows, dim, missing = 90, 384, 30
	root := repository(t)
	model := filepath.Join(root, "examples/models/banking77-mol")
	dir := t.TempDir()
	t.Chdir(dir)
	vectors := writeGaps(t, server.Address, rows, dim)
	if err := npy.Write("queries.npy", vectors); err != nil {
		t.Fatal(err)
	}
	pairs := []byte("query,item\n")
	for i := range rows {
		pairs = fmt.Appendf(pairs, "%d,%d\n", i, 100+(i+1)%rows)
	}
	if err := os.WriteFile("pairs.csv", pairs, 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "likeness.yaml")
	err := os.WriteFile(config, fmt.Appendf(nil, `
state_dir: state
stores: {main: {kind: qdrant, address: %q}}
models: {m: {path: %q}}
routes:
  things: {store: main, collection: things, vector: image, model: m, table: things.table, table_live: true, companion: things_mol}
  rounded: {store: main, collection: things, vector: image, model: m, table: rounded.table, table_format: int8}
  stored: {store: main, collection: things, vector: image, model: m, placement: stored}
`, server.Address, model), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	said := func(t *testing.T, args ...string) result {
		t.Helper()
		r := execute(t, "", args...)
		if text := r.out + r.err; r.code != 0 || !strings.Contains(text, fmt.Sprint(missing)+" rows") || !strings.Contains(text, "the first is 100") {
			t.Errorf("likeness %s: code %d\n%s", strings.Join(args, " "), r.code, text)
		}
		return r
	}
	ok := func(t *testing.T, args ...string) result {
		t.Helper()
		r := execute(t, "", args...)
		if r.code != 0 {
			t.Errorf("likeness %s: code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
		}
		return r
	}
	learn := []string{"--config", config, "--queries", "queries.npy", "--pairs", "pairs.csv"}
	for _, of := range [][]string{{"--route", "things"}, {"--collection", "things", "--vector", "image"}} {
		of := append(of, learn...)
		// The rows are read in one place for every kind of fit: that of a mixture, which takes longest, is left out.
		said(t, append([]string{"fit", "bilinear", "--out", "w.safetensors", "--rounds", "1", "--steps", "20", "--scale", "20", "--force"}, of...)...)
		said(t, append([]string{"fit", "maxsim", "--out", "maxsim.safetensors", "--force"}, of...)...)
		said(t, append([]string{"eval", "--model", model, "--resamples", "10"}, of...)...)
	}
	said(t, "index", "--config", config, "--route", "things", "--strategies", "average")
	said(t, "index", "--config", config, "--route", "rounded")
	said(t, "calibrate", "--config", config, "--route", "stored", "--from-collection", "20", "--depths", "60", "--k", "1", "--recall", "0.1", "--share", "0.5", "--dry-run")
	if r := ok(t, "reconcile", "--config", config, "--route", "things", "--compare"); !strings.Contains(r.out, "0 missing, 0 changed, 0 surplus") {
		t.Errorf("after index: %s", r.out)
	}
	ok(t, "reconcile", "--config", config, "--route", "things")
	ok(t, "index", "--config", config, "--route", "things", "--verify")
	ok(t, "index", "--config", config, "--route", "rounded", "--verify")
	ok(t, "bench", "search", "--config", config, "--route", "stored", "--queries", "queries.npy", "--searches", "3", "--k", "5")
	served(t, config, func(at string) {
		for _, route := range []string{"things", "rounded", "stored"} {
			for _, strategy := range []string{"average", "scan"} {
				if strategy == "scan" && route == "stored" || strategy == "average" && route != "things" {
					continue
				}
				r := ok(t, "query", "--address", at, "--route", route, "--vector-file", "queries.npy", "--row", "1", "--k", "90", "--strategy", strategy, "--output", "json")
				var answer struct {
					Hits []struct {
						ID    struct{ Uint json.Number } `json:"id"`
						Score any                        `json:"score"`
					} `json:"hits"`
				}
				if err := json.Unmarshal([]byte(r.out), &answer); err != nil || len(answer.Hits) == 0 || len(answer.Hits) > rows-missing {
					t.Errorf("%s by %s: %d hits, %v\n%.300s", route, strategy, len(answer.Hits), err, r.out)
				}
				if strings.Contains(r.out, "NaN") {
					t.Errorf("%s by %s: %s", route, strategy, r.out)
				}
			}
		}
	})
}

// writeGaps creates the collection things with the named vector image and returns the vectors.
// Every third point from 100 on lacks the vector.
func writeGaps(t *testing.T, address string, rows, dim int) rerank.Matrix {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	params := func(size int) *qdrantapi.VectorParams {
		return &qdrantapi.VectorParams{Size: uint64(size), Distance: qdrantapi.Distance_Cosine}
	}
	_, err = qdrantapi.NewCollectionsClient(conn).Create(t.Context(), &qdrantapi.CreateCollection{
		CollectionName: "things", VectorsConfig: qdrantapi.NewVectorsConfigMap(map[string]*qdrantapi.VectorParams{"image": params(dim), "other": params(2)}),
	})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	all := rerank.NewMatrix(rows, dim)
	var points []*qdrantapi.PointStruct
	for i := range rows {
		for j := range all.Row(i) {
			all.Row(i)[j] = float32(rng.NormFloat64())
		}
		named := map[string]*qdrantapi.Vector{"other": qdrantapi.NewVector(1, 2)}
		if i%3 != 0 {
			named["image"] = qdrantapi.NewVector(all.Row(i)...)
		}
		points = append(points, &qdrantapi.PointStruct{Id: qdrantapi.NewIDNum(uint64(100 + i)), Vectors: qdrantapi.NewVectorsMap(named)})
	}
	wait := true
	_, err = qdrantapi.NewPointsClient(conn).Upsert(t.Context(), &qdrantapi.UpsertPoints{CollectionName: "things", Points: points, Wait: &wait})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
