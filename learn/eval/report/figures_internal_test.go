package report

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/calibrate"
)

// TestWordsOfAPage: each answer of a verdict has words of its own, and an interval shows both of its ends.
func TestWordsOfAPage(t *testing.T) {
	for answer, want := range map[verdict.Answer]string{
		verdict.Yes: "Worth it", verdict.No: "Not worth it", verdict.Unclear: "Cannot tell", "": "No baseline",
	} {
		if got := formatAnswer(eval.Verdict{Answer: answer}); got != want {
			t.Errorf("%q is shown as %q, want %q", answer, got, want)
		}
	}
	p := eval.Paired{Difference: 0.1}
	p.Low, p.High = -0.2, 0.3
	if got, want := strings.ReplaceAll(formatPaired(p), "\u00a0", " "), "+0.1000 (-0.2000 to +0.3000)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRecallFigure: each rule has an interval of the share that reached the recall.
func TestRecallFigure(t *testing.T) {
	r := &calibrate.Report{Promise: calibrate.Promise{K: 10, Share: 0.9}, Rules: []calibrate.Outcome{
		{Queries: 100, Kept: 80, LeastShare: 0.7, MeanRecall: 0.9, Candidates: 10},
		{Queries: 100, Kept: 95, LeastShare: 0.9, MeanRecall: 0.97, Candidates: 100},
	}}
	whiskers := regexp.MustCompile(`class="s1" d="M[\d.]+ [\d.]+V[\d.]+"`).FindAllString(string(recallFigure(r).SVG), -1)
	if len(whiskers) != 2 {
		t.Errorf("the plot has the intervals %q, want 2", whiskers)
	}
}

// TestBars: a bar shows the whole interval around its value, and its name as text.
func TestBars(t *testing.T) {
	svg := string(Bars("title", "description", "label", []string{"<i>"}, []Point{{Y: 1, Low: -1, High: 2}}))
	if strings.Contains(svg, "<i>") || strings.Count(svg, "&lt;i&gt;") != 2 {
		t.Errorf("the name is not escaped: %s", svg)
	}
	if !regexp.MustCompile(`class="whisker" d="M52\.0 [\d.]+H408\.0"`).MatchString(svg) { // from edge to edge
		t.Errorf("the interval is not from -1 to 2: %s", svg)
	}
}

// TestLogarithmicAxis: powers of ten are equally far from each other.
func TestLogarithmicAxis(t *testing.T) {
	if got := (Axis{From: 1, To: 100, Log: true}).position(10); got != 0.5 {
		t.Errorf("10 is at %g between 1 and 100, want 0.5", got)
	}
}

// TestDepthFigure: the line of a strategy goes from few candidates to many, in whatever order they were tried.
func TestDepthFigure(t *testing.T) {
	r := &eval.Report{Models: []eval.ModelReport{{Metrics: eval.Metrics{"mrr@10": 0.6}}}}
	for _, candidates := range []float64{100, 10} {
		o := eval.Outcome{Candidates: candidates, Metrics: eval.Metrics{"mrr@10": 0.5}}
		o.Strategy = rerank.Average
		r.Models[0].Strategies = append(r.Models[0].Strategies, o)
	}
	r.Method.Metric = "mrr@10"
	f, ok := depthFigure(r)
	if !ok || !regexp.MustCompile(`class="s0" d="M52\.0 [\d.]+L408\.0 [\d.]+"/>`).MatchString(string(f.SVG)) {
		t.Errorf("the line does not go from 10 to 100: %s", f.SVG)
	}
}

// TestGatesFigure: gates are by query component, and within one by item component.
func TestGatesFigure(t *testing.T) {
	f, ok := gatesFigure(&eval.ModelReport{Gates: &eval.GateUsage{PairsQuery: 2, PairsItem: 3, Mean: []float64{0.1, 0.1, 0.2, 0.1, 0.1, 0.4}}})
	if !ok || len(f.Rows) != 6 || !slices.Equal(f.Rows[2], []string{"0", "2", "0.2000"}) || !slices.Equal(f.Rows[5], []string{"1", "2", "0.4000"}) {
		t.Errorf("the table is %v", f.Rows)
	}
}
