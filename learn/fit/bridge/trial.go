package bridge

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/fit/teacher"
	"github.com/likenessdb/likeness/rerank"
)

// maxHeldOut bounds the texts that take the place of queries.
const maxHeldOut = 1000

// touchDepth is the number of candidates of an answer that count as touched by it.
const touchDepth = 100

// trial compares the alternatives on queries and items that no map has seen.
type trial struct {
	options    Options
	old, now   rerank.Matrix // vectors of the items by both models
	oldQueries rerank.Matrix
	nowQueries rerank.Matrix
	relevant   [][]int32 // item rows of each query; nil until the new model's answers are known
	hidden     [][]int32
	segments   []string

	// learnedOld and learnedNew hold a row for each text from which maps learn: the items, and then
	// the queries if maps learn from them. asked[q] is the row of query q, and asked is nil if they do not.
	learnedOld, learnedNew rerank.Matrix
	asked                  []int32
	// elsewhere reports whether the queries also ask for items that are no texts of the fit: a tenth of the
	// queries or more have no right answer among the texts.
	elsewhere bool
	// mapped holds the items' old vectors after the map. The map of each item is fitted to the
	// other texts.
	mapped rerank.Matrix
	served *affine // of all texts
	// explained is the share of the variance of the items' new vectors that the maps predict.
	explained float64
}

// newTrial divides the texts. Without queries, some of the texts take their place.
func newTrial(d Data, o Options) *trial {
	if d.NewQueries.Rows > 0 {
		return &trial{options: o, old: d.Old, now: d.New, oldQueries: d.OldQueries, nowQueries: d.NewQueries, relevant: d.Relevant, hidden: d.Hidden, segments: d.Segments}
	}
	rows := shuffled(d.Old.Rows, o.Seed)
	asking := min(maxHeldOut, int(math.Ceil(o.HeldOut*float64(len(rows)))))
	return &trial{
		options: o, oldQueries: linalg.Gather(d.Old, rows[:asking]), nowQueries: linalg.Gather(d.New, rows[:asking]),
		old: linalg.Gather(d.Old, rows[asking:]), now: linalg.Gather(d.New, rows[asking:]),
	}
}

// shuffled returns the numbers from 0 to n in an order that the seed decides.
func shuffled(n int, seed uint64) []int32 {
	rows := make([]int32, n)
	for i, r := range rand.New(rand.NewPCG(seed, 0xb21d6e)).Perm(n) {
		rows[i] = int32(r)
	}
	return rows
}

