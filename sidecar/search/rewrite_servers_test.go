package search_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	client "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// served is a collection in a real store.
type served struct {
	*world
	adapters.Store
	wide rerank.Matrix // the vectors that φ compares, normalised if the model requires it
}

// onServer writes rows of all lengths into a new collection of a real store.
func onServer(t *testing.T, store adapters.Store, sim rerank.Similarity, metric adapters.Metric) served {
	t.Helper()
	vectors := random(41, 700, rewriteDim)
	for r := range vectors.Rows {
		for i := range vectors.Row(r) {
			vectors.Row(r)[i] *= float32(math.Pow(10, float64(r%5)/2-1))
		}
	}
	can := adapters.AbilitiesOf(store)
	schema := adapters.Schema{Collection: collection, Fields: []adapters.VectorField{{Name: vectorField, Dim: rewriteDim, Metric: metric}}}
	must(t, can.Write.Drop(t.Context(), collection))
	must(t, can.Write.Create(t.Context(), schema))
	s := served{newWorld(t, sim, vectors), store, vectors}
	must(t, can.Write.Write(t.Context(), collection, schema, adapters.Rows{IDs: s.items(), Vectors: []rerank.Matrix{vectors}}))
	if sim.Spec().Normalise {
		s.wide = rerank.NewMatrix(vectors.Rows, rewriteDim)
		must(t, sim.EncodeItems(s.wide, vectors))
	}
	return s
}

// phi returns φ of a row in float64, computed with the model's rewritten query.
func (s served) phi(t *testing.T, q rerank.Query, id rerank.ID) float64 {
	t.Helper()
	e, err := s.sim.Encode(q)
	must(t, err)
	p, ok := rerank.EncodedAbilitiesOf(e).PullBack.PullBack()
	if !ok {
		t.Fatal("the query cannot be pulled back")
	}
	n, _ := id.Uint64()
	return float64(p.Scale)*inner(p.Vector, s.wide.Row(int(n))) + float64(p.Offset)
}

// TestRewriteOnServers: real stores give the exact answer in one search, with scores as
// exact as the certificate says.
func TestRewriteOnServers(t *testing.T) {
	stores := map[string]func(*testing.T) adapters.Store{
		"qdrant": func(t *testing.T) adapters.Store {
			s, err := qdrant.Open(qdrant.Options{Address: servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}).Address})
			must(t, err)
			return s
		},
		"milvus-lite": func(t *testing.T) adapters.Store {
			s, err := milvus.New(t.Context(), milvus.Options{Address: servers.MilvusLiteForTest(t, servers.Options{}).Address, Companion: milvus.Index{Type: "FLAT"}})
			must(t, err)
			return s
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			t.Cleanup(func() { _ = store.Close() })
			for _, metric := range []adapters.Metric{adapters.InnerProduct, adapters.Cosine} {
				s := onServer(t, store, newBilinear(t, bilinear.IdentityLowRank, metric == adapters.Cosine), metric)
				t.Run(string(metric), s.rewritten)
			}
		})
	}
}

func (s served) rewritten(t *testing.T) {
	calls := &recorder.Recorder{}
	store, err := recorder.New(s.Store, calls, recorder.Hooks{})
	must(t, err)
	p := pipe(t, s.route("", func(r *route.Route) { r.Store, r.Vector, r.ExactSearch = store, vectorField, true }))
	must(t, p.Open(t.Context()))
	if r := p.Routes()[0]; r.Placement != route.PlacementRewrite {
		t.Fatalf("placement %q: %s", r.Placement, r.WhyNotRewritten)
	}
	for seed := range uint64(20) {
		calls.Forget()
		q := rerank.Query{Vector: random(1000+seed, 1, rewriteDim).Row(0)}
		excluded, truth := excludeBest(s.exact(t, q.Vector, nil), int(seed%3)*20)
		a, err := p.Search(context.Background(), search.Request{Route: "r", Query: q, K: 10, Exclude: excluded[:len(excluded)-1]})
		must(t, err)
		if a.Certificate.Status != rerank.StatusExact || len(calls.Calls(recorder.Search, recorder.Fetch)) != 1 || calls.Calls(recorder.Search)[0].Argument.(adapters.SearchRequest).WithVectors {
			t.Fatalf("%d calls: %+v", len(calls.Calls()), a.Certificate)
		}
		for i, want := range truth[:10] {
			h := a.Hits[i]
			if d := math.Abs(float64(h.Score) - float64(want.Score)); h.ID != want.ID && d > 2*float64(a.Certificate.Epsilon) {
				t.Fatalf("query %d, hit %d is %s with %v, want %s with %v", seed, i, h.ID, h.Score, want.ID, want.Score)
			}
			if off := math.Abs(float64(h.Score) - s.phi(t, q, h.ID)); off > float64(a.Certificate.Epsilon) {
				t.Errorf("query %d, hit %d: the score is off by %v, ε is %v", seed, i, off, a.Certificate.Epsilon)
			}
		}
	}
}

