package calibrate

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search"
)

// answered says how well a rule answered one query.
type answered struct {
	Depth      int     `json:"depth"`
	Recall     float64 `json:"recall"`
	Candidates int     `json:"candidates"`
	Took       float64 `json:"ms"`
}

// reached reports whether an answer has the promised recall. A recall is a fraction of K,
// which a float64 may miss by a rounding.
func (p Promise) reached(recall float64) bool { return recall >= p.Recall-1e-9 }

// ask searches by a rule for the queries whose numbers are at least from and below to, unless the
// journal has their answers.
func (r *run) ask(ctx context.Context, stage string, all []rerank.Query, from, to int, rule rerank.Rule) error {
	done := r.Progress.begin(stage, to-from)
	var next atomic.Int64
	next.Store(int64(from))
	group, ctx := errgroup.WithContext(ctx)
	for range max(1, r.Parallel) {
		group.Go(func() error {
			for n := int(next.Add(1)) - 1; n < to; n = int(next.Add(1)) - 1 {
				if err := r.askOne(ctx, n, all[n], rule); err != nil {
					return fmt.Errorf("query %d: %w", n, err)
				}
				done(1)
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

func (r *run) askOne(ctx context.Context, n int, q rerank.Query, rule rerank.Rule) error {
	if _, have := r.journal.answer(n, rule.Depth); have {
		return nil
	}
	exact, err := r.exact.answer(ctx, n, q, r.Promise.K)
	if err != nil {
		return err
	}
	began := time.Now()
	request := requestByRule(r.route.Name, q, r.Promise.K, rule)
	request.Exclude = r.seen[n].ids()
	a, err := r.pipeline.Search(ctx, request)
	if err != nil {
		return err
	}
	return r.journal.write(entry{Query: n, Answers: []answered{{
		Depth: rule.Depth, Recall: exact.recall(scored(a.Hits)), Candidates: a.Certificate.Candidates,
		Took: float64(time.Since(began).Microseconds()) / 1e3,
	}}})
}

// requestByRule returns the search for the best k items that a rule describes.
func requestByRule(rt string, q rerank.Query, k int, rule rerank.Rule) search.Request {
	return search.Request{
		Route: rt, Query: q, K: k, Strategy: rule.Strategy, Depth: rule.Depth,
		AverageDepth: rule.AverageDepth, Weights: rule.Weights, Head: rule.Head,
	}
}

func scored(hits []search.Hit) []rerank.Scored {
	out := make([]rerank.Scored, len(hits))
	for i, h := range hits {
		out[i] = rerank.Scored{ID: h.ID, Score: h.Score}
	}
	return out
}

// outcome sums up how well a rule answered the queries whose numbers are at least from and
// below to, and whether that shows a promise.
func (r *run) outcome(p Promise, rule rerank.Rule, from, to int) Outcome {
	o := Outcome{Rule: rule, Queries: to - from}
	var recalls, took []float64
	for n := from; n < to; n++ {
		a, _ := r.journal.answer(n, rule.Depth)
		if p.reached(a.Recall) {
			o.Kept++
		}
		recalls, took = append(recalls, a.Recall), append(took, a.Took)
		o.MeanRecall += a.Recall / float64(o.Queries)
		o.Candidates += float64(a.Candidates) / float64(o.Queries)
	}
	o.Passed = p.isShownBy(o.Kept, o.Queries)
	o.LeastShare = LeastShare(o.Kept, o.Queries, p.Alpha)
	o.LeastMeanRecall = leastMean(recalls, p.Alpha)
	slices.Sort(took)
	o.P50, o.P99 = took[len(took)/2], took[(len(took)-1)*99/100]
	return o
}
