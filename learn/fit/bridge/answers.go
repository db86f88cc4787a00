package bridge

import (
	"context"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
)

// answerShares are the shares that a fit tries beside 0: how far the target of an item's map lies from the item's
// own new vector towards the queries that it answers.
var answerShares = [...]float64{0.25, 0.5, 0.75}

// candidate is a bridge of one share, and what it found.
type candidate struct {
	share          float64
	served         *affine
	bridge, lazily ranking
}

// drawTargets returns the vectors that maps are fitted to predict, a row for each text from which they learn. The target
// of an item that answers queries lies the share of the way from its new vector to the mean of these queries'
// vectors. The queries of without do not count.
//
// A query and its answer are often far apart by the new model too. A map that has learned which texts answer which
// queries finds more than one that repeats the new model. It stays a regression, so that each item can still be
// judged by the map that has not seen it.
func (t *trial) drawTargets(share float64, without []int32) rerank.Matrix {
	if share == 0 {
		return t.learnedNew
	}
	left := make([]bool, len(t.relevant))
	for _, q := range without {
		left[q] = true
	}
	sums, counts := rerank.NewMatrix(t.now.Rows, t.now.Cols), make([]float64, t.now.Rows)
	for q, items := range t.relevant {
		if left[q] {
			continue
		}
		for _, x := range items {
			counts[x]++
			for j, v := range t.nowQueries.Row(q) {
				sums.Row(int(x))[j] += v
			}
		}
	}
	targets := t.learnedNew
	targets.Data = slices.Clone(targets.Data)
	for x, n := range counts {
		if n == 0 {
			continue
		}
		own, asked := targets.Row(x), sums.Row(x)
		for j := range own {
			own[j] = float32((1-share)*float64(own[j]) + share*float64(asked[j])/n)
		}
	}
	return targets
}

// tryShare ranks by the bridge of one share. answers are the answers that lazy re-embedding goes by.
func (t *trial) tryShare(ctx context.Context, share float64, answers ranking, done func(int)) (c candidate, err error) {
	c = candidate{share: share, served: t.served}
	if share > 0 {
		if c.served, err = addUp(t.learnedOld, t.drawTargets(share, nil)).solve(); err != nil {
			return c, err
		}
	}
	c.bridge, c.lazily, err = t.bridged(ctx, share, c.served.ridge, answers, done)
	return c, err
}

// chooseShare returns the bridge of the least share that is as good as the best one and better than the bridge of share 0,
// which it returns if none is better.
func (t *trial) chooseShare(ctx context.Context, e Evidence, answers ranking, done func(int)) (candidate, error) {
	plain, err := t.tryShare(ctx, 0, answers, done)
	if err != nil || e == Agreement {
		return plain, err
	}
	all, found := make([]candidate, len(answerShares)), make([][]float64, len(answerShares))
	for i, share := range answerShares {
		if all[i], err = t.tryShare(ctx, share, answers, done); err != nil {
			return plain, err
		}
		found[i] = t.mark(all[i].bridge).ndcg
	}
	if i := t.decideShare(t.mark(plain.bridge).ndcg, found); i >= 0 {
		return all[i], nil
	}
	return plain, nil
}

// decideShare returns the first share that is as good as the best one and better than the share 0, or −1 if none is
// better. plain and found hold nDCG@10 of each query: for the share 0, and for each of the other shares.
func (t *trial) decideShare(plain []float64, found [][]float64) int {
	best, everyone := 0, t.everyone()
	for i, ndcg := range found {
		if judge.Mean(ndcg, nil) > judge.Mean(found[best], nil) {
			best = i
		}
	}
	c := verdict.Comparison{Metric: "ndcg@10", Plain: Bridged, PlainValue: judge.Mean(plain, nil)}
	for _, ndcg := range found {
		c.Models = append(c.Models, verdict.Model{
			Value: judge.Mean(ndcg, nil), Gain: t.difference(ndcg, plain, everyone), ToBest: t.difference(ndcg, found[best], everyone),
		})
	}
	rule := verdict.DefaultRule()
	rule.Confidence = t.options.Confidence
	return verdict.Decide(c, rule).Choice
}