// openQdrant starts a Qdrant, and opens it as a store and as its own client does.
func openQdrant(t *testing.T) (*qdrant.Store, *grpc.ClientConn) {
	t.Helper()
	server := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	store, err := qdrant.Open(qdrant.Options{Address: server.Address})
	must(t, err)
	conn, err := grpc.NewClient(server.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(conn.Close(), store.Close())) })
	return store, conn
}

// askRewritten sends a query as the rewritten search that it is, as an exact one for ten rows.
func askRewritten(t *testing.T, p *search.Engine, points client.PointsClient, q rerank.Query) ([]search.Hit, rerank.Certificate) {
	t.Helper()
	got, err := p.Rewrite(t.Context(), search.Request{Route: "r", Query: q, K: 10})
	must(t, err)
	answer, err := points.Query(t.Context(), &client.QueryPoints{
		CollectionName: got.Collection, Query: client.NewQueryDense(got.Vector), Using: proto.String(vectorField),
		Limit: proto.Uint64(10), Params: &client.SearchParams{Exact: proto.Bool(true)},
	})
	must(t, err)
	var hits []search.Hit
	for _, r := range answer.GetResult() {
		hits = append(hits, search.Hit{ID: rerank.UintID(r.GetId().GetNum()), Score: got.Score(r.GetScore())})
	}
	return hits, got.Answered(t.Context(), search.DatabaseAnswer{Hits: hits, Exact: true})
}

// TestRewrittenQueryOnQdrant: the database's own scores of the rewritten vector become φ,
// within the ε of the certificate, for every length of a query.
func TestRewrittenQueryOnQdrant(t *testing.T) {
	store, conn := openQdrant(t)
	points := client.NewPointsClient(conn)
	for _, metric := range []adapters.Metric{adapters.InnerProduct, adapters.Cosine} {
		s := onServer(t, store, newBilinear(t, bilinear.Full, metric == adapters.Cosine), metric)
		p := pipe(t, s.route("", func(r *route.Route) { r.Store, r.Vector = store, vectorField }))
		for _, length := range []float32{1e-5, 1, 1e5} {
			q := rerank.Query{Vector: random(77, 1, rewriteDim).Row(0)}
			for i := range q.Vector {
				q.Vector[i] *= length
			}
			hits, c := askRewritten(t, p, points, q)
			where := fmt.Sprintf("%s, length %g", metric, length)
			if c.Status != rerank.StatusExact || len(hits) != 10 {
				t.Errorf("%s: %d hits, %+v", where, len(hits), c)
			}
			var ids, want []rerank.ID
			for i, h := range s.exact(t, q.Vector, nil)[:10] {
				ids, want = append(ids, hits[i].ID), append(want, h.ID)
				if off := math.Abs(float64(hits[i].Score) - s.phi(t, q, hits[i].ID)); off > float64(c.Epsilon) {
					t.Errorf("%s, hit %d: the score %v is off by %v, ε is %v", where, i, hits[i].Score, off, c.Epsilon)
				}
			}
			if !slices.Equal(ids, want) {
				t.Errorf("%s: %v, want %v", where, ids, want)
			}
		}
	}
}

