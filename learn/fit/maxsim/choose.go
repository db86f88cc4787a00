package maxsim

import (
	"context"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/train"
	"github.com/likenessdb/likeness/rerank"
)

// marks says how well held-out queries find their items with a budget; each slice has one number
// per query.
type marks struct {
	Vectors     int           // how many vectors the budget made
	Logged      judge.Ratings // of the held-out queries, with the budget
	Plain       []float64     // the measure of the same queries, by the plain inner product
	Seen        []float64     // the measure of each query that the log repeats, for users who choose as the log's did, with the budget
	SeenByPlain []float64     // the same by the plain inner product
	Cold        []float64     // the measure for held-out items, with the budget
	ColdByPlain []float64     // the same by the plain inner product
}

// judges rank items for a budget.
type judges struct {
	logged *judge.Judge // ranks for the held-out queries
	// traffic compares all that queries of the traffic found: held-out ones, and after them those
	// seen before.
	traffic *judge.Judge
	// seen ranks for queries that the clusters learn from, or whose equals they learn from, by
	// how often they were asked. It is nil if no traffic repeats.
	seen        *judge.Judge
	repeatShare float64
	// cold ranks for the held-out items, which coldItems marks. It is nil if no items were held
	// out.
	cold      *judge.Judge
	coldItems []bool
}

// chooseBudget tries the budgets on held-out queries, and then the other betas with the budget that
// is best by the rule of all verdicts: the smallest that is as good as the best and better than no
// vectors. If items without logs are guarded, only budgets under which they do not lose count. A
// single budget is taken in any case.
func (f *fitter) chooseBudget(ctx context.Context) error {
	j, err := f.newJudges()
	if err != nil {
		return err
	}
	f.report.Guarded = f.options.Cold == fit.ColdGuard && j.cold != nil
	pairs := groupByItem(f.log, f.split.Train)
	r := &f.report
	r.RepeatShare, r.Skew = j.repeatShare, f.measureSkew(pairs)
	if doubt := r.Skew.doubt(j.repeatShare); doubt != "" {
		f.options.Notef("%s", doubt)
		r.Warnings = append(r.Warnings, doubt)
	}
	isOnly := len(f.options.MAvg) == 1
	for _, average := range f.options.MAvg {
		if err := f.try(ctx, pairs, average, f.options.Betas[0], j); err != nil {
			return err
		}
	}
	chosen, err := r.decide(j, isOnly)
	if err != nil {
		return err
	}
	if chosen < 0 {
		r.stay(j)
		return nil
	}
	if len(f.options.Betas) > 1 {
		for _, beta := range f.options.Betas[1:] {
			if err := f.try(ctx, pairs, r.Trials[chosen].MAvg, beta, j); err != nil {
				return err
			}
		}
		if chosen, err = r.decide(j, isOnly); err != nil {
			return err
		}
	}
	r.take(chosen)
	return nil
}

// try adds the trial of a budget and a beta to the report.
func (f *fitter) try(ctx context.Context, pairs itemPairs, average, beta float64, j judges) error {
	m, err := train.Try(f.trials, fmt.Sprintf("%g vectors an item, beta %g", average, beta), func() (marks, error) {
		return f.tryBudget(ctx, pairs, average, beta, j)
	})
	if err != nil {
		return err
	}
	trial := f.report.newTrial(average, beta, m, j)
	f.report.Trials = append(f.report.Trials, trial)
	f.options.Notef("%s", trial)
	return nil
}

// maxJudges is the greatest number of held-out queries that judge a budget, and of queries seen
// before. The vectors of a budget are made and forgotten as they are judged, so that no second
// look can follow the first.
const maxJudges = 4000

// judgeSeen adds the judge of queries seen before. Where the latest period is held out, they
// are its queries that were asked before; otherwise they are those that the clusters learn
// from.
func (f *fitter) judgeSeen(j *judges) {
	l, seen := f.log, f.split.Train
	if f.options.SplitBy == fit.ByTime {
		seen = f.split.Straddling
		repeated := l.AskedInAll(seen)
		j.repeatShare = repeated / (repeated + l.AskedInAll(f.split.HeldOut))
	} else {
		j.repeatShare = l.RepeatShare()
	}
	if f.options.RepeatShare != RepeatFromLog {
		j.repeatShare = f.options.RepeatShare
	}
	if j.repeatShare == 0 {
		return
	}
	if len(seen) == 0 {
		seen = f.split.Train
	}
	seen = thin(seen, maxJudges)
	l.FindTwins(slices.Concat(f.split.HeldOut, seen))
	j.seen = f.newUnitJudge(seen, nil)
	for i, q := range j.seen.Queries {
		j.seen.Weights[i] = l.AskedOf(q)
	}
	if len(j.seen.Queries) == 0 {
		j.seen, j.repeatShare = nil, 0
	}
}