// learn fits the map of all texts, and maps each item of the trial by a map that has not seen it. The maps
// learn from the queries too if they then predict the items that they have not seen better.
func (t *trial) learn(ctx context.Context, d Data) (err error) {
	if t.served, err = addUp(d.Old, d.New).solve(); err != nil {
		return err
	}
	t.learnedOld, t.learnedNew = t.old, t.now
	if err := t.mapAll(); err != nil || d.NewQueries.Rows == 0 {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	both := *t
	both.learnedOld, both.learnedNew = stack(d.Old, d.OldQueries), stack(d.New, d.NewQueries)
	if both.served, err = addUp(both.learnedOld, both.learnedNew).solve(); err != nil {
		return err
	}
	if err := both.mapAll(); err != nil || both.explained <= t.explained {
		return err
	}
	both.asked = make([]int32, d.NewQueries.Rows)
	for q := range both.asked {
		both.asked[q] = int32(d.Old.Rows + q)
	}
	*t = both
	return nil
}

// stack returns the rows of a above the rows of b.
func stack(a, b rerank.Matrix) rerank.Matrix {
	return rerank.Matrix{Rows: a.Rows + b.Rows, Cols: a.Cols, Data: slices.Concat(a.Data, b.Data)}
}

// mapAll maps each item by the map that the other texts give.
func (t *trial) mapAll() error {
	mapped, err := mapUnseen(t.learnedOld, t.learnedNew, nil, t.served.ridge)
	if err != nil {
		return err
	}
	t.mapped = mapped.Slice(0, t.old.Rows)
	t.explained = explained(t.now, t.mapped)
	t.normalise(t.mapped)
	return nil
}

// normalise makes mapped vectors unit vectors, if the bridge compares by the cosine.
func (t *trial) normalise(mapped rerank.Matrix) {
	if !t.options.Normalise {
		return
	}
	for r := range mapped.Rows {
		rerank.Normalise(mapped.Row(r))
	}
}

// explained returns the share of the variance of the vectors that the predictions explain.
func explained(vectors, predicted rerank.Matrix) float64 {
	mean := make([]float64, vectors.Cols)
	for r := range vectors.Rows {
		for j, v := range vectors.Row(r) {
			mean[j] += float64(v) / float64(vectors.Rows)
		}
	}
	var missed, total float64
	for r := range vectors.Rows {
		for j, v := range vectors.Row(r) {
			e, d := float64(v-predicted.Row(r)[j]), float64(v)-mean[j]
			missed += e * e
			total += d * d
		}
	}
	return 1 - missed/max(total, math.SmallestNonzeroFloat64)
}

// ranking holds the first items of each query, and their scores.
type ranking []teacher.Ranked

// queryBlock is the number of queries that are ranked together.
const queryBlock = 256

// rank ranks the items for each query by the inner product of their vectors. Query q's ranking leaves out
// hidden[q]; hidden may be nil.
func rank(ctx context.Context, queries rerank.Matrix, hidden [][]int32, items rerank.Matrix, depth int) (ranking, error) {
	found := make(ranking, queries.Rows)
	for from := 0; from < queries.Rows; from += queryBlock {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		block := queries.Slice(from, min(from+queryBlock, queries.Rows))
		scores := rerank.NewMatrix(block.Rows, items.Rows)
		linalg.Multiply(scores, block, false, items, true)
		linalg.Parallel(block.Rows, 8, func(a, b int) {
			for i := a; i < b; i++ {
				row := scores.Row(i)
				if hidden != nil {
					for _, x := range hidden[from+i] {
						row[x] = float32(math.Inf(-1))
					}
				}
				found[from+i] = teacher.Rank(row, nil, depth)
			}
		})
	}
	return found, nil
}

// marks holds the quality of a ranking for each query.
type marks struct{ ndcg, recall []float64 }

// mark computes the quality of a ranking from the relevant items.
func (t *trial) mark(r ranking) marks {
	m := marks{ndcg: make([]float64, len(r)), recall: make([]float64, len(r))}
	for q, list := range r {
		var hits judge.Hits
		found := 0
		for place, x := range list.Rows[:min(len(list.Rows), judge.Cutoff)] {
			if _, ok := slices.BinarySearch(t.relevant[q], x); ok {
				hits |= 1 << place
				found++
			}
		}
		m.ndcg[q] = hits.NDCG(int32(len(t.relevant[q])))
		m.recall[q] = float64(found) / float64(min(judge.Cutoff, len(t.relevant[q])))
	}
	return m
}

// keepAnswerable drops the queries without a relevant item.
func (t *trial) keepAnswerable() {
	var rows []int32
	for q, items := range t.relevant {
		if len(items) > 0 {
			rows = append(rows, int32(q))
		}
	}
	if len(rows) == len(t.relevant) {
		return
	}
	t.elsewhere = 10*(len(t.relevant)-len(rows)) >= len(t.relevant)
	t.oldQueries, t.nowQueries = linalg.Gather(t.oldQueries, rows), linalg.Gather(t.nowQueries, rows)
	t.relevant, t.hidden, t.segments = pick(t.relevant, rows), pick(t.hidden, rows), pick(t.segments, rows)
	t.asked = pick(t.asked, rows)
}

// pick returns the elements of all at the indices rows, or nil if all is nil.
func pick[T any](all []T, rows []int32) []T {
	if all == nil {
		return nil
	}
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = all[r]
	}
	return out
}

// Calibration predicts the new model's own scores of candidates from the scores of a bridge, as for a
// threshold that was set for the new model.
type Calibration struct {
	// The predicted score is Slope·s + Offset for a bridge's score s. Error is the root mean
	// square error of the predictions.
	Slope  float64 `json:"slope"`
	Offset float64 `json:"offset"`
	Error  float64 `json:"error"`
}

// calibrate fits the new model's scores by the bridge's, over the first candidates of each query.
func (t *trial) calibrate(bridge ranking) Calibration {
	var n, x, y, xx, xy, yy float64
	for q, list := range bridge {
		for i, item := range list.Rows {
			s, want := float64(list.Scores[i]), linalg.Dot(t.nowQueries.Row(q), t.now.Row(int(item)))
			n, x, y = n+1, x+s, y+want
			xx, xy, yy = xx+s*s, xy+s*want, yy+want*want
		}
	}
	spread := xx - x*x/n
	if n == 0 || !(spread > 0) {
		return Calibration{Slope: 1}
	}
	slope := (xy - x*y/n) / spread
	c := Calibration{Slope: slope, Offset: (y - slope*x) / n}
	c.Error = math.Sqrt(max(0, yy-y*y/n-slope*slope*spread) / n)
	return c
}

