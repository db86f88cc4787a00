package search_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/internal/race"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// kinds maps names to functions that make a random similarity for vectors of dim elements, and its
// oracle.
var kinds = map[string]func(testing.TB, *rand.Rand, int) (rerank.Similarity, oracle){
	"dot": func(t testing.TB, rng *rand.Rand, dim int) (rerank.Similarity, oracle) {
		c := dot.Config{Dim: dim, Normalise: coin(rng)}
		s, err := dot.New(c, nil)
		must(t, err)
		return s, formula(c.Normalise, nil, dim)
	},
	"maxsim": func(t testing.TB, rng *rand.Rand, dim int) (rerank.Similarity, oracle) {
		c := maxsim.Config{Dim: dim, Normalise: coin(rng)}
		s, err := maxsim.New(c, nil)
		must(t, err)
		return s, formula(c.Normalise, nil, dim)
	},
	"bilinear": randomBilinear,
	"mol":      randomMoL,
}

func coin(rng *rand.Rand) bool { return rng.IntN(2) == 0 }

func normals(rng *rand.Rand, scale float64, shape ...int) tensor.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	t := tensor.Tensor{Shape: shape, Data: make([]float32, n)}
	for i := range t.Data {
		t.Data[i] = float32(scale * rng.NormFloat64())
	}
	return t
}

func randomBilinear(t testing.TB, rng *rand.Rand, dim int) (rerank.Similarity, oracle) {
	forms := []bilinear.Form{bilinear.Full, bilinear.LowRank, bilinear.IdentityLowRank, bilinear.Diagonal}
	c := bilinear.Config{QueryDim: dim, ItemDim: dim, Normalise: coin(rng), Form: forms[rng.IntN(len(forms))]}
	rank := 1 + rng.IntN(dim)
	set := tensor.Set{}
	var w func(i, j int) float64
	switch c.Form {
	case bilinear.Full:
		set["W"] = normals(rng, 1, dim, dim)
		w = func(i, j int) float64 { return float64(set["W"].Data[i*dim+j]) }
	case bilinear.Diagonal:
		set["w"] = normals(rng, 1, dim)
		w = func(i, j int) float64 {
			if i != j {
				return 0
			}
			return float64(set["w"].Data[i])
		}
	default:
		set["P"], set["Q"] = normals(rng, .5, dim, rank), normals(rng, .5, dim, rank)
		w = func(i, j int) (sum float64) {
			if c.Form == bilinear.IdentityLowRank && i == j {
				sum = 1
			}
			for k := range rank {
				sum += float64(set["P"].Data[i*rank+k]) * float64(set["Q"].Data[j*rank+k])
			}
			return sum
		}
	}
	s, err := bilinear.New(c, set)
	must(t, err)
	size := 1.0
	if c.Form == bilinear.LowRank || c.Form == bilinear.IdentityLowRank {
		size = rerank.Norm(set["P"].Data) * rerank.Norm(set["Q"].Data)
	}
	for _, m := range set {
		size = math.Max(size, 1+rerank.Norm(m.Data))
	}
	o := formula(c.Normalise, w, dim)
	o.size = size
	return s, o
}

