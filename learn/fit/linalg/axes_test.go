package linalg

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestPrincipalAxes: the axes are the eigenvectors of the mean second moment, the greatest eigenvalue first. Items and
// queries count the same, however many they are.
func TestPrincipalAxes(t *testing.T) {
	const dim = 4
	rng := rand.New(rand.NewPCG(1, 2))
	items, queries := normalMatrix(rng, 40, dim), normalMatrix(rng, 7, dim)
	for r := range queries.Rows {
		queries.Row(r)[1] *= 3
	}
	moment := [dim][dim]float64{}
	for _, m := range []rerank.Matrix{items, queries} {
		for r := range m.Rows {
			for i := range dim {
				for j := range dim {
					moment[i][j] += float64(m.Row(r)[i]) * float64(m.Row(r)[j]) / float64(m.Rows)
				}
			}
		}
	}
	axes, last := PrincipalAxes(items, queries, dim), math.Inf(1)
	for k := range dim {
		var value, norm float64 // of axis k
		var product [dim]float64
		for i := range dim {
			for j := range dim {
				product[i] += moment[i][j] * float64(axes.Row(j)[k])
			}
			value += product[i] * float64(axes.Row(i)[k])
			norm += float64(axes.Row(i)[k]) * float64(axes.Row(i)[k])
		}
		for i := range dim {
			if !(math.Abs(product[i]-value*float64(axes.Row(i)[k])) <= 1e-4) {
				t.Errorf("axis %d is no eigenvector: %v", k, product)
			}
		}
		if !(math.Abs(norm-1) <= 1e-5) || value > last {
			t.Errorf("axis %d has norm %g and eigenvalue %g after %g", k, norm, value, last)
		}
		last = value
	}
	for k := range 2 {
		for i := range dim {
			if two := PrincipalAxes(items, queries, 2); two.Row(i)[k] != axes.Row(i)[k] {
				t.Errorf("of two axes, axis %d is another", k)
			}
		}
	}
}

// TestParallelErr: every number comes once, on one core or more, and an error is returned.
func TestParallelErr(t *testing.T) {
	broken := errors.New("broken")
	for _, block := range []int{3, 100} {
		counts := make([]int, 10)
		err := ParallelErr(len(counts), block, func(from, to int) error {
			for i := from; i < to; i++ {
				counts[i]++
			}
			if from <= 7 && 7 < to {
				return broken
			}
			return nil
		})
		if !errors.Is(err, broken) {
			t.Errorf("blocks of %d: %v", block, err)
		}
		for i, n := range counts {
			if n != 1 {
				t.Errorf("blocks of %d: number %d comes %d times", block, i, n)
			}
		}
	}
}