// queryParts is the number of parts into which the queries are divided. No map that ranks for a part has seen
// any of its queries, or the drawn right answer to one (drawAnswers).
const queryParts = 10

// drawAnswers draws one right answer to each query. Most items of a collection are no texts of the fit, so a query is
// judged by maps that have not seen its drawn answer. A map in service has seen other queries about such an item only
// if the log asks for items that are no texts of the fit. If it does not (elsewhere is false), the judging maps have
// seen no query with the same drawn answer either. If queries have many right answers in common, the maps have seen
// queries and answers like these, as a map in service has.
func (t *trial) drawAnswers() []int32 {
	rng := rand.New(rand.NewPCG(t.options.Seed, 0xa25))
	drawn := make([]int32, len(t.relevant))
	for q, items := range t.relevant {
		drawn[q] = items[rng.IntN(len(items))]
	}
	return drawn
}

// bridged ranks by the bridge that predicts the targets of a share (drawTargets), touchDepth deep, and with some of the
// items embedded again: for each part of the queries the items that the answers to the other parts touched most. A
// cosine with a mapped vector and one with a new vector are compared as they are: the line of Calibration draws the
// mapped ones together, and ranks worse.
//
// It is not enough that an item's own map has not seen it. The maps of all other items would have seen one right
// answer more than a right answer's own map, and would draw these items towards the query. So no map sees the
// drawn right answer. The maps may see the others: a collection has texts like those that a map has seen.
func (t *trial) bridged(ctx context.Context, share, ridge float64, answers ranking, done func(int)) (bridge, lazily ranking, err error) {
	order, drawn := shuffled(len(t.relevant), t.options.Seed+4), t.drawAnswers()
	if !t.elsewhere {
		place := shuffled(t.old.Rows, t.options.Seed+4) // rows next to each other may be alike
		slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(place[drawn[a]], place[drawn[b]]) })
	}
	bridge, lazily = make(ranking, len(order)), make(ranking, len(order))
	for k := range queryParts {
		from, to := k*len(order)/queryParts, (k+1)*len(order)/queryParts
		part := order[from:to]
		vectors, err := mapUnseen(t.learnedOld, t.drawTargets(share, part), t.unseen(part, pick(drawn, part)), ridge)
		if err != nil {
			return nil, nil, err
		}
		vectors = vectors.Slice(0, t.old.Rows)
		t.normalise(vectors)
		rankPart := func(found ranking, depth int) error {
			r, err := rank(ctx, linalg.Gather(t.nowQueries, part), pick(t.hidden, part), vectors, depth)
			for i := range r {
				found[part[i]] = r[i]
			}
			return err
		}
		if err := rankPart(bridge, min(touchDepth, t.old.Rows)); err != nil {
			return nil, nil, err
		}
		for _, x := range t.mostTouched(pick(answers, slices.Concat(order[:from], order[to:]))) {
			copy(vectors.Row(int(x)), t.now.Row(int(x)))
		}
		if err := rankPart(lazily, judge.Cutoff); err != nil {
			return nil, nil, err
		}
		done(1)
	}
	return bridge, lazily, nil
}

// unseen returns the rows of texts that no map may see that ranks for some queries, ascending: the queries
// and their drawn answers, but no more than half of all items, because the others have to give a map.
func (t *trial) unseen(queries, drawn []int32) []int32 {
	rows := slices.Compact(slices.Sorted(slices.Values(drawn)))
	rows = rows[:min(len(rows), t.old.Rows/2)]
	if t.asked != nil {
		rows = append(rows, slices.Sorted(slices.Values(pick(t.asked, queries)))...)
	}
	return rows
}

// mostTouched returns the items that answers show most often, then those that are candidates most often,
// then others in an order that the seed decides.
func (t *trial) mostTouched(answers ranking) []int32 {
	touched := make([]float64, t.old.Rows)
	for _, list := range answers {
		for place, x := range list.Rows {
			touched[x]++
			if place < judge.Cutoff {
				touched[x] += touchDepth
			}
		}
	}
	order := shuffled(t.old.Rows, t.options.Seed+3)
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(touched[b], touched[a]) })
	return order[:int(t.options.Lazy*float64(len(order)))]
}