// randomMoL returns a small MoL with random kinds of gates, a third of them query-only.
func randomMoL(t testing.TB, rng *rand.Rand, dim int) (rerank.Similarity, oracle) {
	c := mol.Config{
		QueryDim: dim, ItemDim: dim, Dim: 2 + rng.IntN(3), PairsQuery: 1 + rng.IntN(3), PairsItem: 1 + rng.IntN(3),
		Temperature: []float64{.05, .2, 1}[rng.IntN(3)], L2Norm: coin(rng), Normalise: coin(rng), Combination: mol.None,
		GatingQueryHidden: 3, GatingItemHidden: 3, GatingPairHidden: 3 * rng.IntN(2),
	}
	pairs, set := c.PairsQuery*c.PairsItem, tensor.Set{}
	query, item := "_query_embeddings_fn._query_emb_proj_module", "_item_embeddings_fn._item_emb_proj_module"
	set[query+".1.weight"], set[query+".1.bias"] = normals(rng, 1, c.PairsQuery*c.Dim, dim), normals(rng, .1, c.PairsQuery*c.Dim)
	set[item+".1.weight"], set[item+".1.bias"] = normals(rng, 1, c.PairsItem*c.Dim, dim), normals(rng, .1, c.PairsItem*c.Dim)
	parts := rng.IntN(3)
	if parts > 0 {
		c.Combination = mol.GLUSiLU
		part := "_gating_fn._item_only_partial_module"
		set[part+".1.weight"], set[part+".1.bias"], set[part+".3.weight"] = normals(rng, 1, 3, dim), normals(rng, .1, 3), normals(rng, 1, pairs, 3)
		part = "_gating_fn._qi_partial_module"
		if c.GatingPairHidden > 0 {
			set[part+".1.weight"], set[part+".1.bias"] = normals(rng, .3, 3, pairs), normals(rng, .1, 3)
			set[part+".3.weight"], set[part+".3.bias"] = normals(rng, 1, pairs, 3), normals(rng, .1, pairs)
		} else {
			set[part+".1.weight"], set[part+".1.bias"] = normals(rng, .3, pairs, pairs), normals(rng, .1, pairs)
		}
	}
	part := "_gating_fn._query_only_partial_module"
	set[part+".0.weight"], set[part+".0.bias"], set[part+".2.weight"] = normals(rng, 1, 3, dim), normals(rng, .1, 3), normals(rng, 1, pairs, 3)
	s, err := mol.New(c, set)
	must(t, err)
	config, err := json.Marshal(c)
	must(t, err)
	return s, mixture(t, config, set)
}

// approximate drops rows from the lists of a store, as an approximate index does.
func approximate(rng *rand.Rand) func([]rerank.List) []rerank.List {
	return func(lists []rerank.List) []rerank.List {
		for i := range lists {
			l := &lists[i]
			l.Exact = false
			for at := len(l.IDs) - 1; at >= 0; at-- {
				if rng.IntN(4) > 0 || l.Vectors.Rows > 0 {
					continue
				}
				l.IDs, l.Scores = append(l.IDs[:at:at], l.IDs[at+1:]...), append(l.Scores[:at:at], l.Scores[at+1:]...)
				if l.Owners != nil {
					l.Owners = append(l.Owners[:at:at], l.Owners[at+1:]...)
				}
			}
		}
		return lists
	}
}

// trial is a world for which random searches are made.
type trial struct {
	*world
	oracle
	items     [][]float64
	pipelines []*search.Engine
	rng       *rand.Rand
	features  rerank.Matrix // computed when first needed
	norm      float64       // the greatest finite norm of a row
	exact     int           // answers that claimed to be exact
	by        map[rerank.Proof]int
}

func newTrial(t testing.TB, rng *rand.Rand, sim rerank.Similarity, o oracle, vectors rerank.Matrix) *trial {
	tr := &trial{world: newWorld(t, sim, vectors), oracle: o, rng: rng, by: map[rerank.Proof]int{}}
	for r := range vectors.Rows {
		tr.items = append(tr.items, o.item(wide(vectors.Row(r))))
		if norm := rerank.Norm(vectors.Row(r)); norm <= math.MaxFloat32 { // FuzzSearch has rows that are not numbers
			tr.norm = math.Max(tr.norm, norm)
		}
	}
	places := []route.Placement{route.PlacementTable, route.PlacementStored}
	if d, ok := sim.(rerank.Deriver); ok && len(d.Fields()) > 0 {
		places = append(places, route.PlacementDerived)
	}
	for _, p := range places {
		for _, missing := range []bool{false, true} {
			r := tr.route(p, func(r *route.Route) {
				r.Strategy, r.Failure = rerank.Average, route.FailClosed
				if sim.Spec().Kind == rerank.KindMoL && r.Companion == "" {
					r.Companion = companion
				}
				if missing {
					r.Store = &decorated{Store: tr.store, lists: approximate(rng)}
				}
			})
			tr.pipelines = append(tr.pipelines, pipe(t, r))
		}
	}
	return tr
}

// rounding returns how much the float32 numbers of a model may differ from its float64 oracle: 10⁻⁶
// of a bilinear form's greatest value, and for a MoL the tolerance of testdata/golden/README.md,
// 5·10⁻⁶ of the greatest |φ|.
func (tr *trial) rounding(q []float32, truth map[rerank.ID]float64) float64 {
	switch {
	case tr.sim.Spec().Kind == rerank.KindMoL:
		most := 1.0
		for _, phi := range truth {
			most = math.Max(most, math.Abs(phi))
		}
		return 5e-6 * most
	case tr.sim.Spec().Normalise:
		return 1e-6 * tr.size
	default:
		return 1e-6 * tr.size * rerank.Norm(q) * tr.norm
	}
}

