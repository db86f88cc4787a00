// Package verdict decides which of several similarities to take, by what each of them
// found for the same queries. The commands fit, eval and try share its rules and words.
//
// A similarity is worth it if the confidence interval of its gain over the plain one lies
// above 0, unless the interval excludes the least gain worth having: a sure gain can be too
// small. A simpler similarity is as good as the best one if the interval of the
// difference excludes a loss of more than a margin (non-inferiority), and worse if the
// interval excludes a smaller loss. Where an interval leaves a question open, the verdict
// says so, and how many queries would answer it. The intervals of several models hold
// together (Bonferroni), because the best of many is more often the best by chance.
package verdict

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Defaults of a Rule.
const (
	DefaultConfidence = 0.95
	DefaultMargin     = 0.1
)

// Rule holds the limits by which Decide decides.
type Rule struct {
	// Confidence is the confidence of the intervals. It decides how many queries an open
	// question needs.
	Confidence float64
	// Margin is the share of the best model's gain over the plain similarity that a
	// simpler model may lose and still be as good.
	Margin float64
	// LeastGain is the smallest gain that would be worth having. If 0, it is LeastGainOf
	// the plain similarity's value.
	LeastGain float64
}

// DefaultRule returns the rule of a command without flags.
func DefaultRule() Rule { return Rule{Confidence: DefaultConfidence, Margin: DefaultMargin} }

// LeastGainOf returns the smallest gain worth having over a metric of this value: 0.01, or
// a tenth of the value if that is less.
func LeastGainOf(value float64) float64 { return min(0.01, value/10) }

// Difference is the mean of a paired difference over some queries, and its confidence
// interval.
type Difference struct {
	Mean, Low, High float64
	Queries         int
	// Remark is added to the figures in the text. It may be empty.
	Remark string
}

// NewDifference returns a difference with the interval of Student's t for this standard
// error.
func NewDifference(mean, standardError float64, queries int, confidence float64) Difference {
	t := distuv.StudentsT{Sigma: 1, Nu: float64(max(1, queries-1))}.Quantile((1 + confidence) / 2)
	return Difference{Mean: mean, Low: mean - t*standardError, High: mean + t*standardError, Queries: queries}
}

// widen returns the difference with its interval made wider by a factor.
func (x Difference) widen(factor float64) Difference {
	x.Low, x.High = x.Mean-factor*(x.Mean-x.Low), x.Mean+factor*(x.High-x.Mean)
	return x
}

// Model is one of the similarities that are compared.
type Model struct {
	Name  string
	Class string  // for the text; may be empty
	Value float64 // mean of the metric
	// Gain is the difference to the plain similarity, ToBest the difference to the model
	// of the greatest value, which is 0 for that model itself.
	Gain, ToBest Difference
}

// Comparison holds the measurements from which a verdict follows.
type Comparison struct {
	Metric string
	// Plain names the plain similarity, PlainValue is its mean of the metric. Without a
	// plain similarity Plain is empty.
	Plain      string
	PlainValue float64
	// Models has one model at least, the simplest first.
	Models []Model
}

// Answer says whether the plain similarity is to be replaced.
type Answer string

// The answers of a verdict.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unclear Answer = "unclear" // the queries are too few to tell
)

// Standing says how a model stands to the best one.
type Standing string

// The standings of a model.
const (
	Best    Standing = "best"
	AsGood  Standing = "as_good" // the interval excludes a loss of more than the margin
	Worse   Standing = "worse"   // the whole interval is a loss of more than the margin
	Unknown Standing = "unknown" // the queries are too few to tell
)

// Decision is the outcome of a comparison.
type Decision struct {
	// Answer is empty without a plain similarity.
	Answer Answer
	// Choice is the index of the model to take, −1 for the plain similarity. Best is the
	// index of the model of the greatest value.
	Choice, Best int
	// Margin is how much a simpler model may lose, LeastGain the smallest gain worth
	// having, both in units of the metric.
	Margin, LeastGain float64
	Standings         []Standing // of each model
	// Simpler holds the models that are simpler than the choice and may be as good as the
	// best, Better those that are not and may be better by more than the margin.
	// QueriesNeeded is about how many queries would settle what is open with a power of
	// 80 %, 0 if nothing is open or if there is no estimate.
	Simpler, Better []int
	QueriesNeeded   int
	// Text states the decision in sentences.
	Text []string
}

