package distilled

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// FirstStage says which share of the exact top K a first stage finds with a given number of
// candidates, as a mean over the held-out queries.
type FirstStage struct {
	// Name is the strategy, or "stored" for the search with the query vector itself.
	Name string `json:"name"`
	Head string `json:"head,omitempty"`
	// Searches is how many searches a query sends. Candidates are taken from their lists in turn:
	// all first rows, then all second rows, and so on.
	Searches int `json:"searches"`
	// Companion means that the searches need a companion collection.
	Companion bool `json:"companion"`
	// Recall holds the share found at each of Report.Depths.
	Recall []float64 `json:"recall"`
}

// examiner measures first stages on the held-out queries.
type examiner struct {
	teacher *teacher
	items   rerank.Matrix            // stored vectors
	queries []int32                  // row numbers of the held-out queries
	vectors rerank.Matrix            // their vectors
	top     []ranked                 // the exact top K of each query
	depths  []int                    // numbers of candidates, ascending
	fields  map[string]rerank.Matrix // the companion's fields derived so far, by name; "" is items
}

// examineProbes measures searches of the stored vectors with one given vector per query.
func (x *examiner) examineProbes(name, head string, u rerank.Matrix) FirstStage {
	found := make([][]float64, u.Rows)
	most := min(x.depths[len(x.depths)-1], x.items.Rows)
	block := min(u.Rows, max(8, (1<<22)/x.items.Rows))
	scores := rerank.NewMatrix(block, x.items.Rows)
	for from := 0; from < u.Rows; from += block {
		to := min(from+block, u.Rows)
		scores := scores.Slice(0, to-from)
		linalg.Multiply(scores, u.Slice(from, to), false, x.items, true)
		linalg.Parallel(to-from, 2, func(a, b int) {
			for i := a; i < b; i++ {
				found[from+i] = x.found(bestRows(scores.Row(i), most), x.top[from+i].rows)
			}
		})
	}
	return x.withMean(FirstStage{Name: name, Head: head, Searches: 1}, found)
}

// withMean returns the stage with the mean of the shares found for each query.
func (x *examiner) withMean(s FirstStage, found [][]float64) FirstStage {
	s.Recall = make([]float64, len(x.depths))
	for _, f := range found {
		for d, v := range f {
			s.Recall[d] += v / float64(len(found))
		}
	}
	return s
}

// meanRecall returns the recall of a head as the only probe, as a mean over the depths.
func (x *examiner) meanRecall(h *head) float64 {
	u := rerank.NewMatrix(x.vectors.Rows, x.items.Cols)
	h.forward(u, x.vectors)
	return judge.Mean(x.examineProbes("", "", u).Recall, nil)
}

// examineStrategy measures one of the similarity's own strategies: in the companion if the similarity
// derives fields, unless one inner product with the stored vectors is exact already. It returns nil
// if the similarity lacks the strategy.
func (x *examiner) examineStrategy(s rerank.Strategy) (*FirstStage, error) {
	companion, single := x.teacher.abilities.Derive != nil, x.teacher.spec.SingleInnerProduct
	for _, derived := range []bool{companion && !single, companion && single} {
		plan := rerank.Plan{Strategy: s, Depth: x.depths[len(x.depths)-1], Derived: derived}
		probes, err := x.probes(0, plan)
		if errors.Is(err, rerank.ErrStrategy) {
			continue
		}
		if err != nil {
			return nil, err
		}
		stage, err := x.examineSearches(FirstStage{Name: string(s), Searches: len(probes), Companion: derived}, func(i int) ([]rerank.Probe, error) {
			return x.probes(i, plan)
		})
		return &stage, err
	}
	return nil, nil
}

// probes returns the probes of the i-th query, and derives the fields that they search if need be.
func (x *examiner) probes(i int, plan rerank.Plan) ([]rerank.Probe, error) {
	e, err := x.teacher.encodeQuery(x.queries[i])
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
func (x *examiner) derive(field string) error {
	if _, have := x.fields[field]; have {
		return nil
	}
	d := x.teacher.abilities.Derive
	if d == nil {
		return fmt.Errorf("%w: the similarity searches a field %q and derives none", rerank.ErrStrategy, field)
	}
	for _, f := range d.Fields() {
		if f.Name == field {
			m := rerank.NewMatrix(x.items.Rows, f.Dim)
			x.fields[field] = m
			return d.Derive(m, field, x.teacher.features)
		}
	}
	return fmt.Errorf("%w: the similarity searches a field %q that it cannot derive", rerank.ErrStrategy, field)
}

// examineSearches measures the searches of every query.
func (x *examiner) examineSearches(s FirstStage, probes func(i int) ([]rerank.Probe, error)) (FirstStage, error) {
	n := len(x.queries)
	sent := make([][]rerank.Probe, n)
	for i := range sent {
		var err error
		if sent[i], err = probes(i); err != nil {
			return s, err
		}
	}
	found := make([][]float64, n)
	linalg.Parallel(n, 4, func(from, to int) {
		scores := make([]float32, x.items.Rows)
		for i := from; i < to; i++ {
			found[i] = x.found(x.candidates(sent[i], scores), x.top[i].rows)
		}
	})
	return x.withMean(s, found), nil
}

// candidates returns the first rows of the probes' lists, best first.
func (x *examiner) candidates(probes []rerank.Probe, scores []float32) []int32 {
	most := min(x.depths[len(x.depths)-1], len(scores))
	var lists [][]int32
	for _, p := range probes {
		kernel.Best().Rows(scores, p.Vector, x.fields[p.Field], nil)
		lists = append(lists, bestRows(scores, most))
	}
	if len(lists) == 1 {
		return lists[0]
	}
	return inTurn(lists, most)
}

// inTurn returns the union of the lists, in the order of all first rows, then all second rows, up
// to most rows.
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
func (x *examiner) found(candidates, wanted []int32) []float64 {
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