// ask makes a random request and checks its answer. It returns false for a strategy that the model
// or placement lacks.
func (tr *trial) ask(t testing.TB, q []float32) bool {
	rng := tr.rng
	r := search.Request{
		Route: "r", Query: rerank.Query{Vector: q}, K: 1 + rng.IntN(12), Depth: 1 + rng.IntN(30), AverageDepth: 1 + rng.IntN(30),
		Strategy: []rerank.Strategy{rerank.PerEmbedding, rerank.Average, rerank.Combined, rerank.Distilled, rerank.Scan}[rng.IntN(5)],
	}
	var keep func(int) bool
	switch rng.IntN(6) {
	case 0:
		r.Filter, keep = even, isEven
	case 1:
		r.Filter, keep = first, isFirst
	}
	if coin(rng) {
		r.MaxGap = ptr(float32(rng.IntN(2)) * rng.Float32())
	}
	a, err := tr.pipelines[rng.IntN(len(tr.pipelines))].Search(context.Background(), r)
	if errors.Is(err, rerank.ErrStrategy) || errors.Is(err, plan.ErrRequest) && r.Strategy == rerank.Scan {
		return false
	}
	must(t, err)
	if a.Certificate.Status == rerank.StatusExact {
		tr.exact++
		tr.by[a.Certificate.Proof]++
	}
	truth := tr.truth(tr.world, tr.items, q, keep)
	if problem := contradiction(a, truth, r.K, tr.rounding(q, truth)); problem != "" {
		t.Fatalf("%s\nrequest %+v\ncertificate %+v", problem, r, a.Certificate)
	}
	tr.scoresKeepEpsilon(t, a, q)
	return true
}

// scoresKeepEpsilon compares the scores of an answer with inner products in float64 of the model's
// own float32 numbers: its feature rows and its side of the query. Only the kernel's rounding
// remains, which ε must cover without any allowance.
func (tr *trial) scoresKeepEpsilon(t testing.TB, a search.Answer, q []float32) {
	t.Helper()
	if !tr.sim.Spec().SingleInnerProduct {
		return
	}
	enc, err := tr.sim.Encode(rerank.Query{Vector: q})
	must(t, err)
	o := enc.(rerank.Operator).Operands()
	if tr.features.Rows == 0 {
		tr.features = rerank.NewMatrix(tr.vectors.Rows, tr.sim.Spec().Features)
		must(t, tr.sim.EncodeItems(tr.features, tr.vectors))
	}
	for _, h := range a.Hits {
		want := math.Inf(-1)
		for r, id := range tr.owners {
			if id == h.ID {
				want = math.Max(want, float64(o.Scale)*adversary.Dot(o.Vectors.Data, tr.features.Row(r)))
			}
		}
		if off := math.Abs(float64(h.Score) - want); off > float64(a.Certificate.Epsilon) {
			t.Fatalf("%s scores %v, off by %v; ε is %v\ncertificate %+v", h.ID, h.Score, off, a.Certificate.Epsilon, a.Certificate)
		}
	}
}