// Decide chooses the simplest model that is as good as the best one and better than the
// plain similarity.
func Decide(c Comparison, r Rule) Decision {
	c.Models = widenAll(c.Models, r.Confidence)
	d := Decision{Choice: -1, Standings: make([]Standing, len(c.Models))}
	for i, m := range c.Models {
		if m.Value > c.Models[d.Best].Value {
			d.Best = i
		}
	}
	top := c.Models[d.Best]
	worth := Yes
	if c.Plain == "" {
		d.LeastGain = LeastGainOf(top.Value)
		d.Margin = d.LeastGain
	} else {
		d.LeastGain = r.LeastGain
		if d.LeastGain == 0 {
			d.LeastGain = LeastGainOf(c.PlainValue)
		}
		d.Margin = r.Margin * max(0, top.Gain.Mean)
		worth = worthHaving(top.Gain, d.LeastGain)
	}
	for i, m := range c.Models {
		d.Standings[i] = standing(m.ToBest, d.Margin)
		if i == d.Best {
			d.Standings[i] = Best
		}
		if d.Choice < 0 && d.takes(i) && (c.Plain == "" || worth != No && m.Gain.Low > 0) {
			d.Choice = i
		}
	}
	switch {
	case c.Plain == "":
	case d.Choice >= 0:
		d.Answer = Yes
	default:
		d.Answer = worth
	}
	d.countQueries(c, r)
	d.Text = d.describe(c, r)
	return d
}

// worthHaving reports whether a gain is worth having: no if its interval excludes the least such
// gain, however sure a smaller one is, and yes if its interval lies above 0.
func worthHaving(gain Difference, least float64) Answer {
	switch {
	case gain.High < least || gain.High <= 0:
		return No
	case gain.Low > 0:
		return Yes
	default:
		return Unclear
	}
}

// takes reports whether model i loses no more than the margin.
func (d *Decision) takes(i int) bool {
	return d.Standings[i] == Best || d.Standings[i] == AsGood
}

// standing returns how a model stands to the best one.
func standing(toBest Difference, margin float64) Standing {
	switch {
	case toBest.Low > -margin || toBest.Low >= 0:
		return AsGood
	case toBest.High < -margin:
		return Worse
	default:
		return Unknown
	}
}

// widenAll widens the intervals so that all gains hold together, and all differences to the best
// model hold together.
func widenAll(models []Model, confidence float64) []Model {
	factor := func(intervals int) float64 {
		return quantile(1-(1-confidence)/float64(intervals)) / quantile(confidence)
	}
	gain, toBest := factor(len(models)), factor(max(1, len(models)-1))
	models = slices.Clone(models)
	for i := range models {
		models[i].Gain, models[i].ToBest = models[i].Gain.widen(gain), models[i].ToBest.widen(toBest)
	}
	return models
}

// countQueries finds what is open, and how many queries it needs.
func (d *Decision) countQueries(c Comparison, r Rule) {
	var needed []int
	need := func(x Difference, distance float64) {
		needed = append(needed, QueriesFor(x.Deviation(r.Confidence), distance, r.Confidence))
	}
	switch d.Answer {
	case No:
	case Unclear:
		gain := c.Models[d.Best].Gain
		need(gain, max(gain.Mean, d.LeastGain-gain.Mean))
	case Yes, "":
		for i, m := range c.Models {
			switch {
			case i < d.Choice && d.Standings[i] == Unknown:
				d.Simpler = append(d.Simpler, i)
				need(m.ToBest, math.Abs(d.Margin+m.ToBest.Mean))
			case i > d.Choice && i != d.Best && m.ToBest.High > d.Margin:
				d.Better = append(d.Better, i)
				need(m.ToBest, d.Margin-m.ToBest.Mean)
			}
		}
	}
	if len(needed) > 0 && slices.Min(needed) > 0 {
		d.QueriesNeeded = slices.Max(needed)
	}
}

// IsOpen reports whether more queries might change the choice.
func (d *Decision) IsOpen() bool {
	return d.Answer == Unclear || len(d.Simpler)+len(d.Better) > 0
}