// TestRewrittenQueryOnFloat16: Qdrant rounds a query of a float16 field to float16. Its scores
// become φ of the stored vectors within the ε of the certificate, which proves nothing else, and
// a query that float16 cannot hold is not rewritten.
func TestRewrittenQueryOnFloat16(t *testing.T) {
	store, conn := openQdrant(t)
	points := client.NewPointsClient(conn)
	for metric, distance := range map[adapters.Metric]client.Distance{adapters.InnerProduct: client.Distance_Dot, adapters.Cosine: client.Distance_Cosine} {
		sim := newBilinear(t, bilinear.Full, metric == adapters.Cosine)
		w := newWorld(t, sim, random(41, 300, rewriteDim))
		var rows []*client.PointStruct
		for i := range w.vectors.Rows {
			rows = append(rows, &client.PointStruct{Id: client.NewIDNum(uint64(i)), Vectors: client.NewVectorsMap(map[string]*client.Vector{vectorField: client.NewVectorDense(w.vectors.Row(i))})})
		}
		collections := client.NewCollectionsClient(conn)
		_, err := collections.Delete(t.Context(), &client.DeleteCollection{CollectionName: collection})
		must(t, err)
		_, err = collections.Create(t.Context(), &client.CreateCollection{CollectionName: collection, VectorsConfig: client.NewVectorsConfigMap(map[string]*client.VectorParams{
			vectorField: {Size: rewriteDim, Distance: distance, Datatype: client.Datatype_Float16.Enum()},
		})})
		must(t, err)
		_, err = points.Upsert(t.Context(), &client.UpsertPoints{CollectionName: collection, Wait: proto.Bool(true), Points: rows})
		must(t, err)
		kept, err := store.Fetch(t.Context(), adapters.FetchRequest{Collection: collection, Vectors: []string{vectorField}, IDs: w.items()})
		must(t, err)
		s := served{newWorld(t, sim, kept.Vectors[0]), store, kept.Vectors[0]}
		if sim.Spec().Normalise {
			s.wide = rerank.NewMatrix(s.vectors.Rows, rewriteDim)
			must(t, sim.EncodeItems(s.wide, s.vectors))
		}
		p := pipe(t, s.route("", func(r *route.Route) { r.Store, r.Vector = store, vectorField }))
		rounded := false
		for seed := range uint64(20) {
			q := rerank.Query{Vector: random(70+seed, 1, rewriteDim).Row(0)}
			hits, c := askRewritten(t, p, points, q)
			if len(hits) != 10 || c.Status != rerank.StatusUnknown {
				t.Errorf("%s: %d hits, %+v", metric, len(hits), c)
			}
			for _, h := range hits {
				off := math.Abs(float64(h.Score) - s.phi(t, q, h.ID))
				if rounded = rounded || off > float64(c.Epsilon)/100; off > float64(c.Epsilon) {
					t.Errorf("%s, query %d: the score %v is off by %v, ε is %v", metric, seed, h.Score, off, c.Epsilon)
				}
			}
		}
		if !rounded {
			t.Errorf("%s: no score is off", metric)
		}
		large := rerank.Query{Vector: random(70, 1, rewriteDim).Row(0)}
		for i := range large.Vector {
			large.Vector[i] *= 1e6
		}
		if _, err := p.Rewrite(t.Context(), search.Request{Route: "r", Query: large, K: 10}); errors.Is(err, search.ErrNotRewritten) != (metric == adapters.InnerProduct) {
			t.Errorf("%s: a large query: %v", metric, err)
		}
		a, err := p.Search(t.Context(), search.Request{Route: "r", Query: large, K: 10}) // which reads the vectors themselves
		must(t, err)
		if len(a.Hits) != 10 || !rerank.IsFinite(a.Hits[0].Score) {
			t.Errorf("%s: a large query: %+v", metric, a)
		}
	}
}

