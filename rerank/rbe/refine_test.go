package rbe_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
)

// queryOf returns the query's side of φ.
func queryOf(t *testing.T, q rerank.Encoded) []float32 {
	t.Helper()
	probes, err := q.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1, Derived: true})
	if err != nil {
		t.Fatal(err)
	}
	return probes[0].Vector
}

// TestRefineMinimises: no step away from the refined query lowers the loss, and its scores are
// nearer to the true ones than before.
func TestRefineMinimises(t *testing.T) {
	for _, neural := range []bool{false, true} {
		c, tensors := parts(neural)
		s, err := rbe.New(c, tensors)
		if err != nil {
			t.Fatal(err)
		}
		start, err := s.Encode(rerank.Query{Vector: []float32{0.3, -1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(3, 3))
		rows, scores := rerank.NewMatrix(7, s.Spec().Features), make([]float32, 7)
		var trace float64
		for i := range rows.Data {
			rows.Data[i] = float32(rng.NormFloat64())
			trace += float64(rows.Data[i]) * float64(rows.Data[i])
		}
		for i := range scores {
			scores[i] = float32(rng.NormFloat64())
		}
		before := queryOf(t, start)
		loss := func(u []float32) (sum float64) {
			for i, r := range scores {
				d := dot(u, rows.Row(i)) - float64(r)
				sum += d * d
			}
			for j, v := range u {
				d := float64(v) - float64(before[j])
				sum += rbe.Ridge * trace / float64(len(u)) * d * d
			}
			return sum
		}
		refined, err := s.Refine(start, rows, scores)
		if err != nil {
			t.Fatal(err)
		}
		least := queryOf(t, refined)
		if loss(least) >= loss(before) {
			t.Errorf("neural %t: the loss rose from %v to %v", neural, loss(before), loss(least))
		}
		for j := range least {
			for _, step := range []float32{-0.01, 0.01} {
				moved := slices.Clone(least)
				moved[j] += step
				if loss(moved) < loss(least) {
					t.Errorf("neural %t: a step of %v in element %d lowers the loss", neural, step, j)
				}
			}
		}
		checkRefined(t, s, refined, neural)
	}
}

// checkRefined: the probes and the scores of a refined query agree.
func checkRefined(t *testing.T, s *rbe.Similarity, refined rerank.Encoded, neural bool) {
	t.Helper()
	base := rerank.Matrix{Rows: 1, Cols: 5, Data: []float32{1, -2, 3, 0.5, 0}}
	features, score := rerank.NewMatrix(1, s.Spec().Features), make([]float32, 1)
	if err := errors.Join(s.EncodeItems(features, base), refined.Score(score, rerank.Items{Features: features})); err != nil {
		t.Fatal(err)
	}
	if got := dot(queryOf(t, refined), features.Row(0)); !(math.Abs(got-float64(score[0])) <= 1e-5) {
		t.Errorf("the derived probe finds %v, φ is %v", got, score[0])
	}
	if neural {
		return
	}
	probes, err := refined.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1})
	if err != nil || !(math.Abs(dot(probes[0].Vector, base.Row(0))-float64(score[0])) <= 1e-4) {
		t.Errorf("the stored probe %+v, %v, φ is %v", probes, err, score[0])
	}
}

func TestRefineRefuses(t *testing.T) {
	c, tensors := parts(false)
	s, err := rbe.New(c, tensors)
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.Encode(rerank.Query{Vector: []float32{1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	nan := float32(math.NaN())
	for name, tc := range map[string]struct {
		rows   rerank.Matrix
		scores []float32
		want   error
	}{
		"no scores":        {rerank.NewMatrix(0, 3), nil, rerank.ErrItems},
		"a score too few":  {rerank.NewMatrix(2, 3), []float32{1}, rerank.ErrItems},
		"other rows":       {rerank.NewMatrix(1, 4), []float32{1}, rerank.ErrItems},
		"a row not finite": {rerank.Matrix{Rows: 1, Cols: 3, Data: []float32{1, nan, 1}}, []float32{1}, rerank.ErrQuery},
	} {
		if _, err := s.Refine(q, tc.rows, tc.scores); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefineGolden compares with NumPy's least squares of the stacked system, with items that are
// equal, contradict each other or have no score.
func TestRefineGolden(t *testing.T) {
	b, err := os.ReadFile("../../testdata/golden/rbe/refine.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Ridge float64
		Cases []struct {
			Name                string
			Rows                [][]float32
			Scores, Start, Want []float32
		}
	}
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	if golden.Ridge != rbe.Ridge {
		t.Fatalf("the golden numbers are of a ridge of %v, Ridge is %v: make them again with tools/golden/golden_refine.py", golden.Ridge, rbe.Ridge)
	}
	c, tensors := parts(false)
	s, err := rbe.New(c, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range golden.Cases {
		start, err := s.Encode(rerank.Query{Vector: g.Start})
		if err != nil {
			t.Fatal(err)
		}
		rows := rerank.Matrix{Rows: len(g.Rows), Cols: len(g.Start), Data: slices.Concat(g.Rows...)}
		refined, err := s.Refine(start, rows, g.Scores)
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
			continue
		}
		for i, got := range queryOf(t, refined) {
			if !(math.Abs(float64(got-g.Want[i])) <= 1e-6*max(1, math.Abs(float64(g.Want[i])))) {
				t.Errorf("%s: element %d is %v, want %v", g.Name, i, got, g.Want[i])
			}
		}
	}
}

func TestShares(t *testing.T) {
	for _, tc := range []struct {
		calls, rounds int
		want          []int
	}{{10, 1, []int{10}}, {10, 3, []int{4, 3, 3}}, {2, 3, []int{2, 0, 0}}, {0, 2, []int{0, 0}}, {5, 0, []int{5}}} {
		if got := rbe.Shares(tc.calls, tc.rounds); !slices.Equal(got, tc.want) {
			t.Errorf("%d calls in %d rounds: %v, want %v", tc.calls, tc.rounds, got, tc.want)
		}
	}
}
