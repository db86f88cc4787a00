package verdict_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/verdict"
)

// around returns a difference of 1,000 queries whose interval has this half width.
func around(mean, half float64) verdict.Difference {
	return verdict.Difference{Mean: mean, Low: mean - half, High: mean + half, Queries: 1000}
}

// model returns a model that gains over a plain value of 0.5. toBest is its difference to
// the best model.
func model(name string, gain, half float64, toBest verdict.Difference) verdict.Model {
	return verdict.Model{Name: name, Value: 0.5 + gain, Gain: around(gain, half), ToBest: toBest}
}

// TestDecide: the best model gains 0.1, so that the margin is 0.01. Models are given the
// simplest first.
func TestDecide(t *testing.T) {
	full := model("full", 0.1, 0.03, verdict.Difference{})
	for name, c := range map[string]struct {
		models  []verdict.Model
		answer  verdict.Answer
		choice  int
		text    string
		settles int // queries needed
	}{
		"alone and better": {[]verdict.Model{full}, verdict.Yes, 0, "Worth it: take full.", 0},
		"better for sure, by less than is worth having": {
			[]verdict.Model{model("full", 0.005, 0.004, verdict.Difference{})}, verdict.No, -1, "The gain is sure, and less than 0.01, the least that is worth having.", 0,
		},
		"a simpler one loses less than the margin for sure": {
			[]verdict.Model{model("diagonal", 0.098, 0.03, around(-0.002, 0.007)), full}, verdict.Yes, 0,
			"diagonal is simpler and as good: -0.0020 (95 %: -0.0090 to +0.0050), no more than the margin of 0.0100 below.", 0,
		},
		"a simpler one may lose more": {
			[]verdict.Model{model("diagonal", 0.098, 0.03, around(-0.002, 0.009)), full}, verdict.Yes, 1,
			"Cannot tell whether a simpler one is as good, with a margin of 0.0100: diagonal -0.0020 (95 %: -0.0110 to +0.0070); needs about 2600 queries.", 2600,
		},
		"a simpler one loses more than the margin for sure": {
			[]verdict.Model{model("diagonal", 0.08, 0.03, around(-0.02, 0.009)), full}, verdict.Yes, 1,
			"What is simpler is worse: diagonal (-0.0200).", 0,
		},
		"a simpler one loses for sure, and perhaps less than the margin": {
			[]verdict.Model{model("diagonal", 0.08, 0.03, around(-0.02, 0.015)), full}, verdict.Yes, 1,
			"Cannot tell whether a simpler one is as good, with a margin of 0.0100: diagonal -0.0200 (95 %: -0.0350 to -0.0050); needs about 4600 queries.", 4600,
		},
		"a simpler one loses the margin": {
			[]verdict.Model{model("diagonal", 0.09, 0.03, around(-0.01, 0.005)), full}, verdict.Yes, 1, "needs more queries than can be estimated.", 0,
		},
		"a simpler one loses for sure, and less than the margin": {
			[]verdict.Model{model("diagonal", 0.095, 0.03, around(-0.005, 0.004)), full}, verdict.Yes, 0, "as good", 0,
		},
		"the simplest of two that are as good": {
			[]verdict.Model{model("diagonal", 0.096, 0.03, around(-0.004, 0.005)), model("rank 8", 0.099, 0.03, around(-0.001, 0.005)), full},
			verdict.Yes, 0, "take diagonal.", 0,
		},
		"one is worse, the next as good": {
			[]verdict.Model{model("diagonal", 0.05, 0.03, around(-0.05, 0.01)), model("rank 8", 0.099, 0.03, around(-0.001, 0.005)), full},
			verdict.Yes, 1, "What is simpler is worse: diagonal (-0.0500).", 0,
		},
		"another is not better by more than the margin": {
			[]verdict.Model{model("diagonal", 0.1, 0.03, verdict.Difference{}), model("full", 0.099, 0.03, around(-0.001, 0.009))},
			verdict.Yes, 0, "take diagonal.", 0,
		},
		"another may be better by more than the margin": {
			[]verdict.Model{model("diagonal", 0.1, 0.03, verdict.Difference{}), model("full", 0.099, 0.03, around(-0.001, 0.02))},
			verdict.Yes, 0, "Cannot tell whether another is better by more than 0.0100: full -0.0010 (95 %: -0.0210 to +0.0190); needs about 6800 queries.", 6800,
		},
		"three hold together": {
			[]verdict.Model{model("diagonal", 0.096, 0.03, around(-0.004, 0.0055)), model("rank 8", 0.099, 0.03, around(-0.001, 0.005)), full},
			verdict.Yes, 1, "diagonal -0.0040 (95 % for all 2: -0.0103 to +0.0023)", 2300,
		},
		"two simpler ones may be as good, and nobody can say how many queries tell of one": {
			[]verdict.Model{model("diagonal", 0.098, 0.03, around(-0.002, 1)), model("rank 8", 0.098, 0.03, around(-0.002, 0.009)), full},
			verdict.Yes, 2, "Cannot tell whether a simpler one is as good", 0,
		},
		"better in the mean, by no more than chance explains": {
			[]verdict.Model{model("full", 0.02, 0.03, verdict.Difference{})}, verdict.Unclear, -1,
			"Cannot tell: keep cosine until more queries judge; needs about 4600 queries.", 4600,
		},
		"no difference, and a gain is not excluded": {
			[]verdict.Model{model("full", 0, 0.03, verdict.Difference{})}, verdict.Unclear, -1, "needs about 19000 queries", 19000,
		},
		"no difference, and a gain worth having is excluded": {
			[]verdict.Model{model("full", 0, 0.009, verdict.Difference{})}, verdict.No, -1, "Not worth it: keep cosine.", 0,
		},
		"worse for sure": {[]verdict.Model{model("full", -0.1, 0.03, verdict.Difference{})}, verdict.No, -1, "A gain of 0.01 is excluded.", 0},
		"the plain similarity again": {
			[]verdict.Model{model("full", 0, 0, verdict.Difference{})}, verdict.No, -1, "Not worth it", 0,
		},
		"a gain of exactly nothing is possible": {
			[]verdict.Model{model("full", 0.03, 0.03, verdict.Difference{})}, verdict.Unclear, -1, "Cannot tell", 2100,
		},
		"the simpler one is as good and not shown to be better than plain": {
			[]verdict.Model{model("diagonal", 0.0999, 0.2, around(-0.0001, 0.001)), full}, verdict.Yes, 1, "take full.", 0,
		},
	} {
		d := verdict.Decide(verdict.Comparison{Metric: "mrr@10", Plain: "cosine", PlainValue: 0.5, Models: c.models}, verdict.DefaultRule())
		text := strings.Join(d.Text, " ")
		if d.Answer != c.answer || d.Choice != c.choice || !strings.Contains(text, c.text) || d.QueriesNeeded != c.settles {
			t.Errorf("%s: %s, choice %d, %d queries: %s\nwant %s, choice %d, %d queries: %s", name, d.Answer, d.Choice, d.QueriesNeeded, text, c.answer, c.choice, c.settles, c.text)
		}
	}
}

