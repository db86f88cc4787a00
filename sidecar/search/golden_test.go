package search_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/safetensors"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestGoldenRetrieval repeats the runs of the RAILS reference through the pipeline.
func TestGoldenRetrieval(t *testing.T) {
	const dir = "../../testdata/golden/"
	b, err := os.ReadFile(dir + "mol/a_ml1m_8x4x64/config.json")
	must(t, err)
	var config struct {
		Parameters mol.Config `json:"hyper_parameters"`
	}
	must(t, json.Unmarshal(b, &config))
	weights, err := safetensors.ReadFile(dir + "mol/a_ml1m_8x4x64/weights.safetensors")
	must(t, err)
	sim, err := mol.New(config.Parameters, weights.Tensors)
	must(t, err)
	f, err := safetensors.ReadFile(dir + "retrieval/ml1m_2000.safetensors")
	must(t, err)
	w := goldenWorld(t, sim, f)
	queries := f.Tensors["query_embeddings"]
	dim := queries.Shape[1]
	for _, c := range []struct {
		run string
		r   search.Request
	}{
		{"brute_force_5", search.Request{K: 5, Strategy: rerank.Scan}},
		{"brute_force_50", search.Request{K: 50, Strategy: rerank.Scan}},
		{"per_embedding_5", search.Request{K: 5, Strategy: rerank.PerEmbedding, Depth: 5}},
		{"per_embedding_50", search.Request{K: 50, Strategy: rerank.PerEmbedding, Depth: 50}},
		{"average_50_top5", search.Request{K: 5, Strategy: rerank.Average, Depth: 50}},
		{"average_50_top50", search.Request{K: 50, Strategy: rerank.Average, Depth: 50}},
		{"average_200_top5", search.Request{K: 5, Strategy: rerank.Average, Depth: 200}},
		{"average_200_top50", search.Request{K: 50, Strategy: rerank.Average, Depth: 200}},
		{"combined_5_200", search.Request{K: 50, Strategy: rerank.Combined, Depth: 5, AverageDepth: 200}},
		{"combined_50_500", search.Request{K: 50, Strategy: rerank.Combined, Depth: 50, AverageDepth: 500}},
	} {
		p := pipe(t, w.route(route.PlacementTable, func(r *route.Route) { r.Companion, r.Strategy = companion, rerank.Average }))
		for q := range queries.Shape[0] {
			c.r.Route, c.r.Query = "r", rerank.Query{Vector: queries.Data[q*dim : (q+1)*dim], UserID: f.Ints["user_ids"].Data[q], HasUserID: true}
			a, err := p.Search(context.Background(), c.r)
			must(t, err)
			for i, h := range a.Hits {
				at := q*c.r.K + i
				id, score := rerank.IntID(f.Ints[c.run+".top_ids"].Data[at]), f.Tensors[c.run+".top_scores"].Data[at]
				if h.ID != id || !(math.Abs(float64(h.Score-score)) <= 1e-4) {
					t.Fatalf("%s, query %d: hit %d is %s with %v, want %s with %v", c.run, q, i, h.ID, h.Score, id, score)
				}
			}
			if offsets := f.Ints[c.run+".candidate_offsets"].Data; offsets != nil && fmt.Sprint(a.Certificate.Candidates) != fmt.Sprint(offsets[q+1]-offsets[q]) {
				t.Errorf("%s, query %d: %d candidates, want %d", c.run, q, a.Certificate.Candidates, offsets[q+1]-offsets[q])
			}
		}
	}
}

// goldenWorld returns a world with the ids of the file.
func goldenWorld(t *testing.T, sim rerank.Similarity, f *safetensors.File) *world {
	base := f.Tensors["item_embeddings"]
	w := newWorld(t, sim, rerank.Matrix{Rows: base.Shape[0], Cols: base.Shape[1], Data: base.Data})
	in := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: w.metric}, Vectors: w.vectors}}}
	for i, id := range f.Ints["item_ids"].Data {
		w.owners[i] = rerank.IntID(id)
	}
	in.IDs = w.owners
	must(t, w.store.Load(collection, in))
	w.derive(t, in, w.table.Features())
	w.table = w.tabulate(t, w.table.Features(), len(w.owners))
	return w
}
