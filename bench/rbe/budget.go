package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	fitrbe "github.com/likenessdb/likeness/learn/fit/rbe"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/rbe"
)

// budgets lists how many ranker calls a query may make.
var budgets = []int{50, 100, 200, 400}

// way is a way to spend a budget: first Supports support items, then Rounds rounds of the
// best items by relevance-based embeddings. With Mixed, half of the first round are the
// database's best items. Without supports, only the best items of the database, or of a learned companion,
// are scored.
type way struct {
	Name     string `json:"way"`
	Supports int    `json:"supports"`
	Rounds   int    `json:"rounds"`
	Mixed    bool   `json:"mixed,omitempty"`
}

// wayCompanion scores the best items of a companion that was fitted to the scores from which the rbe of the
// same seed learns.
const wayCompanion = "companion"

// wayNeural is rbe in one round with perceptrons, which learn from the same scores.
const wayNeural = "neural"

// ways returns the rows of a budget's table.
func ways(calls int) []way {
	m := supportsOf(calls)
	rows := []way{{Name: "database's order"}, {Name: wayCompanion}, {Name: wayNeural, Supports: m, Rounds: 1}, {Name: "rbe", Supports: m, Rounds: 1}}
	for _, rounds := range []int{2, 3, 4, 8} {
		rows = append(rows, way{Name: "rbe", Supports: m, Rounds: rounds})
	}
	for _, rounds := range []int{1, 2, 4} {
		rows = append(rows, way{Name: "mixed", Supports: m, Rounds: rounds, Mixed: true})
	}
	return rows
}

// supportsOf returns the number of supports that was best on the tuning queries.
func supportsOf(calls int) int {
	switch {
	case calls <= 50:
		return 20
	case calls <= 100:
		return 20
	default:
		return 50
	}
}

// spent is the result of a way, averaged over the held-out queries of a seed: Recall of the
// ranker's 10 and 100 best items, and MRR@10 of the labels.
type spent struct {
	way
	Calls  int        `json:"calls"`
	Seed   uint64     `json:"seed"`
	Recall [2]float64 `json:"recall"`
	MRR    float64    `json:"mrr"`
}

func (s spent) key() string { return fmt.Sprint(s.way, s.Calls, s.Seed) }

// task is the data on which budgets are spent.
type task struct {
	scores, base rerank.Matrix // items by queries
	queries      rerank.Matrix // the queries' vectors in the database
	itemLabels   []int64
	queryLabels  []int64
}

func (s settings) task() (t task, err error) {
	if t.scores, err = matrix(s.file("judged.npy")); err != nil {
		return t, err
	}
	other := settings{dir: s.dir, ranker: "base"}
	if t.base, err = matrix(other.file("judged.npy")); err != nil {
		return t, err
	}
	if t.queries, err = matrix(other.file("queries.npy")); err != nil {
		return t, err
	}
	other.ranker = "labels"
	if t.itemLabels, err = npy.ReadInts(other.file("items.npy")); err != nil {
		return t, err
	}
	t.queryLabels, err = npy.ReadInts(other.file("judged.npy"))
	return t, err
}

// budget evaluates every way for every budget.
func (s settings) budget(ctx context.Context, stdout io.Writer) error {
	t, err := s.task()
	if err != nil {
		return err
	}
	lines, err := openLines[spent](s.file("budget.jsonl"))
	if err != nil {
		return err
	}
	defer lines.Close()
	seen := map[string]bool{}
	for _, l := range lines.read {
		seen[l.key()] = true
	}
	for seed := range uint64(s.seeds) {
		type kind struct{ hidden, supports int }
		fits := map[kind]*fitted{}
		for _, calls := range budgets {
			for _, w := range ways(calls) {
				row := spent{way: w, Calls: calls, Seed: seed + 1}
				if seen[row.key()] {
					continue
				}
				o := rbeOptions(seed+1, max(w.Supports, supportCounts[0])) // of any fit are the held-out queries
				if w.Name == wayNeural {
					o = trained(o)
				}
				k := kind{o.Hidden, o.Supports}
				if fits[k] == nil {
					if fits[k], err = t.fit(ctx, o); err != nil {
						return err
					}
				}
				if err := t.spend(ctx, fits[k], &row); err != nil {
					return err
				}
				if err := lines.append(row); err != nil {
					return err
				}
				_, _ = fmt.Fprintf(stdout, "%s calls=%d seed=%d %s m=%d rounds=%d: recall %.4f, MRR %.4f\n",
					s.ranker, calls, row.Seed, w.Name, w.Supports, w.Rounds, row.Recall, row.MRR)
			}
		}
	}
	return nil
}

// fitted is a fit with the feature rows of all items.
type fitted struct {
	model    *rbe.Similarity
	supports []int
	features rerank.Matrix
	held     []int
	// companion has the scores of a companion, items by queries. It is made for the first way that asks.
	companion rerank.Matrix
	learned   []int // the queries that the fit learned from
	seed      uint64
}

