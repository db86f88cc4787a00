package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// Dim is the dimension of the synthetic vectors.
const Dim = 384

// Synthetic describes a measurement of searches over random items.
type Synthetic struct {
	Items      int
	Candidates int
	Searches   int
	K          int
	// Kernel computes the scores. nil means the fastest that the processor can run.
	Kernel *kernel.Set
	// Turns is the number of turns in which Run compares searches with and without events, or 0. If it is not 0,
	// only the first kind of similarity is measured, with a table: events cost every kind the same, and the
	// difference is easiest to see beside the cheapest search.
	Turns int
}

// kind is a synthetic similarity. Its weights are random, because times do not depend on
// them.
type kind struct {
	name    string
	kind    rerank.Kind
	config  string
	tensors tensor.Set
}

// kinds returns the similarities to measure.
func kinds() []kind {
	r := rand.New(rand.NewPCG(1, 2))
	return []kind{
		{"dot 384", rerank.KindDot, `{"dim": 384, "normalise": true}`, nil},
		{"bilinear 384x384", rerank.KindBilinear, `{"query_embedding_dim": 384, "item_embedding_dim": 384, "normalise": true}`,
			tensor.Set{"W": randomTensor(r, Dim, Dim)}},
		randomMoL(r, "mol 4x4x64, query-only gate", 4, 4, true),
		randomMoL(r, "mol 4x4x64, full gate 128", 4, 4, false),
		randomMoL(r, "mol 8x4x64, full gate 128", 8, 4, false),
	}
}

func randomMoL(r *rand.Rand, name string, pq, px int, queryOnly bool) kind {
	return molOf(r, name, molShape{dim: Dim, pq: pq, px: px, d: 64, gate: 128, queryOnly: queryOnly})
}

// molShape is the shape of a MoL: the dimension of queries and items, pq by px components
// of length d, and the width of the gates.
type molShape struct {
	dim, pq, px, d, gate int
	queryOnly            bool
}

func molOf(r *rand.Rand, name string, m molShape) kind {
	l := m.pq * m.px
	combination := "glu_silu"
	t := tensor.Set{
		"_query_embeddings_fn._query_emb_proj_module.1.weight": randomTensor(r, m.pq*m.d, m.dim),
		"_query_embeddings_fn._query_emb_proj_module.1.bias":   randomTensor(r, m.pq*m.d),
		"_item_embeddings_fn._item_emb_proj_module.1.weight":   randomTensor(r, m.px*m.d, m.dim),
		"_item_embeddings_fn._item_emb_proj_module.1.bias":     randomTensor(r, m.px*m.d),
		"_gating_fn._query_only_partial_module.0.weight":       randomTensor(r, m.gate, m.dim),
		"_gating_fn._query_only_partial_module.0.bias":         randomTensor(r, m.gate),
		"_gating_fn._query_only_partial_module.2.weight":       randomTensor(r, l, m.gate),
	}
	if m.queryOnly {
		combination = "none"
	} else {
		t["_gating_fn._item_only_partial_module.1.weight"] = randomTensor(r, m.gate, m.dim)
		t["_gating_fn._item_only_partial_module.1.bias"] = randomTensor(r, m.gate)
		t["_gating_fn._item_only_partial_module.3.weight"] = randomTensor(r, l, m.gate)
		t["_gating_fn._qi_partial_module.1.weight"] = randomTensor(r, m.gate, l)
		t["_gating_fn._qi_partial_module.1.bias"] = randomTensor(r, m.gate)
		t["_gating_fn._qi_partial_module.3.weight"] = randomTensor(r, l, m.gate)
		t["_gating_fn._qi_partial_module.3.bias"] = randomTensor(r, l)
	}
	config, _ := json.Marshal(map[string]any{ // a map of numbers and strings always encodes
		"query_embedding_dim": m.dim, "item_embedding_dim": m.dim, "normalise": true, "dot_product_dimension": m.d,
		"query_dot_product_groups": m.pq, "item_dot_product_groups": m.px, "temperature": 0.05, "dot_product_l2_norm": true,
		"gating_query_hidden_dim": m.gate, "gating_item_hidden_dim": m.gate, "gating_qi_hidden_dim": m.gate,
		"gating_combination_type": combination,
	})
	return kind{name, rerank.KindMoL, string(config), t}
}

