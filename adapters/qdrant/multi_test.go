package qdrant_test

import (
	"errors"
	"slices"
	"testing"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
)

// TestMultiVectors: all vectors of the points are read from a multi-vector field, by id and in a scan, in
// calls that are made smaller until their answers fit. A point without the field has none.
func TestMultiVectors(t *testing.T) {
	for _, version := range []string{servers.QdrantOldest, servers.QdrantNewest} {
		t.Run(version, func(t *testing.T) { multiVectors(t, version) })
	}
}

func multiVectors(t *testing.T, version string) {
	const dim, points = 32, 40
	server := servers.QdrantForTest(t, version, servers.Options{})
	conn, err := grpc.NewClient(server.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = client.NewCollectionsClient(conn).Create(t.Context(), &client.CreateCollection{CollectionName: "multi", VectorsConfig: client.NewVectorsConfigMap(map[string]*client.VectorParams{
		"mean": {Size: dim, Distance: client.Distance_Cosine},
		"all":  {Size: dim, Distance: client.Distance_Dot, MultivectorConfig: &client.MultiVectorConfig{Comparator: client.MultiVectorComparator_MaxSim}},
	})})
	if err != nil {
		t.Fatal(err)
	}
	// Point n has 200 vectors, which its number fills; every fifth point has none.
	count := func(n int) int { return min(n%5, 1) * 200 }
	var upsert []*client.PointStruct
	for n := range points {
		one := make([]float32, dim)
		for i := range one {
			one[i] = float32(n + 1)
		}
		vectors := map[string]*client.Vector{"mean": client.NewVectorDense(one)}
		if count(n) > 0 {
			vectors["all"] = client.NewVectorMulti(slices.Repeat([][]float32{one}, count(n)))
		}
		upsert = append(upsert, &client.PointStruct{Id: client.NewIDNum(uint64(n)), Vectors: client.NewVectorsMap(vectors)})
	}
	wait := true
	if _, err := client.NewPointsClient(conn).Upsert(t.Context(), &client.UpsertPoints{CollectionName: "multi", Points: upsert, Wait: &wait}); err != nil {
		t.Fatal(err)
	}
	options := qdrant.Options{Address: server.Address}
	options.Limits.MaxMessageBytes = 100 << 10 // three points
	store := open(t, options)
	t.Cleanup(func() { _ = store.Close() })
	check := func(rows adapters.Rows) {
		t.Helper()
		for i, id := range rows.IDs {
			n, _ := id.Uint64()
			own := rows.Vectors[0].Slice(int(rows.Starts[i]), int(rows.Starts[i+1]))
			if own.Rows != count(int(n)) || own.Cols != dim || slices.ContainsFunc(own.Data, func(x float32) bool { return x != float32(n+1) }) {
				t.Errorf("point %d has %d vectors, want %d", n, own.Rows, count(int(n)))
			}
			if adapters.HasVectors(rows, i) != (own.Rows > 0) {
				t.Errorf("point %d: HasVectors is wrong", n)
			}
		}
	}
	var ids []rerank.ID
	for n := points + 2; n >= 0; n-- { // two do not exist
		ids = append(ids, rerank.UintID(uint64(n)))
	}
	rows, err := store.Fetch(t.Context(), adapters.FetchRequest{Collection: "multi", IDs: ids, Vectors: []string{"all"}})
	if err != nil || !slices.Equal(rows.IDs, ids[3:]) {
		t.Fatalf("%v, %v", rows.IDs, err)
	}
	check(rows)
	var missing adapters.Missing
	if rest := missing.Drop(rows); missing.Rows != points/5 || len(rest.IDs) != points-points/5 {
		t.Errorf("%d rows are missing, %d are left", missing.Rows, len(rest.IDs))
	} else {
		check(rest)
	}
	seen := 0
	err = store.Scan(t.Context(), adapters.ScanRequest{Collection: "multi", Vectors: []string{"all"}}, func(rows adapters.Rows, _ string) error {
		check(rows)
		seen += len(rows.IDs)
		return nil
	})
	if err != nil || seen != points {
		t.Errorf("a scan saw %d points, %v", seen, err)
	}
	if _, err := store.Fetch(t.Context(), adapters.FetchRequest{Collection: "multi", IDs: ids, Vectors: []string{"all", "mean"}}); !errors.Is(err, adapters.ErrField) {
		t.Errorf("with another field: %v", err)
	}
	if _, err := store.Fetch(t.Context(), adapters.FetchRequest{Collection: "multi", IDs: ids[5:6], Vectors: []string{"all"}, Owner: "of"}); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("with an owner: %v", err)
	}
}
