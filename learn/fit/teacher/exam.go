package teacher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// Exam measures first stages: which share of a teacher's top K they find.
type Exam struct {
	teacher *Teacher
	items   rerank.Matrix // the stored vectors as the database compares them
	queries []int32
	top     []Ranked
	k       int
	depths  []int
	fields  map[string]rerank.Matrix // the fields derived so far, by name; "" is items
	// blockScores bounds the scores that are held at a time, beyond eight queries.
	blockScores int
}

// NewExam ranks the items for the queries that judge. items are the stored vectors as the database
// compares them. Depths of the collection's size and more are left out, as every first stage finds
// all there; if fewer than two are left, 2K is one of them. NewExam returns fit.ErrData or the
// context's error.
func NewExam(ctx context.Context, t *Teacher, items rerank.Matrix, queries []int32, k int, depths []int, done func(int)) (*Exam, error) {
	x := &Exam{teacher: t, items: items, queries: queries, k: k, depths: chooseDepths(depths, k, items.Rows), fields: map[string]rerank.Matrix{"": items}, blockScores: 1 << 22}
	var err error
	x.top, err = t.RankAll(ctx, queries, k, done)
	return x, err
}

// chooseDepths returns the depths below the size of the collection in ascending order.
func chooseDepths(asked []int, k, items int) []int {
	depths := slices.DeleteFunc(slices.Clone(asked), func(d int) bool { return d >= items })
	if len(depths) < 2 && len(asked) > 1 || len(depths) == 0 {
		depths = append(depths, min(2*k, items-1))
	}
	slices.Sort(depths)
	return slices.Compact(depths)
}

// Table returns a table of the given stages.
func (x *Exam) Table(stages ...rerank.FirstStage) rerank.RecallTable {
	return rerank.RecallTable{K: x.k, Depths: x.depths, Stages: stages}
}

// Vectors measures searches of the stored vectors with one given vector per query.
func (x *Exam) Vectors(s rerank.FirstStage, vectors rerank.Matrix) rerank.FirstStage {
	return x.Products(s, vectors, x.items)
}

// Products measures searches of one vector per item with one vector per query.
func (x *Exam) Products(s rerank.FirstStage, vectors, items rerank.Matrix) rerank.FirstStage {
	found := make([][]float64, vectors.Rows)
	most := min(x.depths[len(x.depths)-1], items.Rows)
	block := min(vectors.Rows, max(8, x.blockScores/items.Rows))
	scores := rerank.NewMatrix(block, items.Rows)
	for from := 0; from < vectors.Rows; from += block {
		to := min(from+block, vectors.Rows)
		scores := scores.Slice(0, to-from)
		linalg.Multiply(scores, vectors.Slice(from, to), false, items, true)
		linalg.Parallel(to-from, 2, func(a, b int) {
			for i := a; i < b; i++ {
				found[from+i] = x.found(BestRows(scores.Row(i), most), x.top[from+i].Rows)
			}
		})
	}
	s.Searches = 1
	return x.withMean(s, found)
}

// withMean returns the stage with the mean of the shares found for each query.
func (x *Exam) withMean(s rerank.FirstStage, found [][]float64) rerank.FirstStage {
	s.Recall = make([]float64, len(x.depths))
	for _, f := range found {
		for d, v := range f {
			s.Recall[d] += v / float64(len(found))
		}
	}
	return s
}

// Strategies measures strategies of the teacher and leaves out those that it lacks.
func (x *Exam) Strategies(strategies ...rerank.Strategy) ([]rerank.FirstStage, error) {
	var stages []rerank.FirstStage
	for _, s := range strategies {
		stage, err := x.strategy(s)
		if err != nil && !errors.Is(err, rerank.ErrStrategy) {
			return nil, err
		}
		if stage != nil {
			stages = append(stages, *stage)
		}
	}
	return stages, nil
}

