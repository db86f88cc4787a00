package fit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// maxsimMarks are what held-out queries found with a budget.
type maxsimMarks struct {
	Vectors          int
	Reciprocal, Gain []float64 // of the held-out queries
	Plain            []float64 // reciprocal, by the plain inner product
	Cold, ColdPlain  []float64 // reciprocal, of queries for held-out items
}

// choose tries the budgets on held-out queries and takes the smallest that is as
// good as the best, among those that keep items without logs where these are
// guarded, and among those that are better than no vectors at all. A budget that
// stands alone is taken as it is.
func (w *maxsimWork) choose(ctx context.Context) error {
	p, o := w.problem, w.options
	p.own = p.itemsOf(w.split.held)
	logged := p.unitJudge(w.split.held, nil)
	if len(logged.queries) == 0 {
		return fmt.Errorf("%w: no held-out query has an item to find beside itself", ErrData)
	}
	var cold *judge
	var set []bool
	if sets := p.byItem(o.ColdShare, 1, o.Seed); len(sets) > 0 && o.Cold != ColdIgnore {
		set = sets[0]
		fresh := p.only(set, slices.Concat(w.split.held, w.split.train))
		p.own = p.itemsOf(slices.Concat(w.split.held, fresh))
		if cold = p.unitJudge(fresh, func(x int32) bool { return set[x] }); len(cold.queries) == 0 {
			cold = nil
		}
	}
	w.report.Guarded = o.Cold == ColdGuard && cold != nil
	if w.state.Trials == nil {
		w.state.Trials = map[float64]maxsimMarks{}
	}
	g := p.group(w.split.train)
	for _, average := range o.MAvg {
		m, known := w.state.Trials[average]
		if !known {
			var err error
			if m, err = w.try(ctx, g, average, logged, cold, set); err != nil {
				return err
			}
			w.state.Trials[average] = m
			if err := w.keeper.save(func() any { return w.state }, true); err != nil {
				return err
			}
		}
		w.note(average, m, logged, cold)
	}
	w.take(logged)
	return nil
}

// itemsOf finds the items with the direction of a query, for those queries alone.
// See itemsLike.
func (p *problem) itemsOf(queries []int32) [][]int32 {
	unit := make([]float32, p.items.Cols)
	digest := func(row []float32) [sha256.Size]byte {
		copy(unit, row)
		rerank.Normalise(unit)
		return rowDigest(unit, 0)
	}
	asked := map[[sha256.Size]byte][]int32{}
	for _, q := range queries {
		key := p.queryDigest(int(q), 0)
		asked[key] = append(asked[key], q)
	}
	var own [][]int32
	for x := range p.items.Rows {
		for _, q := range asked[digest(p.items.Row(x))] {
			if own == nil {
				own = make([][]int32, p.queries.Rows)
			}
			if !slices.Contains(own[q], int32(x)) {
				own[q] = append(own[q], int32(x))
			}
		}
	}
	return own
}

// unitJudge judges by unit vectors of the queries.
func (p *problem) unitJudge(queries []int32, wanted func(int32) bool) *judge {
	j := newJudge(p, queries, wanted)
	for r := range j.vectors.Rows {
		rerank.Normalise(j.vectors.Row(r))
	}
	return j
}

// only are the queries all of whose items are in the set.
func (p *problem) only(set []bool, queries []int32) []int32 {
	var out []int32
	for _, q := range queries {
		if !slices.ContainsFunc(p.relevant[q], func(x int32) bool { return !set[x] }) {
			out = append(out, q)
		}
	}
	return out
}

