// Command recall measures how many of the true best rows Qdrant's indexes find by the vector
// of a rewritten search, for a W that changes nothing, for the shipped one, and for strong
// rotations, which point queries where no row is:
//
//	make bench-recall
//
// It writes docs/benchmarks/rewrite-recall.json; `make generate` renders the page.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/bench/internal/host"
	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// limit is k, of recall@k.
const limit = 10

// widths are the searches that are measured.
func widths() []width {
	rescored := &qdrant.QuantizationSearchParams{Rescore: qdrant.PtrOf(true), Oversampling: qdrant.PtrOf(8.0)}
	return []width{
		{"ef of Qdrant", nil},
		{"ef 256", &qdrant.SearchParams{HnswEf: qdrant.PtrOf(uint64(256))}},
		{"ef 1024", &qdrant.SearchParams{HnswEf: qdrant.PtrOf(uint64(1024))}},
		{"ef 1024, eightfold oversampling", &qdrant.SearchParams{HnswEf: qdrant.PtrOf(uint64(1024)), Quantization: rescored}},
	}
}

// width is how widely an index is searched.
type width struct {
	name   string
	params *qdrant.SearchParams
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/recall:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var files host.Files
	flags := flag.NewFlagSet("recall", flag.ContinueOnError)
	flags.SetOutput(stderr)
	files.AddTo(flags)
	questions := flags.Int("questions", 500, "questions of each case")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	table, err := measure(ctx, files, *questions)
	if err != nil {
		return err
	}
	return files.Write(stdout, "rewrite-recall", table)
}

// record is a table as the pages of docs/benchmarks render it.
type record struct {
	Command string   `json:"command"`
	Machine string   `json:"machine"`
	Load    string   `json:"load"`
	Date    string   `json:"date"`
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
}