// strategy measures a strategy of the teacher: in the companion if the similarity derives fields,
// unless one inner product with the stored vectors is exact already. It returns nil if the
// similarity lacks the strategy.
func (x *Exam) strategy(s rerank.Strategy) (*rerank.FirstStage, error) {
	companion, single := x.teacher.Abilities.Derive != nil, x.teacher.Similarity.Spec().SingleInnerProduct
	for _, derived := range []bool{companion && !single, companion && single} {
		plan := rerank.Plan{Strategy: s, Depth: x.depths[len(x.depths)-1], Derived: derived}
		probes, err := x.probes(0, plan)
		if errors.Is(err, rerank.ErrStrategy) {
			continue
		}
		if err != nil {
			return nil, err
		}
		searched := len(probes) > 0 && probes[0].Field != ""
		stage, err := x.searches(rerank.FirstStage{Strategy: s, Searches: len(probes), Companion: searched}, plan)
		return &stage, err
	}
	return nil, nil
}

// probes returns the probes of the i-th query, and derives the fields that they search if need be.
func (x *Exam) probes(i int, plan rerank.Plan) ([]rerank.Probe, error) {
	e, err := x.teacher.Encode(x.queries[i])
	if err != nil {
		return nil, err
	}
	probes, err := e.Probes(plan)
	for _, p := range probes {
		if err := x.derive(p.Field); err != nil {
			return nil, err
		}
	}
	return probes, err
}

// derive computes the vectors of a companion's field, once.
func (x *Exam) derive(field string) error {
	if _, have := x.fields[field]; have {
		return nil
	}
	d := x.teacher.Abilities.Derive
	if d == nil {
		return fmt.Errorf("%w: the similarity searches a field %q and derives none", rerank.ErrStrategy, field)
	}
	for _, f := range d.Fields() {
		if f.Name == field {
			m := rerank.NewMatrix(x.items.Rows, f.Dim)
			x.fields[field] = m
			return d.Derive(m, field, x.teacher.Encoded)
		}
	}
	return fmt.Errorf("%w: the similarity searches a field %q that it cannot derive", rerank.ErrStrategy, field)
}

// searches measures the searches of every query by a plan.
func (x *Exam) searches(s rerank.FirstStage, plan rerank.Plan) (rerank.FirstStage, error) {
	n := len(x.queries)
	sent := make([][]rerank.Probe, n)
	for i := range sent {
		var err error
		if sent[i], err = x.probes(i, plan); err != nil {
			return s, err
		}
	}
	found := make([][]float64, n)
	linalg.Parallel(n, 4, func(from, to int) {
		scores := make([]float32, x.items.Rows)
		for i := from; i < to; i++ {
			found[i] = x.found(x.candidates(sent[i], scores), x.top[i].Rows)
		}
	})
	return x.withMean(s, found), nil
}

// candidates returns the first rows of the probes' lists, best first.
func (x *Exam) candidates(probes []rerank.Probe, scores []float32) []int32 {
	most := min(x.depths[len(x.depths)-1], len(scores))
	var lists [][]int32
	for _, p := range probes {
		kernel.Best().Rows(scores, p.Vector, x.fields[p.Field], nil)
		lists = append(lists, BestRows(scores, most))
	}
	if len(lists) == 1 {
		return lists[0]
	}
	return inTurn(lists, most)
}

// inTurn returns the union of the lists, at most `most` rows: first the first row of each list,
// then the second rows, and so on.
func inTurn(lists [][]int32, most int) []int32 {
	seen := make(map[int32]bool, most)
	out := make([]int32, 0, most)
	for rank := 0; len(out) < most; rank++ {
		left := false
		for _, l := range lists {
			if rank >= len(l) {
				continue
			}
			left = true
			if x := l[rank]; !seen[x] && len(out) < most {
				seen[x] = true
				out = append(out, x)
			}
		}
		if !left {
			break
		}
	}
	return out
}

// found returns the share of the wanted items among the first candidates, at each depth.
func (x *Exam) found(candidates, wanted []int32) []float64 {
	shares := make([]float64, len(x.depths))
	wanted = slices.Clone(wanted)
	slices.SortFunc(wanted, cmp.Compare[int32])
	for rank, c := range candidates {
		if _, ok := slices.BinarySearch(wanted, c); !ok {
			continue
		}
		for d, depth := range x.depths {
			if rank < depth {
				shares[d] += 1 / float64(len(wanted))
			}
		}
	}
	return shares
}
