package follow_test

import (
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	qdrantapi "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/learn/fit"
	fitcompanion "github.com/likenessdb/likeness/learn/fit/companion"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	learned "github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// lateWorld is a collection with one vector a row in "vec" and several in "tokens", and a companion that
// a model of late interaction derives from the latter.
type lateWorld struct {
	db     *qdrant.Store
	points qdrantapi.PointsClient
	model  route.Model
}

const (
	lateDim       = 6
	lateItems     = 30
	lateCompanion = "items_learned"
)

// tokensOf returns one to four random vectors.
func tokensOf(seed uint64) (rows [][]float32) {
	rng := rand.New(rand.NewPCG(seed, 5))
	for range 1 + rng.IntN(4) {
		v := make([]float32, lateDim)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		rows = append(rows, v)
	}
	return rows
}

func newLateWorld(t *testing.T) lateWorld {
	t.Helper()
	address := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}).Address
	store, err := qdrant.Open(qdrant.Options{Address: address})
	must(t, err)
	closed(t, store)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { must(t, conn.Close()) })
	cosine := func(multi *qdrantapi.MultiVectorConfig) *qdrantapi.VectorParams {
		return &qdrantapi.VectorParams{Size: lateDim, Distance: qdrantapi.Distance_Cosine, MultivectorConfig: multi}
	}
	_, err = qdrantapi.NewCollectionsClient(conn).Create(t.Context(), &qdrantapi.CreateCollection{
		CollectionName: items, VectorsConfig: qdrantapi.NewVectorsConfigMap(map[string]*qdrantapi.VectorParams{
			"vec": cosine(nil), "tokens": cosine(&qdrantapi.MultiVectorConfig{Comparator: qdrantapi.MultiVectorComparator_MaxSim}),
		}),
	})
	must(t, err)
	w := lateWorld{db: store, points: qdrantapi.NewPointsClient(conn), model: lateModel(t)}
	for id := range uint64(lateItems) {
		w.put(t, id, id)
	}
	return w
}

// lateModel fits a companion to late interaction, by random queries.
func lateModel(t *testing.T) route.Model {
	t.Helper()
	plain, err := model.New(model.Parameters{Name: "late", Kind: rerank.KindLate, Config: []byte(`{"dim": 6, "normalise": true}`)})
	must(t, err)
	random := func(n int, seed uint64) (rerank.Matrix, []int32) {
		m, starts := rerank.Matrix{Cols: lateDim}, []int32{0}
		for i := range uint64(n) {
			for _, v := range tokensOf(seed + i) {
				m.Data, m.Rows = append(m.Data, v...), m.Rows+1
			}
			starts = append(starts, int32(m.Rows))
		}
		return m, starts
	}
	var d fit.Data
	d.Items, d.ItemStarts = random(lateItems, 0)
	d.Queries, d.QueryStarts = random(150, 1000)
	o := fitcompanion.DefaultOptions()
	o.Dim, o.Hidden, o.Leak, o.K, o.Depths = 24, 24, 1, 5, []int{10}
	found, err := fitcompanion.Fit(t.Context(), plain.Similarity, d, o)
	must(t, err)
	p := plain.Parameters()
	p.Tensors = maps.Clone(found.Tensors)
	m, err := model.New(p)
	must(t, err)
	return route.Model{Name: m.Name, Version: m.Version, Similarity: m.Similarity}
}

// put writes a row with the vectors of the given seed. With seed 0 of another row than 0, the row has no
// tokens.
func (w lateWorld) put(t *testing.T, id, seed uint64) {
	t.Helper()
	vectors := map[string]*qdrantapi.Vector{"vec": qdrantapi.NewVectorDense(tokensOf(seed)[0])}
	if seed != 0 || id == 0 {
		vectors["tokens"] = qdrantapi.NewVectorMulti(tokensOf(seed))
	}
	_, err := w.points.Upsert(t.Context(), &qdrantapi.UpsertPoints{CollectionName: items, Wait: proto.Bool(true), Points: []*qdrantapi.PointStruct{{
		Id: qdrantapi.NewIDNum(id), Vectors: qdrantapi.NewVectorsMap(vectors), Payload: qdrantapi.NewValueMap(map[string]any{"seed": int64(seed)}),
	}}})
	must(t, err)
}

// putTokens replaces the tokens of a row, and leaves its other vector.
func (w lateWorld) putTokens(t *testing.T, id uint64, rows [][]float32) {
	t.Helper()
	_, err := w.points.UpdateVectors(t.Context(), &qdrantapi.UpdatePointVectors{CollectionName: items, Wait: proto.Bool(true), Points: []*qdrantapi.PointVectors{{
		Id: qdrantapi.NewIDNum(id), Vectors: qdrantapi.NewVectorsMap(map[string]*qdrantapi.Vector{"tokens": qdrantapi.NewVectorMulti(rows)}),
	}}})
	must(t, err)
}

// source returns the items' vectors of a field.
func (w lateWorld) source(field string) index.Source {
	return index.Source{Store: w.db, Collection: items, Vector: field}
}