// thin returns at most the given number of the queries, at even distances.
func thin(queries []int32, most int) []int32 {
	step := (len(queries) + most - 1) / most
	if step <= 1 {
		return queries
	}
	var some []int32
	for i := 0; i < len(queries); i += step {
		some = append(some, queries[i])
	}
	return some
}

// newJudges makes the judges of all budgets. It returns fit.ErrData if no held-out query
// can judge.
func (f *fitter) newJudges() (judges, error) {
	l, o := f.log, f.options
	l.FindTwins(f.split.HeldOut)
	heldOut := thin(f.split.HeldOut, maxJudges)
	j := judges{logged: f.newUnitJudge(heldOut, nil)}
	j.traffic = j.logged
	f.judgeSeen(&j)
	if j.seen != nil {
		j.traffic = judge.Mix(j.logged, j.seen, j.repeatShare)
	}
	if len(j.logged.Queries) == 0 {
		return j, fmt.Errorf("%w: no held-out query has an item to find beside itself", fit.ErrData)
	}
	sets := l.HoldOutItems(o.ColdShare, 1, o.Seed)
	if len(sets) == 0 || o.Cold == fit.ColdIgnore {
		return j, nil
	}
	set := sets[0]
	unseen := thin(l.QueriesWithin(set, slices.Concat(f.split.HeldOut, f.split.Train)), maxJudges)
	asked := slices.Concat(f.split.HeldOut, unseen)
	if j.seen != nil {
		asked = append(asked, j.seen.Queries...)
	}
	l.FindTwins(asked)
	if cold := f.newUnitJudge(unseen, func(x int32) bool { return set[x] }); len(cold.Queries) > 0 {
		j.cold, j.coldItems = cold, set
	}
	return j, nil
}

// newUnitJudge makes a judge whose query vectors have norm 1.
func (f *fitter) newUnitJudge(queries []int32, wanted func(int32) bool) *judge.Judge {
	j := judge.New(f.log, f.options.Measure, queries, wanted)
	for r := range j.Vectors.Rows {
		rerank.Normalise(j.Vectors.Row(r))
	}
	return j
}

// tryBudget clusters the pairs with a budget, while the judges rank the items. A held-out item is
// ranked by its own vector alone.
func (f *fitter) tryBudget(ctx context.Context, pairs itemPairs, average, beta float64, j judges) (marks, error) {
	noItem, everyItem := func(int32) bool { return false }, func(int32) bool { return true }
	fitted, plain := newRanking(j.logged, noItem), newRanking(j.logged, everyItem)
	rankings := []*ranking{fitted, plain}
	var cold, coldPlain, seen, seenPlain *ranking
	if j.seen != nil {
		seen, seenPlain = newRanking(j.seen, noItem), newRanking(j.seen, everyItem)
		rankings = append(rankings, seen, seenPlain)
	}
	if j.cold != nil {
		cold, coldPlain = newRanking(j.cold, func(x int32) bool { return j.coldItems[x] }), newRanking(j.cold, everyItem)
		rankings = append(rankings, cold, coldPlain)
	}
	var m marks
	err := f.cluster(ctx, fmt.Sprintf("trying %g vectors an item, beta %g", average, beta), pairs, average, beta, func(from int, vectors []rerank.Matrix) error {
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
	m.Logged = j.logged.Rate(fitted.hits())
	m.Plain = j.logged.MarksOf(plain.hits())
	if j.seen != nil {
		m.Seen, m.SeenByPlain = seen.marksWhenRepeated(), seenPlain.marksWhenRepeated()
	}
	if j.cold != nil {
		m.Cold, m.ColdByPlain = j.cold.MarksOf(cold.hits()), j.cold.MarksOf(coldPlain.hits())
	}
	return m, nil
}