func (t task) fit(ctx context.Context, o fitrbe.Options) (*fitted, error) {
	f, err := fitrbe.Fit(ctx, t.scores, o)
	if err != nil {
		return nil, err
	}
	number := func(n int) rerank.ID { return rerank.UintID(uint64(n)) }
	model, err := rbe.New(f.Config(number, number), f.Tensors)
	if err != nil {
		return nil, err
	}
	out := &fitted{model: model, supports: f.SupportItems, learned: f.SupportQueries, seed: o.Seed, features: rerank.NewMatrix(t.scores.Rows, model.Spec().Features)}
	for q := range t.scores.Cols {
		if !slices.Contains(f.SupportQueries, q) {
			out.held = append(out.held, q)
		}
	}
	return out, model.EncodeItems(out.features, fitrbe.BaseVectors(t.scores, f.SupportQueries))
}

// spend evaluates a way on every held-out query.
func (t task) spend(ctx context.Context, f *fitted, row *spent) (err error) {
	order := t.base
	if row.Name == wayCompanion {
		if f.companion.Rows == 0 {
			if f.companion, err = companionOf(ctx, t.scores, t.queries, f.learned, f.seed); err != nil {
				return err
			}
		}
		order = f.companion
	}
	for _, q := range f.held {
		truth, base := column(t.scores, q), column(order, q)
		s := session{fitted: f, truth: truth, base: base, asked: make([]bool, len(truth))}
		if err := s.ask(row.way, row.Calls); err != nil {
			return err
		}
		recall, mrr := s.judge(t.itemLabels, t.queryLabels[q])
		for i := range recall {
			row.Recall[i] += recall[i] / float64(len(f.held))
		}
		row.MRR += mrr / float64(len(f.held))
	}
	return nil
}

// session is the state of one query.
type session struct {
	*fitted
	truth, base []float32
	asked       []bool
	order       []int // the scored items, in order
}

// ask spends the calls of a budget.
func (s *session) ask(w way, calls int) error {
	if w.Supports == 0 {
		s.take(s.base, calls)
		return nil
	}
	supports := make([]float32, len(s.supports))
	for i, x := range s.supports {
		s.asked[x], supports[i] = true, s.truth[x]
	}
	s.order = slices.Clone(s.supports)
	q, err := s.model.Encode(rerank.Query{Vector: supports})
	if err != nil {
		return err
	}
	approximate := make([]float32, len(s.truth))
	for i, share := range rbe.Shares(calls-len(s.supports), w.Rounds) {
		if i > 0 {
			if q, err = s.refined(q); err != nil {
				return err
			}
		}
		if err := q.Score(approximate, rerank.Items{Features: s.features}); err != nil {
			return err
		}
		if i == 0 && w.Mixed {
			s.take(s.base, share/2)
			share -= share / 2
		}
		s.take(approximate, share)
	}
	return nil
}

// take scores the n best items that have not been scored yet.
func (s *session) take(scores []float32, n int) {
	best := rerank.NewTopK(n)
	for x, v := range scores {
		if !s.asked[x] {
			best.Push(rerank.Scored{ID: rerank.UintID(uint64(x)), Score: v, Index: x})
		}
	}
	for _, b := range best.Sorted() {
		s.asked[b.Index] = true
		s.order = append(s.order, b.Index)
	}
}

func (s *session) refined(q rerank.Encoded) (rerank.Encoded, error) {
	rows, scores := rerank.NewMatrix(len(s.order), s.features.Cols), make([]float32, len(s.order))
	for i, x := range s.order {
		copy(rows.Row(i), s.features.Row(x))
		scores[i] = s.truth[x]
	}
	return s.model.Refine(q, rows, scores)
}

// judge returns the share of the ranker's 10 and 100 best items that were scored, and the
// reciprocal rank of the first relevant item among the scored ones.
func (s *session) judge(itemLabels []int64, label int64) (recall [2]float64, rank float64) {
	best := rerank.NewTopK(100)
	for x, v := range s.truth {
		best.Push(rerank.Scored{ID: rerank.UintID(uint64(x)), Score: v, Index: x})
	}
	for i, b := range best.Sorted() {
		if s.asked[b.Index] {
			recall[1] += 1.0 / 100
			if i < 10 {
				recall[0] += 1.0 / 10
			}
		}
	}
	found := rerank.NewTopK(10)
	for _, x := range s.order {
		found.Push(rerank.Scored{ID: rerank.UintID(uint64(x)), Score: s.truth[x], Index: x})
	}
	for i, b := range found.Sorted() {
		if itemLabels[b.Index] == label {
			return recall, 1 / float64(i+1)
		}
	}
	return recall, 0
}

func column(m rerank.Matrix, c int) []float32 {
	out := make([]float32, m.Rows)
	for r := range out {
		out[r] = m.Row(r)[c]
	}
	return out
}
