package fit

import (
	"fmt"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/mol"
)

// recallQueries is how many held-out queries the first stages are tried on.
const recallQueries = 200

// recallDepths are the rows asked of each list.
var recallDepths = [...]int{10, 50, 200}

// firstStage is a way to find candidates.
type firstStage struct {
	name string
	plan rerank.Plan
}

func firstStages(gates Gates) []firstStage {
	var stages []firstStage
	for _, depth := range recallDepths {
		stages = append(stages, firstStage{"plain inner product", rerank.Plan{Depth: depth}})
	}
	for _, derived := range []bool{false, true} {
		for _, s := range []rerank.Strategy{rerank.PerEmbedding, rerank.Average, rerank.Combined} {
			for _, depth := range recallDepths {
				stages = append(stages, firstStage{string(s), rerank.Plan{
					Strategy: s, Depth: depth, AverageDepth: 4 * depth, Derived: derived,
				}})
			}
		}
	}
	if gates == GatesFull {
		for _, depth := range recallDepths {
			stages = append(stages, firstStage{"average, weighed by gates", rerank.Plan{
				Strategy: rerank.Average, Depth: depth, Derived: true, Weights: rerank.GateWeights,
			}})
		}
	}
	return stages
}

// recall tries every first stage whose lists are not the whole collection.
func (v *molView) recall(j *judge) ([]StrategyRecall, error) {
	s, err := newStages(v)
	if err != nil {
		return nil, err
	}
	step := 1 + len(j.queries)/recallQueries
	var queries []int32
	for i := 0; i < len(j.queries); i += step {
		queries = append(queries, j.queries[i])
	}
	var out []StrategyRecall
	for _, stage := range firstStages(v.work.options.Gates) {
		if stage.plan.Depth >= v.features.Rows {
			continue
		}
		r := StrategyRecall{Strategy: stage.name, Stored: !stage.plan.Derived, Depth: stage.plan.Depth, Queries: len(queries)}
		found, recalled := make([]float64, len(queries)), make([]float64, len(queries))
		err := eachPart(len(queries), 4, func(from, to int) (err error) {
			for i := from; i < to && err == nil; i++ {
				found[i], recalled[i], err = s.try(queries[i], stage)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		r.Candidates, r.Recall = mean(found), mean(recalled)
		out = append(out, r)
	}
	return out, nil
}

// stages are the fields that probes search.
type stages struct {
	*molView
	fields map[string]rerank.Matrix
}

func newStages(v *molView) (*stages, error) {
	s := &stages{molView: v, fields: map[string]rerank.Matrix{"": v.work.problem.items}}
	deriver := v.served.(*mol.Similarity)
	for _, f := range deriver.Fields() {
		if len(f.Strategies) == 0 {
			continue
		}
		m := rerank.NewMatrix(v.features.Rows, f.Dim)
		if err := deriver.Derive(m, f.Name, v.features); err != nil {
			return nil, err
		}
		s.fields[f.Name] = m
	}
	return s, nil
}

// try returns the number of candidates of a stage and the share of the exact top
// that is among them.
func (s *stages) try(query int32, stage firstStage) (found, recall float64, err error) {
	e, err := s.encode(query)
	if err != nil {
		return 0, 0, err
	}
	probes := []rerank.Probe{{Vector: s.work.problem.queries.Row(int(query)), Depth: stage.plan.Depth}}
	if stage.plan.Strategy != "" {
		if probes, err = e.Probes(stage.plan); err != nil {
			return 0, 0, err
		}
	}
	scores := make([]float32, s.features.Rows)
	candidates := map[int32]bool{}
	for _, p := range probes {
		field, ok := s.fields[p.Field]
		if !ok {
			return 0, 0, fmt.Errorf("the strategy %s searches a field %q that the model does not derive", stage.name, p.Field)
		}
		dots(scores, p.Vector, field)
		for _, x := range topRows(scores, p.Depth) {
			candidates[x] = true
		}
	}
	if err := e.Score(scores, rerank.Items{Features: s.features}); err != nil {
		return 0, 0, err
	}
	top := topRows(scores, min(cutoff, len(scores)))
	hits := 0
	for _, x := range top {
		if candidates[x] {
			hits++
		}
	}
	return float64(len(candidates)), float64(hits) / float64(len(top)), nil
}

// dots writes ⟨v, row⟩ of every row.
func dots(dst, v []float32, rows rerank.Matrix) { kernel.Best().Rows(dst, v, rows, nil) }

// topRows are the rows of the k best scores; equal scores rank by row.
func topRows(scores []float32, k int) []int32 {
	top := rerank.NewTopK(k)
	for r, s := range scores {
		top.Push(rerank.Scored{ID: rerank.UintID(uint64(r)), Score: s, Index: r})
	}
	rows := make([]int32, 0, k)
	for _, s := range top.Sorted() {
		rows = append(rows, int32(s.Index))
	}
	return rows
}