// try clusters with a budget and lets the judges rank all items meanwhile. An item
// of the set has no vector but its own when the cold judge looks.
func (w *maxsimWork) try(ctx context.Context, g byItem, average float64, logged, cold *judge, set []bool) (m maxsimMarks, err error) {
	rankings := []*ranking{newRanking(logged, false, nil), newRanking(logged, true, nil)}
	if cold != nil {
		rankings = append(rankings, newRanking(cold, false, set), newRanking(cold, true, nil))
	}
	err = w.cluster(ctx, fmt.Sprintf("trying %g vectors an item", average), g, average, func(from int, vectors []rerank.Matrix) error {
		rows, starts := w.rowsOf(from, vectors)
		m.Vectors += rows.Rows - len(vectors)
		for _, r := range rankings {
			r.add(from, rows, starts)
		}
		return nil
	})
	if err != nil {
		return m, err
	}
	m.Reciprocal, m.Gain = rankings[0].marks()
	m.Plain, _ = rankings[1].marks()
	if cold != nil {
		m.Cold, _ = rankings[2].marks()
		m.ColdPlain, _ = rankings[3].marks()
	}
	return m, nil
}

// rowsOf puts the vectors of a chunk of items together, each item's own first:
// those of item i are rows starts[i] to starts[i+1].
func (w *maxsimWork) rowsOf(from int, vectors []rerank.Matrix) (rows rerank.Matrix, starts []int) {
	items := w.problem.items
	starts = make([]int, 1, len(vectors)+1)
	for i, v := range vectors {
		starts = append(starts, starts[i]+1+v.Rows)
	}
	rows = rerank.NewMatrix(starts[len(vectors)], items.Cols)
	for i, v := range vectors {
		own := rows.Row(starts[i])
		copy(own, items.Row(from+i))
		rerank.Normalise(own)
		copy(rows.Data[(starts[i]+1)*items.Cols:], v.Data)
	}
	return rows, starts
}

// ranking is the first items of each query of a judge, as items come in.
type ranking struct {
	judge *judge
	plain bool   // by the items' own vectors alone
	alone []bool // items of which that holds anyway
	best  [][]placed
}

type placed struct {
	item  int32
	score float32
}

func newRanking(j *judge, plain bool, alone []bool) *ranking {
	return &ranking{judge: j, plain: plain, alone: alone, best: make([][]placed, len(j.queries))}
}

// rankingScores bounds the scores that are in memory at a time.
const rankingScores = 1 << 22

// add ranks a chunk of items, whose rows come after those of all chunks before.
func (r *ranking) add(from int, rows rerank.Matrix, starts []int) {
	j := r.judge
	block := max(1, min(512, rankingScores/rows.Rows))
	scores := rerank.NewMatrix(min(block, len(j.queries)), rows.Rows)
	for a := 0; a < len(j.queries); a += block {
		b := min(a+block, len(j.queries))
		s := scores.Slice(0, b-a)
		multiply(s, j.vectors.Slice(a, b), false, rows, true)
		spread(b-a, 16, func(first, end int) {
			for i := first; i < end; i++ {
				r.rank(a+i, from, s.Row(i), starts)
			}
		})
	}
}

// rank takes the scores of a query with the rows of a chunk.
func (r *ranking) rank(query, from int, scores []float32, starts []int) {
	best := r.best[query]
	q := r.judge.queries[query]
	for i := range len(starts) - 1 {
		x := int32(from + i)
		mine := scores[starts[i]:starts[i+1]]
		if r.plain || r.alone != nil && r.alone[x] {
			mine = mine[:1]
		}
		score := slices.Max(mine)
		if len(best) == cutoff && score <= best[cutoff-1].score || r.judge.leaves(q, x) {
			continue
		}
		if len(best) < cutoff {
			best = append(best, placed{})
		}
		at := len(best) - 1
		for ; at > 0 && best[at-1].score < score; at-- {
			best[at] = best[at-1]
		}
		best[at] = placed{item: x, score: score}
	}
	r.best[query] = best
}

// leaves: the item neither counts nor stands in the way of the query.
func (j *judge) leaves(q, x int32) bool {
	_, relevant := slices.BinarySearch(j.problem.relevant[q], x)
	if relevant {
		return !j.counts(q, x)
	}
	return j.isOwn(q, x)
}

