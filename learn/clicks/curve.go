package clicks

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/likenessdb/likeness/rerank"
)

// Method says how propensities were found.
type Method string

// How propensities were found.
const (
	// Harvesting compares how often the same item was chosen for the same query at different
	// positions (intervention harvesting, Agarwal et al. 2019).
	Harvesting Method = "intervention harvesting"
	// Regression estimates relevance from vectors and propensities in turns (regression EM, Wang
	// et al. 2018). Nothing in the log can tell whether it confuses one with the other.
	Regression Method = "regression EM"
	// Uncorrected means that neither was possible; every propensity is 1.
	Uncorrected Method = "uncorrected"
)

// Curve says how likely people look at each position, on the mean over all lists. In a cascade the
// chance also depends on what stands above; the mean corrects what is common to all lists.
type Curve struct {
	Method Method `json:"method"`
	// Propensities holds the chance of position k at index k−1, relative to position 1.
	Propensities []float64 `json:"propensities"`
	// StandardErrors holds the standard error of each propensity, from leaving out a twentieth of
	// the queries at a time. For Regression they leave out that its relevance may be wrong.
	StandardErrors []float64 `json:"standard_errors,omitempty"`
	// Clicks is the number of choices that the estimate uses. Harvesting uses only choices of items
	// that were shown for their query at several positions.
	Clicks int `json:"clicks"`
	// Swapped is the number of pairs of a query and an item that were shown at several positions.
	Swapped int `json:"swapped"`
}

// At returns the propensity of a position. Positions below the curve have its last value.
func (c *Curve) At(position int32) float64 {
	if len(c.Propensities) == 0 {
		return 1
	}
	return c.Propensities[min(int(position), len(c.Propensities))-1]
}

// Text says in a sentence how sure the curve is.
func (c *Curve) Text() string {
	last, deviation := len(c.Propensities), 0.0
	if n := len(c.StandardErrors); n > 0 {
		deviation = c.StandardErrors[n-1]
	}
	switch c.Method {
	case Harvesting:
		return fmt.Sprintf("Measured by %s: %d pairs were shown at several positions and chosen %d times; position %d is looked at %.3f ± %.3f times as often as the first.",
			c.Method, c.Swapped, c.Clicks, last, c.At(int32(last)), deviation)
	case Regression:
		return fmt.Sprintf("Estimated by %s: hardly anything was shown at several positions, so this assumes that relevance follows from the vectors; position %d is looked at %.3f ± %.3f times as often as the first. Interleaving or swapping a few answers would measure it.",
			c.Method, last, c.At(int32(last)), deviation)
	default:
		return "Not corrected: no pair was shown at several positions and chosen often enough, and there are no vectors to estimate relevance from. Clicks favour what the old ranking put first."
	}
}

// Estimator estimates curves.
type Estimator struct {
	// Method is the method, if the log and the vectors allow it; otherwise the curve is Uncorrected.
	// Empty means Harvesting where enough was shown at several positions, and else Regression if there
	// are vectors.
	Method Method
	// Queries and Items are the vectors from which Regression estimates relevance. They need
	// the same number of columns; without, there is no Regression.
	Queries, Items rerank.Matrix
	Seed           uint64
}

const (
	// leastHarvest is the number of choices of swapped pairs from which Harvesting is used.
	leastHarvest = 200
	// folds is the number of parts of the queries, each left out once for standard errors of
	// Harvesting.
	folds = 20
	// smoothing is the least number of choices, or looks, at a step: a step without any keeps a
	// propensity.
	smoothing = 0.5
	// singlePositions is how many positions have a propensity of their own.
	singlePositions = 10
)

// step returns the index of a position's propensity. Positions after the tenth share propensities
// in groups, because few people look there: each group reaches a quarter further down than the
// group before it.
func step(position int32) int {
	if position <= singlePositions {
		return int(position) - 1
	}
	return singlePositions + int(math.Log(float64(position-1)/singlePositions)/math.Log(1.25))
}

// Estimate returns how likely people look at each position of the answers.
func (e Estimator) Estimate(answers []Answer) *Curve {
	deepest := int32(1)
	for _, a := range answers {
		for _, p := range a.Positions {
			deepest = max(deepest, p)
		}
	}
	cells := newCells(answers, step(deepest)+1, e.Seed)
	swapped := cells.swapped()
	canRegress := e.Queries.Cols == e.Items.Cols && e.Queries.Cols > 0
	c := &Curve{Swapped: len(swapped.all), Method: e.Method}
	switch {
	case c.Method == Harvesting && !swapped.links(cells.shown()) || c.Method == Regression && !canRegress:
		c.Method = Uncorrected
	case c.Method != "":
	case swapped.clicks() >= leastHarvest && swapped.links(cells.shown()):
		c.Method = Harvesting
	case canRegress && cells.clicks() >= leastHarvest:
		c.Method = Regression
	default:
		c.Method = Uncorrected
	}
	var steps, errs []float64
	switch c.Method {
	case Harvesting:
		c.Clicks = swapped.clicks()
		steps = swapped.harvest(-1)
		errs = jackknife(folds, func(fold int) []float64 { return swapped.harvest(fold) })
	case Regression:
		c.Clicks = cells.clicks()
		r := newRegression(cells, e.Queries, e.Items, e.Seed)
		steps = r.estimate(-1)
		errs = jackknife(regressionFolds, r.estimate)
	case Uncorrected:
		c.Propensities = []float64{1}
		return c
	}
	for k, n := range cells.shown() {
		if n == 0 && k > 0 { // no list shows it: as the step above
			steps[k], errs[k] = steps[k-1], errs[k-1]
		}
	}
	for p := int32(1); p <= deepest; p++ {
		c.Propensities = append(c.Propensities, steps[step(p)])
		c.StandardErrors = append(c.StandardErrors, errs[step(p)])
	}
	return c
}