// randomTensor returns a tensor of normally distributed numbers, scaled as for the initialisation
// of a layer.
func randomTensor(r *rand.Rand, shape ...int) tensor.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	t := tensor.Tensor{Shape: shape, Data: make([]float32, n)}
	scale := 1 / math.Sqrt(float64(shape[len(shape)-1]))
	for i := range t.Data {
		t.Data[i] = float32(r.NormFloat64() * scale)
	}
	return t
}

// unitRows returns a matrix of random unit vectors.
func unitRows(rows int, seed uint64) rerank.Matrix {
	r := rand.New(rand.NewPCG(seed, 4))
	m := rerank.NewMatrix(rows, Dim)
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	for i := range rows {
		rerank.Normalise(m.Row(i))
	}
	return m
}

// RunSynthetic measures every kind with both placements on an embedded store, unless s says otherwise. Each search
// uses one exact list of s.Candidates rows. progress is called with the name of each case.
func RunSynthetic(ctx context.Context, s Synthetic, progress func(name string)) ([]Result, error) {
	items, vectors := unitRows(s.Items, 1), unitRows(s.Searches, 2)
	queries := make([]rerank.Query, s.Searches)
	for i := range queries {
		queries[i].Vector = vectors.Row(i)
	}
	var results []Result
	all, placements := kinds(), []route.Placement{route.PlacementTable, route.PlacementStored}
	if s.Turns > 0 {
		all, placements = all[:1], placements[:1]
	}
	for _, k := range all {
		m, err := model.New(model.Parameters{Kind: k.kind, Name: k.name, Config: json.RawMessage(k.config), Tensors: k.tensors})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		if s.Kernel != nil {
			m = m.WithKernels(s.Kernel)
		}
		for _, placement := range placements {
			progress(fmt.Sprintf("%s, placement %s", k.name, placement))
			result, err := s.run(ctx, m, items, queries, placement)
			if err != nil {
				return nil, err
			}
			results = append(results, result)
		}
	}
	return results, nil
}

func (s Synthetic) run(ctx context.Context, m *model.Model, items rerank.Matrix, queries []rerank.Query, placement route.Placement) (Result, error) {
	store := &timedStore{Store: embedded.New()}
	defer store.Close()
	err := store.Load("items", embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.Cosine}, Vectors: items}}})
	if err != nil {
		return Result{}, err
	}
	rt := &route.Route{
		Policy: route.Policy{Name: "bench", Collection: "items", StoreName: "embedded", Placement: placement, Strategy: rerank.Average, Depth: s.Candidates, Timeout: time.Minute, ExactSearch: true, UnitVectors: true, Failure: route.FailClosed, MaxK: s.K, MaxDepth: 2 * s.Candidates},
		Parts:  route.Parts{Store: store, Model: route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}},
	}
	if placement == route.PlacementTable {
		features := rerank.NewMatrix(items.Rows, m.Spec().Features)
		if err := m.EncodeItems(features, items); err != nil {
			return Result{}, err
		}
		ids := make([]rerank.ID, items.Rows)
		for i := range ids {
			ids[i] = rerank.UintID(uint64(i))
		}
		rt.Table, err = table.FromMemory(table.Meta{Model: m.Name, ModelVersion: m.Version, Collection: "items"}, ids, features, nil)
		if err != nil {
			return Result{}, err
		}
	}
	result, err := Run(ctx, rt, search.Request{K: s.K}, queries, store.clock, s.Turns)
	result.Case = m.Name
	return result, err
}

// timedStore is an embedded store that measures the time of its calls. Its searches must
// run one after the other.
type timedStore struct {
	*embedded.Store
	spent time.Duration
}

func (s *timedStore) clock() time.Duration {
	spent := s.spent
	s.spent = 0
	return spent
}

// Search implements adapters.Searcher.
func (s *timedStore) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	defer s.add(time.Now())
	return s.Store.Search(ctx, r)
}

// Fetch implements adapters.Fetcher.
func (s *timedStore) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	defer s.add(time.Now())
	return s.Store.Fetch(ctx, r)
}

func (s *timedStore) add(began time.Time) { s.spent += time.Since(began) }
