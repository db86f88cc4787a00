package main

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"path/filepath"

	"github.com/qdrant/go-client/qdrant"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// collection is the name of the collection in Qdrant.
const collection = "items"

// mixture makes up items: each is a centre with a random change of a tenth of its length.
type mixture struct{ centres rerank.Matrix }

// newMixture projects the vectors of an .npy file at random to dim numbers, which become the centres.
func newMixture(file string, dim int) (_ mixture, err error) {
	vectors, err := npy.Open(file)
	if err != nil {
		return mixture{}, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	directions := make([]float32, dim*vectors.Cols)
	for i := range directions {
		directions[i] = float32(random.NormFloat64())
	}
	centres := rerank.Matrix{Rows: vectors.Rows, Cols: dim, Data: make([]float32, vectors.Rows*dim)}
	for row := range vectors.Rows {
		for d := range dim {
			var sum float32
			for n, x := range vectors.Row(row) {
				sum += x * directions[d*vectors.Cols+n]
			}
			centres.Row(row)[d] = sum
		}
		rerank.Normalise(centres.Row(row))
	}
	return mixture{centres}, vectors.Close()
}

// item returns the vector of an item. Each edition of an item has another vector.
func (m mixture) item(id, edition uint64) []float32 {
	random := rand.New(rand.NewPCG(id, edition))
	v := make([]float32, m.centres.Cols)
	scale := 0.1 / math.Sqrt(float64(len(v)))
	for i, x := range m.centres.Row(int(id % uint64(m.centres.Rows))) {
		v[i] = x + float32(scale*random.NormFloat64())
	}
	rerank.Normalise(v)
	return v
}

// writeModel writes a diagonal bilinear form with random weights.
func writeModel(path string, dim int, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 0))
	w := make([]float32, dim)
	for i := range w {
		w[i] = float32(1 + 0.3*random.NormFloat64())
	}
	config := fmt.Appendf(nil, `{"query_embedding_dim":%d,"item_embedding_dim":%d,"normalise":true,"form":%q}`, dim, dim, bilinear.Diagonal)
	m, err := model.New(model.Parameters{
		Kind: rerank.KindBilinear, Name: filepath.Base(path), Config: config,
		Tensors: tensor.Set{"w": {Shape: []int{dim}, Data: w}},
	})
	if err != nil {
		return err
	}
	return model.Write(path, m)
}

// connect opens a connection to Qdrant or the proxy.
func connect(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// create creates the collection, with vectors on disk and no graph, which a scan of the table does not need.
func create(ctx context.Context, conn grpc.ClientConnInterface, dim int) error {
	_, err := qdrant.NewCollectionsClient(conn).Create(ctx, &qdrant.CreateCollection{
		CollectionName: collection,
		VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{
			Size: uint64(dim), Distance: qdrant.Distance_Cosine, OnDisk: qdrant.PtrOf(true),
		}),
		HnswConfig:    &qdrant.HnswConfigDiff{M: qdrant.PtrOf(uint64(0))},
		OnDiskPayload: qdrant.PtrOf(true),
	})
	return err
}

// upsert writes an edition of the items 0, step, 2·step and so on below end.
func (m mixture) upsert(ctx context.Context, conn grpc.ClientConnInterface, end, step, edition uint64) error {
	const parallel = 4
	points := qdrant.NewPointsClient(conn)
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(parallel)
	for ids := range batches(end, step) {
		if ctx.Err() != nil {
			break
		}
		calls.Go(func() error {
			var rows []*qdrant.PointStruct
			for _, id := range ids {
				rows = append(rows, &qdrant.PointStruct{Id: qdrant.NewIDNum(id), Vectors: qdrant.NewVectorsDense(m.item(id, edition))})
			}
			_, err := points.Upsert(ctx, &qdrant.UpsertPoints{CollectionName: collection, Wait: qdrant.PtrOf(true), Points: rows})
			return err
		})
	}
	return calls.Wait()
}

// batch is the number of items that are written in one call.
const batch = 1000

// batches yields the numbers 0, step, 2·step and so on below end, a batch at a time.
func batches(end, step uint64) iter.Seq[[]uint64] {
	return func(yield func([]uint64) bool) {
		for from := uint64(0); from < end; from += batch * step {
			var ids []uint64
			for id := from; id < min(end, from+batch*step); id += step {
				ids = append(ids, id)
			}
			if !yield(ids) {
				return
			}
		}
	}
}