// contradiction compares an answer with the truth in float64. It reports a score that is wrong by
// more than ε, a missing item that exceeds the K-th by more than the gap, and one that exceeds it
// by more than 2ε in an exact answer. ε covers the store and the kernel; rounding covers the
// model's own numbers: features, Wᵀq, gates.
func contradiction(a search.Answer, truth map[rerank.ID]float64, k int, rounding float64) string {
	c := a.Certificate
	epsilon := float64(c.Epsilon) + rounding
	found := make(map[rerank.ID]bool, len(a.Hits))
	for i, h := range a.Hits {
		want, ok := truth[h.ID]
		if !ok || found[h.ID] || !(math.Abs(float64(h.Score)-want) <= epsilon) {
			return fmt.Sprintf("hit %d: %s scores %v, in truth %v, ε %v", i, h.ID, h.Score, want, epsilon)
		}
		if i > 0 && !rerank.Better(rerank.Scored{ID: a.Hits[i-1].ID, Score: a.Hits[i-1].Score}, rerank.Scored{ID: h.ID, Score: h.Score}) {
			return fmt.Sprintf("hit %d is not behind the one before it", i)
		}
		found[h.ID] = true
	}
	exact := c.Status == rerank.StatusExact
	if len(a.Hits) < k {
		if exact && len(a.Hits) < len(truth) || c.Gap == 0 && len(a.Hits) < len(truth) {
			return fmt.Sprintf("%d of %d items are called all", len(a.Hits), len(truth))
		}
		return ""
	}
	limit := math.Max(float64(c.Gap), 2*epsilon)
	if exact {
		limit = 2 * epsilon
	}
	for i := 1; c.Ordered && i < k; i++ {
		if before, after := truth[a.Hits[i-1].ID], truth[a.Hits[i].ID]; before < after-2*rounding {
			return fmt.Sprintf("hits %d and %d are called ordered and score %v and %v", i-1, i, before, after)
		}
	}
	kth := float64(a.Hits[k-1].Score)
	for id, phi := range truth {
		if c.Ordered && !found[id] && phi > truth[a.Hits[k-1].ID]+2*rounding {
			return fmt.Sprintf("%s is missing in an ordered answer", id)
		}
		if !found[id] && phi-kth > limit {
			return fmt.Sprintf("%s is missing and exceeds the K-th score by %v, more than %v", id, phi-kth, limit)
		}
	}
	return ""
}

// TestCertificatesAreTrue: on random models of every kind, with every strategy and placement, over
// exact lists and lists that miss rows, no certificate claims more than brute force in float64
// finds.
func TestCertificatesAreTrue(t *testing.T) {
	const perWorld = 25
	cases := 500
	if os.Getenv("LIKENESS_SOAK") != "" { // make soak
		cases = 10_000
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(len(name))))
			exact, by := 0, map[rerank.Proof]int{}
			for done := 0; done < cases/len(kinds); {
				dim := 2 + rng.IntN(8)
				sim, o := kind(t, rng, dim)
				vectors := normals(rng, 1, 3+rng.IntN(150), dim)
				tr := newTrial(t, rng, sim, o, rerank.Matrix{Rows: vectors.Shape[0], Cols: dim, Data: vectors.Data})
				for range perWorld {
					if tr.ask(t, normals(rng, 1, dim).Data) {
						done++
					}
				}
				exact += tr.exact
				for p, n := range tr.by {
					by[p] += n
				}
			}
			t.Logf("%d of %d answers were exact: %v", exact, cases/len(kinds), by)
			if by[rerank.ProofScan] == 0 || by[rerank.ProofExhausted] == 0 || by[rerank.ProofInnerProduct]+by[rerank.ProofBound] == 0 {
				t.Errorf("a way of proof was never taken: %v", by)
			}
		})
	}
}

// TestCertificatesOfTrainedModels does the same for the shipped models.
func TestCertificatesOfTrainedModels(t *testing.T) {
	if race.Enabled {
		t.Skip("off under the race detector; run without it")
	}
	for _, c := range []struct {
		model, items string
		rows, cases  int
	}{
		{"banking77-mol", "items_vectors.npy", 77, 60},
		{"banking77-questions-mol", "train_vectors.npy", 1500, 30},
		{"banking77-questions-bilinear", "train_vectors.npy", 10003, 60},
	} {
		t.Run(c.model, func(t *testing.T) {
			m, err := model.Open("../../examples/models/" + c.model)
			must(t, err)
			p := m.Parameters()
			var o oracle
			if p.Kind == rerank.KindMoL {
				o = mixture(t, p.Config, p.Tensors)
			} else {
				w, n := p.Tensors["W"], m.Spec().ItemDim
				o = formula(m.Spec().Normalise, func(i, j int) float64 { return float64(w.Data[i*n+j]) }, n)
			}
			items, queries := vectorsOf(t, c.items), vectorsOf(t, "test_vectors.npy")
			rng := rand.New(rand.NewPCG(2, 2))
			tr := newTrial(t, rng, m.Similarity, o, items.Slice(0, c.rows))
			for done := 0; done < c.cases; {
				if tr.ask(t, queries.Row(rng.IntN(queries.Rows))) {
					done++
				}
			}
			t.Logf("%d of %d answers were exact: %v", tr.exact, c.cases, tr.by)
		})
	}
}

func vectorsOf(t testing.TB, name string) rerank.Matrix {
	m, err := npy.Open("../../examples/data/banking77/" + name)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return m.Matrix
}
