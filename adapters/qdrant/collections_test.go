package qdrant_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
)

// newest starts the newest server and connects the adapter and a raw client.
func newest(t testing.TB) (*qdrant.Store, *client.GrpcClient) {
	t.Helper()
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	conn, err := grpc.NewClient(server.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, qdrant.Options{Address: server.Address})
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, client.NewGrpcClientFromConn(conn)
}

func create(t testing.TB, c *client.GrpcClient, r *client.CreateCollection) {
	t.Helper()
	if _, err := c.Collections().Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func matrix(rng *rand.Rand, rows, cols int) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

func ids(n int) []rerank.ID {
	out := make([]rerank.ID, n)
	for i := range out {
		out[i] = rerank.UintID(uint64(i + 1))
	}
	return out
}

func probes(n, dim, depth int) []rerank.Probe {
	m := matrix(rand.New(rand.NewPCG(6, 6)), n, dim)
	out := make([]rerank.Probe, n)
	for i := range out {
		out[i] = rerank.Probe{Vector: m.Row(i), Depth: depth}
	}
	return out
}

func schema(collection string, fields ...adapters.VectorField) adapters.Schema {
	return adapters.Schema{Collection: collection, Fields: fields}
}

func write(t testing.TB, s *qdrant.Store, sc adapters.Schema, rows adapters.Rows) {
	t.Helper()
	if err := s.Write(t.Context(), sc.Collection, sc, rows); err != nil {
		t.Fatal(err)
	}
}

// TestStoredPrecision: an exact search ignores quantized copies, in memory and on disk, so its list is
// exact. It is not exact if the vectors themselves are stored in less than float32. Lists of a
// small collection, and lists of all rows of a quantized one, are exact without being asked for.
func TestStoredPrecision(t *testing.T) {
	s, c := newest(t)
	scalar := client.NewQuantizationScalar(&client.ScalarQuantization{Type: client.QuantizationType_Int8})
	inMemory := client.NewQuantizationBinary(&client.BinaryQuantization{AlwaysRam: proto.Bool(true)})
	onDisk := client.NewQuantizationProduct(&client.ProductQuantization{Compression: client.CompressionRatio_x16, AlwaysRam: proto.Bool(false)})
	for name, p := range map[string]struct {
		params    *client.VectorParams
		exact     bool
		datatype  adapters.Datatype
		quantized string
	}{
		"in memory": {&client.VectorParams{Size: 16, Distance: client.Distance_Dot, QuantizationConfig: inMemory, OnDisk: proto.Bool(true)}, true, adapters.Float32, "binary"},
		"on disk":   {&client.VectorParams{Size: 16, Distance: client.Distance_Dot, QuantizationConfig: onDisk, OnDisk: proto.Bool(true)}, true, adapters.Float32, "product"},
		"plain":     {&client.VectorParams{Size: 16, Distance: client.Distance_Dot}, true, adapters.Float32, ""},
		"quantized": {&client.VectorParams{Size: 16, Distance: client.Distance_Dot, QuantizationConfig: scalar}, true, adapters.Float32, "scalar"},
		"float16":   {&client.VectorParams{Size: 16, Distance: client.Distance_Dot, Datatype: client.Datatype_Float16.Enum()}, false, adapters.Float16, ""},
		"uint8":     {&client.VectorParams{Size: 16, Distance: client.Distance_Dot, Datatype: client.Datatype_Uint8.Enum()}, false, adapters.UInt8, ""},
	} {
		create(t, c, &client.CreateCollection{CollectionName: name, VectorsConfig: client.NewVectorsConfig(p.params)})
		m := matrix(rand.New(rand.NewPCG(1, 2)), 500, 16)
		write(t, s, schema(name, adapters.VectorField{Dim: 16}), adapters.Rows{IDs: ids(500), Vectors: []rerank.Matrix{m}})
		for _, asked := range []struct {
			exact bool
			depth int
			want  bool
		}{
			{true, 20, p.exact},
			{false, 20, p.exact && p.quantized == ""}, // a small collection, whose index is not used
			{false, 500, p.exact},                     // all rows
			{false, 501, p.exact},
		} {
			r := adapters.SearchRequest{Collection: name, Exact: asked.exact, Probes: probes(3, 16, asked.depth)}
			lists, err := s.Search(t.Context(), r)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for i, l := range lists {
				if l.Exact != asked.want || l.Exhausted != (asked.want && asked.depth == 501) {
					t.Errorf("%s, %+v: exact %v, exhausted %v", name, asked, l.Exact, l.Exhausted)
				}
				if l.Exact && l.IDs[0] != best(m, r.Probes[i].Vector) {
					t.Errorf("%s, %+v: probe %d finds %v first, brute force %v", name, asked, i, l.IDs[0], best(m, r.Probes[i].Vector))
				}
			}
		}
		d, err := s.Describe(t.Context(), name)
		if err != nil || d.Fields[0].FullPrecision != p.exact {
			t.Errorf("%s: described as %+v, error %v", name, d.Fields, err)
		}
		if f := d.Fields[0]; f.Datatype != p.datatype || f.Quantized != p.quantized || f.Rescores != (p.quantized != "") {
			t.Errorf("%s: datatype %q, quantized %q, rescores %t", name, f.Datatype, f.Quantized, f.Rescores)
		}
	}
}

// TestRescore: scores of a search over quantized vectors are approximate, and exact if the search asks for
// rescoring.
func TestRescore(t *testing.T) {
	s, c := newest(t)
	scalar := client.NewQuantizationScalar(&client.ScalarQuantization{Type: client.QuantizationType_Int8, AlwaysRam: proto.Bool(true)})
	create(t, c, &client.CreateCollection{
		CollectionName: "c", QuantizationConfig: scalar, VectorsConfig: client.NewVectorsConfig(&client.VectorParams{Size: 16, Distance: client.Distance_Dot}),
		OptimizersConfig: &client.OptimizersConfigDiff{IndexingThreshold: proto.Uint64(1), DefaultSegmentNumber: proto.Uint64(1)},
	})
	m := matrix(rand.New(rand.NewPCG(1, 2)), 3000, 16)
	write(t, s, schema("c", adapters.VectorField{Dim: 16}), adapters.Rows{IDs: ids(3000), Vectors: []rerank.Matrix{m}})
	green(t, c, "c", 3000)
	if d, err := s.Describe(t.Context(), "c"); err != nil || d.Indexing != "" {
		t.Errorf("green: indexing %q, error %v", d.Indexing, err)
	}
	r := adapters.SearchRequest{Collection: "c", Probes: probes(1, 16, 20)}
	off := func() (most float64) {
		lists, err := s.Search(t.Context(), r)
		must(t, err)
		for i, id := range lists[0].IDs {
			n, _ := id.Uint64()
			truth := 0.0
			for j, x := range m.Row(int(n) - 1) {
				truth += float64(x) * float64(r.Probes[0].Vector[j])
			}
			most = max(most, math.Abs(float64(lists[0].Scores[i])-truth)/float64(lists[0].Epsilon))
		}
		return most
	}
	if most := off(); most < 2 {
		t.Errorf("quantized scores are off by %v times the rounding error: the collection is not quantized", most)
	}
	if r.Rescore = true; off() > 1 {
		t.Errorf("scores asked to be of the vectors are off by %v times the rounding error", off())
	}
}

// green waits until Qdrant has indexed every row of a collection.
func green(t *testing.T, c *client.GrpcClient, collection string, rows int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		info, err := c.Collections().Get(ctx, &client.GetCollectionInfoRequest{CollectionName: collection})
		must(t, err)
		if r := info.GetResult(); r.GetStatus() == client.CollectionStatus_Green && r.GetIndexedVectorsCount() >= uint64(rows) {
			return
		}
	}
}

