package mol

import (
	"fmt"

	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// recallQueries is about the number of held-out queries on which first stages are tried.
const recallQueries = 200

// recallDepths returns the depths of the lists that are tried.
func recallDepths() []int { return []int{10, 50, 200} }

// firstStage is a way to find candidates.
type firstStage struct {
	name string
	plan rerank.Plan
}

// firstStages returns the first stages that a model with such gates can have.
func firstStages(gates Gates) []firstStage {
	var stages []firstStage
	for _, depth := range recallDepths() {
		stages = append(stages, firstStage{"plain inner product", rerank.Plan{Depth: depth}})
	}
	for _, derived := range []bool{false, true} {
		for _, s := range []rerank.Strategy{rerank.PerEmbedding, rerank.Average, rerank.Combined} {
			for _, depth := range recallDepths() {
				stages = append(stages, firstStage{string(s), rerank.Plan{
					Strategy: s, Depth: depth, AverageDepth: 4 * depth, Derived: derived,
				}})
			}
		}
	}
	if gates == GatesFull {
		for _, depth := range recallDepths() {
			stages = append(stages, firstStage{"average, weighed by gates", rerank.Plan{
				Strategy: rerank.Average, Depth: depth, Derived: true, Weights: rerank.GateWeights,
			}})
		}
	}
	return stages
}

// measureRecall tries every first stage whose lists are shorter than the collection.
func (v *view) measureRecall(j *judge.Judge) ([]StrategyRecall, error) {
	s, err := newCompanion(v)
	if err != nil {
		return nil, err
	}
	step := 1 + len(j.Queries)/recallQueries
	var queries []int32
	for i := 0; i < len(j.Queries); i += step {
		queries = append(queries, j.Queries[i])
	}
	var out []StrategyRecall
	for _, stage := range firstStages(v.gates) {
		if stage.plan.Depth >= v.features.Rows {
			continue
		}
		r := StrategyRecall{Strategy: stage.name, Stored: !stage.plan.Derived, Depth: stage.plan.Depth, Queries: len(queries)}
		found, recalled := make([]float64, len(queries)), make([]float64, len(queries))
		err := linalg.ParallelErr(len(queries), 4, func(from, to int) (err error) {
			for i := from; i < to && err == nil; i++ {
				found[i], recalled[i], err = s.try(queries[i], stage)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		r.Candidates, r.Recall = judge.Mean(found, nil), judge.Mean(recalled, nil)
		out = append(out, r)
	}
	return out, nil
}

// companion holds the vectors that probes can search: each field of a companion, and
// the stored vectors under the empty name.
type companion struct {
	*view
	fields map[string]rerank.Matrix
}

// newCompanion derives every field that a strategy searches.
func newCompanion(v *view) (*companion, error) {
	s := &companion{view: v, fields: map[string]rerank.Matrix{"": v.log.Items}}
	if v.abilities.Derive == nil {
		return s, nil
	}
	for _, f := range v.abilities.Derive.Fields() {
		if len(f.Strategies) == 0 {
			continue
		}
		m := rerank.NewMatrix(v.features.Rows, f.Dim)
		if err := v.abilities.Derive.Derive(m, f.Name, rerank.Items{Features: v.features}); err != nil {
			return nil, err
		}
		s.fields[f.Name] = m
	}
	return s, nil
}

// try searches for a query with the first stage. It returns the number of candidates and
// the share of the exact top 10 among them.
func (s *companion) try(query int32, stage firstStage) (found, recall float64, err error) {
	e, err := s.encodeQuery(query)
	if err != nil {
		return 0, 0, err
	}
	probes := []rerank.Probe{{Vector: s.log.Queries.Row(int(query)), Depth: stage.plan.Depth}}
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
		kernel.Best().Rows(scores, p.Vector, field, nil)
		for _, x := range topRows(scores, p.Depth) {
			candidates[x] = true
		}
	}
	if err := e.Score(scores, rerank.Items{Features: s.features}); err != nil {
		return 0, 0, err
	}
	top := topRows(scores, min(judge.Cutoff, len(scores)))
	hits := 0
	for _, x := range top {
		if candidates[x] {
			hits++
		}
	}
	return float64(len(candidates)), float64(hits) / float64(len(top)), nil
}

// topRows returns the rows of the k best scores. Equal scores rank by row.
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
