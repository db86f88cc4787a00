package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/likenessdb/likeness/learn/eval"
)

// shownRegressions is the number of regressions in the text, shownTitle the number of
// letters of a title. JSON and HTML have more.
const (
	shownRegressions = 5
	shownTitle       = 60
)

func printReport(w io.Writer, r *eval.Report) error {
	_, _ = fmt.Fprintf(w, "%d items, %d queries with %d pairs; %g %% intervals of %d resamples\n\n",
		r.Counts.Items, r.Counts.Queries, r.Counts.Pairs, 100*r.Method.Confidence, r.Method.Resamples)
	if err := printMetrics(w, r); err != nil {
		return err
	}
	if err := printClickEstimates(w, r); err != nil {
		return err
	}
	for i := range r.Models {
		if err := printModelReport(w, r, &r.Models[i]); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintln(w)
	for _, line := range r.Verdict.Text {
		_, _ = fmt.Fprintln(w, line)
	}
	for _, line := range r.Verdict.Warnings {
		_, _ = fmt.Fprintln(w, "But:", line)
	}
	return printPlan(w, r)
}

// printClickEstimates prints what clicks say, corrected for their positions, if the log has any.
func printClickEstimates(w io.Writer, r *eval.Report) error {
	if r.Clicks == nil {
		return nil
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", r.Clicks.Text)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "from clicks, %d answers\tmetric\tsnips\tips\t\n", r.Clicks.Answers)
	line := func(name string, estimates map[string]eval.ClickEstimate) {
		for _, metric := range slices.Sorted(maps.Keys(estimates)) {
			e := estimates[metric]
			_, _ = fmt.Fprintf(t, "%s\t%s\t%.4f (%.4f to %.4f)\t%.4f (%.4f to %.4f)\t\n",
				name, metric, e.SNIPS, e.SNIPSInterval.Low, e.SNIPSInterval.High, e.IPS, e.IPSInterval.Low, e.IPSInterval.High)
		}
	}
	line(r.BaselineName, r.BaselineClicks)
	for _, m := range r.Models {
		line(m.Name, m.Clicks)
	}
	return t.Flush()
}

// printPlan prints how many queries show a difference, if that was asked.
func printPlan(w io.Writer, r *eval.Report) error {
	if r.Plan == nil {
		return nil
	}
	_, _ = fmt.Fprintf(w, "\nTo show a difference of %g in %s, with %g %% confidence and a chance of %g %%:\n",
		r.Plan.Difference, r.Method.Metric, 100*r.Method.Confidence, 100*r.Plan.Power)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "model\tagainst\tqueries\t%d queries show\t\n", r.Counts.Queries)
	for _, m := range r.Plan.Models {
		queries := "too many"
		if m.Queries > 0 {
			queries = fmt.Sprint(m.Queries)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%.4f\t\n", m.Model, m.Against, queries, m.Detectable)
	}
	return t.Flush()
}

func printMetrics(w io.Writer, r *eval.Report) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(t, "\t")
	if r.Baseline != nil {
		_, _ = fmt.Fprintf(t, "%s\t", r.BaselineName)
	}
	for _, m := range r.Models {
		_, _ = fmt.Fprintf(t, "%s\t", m.Name)
	}
	_, _ = fmt.Fprintln(t)
	for _, names := range r.MetricGroups() {
		name := names[0]
		_, _ = fmt.Fprintf(t, "%s\t", strings.Join(names, " = "))
		if r.Baseline != nil {
			_, _ = fmt.Fprintf(t, "%.4f\t", r.Baseline[name])
		}
		for _, m := range r.Models {
			_, _ = fmt.Fprintf(t, "%.4f\t", m.Metrics[name])
		}
		_, _ = fmt.Fprintln(t)
	}
	return t.Flush()
}

func printModelReport(w io.Writer, r *eval.Report, m *eval.ModelReport) error {
	_, _ = fmt.Fprintf(w, "\n%s: %s, version %s\n", m.Name, m.Class, m.Version)
	if g := r.Judge(m).Gain; g != nil {
		_, _ = fmt.Fprintf(w, "  %s against %s: %s; wins %.1f %%, ties %.1f %%, losses %.1f %%\n",
			r.JudgedBy(), r.BaselineName, difference(*g), 100*g.Wins, 100*g.Ties, 100*g.Losses)
	}
	if err := printSegments(w, r, m); err != nil {
		return err
	}
	if err := printTrafficParts(w, r, m); err != nil {
		return err
	}
	if err := printStrategies(w, r, m); err != nil {
		return err
	}
	for i, x := range m.Regressions[:min(len(m.Regressions), shownRegressions)] {
		if i == 0 {
			_, _ = fmt.Fprintln(w, "  worst regressions:")
		}
		_, _ = fmt.Fprintf(w, "    query %s: item %s falls from rank %d to %d, %.3g behind; first is %s\n",
			oneLine(x.QueryName(), shownTitle), oneLine(x.ItemName(), shownTitle), x.RankBefore, x.RankAfter, -x.Margin, oneLine(x.InsteadName(), shownTitle))
	}
	return nil
}

func difference(p eval.Paired) string {
	return fmt.Sprintf("%+.4f (%+.4f to %+.4f)", p.Difference, p.Low, p.High)
}

func printSegments(w io.Writer, r *eval.Report, m *eval.ModelReport) error {
	if len(m.Segments) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\t  segment\titems\tqueries\t%s\t%s\tdifference\t\n", r.JudgedBy(), r.BaselineName)
	for _, s := range m.Segments {
		base, gain := "", ""
		if s.Gain != nil {
			base, gain = fmt.Sprintf("%.4f", *s.Baseline), difference(*s.Gain)
		}
		_, _ = fmt.Fprintf(t, "\t%s\t%d\t%d\t%.4f\t%s\t%s\t\n", s.Name, s.Items, s.Queries, s.Metric, base, gain)
	}
	return t.Flush()
}

// printTrafficParts prints how queries seen before and new ones fare, by traffic.
func printTrafficParts(w io.Writer, r *eval.Report, m *eval.ModelReport) error {
	if len(m.Traffic) == 0 {
		return nil
	}
	names := eval.TrafficMetrics(r.K)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(t, "\t  traffic\tshare\tqueries\t")
	for _, name := range names {
		_, _ = fmt.Fprintf(t, "%s\t%s\t", name, r.BaselineName)
	}
	_, _ = fmt.Fprintln(t)
	for _, part := range m.Traffic {
		_, _ = fmt.Fprintf(t, "\t%s\t%.1f %%\t%d\t", part.Name, 100*part.Share, part.Queries)
		for _, name := range names {
			base := ""
			if part.Baseline != nil {
				base = fmt.Sprintf("%.4f", part.Baseline[name])
			}
			_, _ = fmt.Fprintf(t, "%.4f\t%s\t", part.Metrics[name], base)
		}
		_, _ = fmt.Fprintln(t)
	}
	return t.Flush()
}

func printStrategies(w io.Writer, r *eval.Report, m *eval.ModelReport) error {
	for _, name := range sortedKeys(m.Unserved) {
		_, _ = fmt.Fprintf(w, "  %s cannot be served: %s\n", name, m.Unserved[name])
	}
	if len(m.Strategies) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\t  strategy\tcandidates\tfirst-stage recall\texact\t%s\tlost by the first stage\tp50 ms\tp99 ms\t\n", r.Method.Metric)
	for _, s := range m.Strategies {
		_, _ = fmt.Fprintf(t, "\t%s\t%.0f\t%.4f\t%.0f%%\t%.4f\t%s\t%.2f\t%.2f\t\n", s.Name, s.Candidates, s.FirstStageRecall,
			100*s.Exact, s.Metrics[r.Method.Metric], difference(s.Loss), s.P50, s.P99)
	}
	if err := t.Flush(); err != nil || len(m.Strategies) < 2 {
		return err
	}
	searched := func(o eval.Outcome) bool { return o.Strategy != eval.Stored }
	if m.OneProbe && !slices.ContainsFunc(m.Strategies, searched) {
		_, err := fmt.Fprintln(w, "  no strategy to choose: one inner product is one search of the database, which loses only what its index does")
		return err
	}
	q := m.Strategies.Quickest()
	_, err := fmt.Fprintf(w, "  take %s: it finds %.4f of the exact top %d, within 0.01 of the most, in the least time\n", q.Name, q.FirstStageRecall, r.K)
	return err
}
