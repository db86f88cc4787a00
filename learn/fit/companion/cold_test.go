package companion

import (
	"maps"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/model"
)

// TestColdItems: items that the fit never saw are found as well as those that it chose the companion by.
func TestColdItems(t *testing.T) {
	m, d := questions(t, 10)
	var warm, taught, judges []int32
	for x := int32(0); int(x) < d.Items.Rows; x += 2 {
		warm = append(warm, x)
	}
	for q := range int32(d.Queries.Rows) { // the questions are ordered by topic
		if q%4 == 0 {
			judges = append(judges, q)
		} else {
			taught = append(taught, q)
		}
	}
	seen, queries := rerank.NewMatrix(len(warm), d.Items.Cols), rerank.NewMatrix(len(taught), d.Queries.Cols)
	linalg.GatherRows(seen, d.Items, warm)
	linalg.GatherRows(queries, d.Queries, taught)
	o := DefaultOptions()
	o.Dim, o.Anchors, o.Hidden, o.Depths = 96, 1200, 96, []int{20}
	found, err := Fit(t.Context(), m.Similarity, fit.Data{Items: seen, Queries: queries}, o)
	if err != nil {
		t.Fatal(err)
	}
	p := m.Parameters()
	maps.Copy(p.Tensors, found.Tensors)
	with, err := model.New(p)
	if err != nil {
		t.Fatal(err)
	}
	all, err := teacher.New(with.Similarity, d)
	if err != nil {
		t.Fatal(err)
	}
	placed := rerank.NewMatrix(d.Items.Rows, o.Dim)
	if err := all.Abilities.Derive.Derive(placed, companion.Field, all.Encoded); err != nil {
		t.Fatal(err)
	}
	var hits, wanted [2]float64 // of items that the fit saw, and of others
	for _, q := range judges {
		for x, isFound := range foundOfBest(t, all, placed, q, 20) {
			wanted[x%2]++
			if isFound {
				hits[x%2]++
			}
		}
	}
	known, cold := hits[0]/wanted[0], hits[1]/wanted[1]
	t.Logf("recall@10 among 20 candidates: %.4f of items that the fit saw, %.4f of others", known, cold)
	if cold < known-0.01 {
		t.Errorf("items that the fit did not see are found less: %.4f of them, %.4f of the others", cold, known)
	}
}

// foundOfBest says which of a query's best ten items are among the candidates of most inner product with
// the companion vectors.
func foundOfBest(t *testing.T, all *teacher.Teacher, companions rerank.Matrix, query int32, candidates int) map[int32]bool {
	t.Helper()
	e, err := all.Encode(query)
	if err != nil {
		t.Fatal(err)
	}
	scores, products := make([]float32, companions.Rows), make([]float32, companions.Rows)
	if err := all.Score(scores, []rerank.Encoded{e}); err != nil {
		t.Fatal(err)
	}
	probes, err := e.Probes(rerank.Plan{Strategy: rerank.Companion, Depth: candidates, Derived: true})
	if err != nil {
		t.Fatal(err)
	}
	for x := range products {
		products[x] = float32(linalg.Dot(probes[0].Vector, companions.Row(x)))
	}
	found := map[int32]bool{}
	for _, x := range teacher.BestRows(scores, 10) {
		found[x] = false
	}
	for _, x := range teacher.BestRows(products, candidates) {
		if _, best := found[x]; best {
			found[x] = true
		}
	}
	return found
}