func best(m rerank.Matrix, p []float32) rerank.ID {
	at, most := 0, math.Inf(-1)
	for r := range m.Rows {
		var s float64
		for i, x := range m.Row(r) {
			s += float64(x) * float64(p[i])
		}
		if s > most {
			at, most = r, s
		}
	}
	return rerank.UintID(uint64(at + 1))
}

// TestKindsOfVector searches an unnamed vector beside a sparse one, several named vectors and multi-vectors,
// and is refused a field with the Manhattan distance.
func TestKindsOfVector(t *testing.T) {
	s, c := newest(t)
	create(t, c, &client.CreateCollection{
		CollectionName:      "unnamed",
		VectorsConfig:       client.NewVectorsConfig(&client.VectorParams{Size: 4, Distance: client.Distance_Dot}),
		SparseVectorsConfig: client.NewSparseVectorsConfig(map[string]*client.SparseVectorParams{"words": {}}),
	})
	write(t, s, schema("unnamed", adapters.VectorField{Dim: 4}), adapters.Rows{IDs: ids(1), Vectors: []rerank.Matrix{{Rows: 1, Cols: 4, Data: []float32{1, 2, 3, 4}}}})
	lists, err := s.Search(t.Context(), adapters.SearchRequest{Collection: "unnamed", WithVectors: true, Probes: probes(1, 4, 5)})
	if err != nil || lists[0].Vectors.Row(0)[3] != 4 {
		t.Errorf("unnamed: %+v, error %v", lists, err)
	}
	create(t, c, &client.CreateCollection{CollectionName: "mixed", VectorsConfig: client.NewVectorsConfigMap(map[string]*client.VectorParams{
		"dot":       {Size: 4, Distance: client.Distance_Dot},
		"manhattan": {Size: 4, Distance: client.Distance_Manhattan},
		"multi":     {Size: 4, Distance: client.Distance_Dot, MultivectorConfig: &client.MultiVectorConfig{Comparator: client.MultiVectorComparator_MaxSim}},
	})})
	d, err := s.Describe(t.Context(), "mixed")
	if err != nil || len(d.Fields) != 2 || len(d.MaxSim) != 1 {
		t.Errorf("described as %+v, error %v; want dot and manhattan, and multi", d, err)
	}
	if _, err := s.Search(t.Context(), adapters.SearchRequest{Collection: "mixed", Vector: "multi", WithVectors: true, Probes: probes(1, 4, 5)}); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("vectors of a multi-vector: %v", err)
	}
	for field, want := range map[string]error{"dot": nil, "manhattan": adapters.ErrMetric, "multi": nil, "": adapters.ErrField} {
		_, err := s.Search(t.Context(), adapters.SearchRequest{Collection: "mixed", Vector: field, UnitVectors: true, Probes: probes(1, 4, 5)})
		if !errors.Is(err, want) {
			t.Errorf("field %q: %v, want %v", field, err, want)
		}
	}
}

