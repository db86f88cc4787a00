package maxsim

import (
	"context"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
)

// marks says how well held-out queries find their items with a budget; each slice has one number
// per query.
type marks struct {
	Vectors          int       // how many vectors the budget made
	ReciprocalRanks  []float64 // of the held-out queries, with the budget
	NDCG             []float64
	PlainRanks       []float64 // of the same queries, by the plain inner product
	ColdRanks        []float64 // of held-out items, with the budget
	ColdRanksByPlain []float64 // of held-out items, by the plain inner product
}

// judges rank items for a budget.
type judges struct {
	logged *judge.Judge // ranks for the held-out queries
	// cold ranks for the held-out items, which coldItems marks. It is nil if no items were held
	// out.
	cold      *judge.Judge
	coldItems []bool
}

// chooseBudget tries the budgets on held-out queries. It takes the smallest budget that is as good
// as the best and better than no vectors. If items without logs are guarded, only budgets under
// which they do not lose count. A single budget is taken without a trial.
func (f *fitter) chooseBudget(ctx context.Context) error {
	j, err := f.newJudges()
	if err != nil {
		return err
	}
	f.report.Guarded = f.options.Cold == fit.ColdGuard && j.cold != nil
	pairs := groupByItem(f.log, f.split.Train)
	for _, average := range f.options.MAvg {
		m, err := train.Try(f.trials, fmt.Sprintf("%g vectors an item", average), func() (marks, error) {
			return f.tryBudget(ctx, pairs, average, j)
		})
		if err != nil {
			return err
		}
		trial := newTrial(average, m, j, f.report.Guarded)
		f.report.Trials = append(f.report.Trials, trial)
		f.options.Notef("%s", trial)
	}
	f.report.choose(j.logged)
	return nil
}

// newJudges makes the judges of all budgets. It returns fit.ErrData if no held-out query
// can judge.
func (f *fitter) newJudges() (judges, error) {
	l, o := f.log, f.options
	l.FindTwins(f.split.HeldOut)
	j := judges{logged: newUnitJudge(l, f.split.HeldOut, nil)}
	if len(j.logged.Queries) == 0 {
		return j, fmt.Errorf("%w: no held-out query has an item to find beside itself", fit.ErrData)
	}
	sets := l.HoldOutItems(o.ColdShare, 1, o.Seed)
	if len(sets) == 0 || o.Cold == fit.ColdIgnore {
		return j, nil
	}
	set := sets[0]
	unseen := l.QueriesWithin(set, slices.Concat(f.split.HeldOut, f.split.Train))
	l.FindTwins(slices.Concat(f.split.HeldOut, unseen))
	if cold := newUnitJudge(l, unseen, func(x int32) bool { return set[x] }); len(cold.Queries) > 0 {
		j.cold, j.coldItems = cold, set
	}
	return j, nil
}

// newUnitJudge makes a judge whose query vectors have norm 1.
func newUnitJudge(l *samples.Log, queries []int32, wanted func(int32) bool) *judge.Judge {
	j := judge.New(l, queries, wanted)
	for r := range j.Vectors.Rows {
		rerank.Normalise(j.Vectors.Row(r))
	}
	return j
}

// tryBudget clusters the pairs with a budget, while the judges rank the items. A held-out item is
// ranked by its own vector alone.
func (f *fitter) tryBudget(ctx context.Context, pairs itemPairs, average float64, j judges) (marks, error) {
	noItem, everyItem := func(int32) bool { return false }, func(int32) bool { return true }
	fitted, plain := newRanking(j.logged, noItem), newRanking(j.logged, everyItem)
	rankings := []*ranking{fitted, plain}
	var cold, coldPlain *ranking
	if j.cold != nil {
		cold, coldPlain = newRanking(j.cold, func(x int32) bool { return j.coldItems[x] }), newRanking(j.cold, everyItem)
		rankings = append(rankings, cold, coldPlain)
	}
	var m marks
	err := f.cluster(ctx, fmt.Sprintf("trying %g vectors an item", average), pairs, average, func(from int, vectors []rerank.Matrix) error {
		chunk := joinVectors(f.log.Items, from, vectors)
		m.Vectors += chunk.rows.Rows - len(vectors)
		for _, r := range rankings {
			r.addChunk(chunk)
		}
		return nil
	})
	if err != nil {
		return m, err
	}
	m.ReciprocalRanks, m.NDCG = fitted.marks()
	m.PlainRanks, _ = plain.marks()
	if j.cold != nil {
		m.ColdRanks, _ = cold.marks()
		m.ColdRanksByPlain, _ = coldPlain.marks()
	}
	return m, nil
}