// marks are 1/rank of each query's best wanted item, and nDCG@10.
func (r *ranking) marks() (reciprocal, gain []float64) {
	for i, best := range r.best {
		var found hits
		for place, b := range best {
			if _, in := slices.BinarySearch(r.judge.problem.relevant[r.judge.queries[i]], b.item); in {
				found |= 1 << place
			}
		}
		reciprocal, gain = append(reciprocal, found.reciprocal()), append(gain, found.gain(r.judge.count[i]))
	}
	return reciprocal, gain
}

// note adds a trial to the report.
func (w *maxsimWork) note(average float64, m maxsimMarks, logged, cold *judge) {
	t := MaxSimTrial{MAvg: average, Vectors: m.Vectors, Logged: logged.compare(m.Reciprocal, m.Plain), NDCG: logged.mean(m.Gain), Admissible: true, marks: m}
	text := fmt.Sprintf("%g vectors an item: held-out MRR@10 %.4f, nDCG@10 %.4f", average, t.Logged.MRR, t.NDCG)
	if cold != nil {
		c := cold.compare(m.Cold, m.ColdPlain)
		t.Cold = &c
		t.Admissible = !w.report.Guarded || c.Gain >= -c.StandardError
		text += fmt.Sprintf("; held-out items %.4f, plain %.4f", c.MRR, c.Baseline)
	}
	w.report.Trials = append(w.report.Trials, t)
	w.options.note("%s", text)
}

// take chooses among the trials.
func (w *maxsimWork) take(logged *judge) {
	r := &w.report
	best := -1
	for i, t := range r.Trials {
		if t.Admissible && (best < 0 || t.Logged.MRR > r.Trials[best].Logged.MRR) {
			best = i
		}
	}
	chosen := -1
	for i := range r.Trials {
		t := &r.Trials[i]
		if best < 0 || !t.Admissible {
			continue
		}
		loss := logged.compare(r.Trials[best].marks.Reciprocal, t.marks.Reciprocal)
		if t.AsGood = loss.Gain <= loss.StandardError; t.AsGood && chosen < 0 {
			chosen = i
		}
	}
	fixed := len(r.Trials) == 1
	if chosen < 0 && fixed {
		chosen = 0
	}
	if chosen < 0 || !fixed && r.Trials[chosen].Logged.Gain <= 0 {
		plain := logged.compare(r.Trials[0].marks.Plain, r.Trials[0].marks.Plain)
		r.Logged = plain
		r.Recommendation = "Stay with the plain inner product: no budget that was tried is better on held-out queries and keeps items without logs."
		return
	}
	t := &r.Trials[chosen]
	t.Chosen = true
	r.MAvg, r.Logged, r.Cold = t.MAvg, t.Logged, t.Cold
	r.recommend(chosen, best, fixed)
}

func (r *MaxSimReport) recommend(chosen, best int, fixed bool) {
	t := r.Trials[chosen]
	switch {
	case t.Logged.Gain < 2*t.Logged.StandardError || math.IsNaN(t.Logged.Gain):
		r.Recommendation = fmt.Sprintf("Stay with the plain inner product: %g vectors an item are not surely better on held-out queries.", t.MAvg)
	case fixed:
		r.Recommendation = fmt.Sprintf("Use %g vectors an item, as asked: they are better than the plain inner product on held-out queries.", t.MAvg)
	case chosen == best:
		r.Recommendation = fmt.Sprintf("Use %g vectors an item: nothing smaller was as good on held-out queries.", t.MAvg)
	default:
		r.Recommendation = fmt.Sprintf("Use %g vectors an item: they are as good as %g on held-out queries.", t.MAvg, r.Trials[best].MAvg)
	}
	if c := t.Cold; c != nil && c.Gain < -c.StandardError {
		text := fmt.Sprintf("items without logs lose: MRR@%d %.4f ± %.4f, %.4f by the plain inner product, on %d queries of items held out; "+
			"items with vectors come before them", cutoff, c.MRR, c.StandardError, c.Baseline, c.Queries)
		if !r.Guarded {
			text += ". --cold guard takes no budget under which they lose"
		}
		r.Warnings = append(r.Warnings, text)
	}
}
