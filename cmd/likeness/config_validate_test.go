package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	milvus "github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// TestValidateWarnsOfExperiments: an experiment that cannot tell people apart is valid, with a warning.
func TestValidateWarnsOfExperiments(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "likeness.yaml")
	if err := npy.Write(filepath.Join(dir, "items.npy"), rerank.NewMatrix(3, 2)); err != nil {
		t.Fatal(err)
	}
	plain, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "plain", Config: []byte(`{"dim":2,"normalise":false}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := model.Write(filepath.Join(dir, name+".safetensors"), plain); err != nil {
			t.Fatal(err)
		}
	}
	const warning = "warning: route things: events.keep lacks user"
	for keep, warns := range map[string]bool{"{share: 1}": true, "{share: 1, keep: [user]}": false} {
		text := strings.Replace(refitConfig, "{share: 1}", keep, 1)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := execute(t, "", "config", "validate", "--config", config); r.code != 0 || strings.Contains(r.out, warning) != warns {
			t.Errorf("%s: %d, %s%s", keep, r.code, r.out, r.err)
		}
	}
}

// TestValidateTellsRoutesThatPassEverything: config validate --connect names the proxied routes
// that can answer no search of the database's clients, and those whose searches cannot be
// rewritten.
func TestValidateTellsRoutesThatPassEverything(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	conn, err := grpc.NewClient(db.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, params := range map[string]*qdrant.VectorParams{
		"near": {Size: 2, Distance: qdrant.Distance_Euclid}, "like": {Size: 2, Distance: qdrant.Distance_Dot},
		"small": {Size: 2, Distance: qdrant.Distance_Dot, Datatype: qdrant.Datatype_Uint8.Enum()},
	} {
		if _, err := qdrant.NewCollectionsClient(conn).Create(t.Context(), &qdrant.CreateCollection{CollectionName: name,
			VectorsConfig: qdrant.NewVectorsConfigMap(map[string]*qdrant.VectorParams{"img": params})}); err != nil {
			t.Fatal(err)
		}
	}
	dot := &qdrant.VectorParams{Size: 2, Distance: qdrant.Distance_Dot}
	_, err = qdrant.NewCollectionsClient(conn).Create(t.Context(), &qdrant.CreateCollection{CollectionName: "two",
		VectorsConfig: qdrant.NewVectorsConfigMap(map[string]*qdrant.VectorParams{"img": dot, "txt": dot})})
	if err != nil {
		t.Fatal(err)
	}
	long := &qdrant.PointStruct{Id: qdrant.NewIDNum(7), Vectors: qdrant.NewVectorsMap(map[string]*qdrant.Vector{"img": qdrant.NewVectorDense([]float32{3, 4})})}
	_, err = qdrant.NewPointsClient(conn).Upsert(t.Context(), &qdrant.UpsertPoints{CollectionName: "near", Wait: qdrant.PtrOf(true), Points: []*qdrant.PointStruct{long}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "plain", Config: []byte(`{"dim":2,"normalise":false}`)})
	if err == nil {
		err = model.Write(filepath.Join(dir, "plain.safetensors"), m)
	}
	text := fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q}}
models: {plain: {path: plain.safetensors}}
routes:
  near: {store: main, collection: near, model: plain, unit_vectors: true}
  like: {store: main, collection: like, model: plain, exact_search: true}
  small: {store: main, collection: small, model: plain, placement: stored, exact_search: true}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, db.Address)
	file := filepath.Join(dir, "likeness.yaml")
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := execute(t, "", "config", "validate", "-c", file, "--connect", "--output", "json")
	var v validation
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if want := []serve.Unanswered{{Route: "near", Reason: "metric"}}; !reflect.DeepEqual(v.Unanswered, want) {
		t.Errorf("routes that pass everything: %v, want %v", v.Unanswered, want)
	}
	if n := v.NotRewritten; len(n) != 1 || n[0].Route != "near" || n[0].Placement != route.PlacementStored || !strings.Contains(n[0].Why, "compared by l2") {
		t.Errorf("routes that are not rewritten: %+v, want near, for its distance", n)
	}
	if r := execute(t, "", "config", "validate", "-c", file, "--connect"); !strings.Contains(r.out, "route near: the proxy leaves every search of it to the database: reason=metric") ||
		!strings.Contains(r.out, "route near: placement stored, since its searches cannot be rewritten: field \"img\"") || strings.Contains(r.out, "route like") {
		t.Errorf("validate says %q", r.out)
	}
	if n := v.WrongNorms; len(n) != 1 || n[0] != (routeWrongNorm{"near", "row 7 has norm 5"}) {
		t.Errorf("routes with vectors of other norms: %+v", n)
	}
	if n := v.NeverExact; len(n) != 1 || n[0].Route != "small" || !strings.Contains(n[0].Why, "uint8") {
		t.Errorf("routes that are never exact: %+v, want small, for its datatype", n)
	}
	if r := execute(t, "", "config", "validate", "-c", file); strings.Contains(r.out, "route near") {
		t.Errorf("without --connect validate says %q", r.out)
	}
	for _, c := range []struct{ old, new, says string }{
		{"collection: like,", "collection: two,", `collection "two" has several vector fields; name one of ["img" "txt"]`},
		{db.Address, "127.0.0.1:1", "nothing answers there (dial tcp 127.0.0.1:1: connect: connection refused); start the server"},
		{"collection: like,", "collection: lkie,", `of the 4 collections of store "main", the names nearest to "lkie" are ["like" "`},
		{"collection: like,", "collection: like, vector: imgs,", `no vector field "imgs"; it has ["img"]`},
	} {
		if err := os.WriteFile(file, []byte(strings.Replace(text, c.old, c.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := execute(t, "", "config", "validate", "-c", file, "--connect"); r.code == 0 || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: %d, %q, want %q", c.new, r.code, r.err, c.says)
		}
	}
}

// TestValidateNamesRoutesThatAreNeverExact: Milvus indexes that group vectors have no parameter for
// an exhaustive search. Only the store knows the index.
func TestValidateNamesRoutesThatAreNeverExact(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	c, err := milvus.NewClient(t.Context(), milvus.Config{Address: db.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	flat, err := entity.NewIndexFlat(entity.IP)
	if err != nil {
		t.Fatal(err)
	}
	grouped, err := entity.NewIndexIvfFlat(entity.IP, 8)
	if err != nil {
		t.Fatal(err)
	}
	for name, index := range map[string]entity.Index{"flat": flat, "grouped": grouped} {
		schema := entity.NewSchema().WithName(name).
			WithField(entity.NewField().WithName("id").WithDataType(entity.FieldTypeInt64).WithIsPrimaryKey(true)).
			WithField(entity.NewField().WithName("vec").WithDataType(entity.FieldTypeFloatVector).WithDim(2))
		if err := errors.Join(c.CreateCollection(t.Context(), schema, 1), c.CreateIndex(t.Context(), name, "vec", index, false)); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	m, err := model.New(model.Parameters{Kind: rerank.KindDot, Name: "plain", Config: []byte(`{"dim":2,"normalise":false}`)})
	if err == nil {
		err = model.Write(filepath.Join(dir, "plain.safetensors"), m)
	}
	file := filepath.Join(dir, "likeness.yaml")
	if err == nil {
		err = os.WriteFile(file, fmt.Appendf(nil, `
stores: {main: {kind: milvus, address: %q}}
models: {plain: {path: plain.safetensors}}
routes:
  flat: {store: main, collection: flat, model: plain, placement: stored, exact_search: true}
  grouped: {store: main, collection: grouped, model: plain, placement: stored, exact_search: true}
`, db.Address), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := execute(t, "", "config", "validate", "-c", file, "--connect", "--output", "json")
	var v validation
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := v.NeverExact; len(n) != 1 || n[0].Route != "grouped" || !strings.Contains(n[0].Why, "index FLAT") {
		t.Errorf("routes that are never exact: %+v, want grouped, for its index", n)
	}
}
