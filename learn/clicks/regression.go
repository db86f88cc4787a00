package clicks

import (
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

const (
	// regressionPairs is the number of pairs that Regression reads at most.
	regressionPairs = 10_000
	// regressionRounds is the number of its rounds, each of one expectation and one maximisation.
	regressionRounds = 40
	// regressionFolds is the number of parts of its queries, each left out once for standard errors.
	regressionFolds = 5
)

// regression estimates propensities where nothing was shown at several positions. The relevance of
// a pair is a logistic function of the elementwise product of the two vectors, and of the lead of their inner
// product over the query's other items. Without the lead, relevance could not tell a list with one clear winner from a list of
// near ties, and the fall of relevance along a list would count as a fall of propensities.
type regression struct {
	steps    int
	rows     []regressionRow
	features rerank.Matrix
}

type regressionRow struct {
	cell
	fold, features int
}

// newRegression reads pairs at random. Every n-th pair would not do: a list has its pairs by position, so
// that lists of ten would show every second pair at odd positions alone.
func newRegression(c *cells, queries, items rerank.Matrix, seed uint64) *regression {
	r := &regression{steps: c.steps}
	used := rand.New(rand.NewPCG(seed, 0x4e64)).Perm(len(c.all))
	used = used[:min(regressionPairs, len(used))]
	r.features = rerank.NewMatrix(len(used), queries.Cols+1)
	leads := c.leads(queries, items)
	for n, at := range used {
		p := c.all[at]
		f, q, x := r.features.Row(n), queries.Row(int(p.query)), items.Row(int(p.item))
		for i := range q {
			f[i] = q[i] * x[i]
		}
		f[len(q)] = leads[at]
		for _, one := range p.cells {
			r.rows = append(r.rows, regressionRow{one, p.fold, n})
		}
	}
	return r
}

// leads returns by how much the inner product of each pair is ahead of the greatest of the query's other items: below 0
// for all but one. A query with one item has 0.
func (c *cells) leads(queries, items rerank.Matrix) []float32 {
	dots := make([]float32, len(c.all))
	first, second := map[int32]float32{}, map[int32]float32{} // the greatest two of each query
	for n, p := range c.all {
		dot := float32(linalg.Dot(queries.Row(int(p.query)), items.Row(int(p.item))))
		dots[n] = dot
		switch most, ok := first[p.query]; {
		case !ok:
			first[p.query] = dot
		case dot > most:
			first[p.query], second[p.query] = dot, most
		default:
			if next, ok := second[p.query]; !ok || dot > next {
				second[p.query] = dot
			}
		}
	}
	for n, p := range c.all {
		rival, ok := second[p.query]
		if ok && dots[n] < first[p.query] {
			rival = first[p.query]
		}
		if !ok {
			rival = dots[n]
		}
		dots[n] -= rival
	}
	return dots
}

// estimate estimates the propensities of the steps from pairs outside of a fold. Each round
// computes, for every showing without a choice, how likely it is that nobody looked or that the
// item was irrelevant, and fits both models to that.
func (r *regression) estimate(without int) []float64 {
	p := make([]float64, r.steps)
	for k := range p {
		p[k] = 1 / float64(k+1)
	}
	m := r.newLogistic()
	for round := range regressionRounds {
		looked, shown := make([]float64, r.steps), make([]float64, r.steps)
		for _, row := range r.rows {
			if row.fold%regressionFolds == without {
				continue
			}
			f := r.features.Row(row.features)
			relevance, passed := m.probability(f), row.shown-row.clicked
			neither := 1 - p[row.step]*relevance
			looked[row.step] += row.clicked + passed*p[row.step]*(1-relevance)/neither
			shown[row.step] += row.shown
			relevant := row.clicked + passed*(1-p[row.step])*relevance/neither
			m.learn(f, (row.shown*relevance-relevant)/math.Sqrt(float64(round+1)))
		}
		for k := range p {
			if shown[k] > 0 {
				p[k] = min(max(looked[k], smoothing)/shown[k], 1-1e-6)
			}
		}
	}
	return relative(p)
}

// logistic is a logistic regression that learns one row at a time.
type logistic struct {
	weights, rates []float64 // of the features, and at last of the constant
}

// newLogistic makes a regression that begins near the inner product. The rate of each weight falls
// with the size of its feature.
func (r *regression) newLogistic() *logistic {
	n := r.features.Cols
	m := &logistic{weights: make([]float64, n+1), rates: make([]float64, n+1)}
	squares := make([]float64, n+1)
	for _, row := range r.rows {
		for i, f := range r.features.Row(row.features) {
			squares[i] += float64(f) * float64(f)
		}
		squares[n]++
	}
	for i := range m.weights {
		m.weights[i], m.rates[i] = 5, 0.3/math.Sqrt(squares[i]+1e-12)
	}
	m.weights[n-1] = 2 / math.Sqrt(squares[n-1]/squares[n]+1e-6) // leads of any size begin with one effect
	m.weights[n] = -3
	return m
}

// probability returns the chance that the features stand for.
func (m *logistic) probability(features []float32) float64 {
	n := len(features)
	sum := m.weights[n]
	for i, w := range m.weights[:n] {
		sum += w * float64(features[i])
	}
	return 1 / (1 + math.Exp(-sum))
}

// learn takes a step against the slope of the loss.
func (m *logistic) learn(features []float32, slope float64) {
	n := len(features)
	for i, f := range features {
		m.weights[i] -= m.rates[i] * slope * float64(f)
	}
	m.weights[n] -= m.rates[n] * slope
}
