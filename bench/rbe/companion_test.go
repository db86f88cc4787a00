package main

import (
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestCompanionOf: the companion of a ranker that is no inner product orders the items of queries that the
// ranker was not called for, from their vectors alone.
func TestCompanionOf(t *testing.T) {
	const items, queries, learned, dim = 80, 260, 220, 5
	rng := rand.New(rand.NewPCG(1, 1))
	random := func(rows int) rerank.Matrix {
		m := rerank.NewMatrix(rows, dim)
		for i := range m.Data {
			m.Data[i] = float32(rng.NormFloat64())
		}
		return m
	}
	one, other, asked := random(items), random(items), random(queries)
	scores := rerank.NewMatrix(items, queries)
	for x := range items {
		for q := range queries {
			scores.Row(x)[q] = max(dot(one.Row(x), asked.Row(q)), dot(other.Row(x), asked.Row(q)))
		}
	}
	known := rerank.NewMatrix(items, queries) // without the scores of the other queries
	var learn []int
	for q := range learned {
		learn = append(learn, q)
		for x := range items {
			known.Row(x)[q] = scores.Row(x)[q]
		}
	}
	found, err := companionOf(t.Context(), known, asked, learn, 1)
	if err != nil {
		t.Fatal(err)
	}
	var recall float64
	for q := learned; q < queries; q++ {
		s := session{truth: column(scores, q), base: column(found, q), asked: make([]bool, items)}
		if err := s.ask(way{Name: wayCompanion}, 20); err != nil {
			t.Fatal(err)
		}
		got, _ := s.judge(make([]int64, items), 0)
		recall += got[0] / (queries - learned)
	}
	if recall < 0.9 {
		t.Errorf("20 of %d items have %.3f of the best ten", items, recall)
	}
}

func dot(a, b []float32) (sum float32) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