func measure(ctx context.Context, files host.Files, questions int) (_ *record, err error) {
	task, err := banking77.Questions(files.Data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, task.Close()) }()
	if questions < 1 || questions > len(task.Queries) {
		return nil, fmt.Errorf("-questions is %d, must be 1 to %d", questions, len(task.Queries))
	}
	forms, err := forms(files.Models, len(task.Vector(0)))
	if err != nil {
		return nil, err
	}
	db, err := servers.Qdrant(ctx, servers.Dir(), servers.QdrantNewest, servers.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := grpc.NewClient(db.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	r := &record{
		Command: "make bench-recall", Machine: fmt.Sprintf("Qdrant %s, %s", db.Version, host.Processor()), Date: time.Now().Format(time.DateOnly),
		Columns: []string{"W", "index"},
	}
	for _, w := range widths() {
		r.Columns = append(r.Columns, w.name)
	}
	for _, index := range indexes() {
		if err := fill(ctx, conn, index, task.ItemFile); err != nil {
			return nil, fmt.Errorf("collection %s: %w", index.name, err)
		}
	}
	for _, f := range forms {
		vectors, err := pullBack(f.similarity, task, questions)
		if err != nil {
			return nil, fmt.Errorf("form %s: %w", f.name, err)
		}
		for _, index := range indexes() {
			row := []any{f.name, index.name}
			for _, w := range widths() {
				recall, err := recallOf(searchIn(ctx, conn, index.name), vectors, w.params)
				if err != nil {
					return nil, fmt.Errorf("form %s, %s: %w", f.name, index.name, err)
				}
				row = append(row, fmt.Sprintf("%.4f", recall))
			}
			r.Rows = append(r.Rows, row)
		}
	}
	return r, nil
}

// form is a bilinear form and what its W does.
type form struct {
	name       string
	similarity rerank.Similarity
}

// forms returns the forms that are measured, for vectors of dim numbers.
func forms(models string, dim int) ([]form, error) {
	shipped, err := model.Open(filepath.Join(models, "banking77-questions-bilinear"))
	if err != nil {
		return nil, err
	}
	all := []form{{"shipped", shipped.Similarity}}
	rotation := randomRotation(dim)
	for name, w := range map[string]func(i, j int) float64{
		"identity": func(i, j int) float64 {
			if i == j {
				return 1
			}
			return 0
		},
		"rotation": func(i, j int) float64 { return rotation[i][j] },
		// Directions of items count between 1 and 1/100.
		"rotation, stretched 100:1": func(i, j int) float64 { return rotation[i][j] * math.Pow(100, -float64(j)/float64(dim-1)) },
	} {
		data := make([]float32, 0, dim*dim)
		for i := range dim {
			for j := range dim {
				data = append(data, float32(w(i, j)))
			}
		}
		s, err := bilinear.New(bilinear.Config{QueryDim: dim, ItemDim: dim, Normalise: true}, tensor.Set{"W": {Shape: []int{dim, dim}, Data: data}})
		if err != nil {
			return nil, err
		}
		all = append(all, form{name, s})
	}
	slices.SortFunc(all, func(a, b form) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

// randomRotation returns an orthogonal matrix: random vectors, each made orthogonal to those
// before it.
func randomRotation(dim int) [][]float64 {
	rng := rand.New(rand.NewPCG(1, 77))
	rows := make([][]float64, dim)
	for i := range rows {
		row := make([]float64, dim)
		for j := range row {
			row[j] = rng.NormFloat64()
		}
		for range 2 { // a second time removes what rounding left
			for _, other := range rows[:i] {
				along := inner(row, other)
				for j := range row {
					row[j] -= along * other[j]
				}
			}
		}
		length := math.Sqrt(inner(row, row))
		for j := range row {
			row[j] /= length
		}
		rows[i] = row
	}
	return rows
}

func inner(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// pullBack returns, for each question, the vector that a rewritten search sends to the database.
func pullBack(s rerank.Similarity, task *banking77.Task, questions int) (vectors [][]float32, err error) {
	for i := range questions {
		encoded, err := s.Encode(rerank.Query{Vector: task.Vector(i)})
		if err != nil {
			return nil, err
		}
		product, ok := rerank.EncodedAbilitiesOf(encoded).PullBack.PullBack()
		if !ok {
			return nil, fmt.Errorf("question %d cannot be pulled back", i)
		}
		vectors = append(vectors, product.Vector)
	}
	return vectors, nil
}

// index is a collection with one kind of index.
type index struct {
	name         string
	quantization *qdrant.QuantizationConfig
}

func indexes() []index {
	return []index{
		{"HNSW", nil},
		{"HNSW, scalar quantisation", qdrant.NewQuantizationScalar(&qdrant.ScalarQuantization{Type: qdrant.QuantizationType_Int8})},
		{"HNSW, binary quantisation", qdrant.NewQuantizationBinary(&qdrant.BinaryQuantization{})},
	}
}

// fill creates a collection of one segment and waits until it is indexed.
func fill(ctx context.Context, conn *grpc.ClientConn, x index, file string) (err error) {
	collections, points := qdrant.NewCollectionsClient(conn), qdrant.NewPointsClient(conn)
	vectors, err := npy.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	if _, err := collections.Create(ctx, &qdrant.CreateCollection{
		CollectionName:     x.name,
		VectorsConfig:      qdrant.NewVectorsConfig(&qdrant.VectorParams{Size: uint64(vectors.Cols), Distance: qdrant.Distance_Cosine}),
		QuantizationConfig: x.quantization,
		OptimizersConfig:   &qdrant.OptimizersConfigDiff{DefaultSegmentNumber: qdrant.PtrOf(uint64(1)), IndexingThreshold: qdrant.PtrOf(uint64(1000))},
		HnswConfig:         &qdrant.HnswConfigDiff{FullScanThreshold: qdrant.PtrOf(uint64(10))},
	}); err != nil {
		return err
	}
	const batch = 1000
	for from := 0; from < vectors.Rows; from += batch {
		var rows []*qdrant.PointStruct
		for row := from; row < min(from+batch, vectors.Rows); row++ {
			rows = append(rows, &qdrant.PointStruct{Id: qdrant.NewIDNum(uint64(row)), Vectors: qdrant.NewVectorsDense(vectors.Row(row))})
		}
		if _, err := points.Upsert(ctx, &qdrant.UpsertPoints{CollectionName: x.name, Points: rows, Wait: qdrant.PtrOf(true)}); err != nil {
			return err
		}
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := collections.Get(ctx, &qdrant.GetCollectionInfoRequest{CollectionName: x.name})
		if err != nil {
			return err
		}
		if i := info.GetResult(); i.GetStatus() == qdrant.CollectionStatus_Green && i.GetIndexedVectorsCount() >= uint64(vectors.Rows) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// searcher returns the ids that a search of a collection finds.
type searcher func(vector []float32, params *qdrant.SearchParams) ([]uint64, error)

// searchIn returns the searches of a collection.
func searchIn(ctx context.Context, conn *grpc.ClientConn, collection string) searcher {
	points := qdrant.NewPointsClient(conn)
	return func(v []float32, params *qdrant.SearchParams) (ids []uint64, err error) {
		answer, err := points.Search(ctx, &qdrant.SearchPoints{CollectionName: collection, Vector: v, Limit: limit, Params: params})
		for _, p := range answer.GetResult() {
			ids = append(ids, p.GetId().GetNum())
		}
		return ids, err
	}
}

// recallOf returns the mean share of the rows of an exhaustive search that the index finds.
func recallOf(search searcher, vectors [][]float32, params *qdrant.SearchParams) (float64, error) {
	found := 0
	for _, v := range vectors {
		want, err := search(v, &qdrant.SearchParams{Exact: qdrant.PtrOf(true), Quantization: &qdrant.QuantizationSearchParams{Ignore: qdrant.PtrOf(true)}})
		if err != nil {
			return 0, err
		}
		got, err := search(v, params)
		if err != nil {
			return 0, err
		}
		for _, id := range got {
			if slices.Contains(want, id) {
				found++
			}
		}
	}
	return float64(found) / float64(limit*len(vectors)), nil
}