// jackknife returns the standard errors of an estimate that leaves out one fold at a time.
func jackknife(folds int, estimate func(fold int) []float64) []float64 {
	var all [][]float64
	for fold := range folds {
		all = append(all, estimate(fold))
	}
	errs := make([]float64, len(all[0]))
	for k := range errs {
		var mean, squares float64
		for _, a := range all {
			mean += a[k] / float64(folds)
		}
		for _, a := range all {
			squares += (a[k] - mean) * (a[k] - mean)
		}
		errs[k] = math.Sqrt(squares * float64(folds-1) / float64(folds))
	}
	return errs
}

// cell counts how often a pair of a query and an item was shown at a step, and chosen there.
type cell struct {
	step           int
	shown, clicked float64
}

// pair is a query and an item that was shown for it.
type pair struct{ query, item int32 }

// pairCells are the cells of one pair.
type pairCells struct {
	pair
	fold  int
	cells []cell
}

// cells holds what was shown, by pair in the order of the log.
type cells struct {
	steps int
	all   []pairCells
}

func newCells(answers []Answer, steps int, seed uint64) *cells {
	c := &cells{steps: steps}
	at := map[pair]int{}
	fold := map[int32]int{}
	rng := rand.New(rand.NewPCG(seed, 0xf01d))
	for _, a := range answers {
		if _, ok := fold[a.Query]; !ok {
			fold[a.Query] = rng.IntN(folds)
		}
		for i, x := range a.Items {
			p := pair{a.Query, x}
			n, ok := at[p]
			if !ok {
				n = len(c.all)
				at[p] = n
				c.all = append(c.all, pairCells{pair: p, fold: fold[a.Query]})
			}
			c.all[n].count(step(a.Positions[i]), a.Weights[i] > 0)
		}
	}
	return c
}

// count adds one showing of the pair.
func (p *pairCells) count(step int, clicked bool) {
	n := 0
	for n < len(p.cells) && p.cells[n].step != step {
		n++
	}
	if n == len(p.cells) {
		p.cells = append(p.cells, cell{step: step})
	}
	p.cells[n].shown++
	if clicked {
		p.cells[n].clicked++
	}
}

// swapped returns only the pairs that were shown at several steps.
func (c *cells) swapped() *cells {
	s := &cells{steps: c.steps}
	for _, p := range c.all {
		if len(p.cells) > 1 {
			s.all = append(s.all, p)
		}
	}
	return s
}

// shown counts the showings at each step.
func (c *cells) shown() []float64 {
	n := make([]float64, c.steps)
	for _, p := range c.all {
		for _, x := range p.cells {
			n[x.step] += x.shown
		}
	}
	return n
}

func (c *cells) clicks() int {
	n := 0.0
	for _, p := range c.all {
		for _, x := range p.cells {
			n += x.clicked
		}
	}
	return int(n)
}

// links reports whether the choices link every step that was shown to the first step: a pair that was chosen
// links all steps at which it was shown, and links form chains.
func (c *cells) links(shown []float64) bool {
	root := make([]int, c.steps)
	for i := range root {
		root[i] = i
	}
	find := func(i int) int {
		for root[i] != i {
			i = root[i]
		}
		return i
	}
	for _, p := range c.all {
		clicked := 0.0
		for _, x := range p.cells {
			clicked += x.clicked
		}
		if clicked > 0 {
			for _, x := range p.cells[1:] {
				root[find(x.step)] = find(p.cells[0].step)
			}
		}
	}
	for i := range root {
		if shown[i] > 0 && find(i) != find(0) {
			return false
		}
	}
	return true
}

// harvest estimates the propensities of the steps from pairs outside of a fold. Given how often a
// pair was chosen in all, the chance that a choice was made at a step is in proportion to
// showings × propensity there, whatever the pair's relevance. harvest solves the
// equations Σ choices at a step = Σ expected choices, which are unbiased for the position-based
// model, by Zermelo's iteration.
func (c *cells) harvest(without int) []float64 {
	p, clicked := make([]float64, c.steps), make([]float64, c.steps)
	for k := range p {
		p[k] = 1
	}
	expected := make([]float64, c.steps)
	for range 500 {
		for k := range expected {
			clicked[k], expected[k] = 0, 0
		}
		for i := range c.all {
			q := &c.all[i]
			if q.fold == without {
				continue
			}
			var all, sum float64
			for _, x := range q.cells {
				all, sum = all+x.clicked, sum+x.shown*p[x.step]
			}
			if all == 0 {
				continue
			}
			for _, x := range q.cells {
				clicked[x.step] += x.clicked
				expected[x.step] += all * x.shown / sum
			}
		}
		change := 0.0
		for k := range p {
			next := p[k]
			if expected[k] > 0 {
				next = max(clicked[k], smoothing) / expected[k]
			}
			change = max(change, math.Abs(next/p[k]-1))
			p[k] = next
		}
		if change < 1e-6 {
			break
		}
	}
	return relative(p)
}

// relative divides propensities by the first.
func relative(p []float64) []float64 {
	first := p[0]
	for k := range p {
		p[k] /= first
	}
	return p
}
