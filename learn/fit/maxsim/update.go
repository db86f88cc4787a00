package maxsim

import (
	"context"
	"fmt"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
)

// Previous is an earlier fit that Update goes on from.
type Previous struct {
	// MAvg and Beta are its budget and how it was divided.
	MAvg, Beta float64
	// VectorsOf returns its vectors of an item row. It is called concurrently.
	VectorsOf func(item int) rerank.Matrix
}

// Update fits behavioural vectors to a log that has grown. It clusters only the items that touched
// marks, whose queries have changed since the previous fit, and keeps the vectors of all others,
// so its cost grows with the touched items. It takes budget and beta from the previous fit without
// judging them again. It returns the errors of Fit.
func Update(ctx context.Context, d fit.Data, o Options, before Previous, touched []bool, sink VectorSink) (*Fitted, error) {
	o.MAvg, o.Betas = []float64{before.MAvg}, []float64{before.Beta}
	if err := o.check(d); err != nil {
		return nil, err
	}
	if err := d.CheckInnerProduct(); err != nil {
		return nil, err
	}
	if len(touched) != d.Items.Rows {
		return nil, fmt.Errorf("%w: %d items are marked as touched or not, of %d", fit.ErrData, len(touched), d.Items.Rows)
	}
	log, err := samples.PrepareUnscaled(d)
	if err != nil {
		return nil, err
	}
	f := &fitter{log: log, options: o, touched: touched, before: before}
	f.report = Report{Counts: log.Counts, Seed: o.Seed, Measure: o.Measure, Beta: before.Beta, MAvg: before.MAvg}
	var queries []int32
	for q, items := range log.Relevant {
		if len(items) > 0 {
			queries = append(queries, int32(q))
		}
	}
	for _, t := range touched {
		if t {
			f.report.UpdatedItems++
		}
	}
	f.report.Recommendation = fmt.Sprintf("%d items have new queries and got new vectors; all others kept theirs.", f.report.UpdatedItems)
	if err := f.clusterQueries(ctx, queries, sink); err != nil {
		return nil, err
	}
	return &Fitted{Config: maxsim.Config{Dim: d.Items.Cols, Normalise: true}, Report: f.report}, nil
}
