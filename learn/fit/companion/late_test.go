package companion

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/rerank/model"
)

// lateData returns items of several vectors in a few directions, and queries whose vectors are near
// vectors of two items.
func lateData(items, queries, dim int) fit.Data {
	rng := rand.New(rand.NewPCG(7, 1))
	d := fit.Data{ItemStarts: []int32{0}, QueryStarts: []int32{0}, Items: rerank.Matrix{Cols: dim}, Queries: rerank.Matrix{Cols: dim}}
	for x := range items {
		n := 3 + rng.IntN(6)
		for range n {
			for range dim {
				d.Items.Data = append(d.Items.Data, float32(rng.NormFloat64()))
			}
			d.Items.Rows++
		}
		d.ItemStarts = append(d.ItemStarts, d.ItemStarts[x]+int32(n))
	}
	for q := range queries {
		n := 1 + rng.IntN(5)
		for range n {
			near := d.Items.Row(rng.IntN(d.Items.Rows))
			for _, v := range near {
				d.Queries.Data = append(d.Queries.Data, v+0.5*float32(rng.NormFloat64()))
			}
			d.Queries.Rows++
		}
		d.QueryStarts = append(d.QueryStarts, d.QueryStarts[q]+int32(n))
	}
	return d
}

// TestAFitThatEndsWhileItIsJudged has the context's error, at whichever stage.
func TestAFitThatEndsWhileItIsJudged(t *testing.T) {
	m, err := model.New(model.Parameters{Name: "late", Kind: rerank.KindLate, Config: []byte(`{"dim": 4, "normalise": true}`)})
	if err != nil {
		t.Fatal(err)
	}
	d := lateData(40, 60, 4)
	for _, last := range []string{"ranking by the model, held-out queries", "placing the items"} {
		ctx, cancel := context.WithCancel(t.Context())
		o := DefaultOptions()
		o.Dim, o.Hidden, o.Depths = 8, 8, []int{10}
		ended := false
		o.Progress = func(stage string, _ int) func(int) {
			if stage == last {
				ended = true
				cancel()
			}
			return func(int) {}
		}
		if got, err := Fit(ctx, m.Similarity, d, o); !errors.Is(err, context.Canceled) || !ended {
			t.Errorf("%s: %v, %v; want Canceled", last, got, err)
		}
		cancel()
	}
}

// TestLateInteraction: one inner product finds the best ten of late interaction, better than the mean of
// the vectors does, and the model that carries the companion derives the vectors and sends the probe that
// the fit measured.
func TestLateInteraction(t *testing.T) {
	const dim = 12
	d := lateData(400, 1500, dim)
	plain, err := model.New(model.Parameters{Name: "late", Kind: rerank.KindLate, Config: []byte(`{"dim": 12, "normalise": true}`)})
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Dim, o.Hidden, o.Leak, o.Depths, o.Items = 200, 256, 1, []int{40}, 300
	found, err := Fit(t.Context(), plain.Similarity, d, o)
	if err != nil {
		t.Fatal(err)
	}
	r := found.Report
	t.Logf("%+v", r)
	own, pooled := r.Find(rerank.Companion, ""), r.Find(rerank.Average, "")
	if r.Items != 400 || r.SampledItems != 300 || r.Queries != 1500 || own.Recall[0] < 0.85 || own.Recall[0] < pooled.Recall[0]+0.3 {
		t.Errorf("%+v", r)
	}

	p := plain.Parameters()
	p.Tensors = maps.Clone(found.Tensors)
	with, err := model.New(p)
	if err != nil {
		t.Fatal(err)
	}
	all, err := teacher.New(with.Similarity, d)
	if err != nil {
		t.Fatal(err)
	}
	placed := rerank.NewMatrix(400, r.Dim)
	if err := all.Abilities.Derive.Derive(placed, companion.Field, all.Encoded); err != nil {
		t.Fatal(err)
	}
	var hits float64
	for q := range int32(100) {
		for _, isFound := range foundOfBest(t, all, placed, q, 60) {
			if isFound {
				hits++
			}
		}
	}
	if hits/1000 < 0.85 {
		t.Errorf("of the best ten, the model's own vectors find %.3f", hits/1000)
	}
}

func TestRefusesVectors(t *testing.T) {
	s, err := late.New(late.Config{Dim: 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*fit.Data){
		"an item without vectors":   func(d *fit.Data) { d.ItemStarts[2] = d.ItemStarts[1] },
		"rows of no query":          func(d *fit.Data) { d.QueryStarts = d.QueryStarts[:len(d.QueryStarts)-1] },
		"rows before the first one": func(d *fit.Data) { d.ItemStarts[0] = 1 },
		"no starts":                 func(d *fit.Data) { d.QueryStarts = []int32{} },
	} {
		d := lateData(20, 20, 4)
		change(&d)
		if _, err := Fit(t.Context(), s, d, DefaultOptions()); !errors.Is(err, fit.ErrData) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, one := questions(t, 50)
	one.QueryStarts = []int32{0, int32(one.Queries.Rows)}
	if _, err := Fit(t.Context(), m.Similarity, one, DefaultOptions()); !errors.Is(err, fit.ErrData) {
		t.Errorf("several vectors for a mixture: %v", err)
	}
}

// TestVectorsOfAnchors: single vectors of the anchors, and of no other query, become queries of one vector; the queries
// that were there stay, and a vector without a direction is left out.
func TestVectorsOfAnchors(t *testing.T) {
	d := fit.Data{
		Queries:     rerank.Matrix{Rows: 6, Cols: 1, Data: []float32{10, 11, 20, 30, 0, 40}},
		QueryStarts: []int32{0, 2, 3, 5, 6},
		Times:       []int64{1, 2, 3, 4},
	}
	for _, c := range []struct {
		anchors      int
		whole, parts int
	}{{anchors: 1, whole: 1, parts: vectorsPerAnchor}, {anchors: 2 * anchorsPerWhole, whole: 2, parts: 4}} {
		o := DefaultOptions()
		o.Anchors = c.anchors
		made, anchors := withVectors(d, []int32{0, 2, 3}, o)
		if len(anchors) != c.whole+c.parts || made.QueryCount() != d.QueryCount()+c.parts || made.CheckStarts() != nil || made.Times != nil {
			t.Fatalf("anchors %v of %d queries, want %d whole and %d parts", anchors, made.QueryCount(), c.whole, c.parts)
		}
		if !slices.Equal(made.Queries.Data[:6], d.Queries.Data) || !slices.Equal(made.QueryStarts[:5], d.QueryStarts) {
			t.Errorf("the queries are now %v from %v", made.Queries.Data, made.QueryStarts)
		}
		seen := map[float32]bool{}
		for i, a := range anchors {
			own := made.Queries.Data[made.QueryStarts[a]:made.QueryStarts[a+1]]
			if (i < c.whole) != (a < 4) || i >= c.whole && (len(own) != 1 || seen[own[0]] || !slices.Contains([]float32{10, 11, 30, 40}, own[0])) {
				t.Errorf("anchor %d is query %d with the vectors %v", i, a, own)
			}
			seen[own[0]] = i >= c.whole
		}
	}
}