// placed returns the ids that the companion has, and the vector of one of them.
func (w lateWorld) placed(t *testing.T, one uint64) (found []rerank.ID, vector []float32) {
	t.Helper()
	rows, err := w.db.Fetch(t.Context(), adapters.FetchRequest{Collection: lateCompanion, IDs: ids(one, 3, 5, 6, 90), Vectors: []string{learned.Field}})
	must(t, err)
	return rows.IDs, rows.Vectors[0].Row(slices.Index(rows.IDs, rerank.UintID(one)))
}

// TestFollowsSeveralVectors: a companion that follows from several vectors of a row is made anew with the
// row, beside a table that follows from another field of the collection, and a pass repairs both.
func TestFollowsSeveralVectors(t *testing.T) {
	w := newLateWorld(t)
	_, err := index.BuildCompanion(t.Context(), index.CompanionJob{
		Source: w.source("tokens"), Model: w.model, Writer: w.db, Name: lateCompanion, Strategies: []rerank.Strategy{rerank.Companion},
	})
	must(t, err)
	late := &route.Route{
		Policy: route.Policy{Name: "late", Collection: items, Vector: "vec", Vectors: "tokens", StoreName: "main", Companion: lateCompanion, Placement: route.PlacementStored},
		Parts:  route.Parts{Store: w.db, Model: w.model},
	}
	single := w.single(t)
	f, err := follow.New(follow.Options{Store: w.db, Dir: t.TempDir()}, []follow.Route{{Route: late}, {Route: single}})
	must(t, err)
	t.Cleanup(func() { must(t, f.Close(closing(t))) })
	fresh(t, late)
	_, before := w.placed(t, 3)

	done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(3, 6, 90)})
	w.put(t, 3, 777)
	w.put(t, 6, 0)
	w.put(t, 90, 90)
	done()
	done = begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Delete, IDs: ids(5)})
	must(t, w.db.Delete(t.Context(), items, ids(5)))
	done()
	fresh(t, late)
	fresh(t, single)
	found, after := w.placed(t, 3)
	slices.SortFunc(found, rerank.ID.Compare)
	if !slices.Equal(found, ids(3, 90)) || slices.Equal(before, after) {
		t.Errorf("the companion has %v; item 3 moved: %t", found, !slices.Equal(before, after))
	}
	agree(t, late, lateItems)
	agree(t, single, lateItems)

	w.putTokens(t, 4, tokensOf(778)) // not seen
	must(t, w.db.Delete(t.Context(), items, ids(90)))
	drift, err := f.Reconcile(t.Context(), items)
	if must(t, err); drift["late"].Changed != 1 || drift["late"].Rows != lateItems-1 || drift["single"].Changed != 0 {
		t.Errorf("%+v", drift)
	}
	agree(t, late, lateItems-1)
	agree(t, single, lateItems-1)
}

// single returns a route with a live table of the vectors in "vec".
func (w lateWorld) single(t *testing.T) *route.Route {
	t.Helper()
	s, err := dot.New(dot.Config{Dim: lateDim, Normalise: true}, nil)
	must(t, err)
	m := route.Model{Name: "cosine", Version: "1", Similarity: s}
	path := filepath.Join(t.TempDir(), "items.table")
	_, err = index.BuildTable(t.Context(), index.TableJob{Source: w.source("vec"), Model: m, Path: path})
	must(t, err)
	l, err := table.OpenLive(path, table.Expect{}, table.LiveOptions{Unsynced: true})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return &route.Route{
		Policy: route.Policy{Name: "single", Collection: items, Vector: "vec", StoreName: "main", Placement: route.PlacementTable},
		Parts:  route.Parts{Store: w.db, Model: m, Live: l},
	}
}

// TestCompareSeveralVectors: a table of several vectors a row is compared whole.
func TestCompareSeveralVectors(t *testing.T) {
	w := newLateWorld(t)
	path := filepath.Join(t.TempDir(), "items.table")
	_, err := index.BuildTable(t.Context(), index.TableJob{Source: w.source("tokens"), Model: w.model, Path: path, Format: rerank.FormatBFloat16})
	must(t, err)
	open, err := table.Open(path, table.Expect{})
	must(t, err)
	t.Cleanup(func() { must(t, open.Close()) })
	r := &route.Route{
		Policy: route.Policy{Name: "late", Collection: items, Vectors: "tokens", StoreName: "main", Placement: route.PlacementTable},
		Parts:  route.Parts{Store: w.db, Model: w.model, Table: open},
	}
	agree(t, r, lateItems)
	for i, v := range tokensOf(7) { // the last number of each vector in turn
		rows := tokensOf(7)
		rows[i] = slices.Clone(v)
		rows[i][lateDim-1]++
		w.putTokens(t, 7, rows)
		if d, err := follow.Compare(t.Context(), r, nil); err != nil || d.Changed != 1 {
			t.Errorf("vector %d: %+v, %v", i, d, err)
		}
	}
}