// TestWorthHaving: more queries, which narrow the interval of a small gain, do not turn a no into a yes.
func TestWorthHaving(t *testing.T) {
	for _, c := range []struct {
		gain, half float64
		want       verdict.Answer
	}{
		{0.005, 0.02, verdict.Unclear}, {0.005, 0.0055, verdict.Unclear}, {0.004, 0.0055, verdict.No}, {0.004, 0.003, verdict.No}, {0.004, 0, verdict.No},
		{0.015, 0.02, verdict.Unclear}, {0.015, 0.01, verdict.Yes}, {0.015, 0, verdict.Yes}, {0.01, 0, verdict.Yes}, {-0.005, 0.02, verdict.Unclear}, {-0.005, 0.004, verdict.No},
	} {
		plain := verdict.Comparison{Metric: "mrr@10", Plain: "cosine", PlainValue: 0.5, Models: []verdict.Model{model("full", c.gain, c.half, verdict.Difference{})}}
		if d := verdict.Decide(plain, verdict.DefaultRule()); d.Answer != c.want || (d.Choice == 0) != (c.want == verdict.Yes) {
			t.Errorf("a gain of %g ± %g is worth having: %s, choice %d, want %s", c.gain, c.half, d.Answer, d.Choice, c.want)
		}
	}
}

