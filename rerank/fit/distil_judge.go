package fit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// FirstStage is what share of the exact top K a first stage finds, by the number
// of candidates that it brings, as a mean over the held-out queries.
type FirstStage struct {
	// Name is the strategy; "stored" is the search with the query vector itself.
	Name string `json:"name"`
	Head string `json:"head,omitempty"`
	// Searches a query sends. Several lists are read in turn, row by row, until
	// there are so many candidates.
	Searches int `json:"searches"`
	// Companion: the search needs vectors that are written beside the stored ones.
	Companion bool `json:"companion"`
	// Recall at each of DistilReport.Depths.
	Recall []float64 `json:"recall"`
}

// examiner measures first stages on held-out queries.
type examiner struct {
	teacher *teacher
	items   rerank.Matrix // stored vectors
	queries []int32       // rows
	vectors rerank.Matrix // of the queries
	top     []ranked      // exact
	depths  []int
	fields  map[string]rerank.Matrix
}

// probe measures searches of the stored vectors with one vector a query.
func (x *examiner) probe(name, head string, u rerank.Matrix) FirstStage {
	found := make([][]float64, u.Rows)
	most := min(x.depths[len(x.depths)-1], x.items.Rows)
	block := min(u.Rows, max(8, (1<<22)/x.items.Rows))
	scores := rerank.NewMatrix(block, x.items.Rows)
	for from := 0; from < u.Rows; from += block {
		to := min(from+block, u.Rows)
		scores := scores.Slice(0, to-from)
		multiply(scores, u.Slice(from, to), false, x.items, true)
		spread(to-from, 2, func(a, b int) {
			for i := a; i < b; i++ {
				found[from+i] = x.found(bestRows(scores.Row(i), most), x.top[from+i].rows)
			}
		})
	}
	return x.mean(FirstStage{Name: name, Head: head, Searches: 1}, found)
}

// mean is the stage with the mean of what was found for each query.
func (x *examiner) mean(s FirstStage, found [][]float64) FirstStage {
	s.Recall = make([]float64, len(x.depths))
	for _, f := range found {
		for d, v := range f {
			s.Recall[d] += v / float64(len(found))
		}
	}
	return s
}

// recall is the mean over the depths for u(q) as the only probe.
func (x *examiner) recall(h *probeHead) float64 {
	u := rerank.NewMatrix(x.vectors.Rows, x.items.Cols)
	h.forward(u, x.vectors)
	return mean(x.probe("", "", u).Recall)
}

// strategy measures a strategy of the similarity itself, in the companion if it
// has one and the stored vectors do not hold the exact answer. It returns nil
// where the similarity has no such probes.
func (x *examiner) strategy(s rerank.Strategy) (*FirstStage, error) {
	_, companion := x.teacher.similarity.(rerank.Deriver)
	single := x.teacher.similarity.Spec().SingleInnerProduct
	for _, derived := range []bool{companion && !single, companion && single} {
		plan := rerank.Plan{Strategy: s, Depth: x.depths[len(x.depths)-1], Derived: derived}
		probes, err := x.probes(0, plan)
		if errors.Is(err, rerank.ErrStrategy) {
			continue
		}
		if err != nil {
			return nil, err
		}
		stage, err := x.measure(FirstStage{Name: string(s), Searches: len(probes), Companion: derived}, func(i int) ([]rerank.Probe, error) {
			return x.probes(i, plan)
		})
		return &stage, err
	}
	return nil, nil
}

func (x *examiner) probes(i int, plan rerank.Plan) ([]rerank.Probe, error) {
	e, err := x.teacher.encode(x.queries[i])
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

// derive computes the vectors of a field of the companion once.
func (x *examiner) derive(field string) error {
	if _, have := x.fields[field]; have {
		return nil
	}
	d := x.teacher.similarity.(rerank.Deriver)
	for _, f := range d.Fields() {
		if f.Name == field {
			m := rerank.NewMatrix(x.items.Rows, f.Dim)
			x.fields[field] = m
			return d.Derive(m, field, x.teacher.features)
		}
	}
	return fmt.Errorf("%w: the similarity searches a field %q that it cannot derive", rerank.ErrStrategy, field)
}

// measure searches with the probes of every query.
func (x *examiner) measure(s FirstStage, probes func(i int) ([]rerank.Probe, error)) (FirstStage, error) {
	n := len(x.queries)
	sent := make([][]rerank.Probe, n)
	for i := range sent {
		var err error
		if sent[i], err = probes(i); err != nil {
			return s, err
		}
	}
	found := make([][]float64, n)
	spread(n, 4, func(from, to int) {
		scores := make([]float32, x.items.Rows)
		for i := from; i < to; i++ {
			found[i] = x.found(x.candidates(sent[i], scores), x.top[i].rows)
		}
	})
	return x.mean(s, found), nil
}

// candidates are the first rows of the lists of the probes, best first.
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

// inTurn is the union of the lists: their first rows, then their second, up to most.
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

// found is the share of wanted among the first candidates, at each depth.
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