// TestPointWithoutVector: a vector that a point lacks is returned as NaNs.
func TestPointWithoutVector(t *testing.T) {
	s, _ := newest(t)
	two := schema("two", adapters.VectorField{Name: "a", Dim: 2}, adapters.VectorField{Name: "b", Dim: 2, Unsearched: true})
	if err := s.Create(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	write(t, s, schema("two", two.Fields[0]), adapters.Rows{IDs: ids(1), Vectors: []rerank.Matrix{{Rows: 1, Cols: 2, Data: []float32{1, 2}}}})
	rows, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "two", IDs: ids(1), Vectors: []string{"b", "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := rows.Vectors[0].Row(0)[1]; !math.IsNaN(float64(got)) {
		t.Errorf("the missing vector is %v, want NaN", got)
	}
	if got := rows.Vectors[1].Row(0)[1]; got != 2 {
		t.Errorf("the other vector is %v, want 2", got)
	}
	d, err := s.Describe(t.Context(), "two")
	if err != nil || d.Fields[0].Unsearched || !d.Fields[1].Unsearched {
		t.Errorf("described as %+v, error %v; b has no index", d.Fields, err)
	}
}

// TestStrictMode: a collection's limits in strict mode narrow the configured ones. The error for a request
// that the server refuses nevertheless names the reason.
func TestStrictMode(t *testing.T) {
	s, c := newest(t)
	strict := &client.StrictModeConfig{Enabled: client.PtrOf(true), MaxQueryLimit: client.PtrOf(uint32(10)), SearchAllowExact: client.PtrOf(false)}
	params := client.NewVectorsConfig(&client.VectorParams{Size: 4, Distance: client.Distance_Cosine})
	create(t, c, &client.CreateCollection{CollectionName: "strict", VectorsConfig: params, StrictModeConfig: strict})
	d, err := s.Describe(t.Context(), "strict")
	if err != nil || d.Limits.MaxDepth != 10 || d.Fields[0].Exact {
		t.Fatalf("described as %+v, error %v; want depth 10 and no exact search", d, err)
	}
	r := adapters.SearchRequest{Collection: "strict", Exact: true, Probes: probes(2, 4, 10)}
	lists, err := s.Search(t.Context(), r)
	if err != nil || lists[0].Exact {
		t.Errorf("a search without exact search: %+v, error %v", lists, err)
	}
	r.Probes = probes(2, 4, 11)
	wantLimit(t, "too deep", search(t, s, r), 11, 10)

	create(t, c, &client.CreateCollection{CollectionName: "later", VectorsConfig: params})
	r.Collection, r.Exact = "later", false
	if err := search(t, s, r); err != nil {
		t.Fatal(err)
	}
	strict.SearchAllowExact = nil
	if _, err := c.Collections().Update(t.Context(), &client.UpdateCollection{CollectionName: "later", StrictModeConfig: strict}); err != nil {
		t.Fatal(err)
	}
	wantLimit(t, "strict since the description was read", search(t, s, r), 11, 10)
}

func search(t testing.TB, s *qdrant.Store, r adapters.SearchRequest) error {
	_, err := s.Search(t.Context(), r)
	return err
}

func wantLimit(t *testing.T, what string, err error, value, most int64) {
	t.Helper()
	var limit *adapters.LimitError
	if !errors.As(err, &limit) || limit.Value != value || limit.Max != most || limit.Remedy == "" {
		t.Errorf("%s: %v, want a LimitError of %d over %d", what, err, value, most)
	}
}

// TestCollectionReplaced: after a collection was created again with another dimension or metric,
// searches do not use the old description.
func TestCollectionReplaced(t *testing.T) {
	s, _ := newest(t)
	for i, f := range []adapters.VectorField{{Dim: 4}, {Dim: 6}, {Dim: 6, Metric: adapters.Cosine}, {Dim: 6, Name: "named"}} {
		sc := schema("same", f)
		if err := errors.Join(s.Drop(t.Context(), "same"), s.Create(t.Context(), sc)); err != nil {
			t.Fatal(err)
		}
		row := rerank.NewMatrix(1, f.Dim)
		row.Data[0] = 3
		write(t, s, sc, adapters.Rows{IDs: ids(1), Vectors: []rerank.Matrix{row}})
		p := rerank.NewMatrix(1, f.Dim)
		p.Data[0] = 5
		lists, err := s.Search(t.Context(), adapters.SearchRequest{Collection: "same", Probes: []rerank.Probe{{Vector: p.Row(0), Depth: 3}}})
		if want := float32(15); err != nil || lists[0].Scores[0] != want && f.Metric != adapters.Cosine || f.Metric == adapters.Cosine && lists[0].Scores[0] != 5 {
			t.Errorf("collection %d: %+v, error %v", i, lists, err)
		}
	}
}

// TestDimensionChangedElsewhere: a search notices that another client replaced the collection by one of
// another dimension.
func TestDimensionChangedElsewhere(t *testing.T) {
	s, c := newest(t)
	for _, dim := range []int{4, 5} {
		_, err := c.Collections().Delete(t.Context(), &client.DeleteCollection{CollectionName: "same"})
		if err != nil {
			t.Fatal(err)
		}
		create(t, c, &client.CreateCollection{CollectionName: "same", VectorsConfig: client.NewVectorsConfig(&client.VectorParams{Size: uint64(dim), Distance: client.Distance_Dot})})
		if err := search(t, s, adapters.SearchRequest{Collection: "same", Probes: probes(2, dim, 3)}); err != nil {
			t.Errorf("dimension %d: %v", dim, err)
		}
	}
}

func TestIDSpellings(t *testing.T) {
	s, _ := newest(t)
	sc := schema("uuids", adapters.VectorField{Dim: 2})
	if err := s.Create(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	canonical := rerank.TextID("f47ac10b-58cc-4372-a567-0e02b2c3d479")
	write(t, s, sc, adapters.Rows{IDs: []rerank.ID{canonical}, Vectors: []rerank.Matrix{{Rows: 1, Cols: 2, Data: []float32{1, 2}}}})
	for _, spelling := range []string{"F47AC10B-58CC-4372-A567-0E02B2C3D479", "f47ac10b58cc4372a5670e02b2c3d479", "{f47ac10b-58cc-4372-a567-0e02b2c3d479}"} {
		rows, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "uuids", IDs: []rerank.ID{rerank.TextID(spelling)}})
		if err != nil || len(rows.IDs) != 1 || rows.IDs[0] != canonical {
			t.Errorf("fetch of %s: %v, error %v; want the canonical id", spelling, rows.IDs, err)
		}
		lists, err := s.Search(t.Context(), adapters.SearchRequest{Collection: "uuids", Filter: `{"must": [{"has_id": ["` + spelling + `"]}]}`, Probes: probes(1, 2, 3)})
		if err != nil || len(lists[0].IDs) != 1 || lists[0].IDs[0] != canonical {
			t.Errorf("filter by %s: %+v, error %v", spelling, lists, err)
		}
	}
	if _, err := s.Fetch(t.Context(), adapters.FetchRequest{Collection: "uuids", IDs: []rerank.ID{rerank.TextID("seven")}}); !errors.Is(err, adapters.ErrID) {
		t.Errorf("fetch of an id that is no UUID: %v, want ErrID", err)
	}
}

