package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/fit"
)

// printLog prints the counts of the data that a fit used and of the rows that were left out.
func printLog(w io.Writer, log *dataset.Counts, c *fit.Counts) {
	_, _ = fmt.Fprintf(w, "log: %d queries with %d pairs, %d of %d items logged; %d queries held out\n",
		c.Queries, c.Pairs, c.LoggedItems, c.Items, c.HeldOutQueries)
	for _, line := range droppedLines(log) {
		_, _ = fmt.Fprintf(w, "  %s\n", line)
	}
	for _, d := range []struct {
		n    int
		what string
	}{
		{c.QueriesWithoutPairs - log.NoHistory, "queries left out: no pair"}, {c.ZeroQueries - log.NoHistory, "queries of norm 0"}, {c.ZeroItems, "items of norm 0"},
		{c.ZeroPairs, "pairs dropped: a vector of norm 0"},
	} {
		if d.n > 0 {
			_, _ = fmt.Fprintf(w, "  %d %s\n", d.n, d.what)
		}
	}
}

// printClicks prints how a log with positions was corrected, or nothing if it has none.
func printClicks(w io.Writer, c *clickReport) {
	if c == nil {
		return
	}
	_, _ = fmt.Fprintf(w, "  %d answers with %d choices, which say as much about ranks as %.0f at one position\n  %s\n",
		c.Answers, c.Choices, c.EffectiveSize, c.Text)
}

// printQuality compares a fit with the plain inner product, by a measure.
func printQuality(w io.Writer, m fit.Measure, logged, cold *fit.Comparison) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\n%s\tfit\tplain\tgain\tqueries\t\n", m.Name())
	printComparison(t, "logged items, held-out queries", logged)
	printComparison(t, "held-out items, as without logs", cold)
	return t.Flush()
}

func printComparison(w io.Writer, name string, c *fit.Comparison) {
	if c != nil {
		_, _ = fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%+.4f ± %.4f\t%d\t\n", name, c.Value, c.Baseline, c.Gain, c.StandardError, c.Queries)
	}
}

// trialCells returns the table cells with a trial's quality on held-out items, and
// whether the trial was chosen.
func trialCells(p fit.PullTrial) (cold, plain, mark string) {
	if p.Cold != nil {
		cold, plain = fmt.Sprintf("%.4f", p.Cold.Value), fmt.Sprintf("%.4f", p.Cold.Baseline)
	}
	switch {
	case p.Chosen:
		mark = "chosen"
	case !p.Admissible:
		mark = "not surely kept"
	}
	return cold, plain, mark
}

// printTrials prints the quality of each pull, and of the start of the fit, by a measure.
func printTrials(w io.Writer, m fit.Measure, trials []fit.PullTrial) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "\npull\t%s\tnot logged\tplain\t\t\n", m.Name())
	for _, p := range trials {
		cold, plain, mark := trialCells(p)
		name := fmt.Sprintf("%g", p.Pull)
		if p.Rounds == 0 {
			name = "bilinear form"
		}
		_, _ = fmt.Fprintf(t, "%s\t%.4f\t%s\t%s\t%s\t\n", name, p.Logged(m), cold, plain, mark)
	}
	return t.Flush()
}
