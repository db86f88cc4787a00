package judge

import (
	"cmp"
	"math"
	"slices"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/verdict"
)

// Rival is a similarity that is compared with others on the same queries.
type Rival struct {
	Name string
	// Numbers is how many numbers the similarity stores: the fewer, the simpler.
	Numbers int
	// Marks returns the judge's measure of each of its queries.
	Marks func(j *Judge) ([]float64, error)
}

// RivalOf returns the rival that ranks by a probe.
func RivalOf(name string, numbers int, probe Probe) Rival {
	return Rival{Name: name, Numbers: numbers, Marks: func(j *Judge) ([]float64, error) {
		return j.Marks(probe), nil
	}}
}

// InnerProductRival returns the plain inner product.
func InnerProductRival() Rival { return RivalOf("the plain inner product", 0, InnerProduct) }

// Outcome is the comparison of a plain similarity and its rivals.
type Outcome struct {
	// Rivals are ordered by their numbers. Values are their mean marks, Gains their
	// comparisons with the plain similarity.
	Rivals    []Rival
	Values    []float64
	Gains     []fit.Comparison
	Plain     float64 // mean mark of the plain similarity
	PlainName string
	Decision  verdict.Decision
	// Queries is how many queries judged.
	Queries int
}

// Choice names the similarity to take.
func (o *Outcome) Choice() string {
	if o.Decision.Choice < 0 {
		return o.PlainName
	}
	return o.Rivals[o.Decision.Choice].Name
}

// FirstLook is the number of queries after which a comparison first asks whether the
// decision is clear.
const FirstLook = 1000

// Decide compares rivals with a plain similarity on as many of the judge's queries as the
// decision needs, in their order: it looks after 1,000, 2,000, 4,000 … queries, and stops
// when nothing is open. The confidence of the rule holds for all looks together: half of
// the risk is for the last look, a quarter for the one before, and so on.
func Decide(all *Judge, plain Rival, rivals []Rival, rule verdict.Rule) (*Outcome, error) {
	return decide(all, plain, rivals, rule, lookEnds(len(all.Queries), FirstLook))
}

// DecideOnce is Decide with one look, at all queries.
func DecideOnce(all *Judge, plain Rival, rivals []Rival, rule verdict.Rule) (*Outcome, error) {
	return decide(all, plain, rivals, rule, []int{len(all.Queries)})
}

// DecideQuickly is Decide with one look, at 1,000 queries at most.
func DecideQuickly(all *Judge, plain Rival, rivals []Rival, rule verdict.Rule) (*Outcome, error) {
	return decide(all, plain, rivals, rule, []int{min(len(all.Queries), FirstLook)})
}

func decide(all *Judge, plain Rival, rivals []Rival, rule verdict.Rule, looks []int) (*Outcome, error) {
	o := &Outcome{Rivals: slices.Clone(rivals), PlainName: plain.Name}
	slices.SortStableFunc(o.Rivals, func(a, b Rival) int { return cmp.Compare(a.Numbers, b.Numbers) })
	marks := make([][]float64, len(rivals)+1) // of the rivals, then of the plain similarity
	for i, to := range looks {
		part := all.Part(o.Queries, to)
		for n, r := range append(slices.Clone(o.Rivals), plain) {
			some, err := r.Marks(part)
			if err != nil {
				return nil, err
			}
			marks[n] = append(marks[n], some...)
		}
		o.Queries = to
		now := rule
		now.Confidence = confidenceAt(i, len(looks), rule.Confidence)
		o.compare(all.Part(0, to), marks, now)
		if !o.Decision.IsOpen() {
			break
		}
	}
	return o, nil
}

// compare decides by the marks of the judge's queries.
func (o *Outcome) compare(j *Judge, marks [][]float64, rule verdict.Rule) {
	n := len(o.Rivals)
	o.Plain, o.Values, o.Gains = j.Mean(marks[n]), nil, nil
	best := 0
	for i := range o.Rivals {
		o.Values, o.Gains = append(o.Values, j.Mean(marks[i])), append(o.Gains, j.Compare(marks[i], marks[n]))
		if o.Values[i] > o.Values[best] {
			best = i
		}
	}
	c := verdict.Comparison{Metric: j.measure.Name(), Plain: o.PlainName, PlainValue: o.Plain}
	difference := func(c fit.Comparison) verdict.Difference {
		return verdict.NewDifference(c.Gain, c.StandardError, c.Queries, rule.Confidence)
	}
	for i, r := range o.Rivals {
		c.Models = append(c.Models, verdict.Model{
			Name: r.Name, Value: o.Values[i], Gain: difference(o.Gains[i]), ToBest: difference(j.Compare(marks[i], marks[best])),
		})
	}
	o.Decision = verdict.Decide(c, rule)
}

// lookEnds returns after how many of n queries a comparison looks: first, twice as many and
// so on, and at last all.
func lookEnds(n, first int) []int {
	var ends []int
	for at := first; at < n; at *= 2 {
		ends = append(ends, at)
	}
	return append(ends, n)
}

// confidenceAt returns the confidence to use at one of several looks. Each look may err twice as
// often as the one before, and all looks together as often as confidence allows.
func confidenceAt(look, looks int, confidence float64) float64 {
	return 1 - (1-confidence)*math.Exp2(float64(look))/(math.Exp2(float64(looks))-1)
}