// TestRewrittenMaxSim: where each point of a field has several vectors, the database's own
// answer to one vector is the answer by max-sim. It needs no owner field, and what would read
// the vectors is refused.
func TestRewrittenMaxSim(t *testing.T) {
	store, conn := openQdrant(t)
	points, collections := client.NewPointsClient(conn), client.NewCollectionsClient(conn)
	vectors := random(51, 900, rewriteDim)
	items := vectors.Rows / 3
	for _, metric := range []adapters.Metric{adapters.InnerProduct, adapters.Cosine} {
		cosine := metric == adapters.Cosine
		distance := client.Distance_Dot
		if cosine {
			distance = client.Distance_Cosine
		}
		must(t, adapters.AbilitiesOf(store).Write.Drop(t.Context(), collection))
		_, err := collections.Create(t.Context(), &client.CreateCollection{CollectionName: collection, VectorsConfig: client.NewVectorsConfigMap(map[string]*client.VectorParams{
			vectorField: {Size: rewriteDim, Distance: distance, MultivectorConfig: &client.MultiVectorConfig{Comparator: client.MultiVectorComparator_MaxSim}}, "plain": {Size: 2, Distance: client.Distance_Dot},
		})})
		must(t, err)
		var rows []*client.PointStruct
		for i := range items {
			own := [][]float32{vectors.Row(3 * i), vectors.Row(3*i + 1), vectors.Row(3*i + 2)}[:1+i%3]
			rows = append(rows, &client.PointStruct{Id: client.NewIDNum(uint64(i)), Vectors: client.NewVectorsMap(map[string]*client.Vector{vectorField: client.NewVectorMulti(own)})})
		}
		_, err = points.Upsert(t.Context(), &client.UpsertPoints{CollectionName: collection, Wait: proto.Bool(true), Points: rows})
		must(t, err)
		sim, err := maxsim.New(maxsim.Config{Dim: rewriteDim, Normalise: cosine}, nil)
		must(t, err)
		w := newWorld(t, sim, vectors)
		named := func(vector string) *route.Route {
			return w.route("", func(r *route.Route) { r.Store, r.Vector, r.Owner, r.ExactSearch = store, vector, "", true })
		}
		p := pipe(t, named(vectorField))
		must(t, p.Open(t.Context()))
		for seed := range uint64(20) {
			q := random(300+seed, 1, rewriteDim).Row(0)
			best := rerank.NewTopK(10)
			for i := range items {
				score := math.Inf(-1)
				for r := 3 * i; r <= 3*i+i%3; r++ {
					one := inner(q, vectors.Row(r))
					if cosine {
						one /= rerank.Norm(q) * rerank.Norm(vectors.Row(r))
					}
					score = max(score, one)
				}
				best.Push(rerank.Scored{ID: rerank.UintID(uint64(i)), Score: float32(score)})
			}
			request := search.Request{Route: "r", Query: rerank.Query{Vector: q}, K: 10}
			a, err := p.Search(t.Context(), request)
			must(t, err)
			got, err := p.Rewrite(t.Context(), request)
			must(t, err)
			answer, err := points.Query(t.Context(), &client.QueryPoints{CollectionName: collection, Query: client.NewQueryDense(got.Vector), Using: proto.String(vectorField), Limit: proto.Uint64(10)})
			must(t, err)
			for i, want := range best.Sorted() {
				proxied := answer.GetResult()[i]
				same := a.Hits[i].ID == want.ID && rerank.UintID(proxied.GetId().GetNum()) == want.ID
				if !same || !(math.Abs(float64(a.Hits[i].Score-want.Score)) <= 1e-5) || !(math.Abs(float64(got.Score(proxied.GetScore())-want.Score)) <= 1e-5) {
					t.Errorf("%s, query %d, hit %d: %+v and %v, want %+v", metric, seed, i, a.Hits[i], proxied, want)
				}
			}
			if want := map[bool]rerank.Status{true: rerank.StatusExact, false: rerank.StatusUnknown}[cosine]; a.Certificate.Status != want { // norms of the vectors are not known
				t.Errorf("%s: %+v, want %s", metric, a.Certificate, want)
			}
		}
		if _, err := p.Search(t.Context(), search.Request{Route: "r", Query: rerank.Query{Vector: random(1, 1, rewriteDim).Row(0)}, K: 10, Explain: true}); !errors.Is(err, plan.ErrRequest) {
			t.Errorf("%s, explained: %v", metric, err)
		}
		dense := newWorld(t, newBilinear(t, bilinear.Full, cosine), vectors)
		err = pipe(t, dense.route("", func(r *route.Route) { r.Store, r.Vector = store, vectorField })).Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), "several vectors a row") {
			t.Errorf("%s, a model of one vector an item: %v", metric, err)
		}
		orders := named(vectorField)
		orders.OptIn = []string{"prefetch"}
		if err := route.Consistent(orders); !errors.Is(err, route.ErrSetup) || !strings.Contains(err.Error(), "opt_in") {
			t.Errorf("%s, rows of prefetches: %v", metric, err)
		}
		if err := pipe(t, named("plain")).Open(t.Context()); !errors.Is(err, route.ErrSetup) {
			t.Errorf("%s, a field of one vector a row: %v", metric, err)
		}
	}
}
