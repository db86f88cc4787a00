package fit

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
)

// Scores that one judgement may cost: an exact score with full gates is a
// hundred times dearer than an inner product.
const (
	fixedScores = 1 << 24
	fullScores  = 1 << 22
)

// thinned is the judge with as many of its queries as one judgement may cost.
func (w *molWork) thinned(j *judge) *judge {
	most := fixedScores
	if w.options.Gates == GatesFull {
		most = fullScores
	}
	step := 1 + len(j.queries)/max(100, most/w.problem.items.Rows)
	if step == 1 {
		return j
	}
	thin := &judge{problem: j.problem, wanted: j.wanted}
	for i := 0; i < len(j.queries); i += step {
		thin.queries, thin.items = append(thin.queries, j.queries[i]), append(thin.items, j.items[i])
		thin.count, thin.weights = append(thin.count, j.count[i]), append(thin.weights, j.weights[i])
	}
	thin.vectors = rerank.NewMatrix(len(thin.queries), w.problem.queries.Cols)
	gather(thin.vectors, w.problem.queries, thin.queries)
	return thin
}

// view is a similarity over the collection, for judgements.
type molView struct {
	work     *molWork
	served   rerank.Similarity
	features rerank.Matrix
}

// view makes the net what is served, and the items their feature rows.
func (w *molWork) view(n *molNet) (*molView, error) {
	s, err := w.served(n)
	if err != nil {
		return nil, err
	}
	items := w.problem.items
	v := &molView{work: w, served: s, features: rerank.NewMatrix(items.Rows, s.Spec().Features)}
	err = eachPart(items.Rows, 64, func(from, to int) error {
		return s.EncodeItems(v.features.Slice(from, to), items.Slice(from, to))
	})
	return v, err
}

// eachPart is spread for what can fail.
func eachPart(n, block int, f func(from, to int) error) error {
	var once sync.Once
	var first error
	spread(n, block, func(from, to int) {
		if err := f(from, to); err != nil {
			once.Do(func() { first = err })
		}
	})
	return first
}

// encode is the query's side of a query row.
func (v *molView) encode(query int32) (rerank.Encoded, error) {
	p := v.work.problem
	q := rerank.Query{Vector: p.queries.Row(int(query))}
	if v.served.Spec().UserIDs {
		q.UserID, q.HasUserID = p.users[query], true
	}
	return v.served.Encode(q)
}

// reciprocal is 1/rank of each query's best wanted item under the net.
func (w *molWork) reciprocal(j *judge, n *molNet) ([]float64, error) {
	v, err := w.view(n)
	if err != nil {
		return nil, err
	}
	return v.reciprocal(j)
}

func (v *molView) reciprocal(j *judge) ([]float64, error) {
	out := make([]float64, len(j.queries))
	err := eachPart(len(j.queries), 8, func(from, to int) error {
		scores := make([]float32, v.features.Rows)
		for i := from; i < to; i++ {
			e, err := v.encode(j.queries[i])
			if err != nil {
				return err
			}
			if err := e.Score(scores, rerank.Items{Features: v.features}); err != nil {
				return err
			}
			out[i] = j.rank(scores, j.queries[i]).reciprocal()
		}
		return nil
	})
	return out, err
}

// usage is what the gates do for the held-out queries and their own items.
func (v *molView) usage(j *judge) (GateUsage, error) {
	u := GateUsage{Queries: len(j.queries)}
	for i, query := range j.queries {
		e, err := v.encode(query)
		if err != nil {
			return u, err
		}
		explained, err := e.(rerank.Explainer).Explain(rerank.Items{Features: v.features, Rows: j.items[i : i+1]})
		if err != nil {
			return u, err
		}
		gates := make([]float64, 0, len(explained[0].Terms))
		for _, term := range explained[0].Terms {
			gates = append(gates, float64(term.Gate))
		}
		u.add(gates)
	}
	u.MeanEntropy /= float64(max(1, u.Queries))
	u.Largest /= float64(max(1, u.Queries))
	for l := range u.Mass {
		u.Mass[l] /= float64(u.Queries)
	}
	u.Entropy = entropy(u.Mass)
	return u, nil
}

func (u *GateUsage) add(gates []float64) {
	if u.Mass == nil {
		u.Mass = make([]float64, len(gates))
	}
	top := 0.0
	for l, g := range gates {
		u.Mass[l] += g
		top = max(top, g)
	}
	u.Largest += top
	u.MeanEntropy += entropy(gates)
}

// entropy in nats.
func entropy(p []float64) float64 {
	var h float64
	for _, v := range p {
		if v > 0 {
			h -= v * math.Log(v)
		}
	}
	return h
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
