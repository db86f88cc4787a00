package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/likenessdb/likeness/sidecar/calibrate"
)

// printCalibration prints a calibration as text. path is the file that stores it.
func printCalibration(w io.Writer, r *calibrate.Report, path string) error {
	p := r.Promise
	_, _ = fmt.Fprintf(w, "route %s, model %s version %s, %d queries from %s\n", r.Route, r.Model, r.Version, r.Queries, r.Source)
	_, _ = fmt.Fprintf(w, "promise: recall@%d >= %.4g for %.4g %% of the queries, with confidence %.4g %% (%d queries can show it at best)\n\n",
		p.K, p.Recall, 100*p.Share, 100*(1-p.Alpha), r.LeastQueries)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "depth\tcandidates\treached\tshare at least\tmean recall\tat least\tp50 ms\tp99 ms\t\t\n")
	for _, o := range r.Rules {
		printRule(t, o, r.Mark(o))
	}
	if h := r.HeldOut; h != nil {
		printRule(t, *h, "held out")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Calibration == nil {
		return nil
	}
	_, _ = fmt.Fprintf(w, "\ndepth %d is the least that shows the promise; each of %d depths errs with probability %.2g\n", r.Calibration.Rule.Depth, r.Depths, r.Promise.Alpha/float64(r.Depths))
	if r.Indexing != "" {
		_, _ = fmt.Fprintf(w, "the store still builds an index (%s), after which searches find other rows: calibrate again then\n", r.Indexing)
	}
	if path != "" {
		_, _ = fmt.Fprintf(w, "wrote %s\n", path)
	}
	return nil
}

func printRule(w io.Writer, o calibrate.Outcome, mark string) {
	_, _ = fmt.Fprintf(w, "%d\t%.0f\t%d of %d\t%.4f\t%.4f\t%.4f\t%.1f\t%.1f\t%s\t\n",
		o.Depth, o.Candidates, o.Kept, o.Queries, o.LeastShare, o.MeanRecall, o.LeastMeanRecall, o.P50, o.P99, mark)
}
