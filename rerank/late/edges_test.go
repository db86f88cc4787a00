package late_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/internal/race"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/companion"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// TestDimensions: a model file cannot ask for vectors of any length.
func TestDimensions(t *testing.T) {
	for dim, fits := range map[int]bool{0: false, 1: true, 1 << 16: true, 1<<16 + 1: false} {
		if _, err := late.New(late.Config{Dim: dim}, nil); fits != (err == nil) || err != nil && !errors.Is(err, rerank.ErrModel) {
			t.Errorf("%d: %v", dim, err)
		}
	}
}

// TestTheGreatestScore: rounding makes the score of an item with itself exceed the number of vectors,
// and never the spec's greatest score.
func TestTheGreatestScore(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 2))
	s := build(t, late.Config{Dim: 3, Normalise: true})
	beyond := 0
	for range 200 {
		one := random(rng, 1, 3)
		many := rerank.Matrix{Rows: rerank.MaxQueryVectors, Cols: 3, Data: slices.Repeat(one.Data, rerank.MaxQueryVectors)}
		score := make([]float32, 1)
		if err := encode(t, s, many).Score(score, rerank.Items{Features: encodeItems(t, s, one)}); err != nil {
			t.Fatal(err)
		}
		if score[0] > rerank.MaxQueryVectors {
			beyond++
		}
		if score[0] > s.Spec().MaxScore {
			t.Errorf("%v scores %v, and the greatest score is %v", one.Data, score[0], s.Spec().MaxScore)
		}
	}
	if beyond == 0 {
		t.Error("no score exceeds the number of vectors: the test shows nothing")
	}
}

// TestEncodingLeavesTheQuery: the caller's vectors stay as they are.
func TestEncodingLeavesTheQuery(t *testing.T) {
	vectors := rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{3, 4, 0, 2}}
	encode(t, build(t, late.Config{Dim: 2, Normalise: true}), vectors)
	if !slices.Equal(vectors.Data, []float32{3, 4, 0, 2}) {
		t.Errorf("the query became %v", vectors.Data)
	}
}

// TestDerivedFields: a model derives the learned vectors, and no other field.
func TestDerivedFields(t *testing.T) {
	learned := tensor.Set{
		companion.Anchors: {Shape: []int{1, 2}, Data: []float32{1, 0}}, companion.Hidden: {Shape: []int{0, 2}}, companion.Out: {Shape: []int{1, 3}, Data: []float32{1, 1, 1}},
		companion.Threshold: {Shape: []int{1}, Data: []float32{0}}, companion.Mean: {Shape: []int{1}, Data: []float32{0}}, companion.Leak: {Shape: []int{1}, Data: []float32{0}},
	}
	for name, fits := range map[string]bool{companion.Field: true, "mean": false} {
		s, err := late.New(late.Config{Dim: 2}, learned)
		if err != nil {
			t.Fatal(err)
		}
		items := rerank.Items{Features: rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 1}}, Starts: startsOf(1)}
		if err := s.Derive(rerank.NewMatrix(1, 1), name, items); fits != (err == nil) || err != nil && !errors.Is(err, rerank.ErrItems) {
			t.Errorf("field %q: %v", name, err)
		}
	}
}

// TestWideErrorOfAllItems: the error of scores in float64 is that of the longest item, wherever it is.
func TestWideErrorOfAllItems(t *testing.T) {
	e := encode(t, build(t, late.Config{Dim: 1}), rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{1}})
	var epsilons []float64
	for _, rows := range [][]float32{{1000, 1}, {1, 1000}} {
		epsilon, err := e.ScoreWide(make([]float64, 2), rerank.Items{Features: rerank.Matrix{Rows: 2, Cols: 1, Data: rows}})
		if err != nil {
			t.Fatal(err)
		}
		epsilons = append(epsilons, epsilon)
	}
	if epsilons[0] != epsilons[1] {
		t.Errorf("errors %v of the same items in two orders", epsilons)
	}
}

// TestItemsBeyondFloat32: an item whose score is beyond float32 is as little finite in float64, so that it
// ranks where its score says.
func TestItemsBeyondFloat32(t *testing.T) {
	e := encode(t, build(t, late.Config{Dim: 1}), rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{1e30}})
	exact := make([]float64, 1)
	if _, err := e.ScoreWide(exact, rerank.Items{Features: rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{1e30}}}); err != nil {
		t.Fatal(err)
	}
	if exact[0]-exact[0] == 0 {
		t.Errorf("it scores %v", exact[0])
	}
}

// TestItemsWithoutVectors have no terms.
func TestItemsWithoutVectors(t *testing.T) {
	e := encode(t, build(t, late.Config{Dim: 1}), rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{1}})
	items := rerank.Items{Features: rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{2}}, Starts: startsOf(0, 1)}
	got, err := rerank.EncodedAbilitiesOf(e).Explain.Explain(items)
	if err != nil || len(got[0].Terms) != 0 || len(got[1].Terms) != 1 || got[1].Terms[0].ItemComponent != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSumsAreWide: many small products beside a great one are not lost.
func TestSumsAreWide(t *testing.T) {
	queries := rerank.Matrix{Rows: 101, Cols: 1, Data: append([]float32{1 << 24}, slices.Repeat([]float32{1}, 100)...)}
	score := make([]float32, 1)
	e := encode(t, build(t, late.Config{Dim: 1}), queries)
	if err := e.Score(score, rerank.Items{Features: rerank.Matrix{Rows: 1, Cols: 1, Data: []float32{1}}}); err != nil {
		t.Fatal(err)
	}
	if want := float32(1<<24 + 100); !(math.Abs(float64(score[0]-want)) <= 2) {
		t.Errorf("the sum is %v, want %v", score[0], want)
	}
}

// TestScratchIsReused: scoring again allocates no buffers.
func TestScratchIsReused(t *testing.T) {
	rng := rand.New(rand.NewPCG(32, 2))
	s := build(t, late.Config{Dim: 2})
	e, items := encode(t, s, random(rng, 100, 2)), rerank.Items{Features: random(rng, 64, 2)}
	scores := make([]float32, 64)
	allocations := testing.AllocsPerRun(100, func() {
		if err := e.Score(scores, items); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 2 && !race.Enabled { // the race detector makes pools forget
		t.Errorf("%v allocations a call", allocations)
	}
}