// TestNoMarginBelowNothing: where the best model loses, a simpler one that may be as good as it is not called worse.
func TestNoMarginBelowNothing(t *testing.T) {
	models := []verdict.Model{model("diagonal", -0.1, 0.03, around(0, 0.001)), model("full", -0.1+1e-6, 0.03, verdict.Difference{})}
	d := verdict.Decide(verdict.Comparison{Metric: "mrr@10", Plain: "cosine", PlainValue: 0.5, Models: models}, verdict.DefaultRule())
	if d.Margin != 0 || !slices.Equal(d.Standings, []verdict.Standing{verdict.Unknown, verdict.Best}) {
		t.Errorf("margin %g, standings %q; want 0, unknown and best", d.Margin, d.Standings)
	}
}

// TestWithoutPlain: without a plain similarity the margin is the least gain worth having.
func TestWithoutPlain(t *testing.T) {
	for half, want := range map[float64]int{0.005: 0, 0.02: 1} {
		simple := verdict.Model{Name: "diagonal", Value: 0.5, ToBest: around(-0.001, half)}
		d := verdict.Decide(verdict.Comparison{Metric: "mrr@10", Models: []verdict.Model{simple, {Name: "full", Value: 0.501}}}, verdict.DefaultRule())
		if d.Answer != "" || d.Choice != want || !strings.Contains(d.Text[0], "no baseline") {
			t.Errorf("half width %g: %+v, want model %d", half, d, want)
		}
	}
}

// TestTheLimitsOfARule: a wider margin takes a simpler model, and a greater least gain rules
// out more.
func TestTheLimitsOfARule(t *testing.T) {
	c := verdict.Comparison{Metric: "mrr@10", Plain: "cosine", PlainValue: 0.5, Models: []verdict.Model{
		model("diagonal", 0.08, 0.03, around(-0.02, 0.005)), model("full", 0.1, 0.03, verdict.Difference{}),
	}}
	for margin, want := range map[float64]int{0.1: 1, 0.24: 1, 0.26: 0} {
		if d := verdict.Decide(c, verdict.Rule{Confidence: 0.95, Margin: margin}); d.Choice != want {
			t.Errorf("a margin of %g takes model %d, want %d: %s", margin, d.Choice, want, d.Text)
		}
	}
	c.Models = []verdict.Model{model("full", 0.01, 0.02, verdict.Difference{})}
	for least, want := range map[float64]verdict.Answer{0: verdict.Unclear, 0.02: verdict.Unclear, 0.04: verdict.No} {
		if d := verdict.Decide(c, verdict.Rule{Confidence: 0.95, Margin: 0.1, LeastGain: least}); d.Answer != want {
			t.Errorf("a least gain of %g: %s, want %s", least, d.Answer, want)
		}
	}
	if got := verdict.LeastGainOf(0.013); got != 0.0013 {
		t.Errorf("the least gain over 0.013 is %g, want a tenth", got)
	}
}

// TestQueriesFor: the textbook's (1.96 + 0.84)²σ²/δ², rounded up to two digits.
func TestQueriesFor(t *testing.T) {
	for _, c := range []struct {
		deviation, difference float64
		want                  int
	}{{0.2, 0.01, 3200}, {0.1, 0.01, 790}, {0.3, 0.3, 8}, {0.2, 0, 0}, {0.2, -1, 0}, {0.5, 1e-6, 0}} {
		if got := verdict.QueriesFor(c.deviation, c.difference, 0.95); got != c.want {
			t.Errorf("deviation %g, difference %g: %d queries, want %d", c.deviation, c.difference, got, c.want)
		}
	}
	if got := verdict.Detectable(0.2, 3140, 0.95); !(math.Abs(got-0.01) <= 1e-5) {
		t.Errorf("3,140 queries of deviation 0.2 show %g, want 0.01", got)
	}
	if got := verdict.NewDifference(0.1, 0.01, 400, 0.95).Deviation(0.95); !(math.Abs(got-0.2) <= 1e-3) {
		t.Errorf("a standard error of 0.01 over 400 queries is a deviation of %g, want 0.2", got)
	}
}

