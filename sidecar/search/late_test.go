package search_test

import (
	"errors"
	"math"
	"testing"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

const (
	lateItems = 90
	meanField = "mean"
	allField  = "all"
)

// lateWorld holds items of one to six vectors, and the mean of each item's vectors.
type lateWorld struct {
	sim      *late.Similarity
	all      rerank.Matrix
	starts   []int32
	mean     rerank.Matrix
	features rerank.Matrix
}

func newLateWorld(t *testing.T) lateWorld {
	t.Helper()
	sim, err := late.New(late.Config{Dim: rewriteDim, Normalise: true}, nil)
	must(t, err)
	w := lateWorld{sim: sim, starts: []int32{0}}
	for i := range lateItems {
		w.starts = append(w.starts, w.starts[i]+1+int32(i%6))
	}
	w.all = random(71, int(w.starts[lateItems]), rewriteDim)
	w.features = rerank.NewMatrix(w.all.Rows, rewriteDim)
	must(t, sim.EncodeItems(w.features, w.all))
	w.mean = rerank.NewMatrix(lateItems, rewriteDim)
	late.Mean(w.mean, rerank.Items{Features: w.features, Starts: w.starts})
	return w
}

func (w lateWorld) vectors(i int) rerank.Matrix {
	return w.all.Slice(int(w.starts[i]), int(w.starts[i+1]))
}

func (w lateWorld) ids() (ids []rerank.ID) {
	for i := range lateItems {
		ids = append(ids, rerank.UintID(uint64(i)))
	}
	return ids
}

// embedded loads the items into an embedded store.
func (w lateWorld) embedded(t *testing.T) adapters.Store {
	store := embedded.New()
	must(t, store.Load(collection, embedded.Collection{Fields: []embedded.Field{
		{VectorField: adapters.VectorField{Name: meanField, Metric: adapters.Cosine}, Vectors: w.mean},
		{VectorField: adapters.VectorField{Name: allField, Metric: adapters.InnerProduct}, Vectors: w.all, Starts: w.starts},
	}}))
	return store
}

// qdrant writes the items into a Qdrant.
func (w lateWorld) qdrant(t *testing.T) adapters.Store {
	store, conn := openQdrant(t)
	_, err := client.NewCollectionsClient(conn).Create(t.Context(), &client.CreateCollection{CollectionName: collection, VectorsConfig: client.NewVectorsConfigMap(map[string]*client.VectorParams{
		meanField: {Size: rewriteDim, Distance: client.Distance_Cosine},
		allField:  {Size: rewriteDim, Distance: client.Distance_Cosine, MultivectorConfig: &client.MultiVectorConfig{Comparator: client.MultiVectorComparator_MaxSim}},
	})})
	must(t, err)
	var rows []*client.PointStruct
	for i := range lateItems {
		var own [][]float32
		for r := range w.vectors(i).Rows {
			own = append(own, w.vectors(i).Row(r))
		}
		rows = append(rows, &client.PointStruct{Id: client.NewIDNum(uint64(i)), Vectors: client.NewVectorsMap(map[string]*client.Vector{
			meanField: client.NewVectorDense(w.mean.Row(i)), allField: client.NewVectorMulti(own),
		})})
	}
	_, err = client.NewPointsClient(conn).Upsert(t.Context(), &client.UpsertPoints{CollectionName: collection, Wait: proto.Bool(true), Points: rows})
	must(t, err)
	return store
}

// exact is the answer by the definition Σ_i max_j cos(q_i, x_j), in float64. met[item][i] is the best j.
func (w lateWorld) exact(q rerank.Matrix) (best []rerank.Scored, met [][]int) {
	top := rerank.NewTopK(lateItems)
	for item := range lateItems {
		var sum float64
		var own []int
		for i := range q.Rows {
			score, at := math.Inf(-1), -1
			for j := range w.vectors(item).Rows {
				x := w.vectors(item).Row(j)
				if cosine := inner(q.Row(i), x) / rerank.Norm(q.Row(i)) / rerank.Norm(x); cosine > score {
					score, at = cosine, j
				}
			}
			sum, own = sum+score, append(own, at)
		}
		top.Push(rerank.Scored{ID: rerank.UintID(uint64(item)), Score: float32(sum)})
		met = append(met, own)
	}
	return top.Sorted(), met
}

func (w lateWorld) table(t *testing.T, format rerank.Format) *table.Table {
	meta := table.Meta{ModelVersion: version, Collection: collection, Kind: string(rerank.KindLate), Format: format, Full: format == rerank.FormatInt8}
	tab, err := table.FromMemory(meta, w.ids(), w.features, w.starts)
	must(t, err)
	return tab
}

func (w lateWorld) route(store adapters.Store, change ...func(*route.Route)) *route.Route {
	r := &route.Route{
		Policy: route.Policy{Name: "r", Collection: collection, Vector: meanField, Vectors: allField, Depth: lateItems + 10, ExactSearch: true, Writes: route.WritesProxy},
		Parts:  route.Parts{Store: store, Model: route.Model{Name: "late", Version: version, Similarity: w.sim}},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

// TestLate: the mean of the query's vectors finds candidates, which are scored by all vectors of query
// and item: read from the database, or from a table in any format. With every item a candidate the answer
// is proved.
func TestLate(t *testing.T) {
	w := newLateWorld(t)
	for name, open := range map[string]func(*testing.T) adapters.Store{"embedded": w.embedded, "qdrant": w.qdrant} {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			routes := map[string]*route.Route{"stored": w.route(store), "scan": w.route(store, func(r *route.Route) {
				r.Table, r.Strategy, r.Vector = w.table(t, rerank.FormatFloat32), rerank.Scan, ""
			})}
			for _, format := range rerank.Formats() {
				routes["table of "+string(format)] = w.route(store, func(r *route.Route) { r.Table = w.table(t, format) })
			}
			for name, r := range routes {
				p := pipe(t, r)
				must(t, p.Open(t.Context()))
				for seed := range uint64(5) {
					q := random(500+seed, 1+int(seed)*3, rewriteDim)
					want, met := w.exact(q)
					a, err := p.Search(t.Context(), search.Request{Route: "r", Query: rerank.Query{Vectors: q}, K: 10, Explain: true})
					must(t, err)
					rounded := 2 * float64(a.Certificate.Epsilon)
					if !a.Certificate.Proved() || rounded > 0.3*float64(q.Rows) {
						t.Errorf("%s: %+v", name, a.Certificate)
					}
					for i, h := range a.Hits {
						if off := math.Abs(float64(h.Score - want[i].Score)); off > rounded+1e-5 {
							t.Errorf("%s, query %d, hit %d: %s with %v, want %s with %v", name, seed, i, h.ID, h.Score, want[i].ID, want[i].Score)
						}
						item, _ := h.ID.Uint64()
						for v, term := range h.Explanation.Terms {
							if term.QueryComponent != v || rounded < 1e-4 && term.ItemComponent != met[item][v] {
								t.Errorf("%s, query %d: vector %d of the query met %d of item %s, want %d", name, seed, v, term.ItemComponent, h.ID, met[item][v])
							}
						}
						if len(h.Explanation.Terms) != q.Rows {
							t.Errorf("%s: %d terms for %d query vectors", name, len(h.Explanation.Terms), q.Rows)
						}
					}
				}
			}
		})
	}
}

// TestLateFewCandidates: an answer from a few candidates is not exact; an item that the database no longer
// has is left out.
func TestLateFewCandidates(t *testing.T) {
	w := newLateWorld(t)
	q := random(900, 4, rewriteDim)
	a := searchRoute(t, w.route(w.embedded(t), func(r *route.Route) { r.Depth = 15 }), search.Request{Query: rerank.Query{Vectors: q}, K: 10})
	if a.Certificate.Proved() || a.Certificate.Candidates != 15 || len(a.Hits) != 10 {
		t.Errorf("%d hits, %+v", len(a.Hits), a.Certificate)
	}
}

// TestLateRoutes: what contradicts a model of kind late is refused with the remedy.
func TestLateRoutes(t *testing.T) {
	w := newLateWorld(t)
	store := w.embedded(t)
	for name, change := range map[string]func(*route.Route){
		"no vectors":        func(r *route.Route) { r.Vectors = "" },
		"no such field":     func(r *route.Route) { r.Vectors = "some" },
		"a field of one":    func(r *route.Route) { r.Vectors = meanField },
		"vectors and owner": func(r *route.Route) { r.Owner = owner },
		"nothing to search": func(r *route.Route) { r.Vector = "other" },
		"another strategy":  func(r *route.Route) { r.Strategy = rerank.PerEmbedding },
		"another dimension": func(r *route.Route) {
			r.Model.Similarity, _ = late.New(late.Config{Dim: rewriteDim + 1, Normalise: true}, nil)
		},
		"vectors of a dot": func(r *route.Route) {
			r.Model.Similarity, _ = dot.New(dot.Config{Dim: rewriteDim, Normalise: true}, nil)
		},
		"rewritten searches":  func(r *route.Route) { r.Placement = route.PlacementRewrite },
		"a companion of none": func(r *route.Route) { r.Companion = companion },
	} {
		p, err := search.New([]*route.Route{w.route(store, change)}, search.Options{})
		if err == nil {
			err = p.Open(t.Context())
		}
		if !errors.Is(err, route.ErrSetup) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
