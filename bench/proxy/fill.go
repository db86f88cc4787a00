package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// batch is the number of rows that are written at once.
const batch = 1000

// fillQdrant creates a collection with default settings, as a user would, and waits until it
// is optimised.
func fillQdrant(ctx context.Context, conn *grpc.ClientConn, name, file string) (err error) {
	collections, points := qdrant.NewCollectionsClient(conn), qdrant.NewPointsClient(conn)
	vectors, err := npy.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	if _, err := collections.Create(ctx, &qdrant.CreateCollection{
		CollectionName: name,
		VectorsConfig:  qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: uint64(vectors.Cols), Distance: qdrant.Distance_Cosine}),
	}); err != nil {
		return err
	}
	for from := 0; from < vectors.Rows; from += batch {
		var rows []*qdrant.PointStruct
		for row := from; row < min(from+batch, vectors.Rows); row++ {
			rows = append(rows, &qdrant.PointStruct{
				Id: qdrant.NewIDNum(uint64(row)), Vectors: qdrant.NewVectorsDense(vectors.Row(row)),
				Payload: qdrant.NewValueMap(map[string]any{"row": row}),
			})
		}
		if _, err := points.Upsert(ctx, &qdrant.UpsertPoints{CollectionName: name, Points: rows, Wait: qdrant.PtrOf(true)}); err != nil {
			return err
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := collections.Get(ctx, &qdrant.GetCollectionInfoRequest{CollectionName: name})
		if err != nil || info.GetResult().GetStatus() == qdrant.CollectionStatus_Green {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// field is the vector field of the collections in Milvus.
const field = "vector"

// fillMilvus creates the collections with a flat index, the only one that milvus-lite has.
func fillMilvus(ctx context.Context, address, file string) (err error) {
	store, err := milvus.New(ctx, milvus.Options{Address: address, Companion: milvus.Index{Type: "FLAT"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	vectors, err := npy.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	write := adapters.AbilitiesOf(store).Write
	for _, name := range collections {
		schema := adapters.Schema{Collection: name, Fields: []adapters.VectorField{{Name: field, Dim: vectors.Cols, Metric: adapters.Cosine}}}
		if err := write.Create(ctx, schema); err != nil {
			return fmt.Errorf("collection %s: %w", name, err)
		}
		for from := 0; from < vectors.Rows; from += batch {
			rows := adapters.Rows{Vectors: []rerank.Matrix{vectors.Slice(from, min(from+batch, vectors.Rows))}}
			for row := range rows.Vectors[0].Rows {
				rows.IDs = append(rows.IDs, rerank.UintID(uint64(from+row)))
			}
			if err := write.Write(ctx, name, schema, rows); err != nil {
				return fmt.Errorf("collection %s: %w", name, err)
			}
		}
	}
	return nil
}