// law is a made-up collection of which the truth is known: each query is found at one of
// four ranks by the plain similarity and moves with some chance under each model.
type law struct {
	gains []float64 // true gain of each model over the plain similarity, the simplest first
	noise float64   // deviation of a model's difference in one query
}

// draw returns the comparison of one log of n queries.
func (l law) draw(rng *rand.Rand, n int) verdict.Comparison {
	models := len(l.gains)
	values := make([][]float64, models+1)
	for range n {
		shared := 0.7 * l.noise * rng.NormFloat64() // models move together
		plain := 0.3 + 0.2*rng.NormFloat64()
		values[models] = append(values[models], plain)
		for m, g := range l.gains {
			values[m] = append(values[m], plain+g+shared+0.7*l.noise*rng.NormFloat64())
		}
	}
	c := verdict.Comparison{Metric: "mrr@10", Plain: "cosine", PlainValue: mean(values[models])}
	best := 0
	for m := range models {
		if mean(values[m]) > mean(values[best]) {
			best = m
		}
	}
	for m := range models {
		c.Models = append(c.Models, verdict.Model{
			Value: mean(values[m]), Gain: difference(values[m], values[models]), ToBest: difference(values[m], values[best]),
		})
	}
	return c
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}

func difference(a, b []float64) verdict.Difference {
	var sum, square float64
	for i := range a {
		sum += a[i] - b[i]
		square += (a[i] - b[i]) * (a[i] - b[i])
	}
	n := float64(len(a))
	m := sum / n
	return verdict.NewDifference(m, math.Sqrt((square/n-m*m)/n), len(a), verdict.DefaultConfidence)
}

// isRight reports whether a decision does no harm by the truth. A model that is taken gains
// something, and loses at most the margin unless the verdict names the better one as open.
// The plain similarity is kept if no gain worth having is lost, or with the word that the
// queries do not tell.
func (l law) isRight(d verdict.Decision) bool {
	best := 0
	for m, g := range l.gains {
		if g > l.gains[best] {
			best = m
		}
	}
	switch d.Answer {
	case verdict.Yes:
		lost := l.gains[best] - l.gains[d.Choice]
		return l.gains[d.Choice] > 0 && (lost <= 1.05*verdict.DefaultMargin*l.gains[best] || slices.Contains(append(d.Better, d.Simpler...), best))
	case verdict.No:
		return l.gains[best] < d.LeastGain
	default:
		return true
	}
}

// TestAdviceIsRight: of 200 logs drawn from a collection whose truth is known, 95 % at least
// get advice that is right, at every size; and large logs get a definite answer.
func TestAdviceIsRight(t *testing.T) {
	for name, l := range map[string]law{
		"the diagonal loses a third":     {[]float64{0.02, 0.03}, 0.15},
		"the diagonal loses a sixth":     {[]float64{0.025, 0.03}, 0.15},
		"the diagonal is as good":        {[]float64{0.03, 0.03}, 0.15},
		"the diagonal gains nothing":     {[]float64{0, 0.005, 0.006}, 0.05},
		"both lose":                      {[]float64{-0.01, -0.02}, 0.15},
		"nothing, of three that are one": {[]float64{0, 0, 0}, 0.1},
	} {
		for _, n := range []int{30, 300, 2000} {
			const logs = 200
			right, unclear := 0, 0
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			for range logs {
				d := verdict.Decide(l.draw(rng, n), verdict.DefaultRule())
				if l.isRight(d) {
					right++
				}
				if d.Answer == verdict.Unclear {
					unclear++
				}
			}
			if right < logs*95/100 {
				t.Errorf("%s, %d queries: %d of %d logs get right advice", name, n, right, logs)
			}
			if n == 2000 && unclear > logs/5 {
				t.Errorf("%s, %d queries: %d of %d logs cannot tell", name, n, unclear, logs)
			}
		}
	}
}