// TestLongVectors: the error of Qdrant's scores of long vectors stays within ε for every metric, also for
// dimensions that do not fill its SIMD lanes. All elements have one sign, so that errors add up.
func TestLongVectors(t *testing.T) {
	s, _ := newest(t)
	rng := rand.New(rand.NewPCG(7, 7))
	for _, metric := range []adapters.Metric{adapters.InnerProduct, adapters.Cosine, adapters.L2} {
		for _, dim := range []int{15, 47, 768, 1535} {
			name := fmt.Sprintf("long_%s_%d", strings.ToLower(string(metric)), dim)
			sc := schema(name, adapters.VectorField{Name: "v", Dim: dim, Metric: metric, FullPrecision: true})
			rows := matrix(rng, 200, dim)
			for i, x := range rows.Data {
				rows.Data[i] = float32(math.Abs(float64(x)))
			}
			if metric != adapters.Cosine {
				for r := range rows.Rows {
					rerank.Normalise(rows.Row(r))
				}
			}
			if err := s.Create(t.Context(), sc); err != nil {
				t.Fatal(err)
			}
			write(t, s, sc, adapters.Rows{IDs: ids(200), Vectors: []rerank.Matrix{rows}})
			p := probes(1, dim, 200)
			for i, x := range p[0].Vector {
				p[0].Vector[i] = float32(math.Abs(float64(x)))
			}
			p[0].Field = "v"
			lists, err := s.Search(t.Context(), adapters.SearchRequest{Collection: name, Probes: p, Exact: true, UnitVectors: metric != adapters.Cosine})
			if err != nil {
				t.Fatal(err)
			}
			most := 0.0
			for i, id := range lists[0].IDs {
				n, _ := id.Uint64()
				x := rows.Row(int(n) - 1)
				truth := adversary.Dot(p[0].Vector, x)
				if metric == adapters.Cosine {
					truth /= rerank.Norm(x)
				}
				most = max(most, math.Abs(float64(lists[0].Scores[i])-truth)/float64(lists[0].Epsilon))
			}
			t.Logf("%s: the greatest error is %.2g of ε, %.2g", name, most, lists[0].Epsilon)
			if !(most <= 1) || len(lists[0].IDs) != 200 {
				t.Errorf("%s: %d rows are off by up to %.2g times ε, %v", name, len(lists[0].IDs), most, lists[0].Epsilon)
			}
		}
	}
}
