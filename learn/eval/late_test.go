package eval_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/late"
	"github.com/likenessdb/likeness/sidecar/route"
)

// several returns random vectors for n items or queries, from one to five each.
func several(n int, seed uint64) (rerank.Matrix, []int32) {
	starts := []int32{0}
	for i := range n {
		starts = append(starts, starts[i]+1+int32(i*7%5))
	}
	return matrix(int(starts[n]), seed), starts
}

// lateWorld has a model of late interaction and, for each query, the item of the greatest MaxSim.
func lateWorld(t *testing.T) eval.Input {
	t.Helper()
	s, err := late.New(late.Config{Dim: dim, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := eval.Input{Model: route.Model{Name: "late", Version: "1", Similarity: s}, Baseline: cosine(t), K: 5}
	in.Items, in.ItemStarts = several(60, 5)
	in.Queries, in.QueryStarts = several(20, 6)
	relevant := make([][]int32, 20)
	for q := range relevant {
		most := math.Inf(-1)
		for x := range 60 {
			if v := maxSim(in, q, x); v > most {
				most, relevant[q] = v, []int32{int32(x)}
			}
		}
	}
	in.Pairs = eval.NewPairs(relevant)
	return in
}

// maxSim is the definition on unit vectors: Σ_i max_j cos(q_i, x_j).
func maxSim(in eval.Input, query, item int) (sum float64) {
	for i := in.QueryStarts[query]; i < in.QueryStarts[query+1]; i++ {
		best := math.Inf(-1)
		for j := in.ItemStarts[item]; j < in.ItemStarts[item+1]; j++ {
			best = max(best, cos(in.Queries.Row(int(i)), in.Items.Row(int(j))))
		}
		sum += best
	}
	return sum
}

// TestRunLate: items and queries of several vectors are ranked by all of them, the baseline and first
// stages see their means, and all else counts items and queries, not vectors.
func TestRunLate(t *testing.T) {
	in := lateWorld(t)
	var err error
	if in.Trials, err = eval.ParseTrials("average:15,stored:15,scan"); err != nil {
		t.Fatal(err)
	}
	in.Others = []eval.Contender{{Model: flipped(t)}}
	r, err := eval.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if r.Metrics["mrr@5"] != 1 || r.Models[0].Class != eval.ClassLate || r.Verdict.Choose != "late" {
		t.Errorf("late interaction has %v, class %s; chosen is %q", r.Metrics, r.Models[0].Class, r.Verdict.Choose)
	}
	if r.Counts.Items != 60 || r.Counts.Queries != 20 || r.Method.Clusters != 20 {
		t.Errorf("%+v, %d clusters", r.Counts, r.Method.Clusters)
	}
	means := in
	means.Items, means.Queries = late.Means(in.Items, in.ItemStarts), late.Means(in.Queries, in.QueryStarts)
	means.ItemStarts, means.QueryStarts, means.Others, means.Trials = nil, nil, nil, nil
	means.Model = flipped(t)
	plain, err := eval.Run(t.Context(), means)
	if err != nil {
		t.Fatal(err)
	}
	if r.Baseline["mrr@5"] != plain.Baseline["mrr@5"] || r.Models[1].Metrics["mrr@5"] != plain.Metrics["mrr@5"] || plain.Baseline["mrr@5"] > 0.95 {
		t.Errorf("baseline %v and flipped %v, on the means %v and %v", r.Baseline, r.Models[1].Metrics, plain.Baseline, plain.Metrics)
	}
	average, stored, scan := r.Strategies[0], r.Strategies[1], r.Strategies[2]
	if scan.FirstStageRecall != 1 || scan.Exact != 1 || scan.Candidates != 60 {
		t.Errorf("scan: %+v", scan)
	}
	// Either compares means, of unit vectors or of the vectors as given, with the means of the items.
	for _, o := range []eval.Outcome{average, stored} {
		if o.FirstStageRecall < 0.4 || o.FirstStageRecall == 1 || o.Candidates != 15 || o.Metrics["mrr@5"] == 1 {
			t.Errorf("%s: %+v", o.Name, o)
		}
	}
}

func TestRunLateRefuses(t *testing.T) {
	for want, change := range map[string]func(in *eval.Input){
		"no model takes them":       func(in *eval.Input) { in.Model = cosine(t) },
		"queries: items do not fit": func(in *eval.Input) { in.QueryStarts = in.QueryStarts[1:] },
		"items: items do not fit":   func(in *eval.Input) { in.ItemStarts[1] = 0 },
		"3 item ids for 60 items":   func(in *eval.Input) { in.ItemIDs = make([]rerank.ID, 3) },
		"user ids for 20 queries":   func(in *eval.Input) { in.UserIDs = make([]int64, in.Queries.Rows) },
		"number 2 has no vector":    func(in *eval.Input) { in.QueryStarts[3] = in.QueryStarts[2] },
	} {
		in := lateWorld(t)
		in.ItemStarts, in.QueryStarts = slices.Clone(in.ItemStarts), slices.Clone(in.QueryStarts)
		change(&in)
		if _, err := eval.Run(t.Context(), in); !errors.Is(err, eval.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
