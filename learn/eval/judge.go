package eval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// measureModel measures one model after the other for a report.
type measureModel struct {
	in           *Input
	rows         []int          // query rows
	queries      []rerank.Query // of one vector each
	sampler      *sampler
	segments     []Segment
	baselineScan *exactScan  // ranking by the baseline; nil without one
	bases        []series    // what each model is judged by
	clicks       *clickJudge // nil if the log has no positions
	report       *Report
}

func newJudge(in *Input, rows []int) *measureModel {
	queries := in.queries(rows, rerank.Spec{})
	j := &measureModel{in: in, rows: rows, queries: queries, sampler: newSampler(queries, in), segments: append(in.divideQueries(rows), in.divideSeen(rows)...)}
	if in.ByTraffic {
		j.sampler.weights = in.askedOf(rows)
	}
	j.clicks = newClickJudge(in, rows)
	popularity := "pairs"
	if in.Popularity != nil {
		popularity = "training_pairs"
	}
	j.report = &Report{
		Model: Model{Name: in.Model.Name, Version: in.Model.Version, Kind: in.Model.Similarity.Spec().Kind},
		K:     in.K, BaselineName: in.Baseline.Name,
		Method: Method{
			Metric: cmp.Or(in.Metric, fmt.Sprintf("mrr@%d", in.K)), Confidence: in.Confidence, Resamples: j.sampler.resamples,
			Clusters: j.sampler.clusters, Seed: in.Seed, Popularity: popularity, ByTraffic: in.ByTraffic,
			Margin: in.Margin, LeastGain: in.LeastGain,
		},
	}
	if j.clicks != nil {
		j.report.Clicks = &j.clicks.report
		j.report.Method.FromClicks = clickGain(j.report.Method.Metric, in.K) != nil
	}
	return j
}

// rankBaseline ranks by the baseline, if there is one and it has not been ranked yet.
func (j *measureModel) rankBaseline(ctx context.Context) error {
	if j.in.Baseline.Similarity == nil || j.baselineScan != nil {
		return nil
	}
	features, err := j.in.features(ctx, j.in.Baseline, nil)
	if err != nil {
		return err
	}
	if j.baselineScan, err = j.in.scanAll(ctx, j.in.Baseline, features, j.rows, j.queries); err != nil {
		return err
	}
	j.report.Baseline = j.sampler.meansOf(j.baselineScan.values)
	if j.clicks != nil {
		if j.report.BaselineClicks, err = j.clicks.estimate(ctx, j.baselineScan.rankings, nil, j.in.K, j.sampler); err != nil {
			return err
		}
	}
	j.report.BaselineHistogram = newHistogram(j.baselineScan.samples)
	j.report.BaselineIntervals, err = j.resampleIntervals(ctx, j.baselineScan.values)
	return err
}

// meansOf returns the mean of each metric.
func (s *sampler) meansOf(values map[string][]float64) Metrics {
	m := Metrics{}
	for name, v := range values {
		m[name], _ = series{values: v, weights: s.weights}.mean()
	}
	return m
}

func (j *measureModel) resampleIntervals(ctx context.Context, values map[string][]float64) (map[string]Interval, error) {
	names := metricNames(j.in.K)
	all := make([]series, len(names))
	for n, name := range names {
		all[n] = series{values: values[name], weights: j.sampler.weights}
	}
	drawn, err := j.sampler.resample(ctx, all)
	if err != nil {
		return nil, err
	}
	found := map[string]Interval{}
	for n, name := range names {
		found[name] = j.sampler.percentileInterval(drawn[n])
	}
	return found, nil
}

// measureModel measures one model. A strategy that the model cannot serve is an error if only
// is set, and is found before any ranking.
func (j *measureModel) measureModel(ctx context.Context, c Contender, only bool) error {
	in := j.in.withModel(c.Model)
	spec := c.Model.Similarity.Spec()
	r := ModelReport{
		Model: Model{Name: c.Model.Name, Version: c.Model.Version, Kind: spec.Kind}, Class: classOf(spec, c.Traits),
		Parameters: c.Traits.Parameters, OneProbe: spec.SingleInnerProduct, Spectrum: c.Traits.Spectrum,
	}
	features, err := in.features(ctx, c.Model, c.Vectors)
	if err != nil {
		return err
	}
	b := &trialRunner{in: in, table: features, rows: j.rows, queries: in.queries(j.rows, spec), judge: j}
	if r.Unserved, err = b.openServed(ctx, only); err != nil {
		return err
	}
	if b.store != nil {
		defer b.store.Close()
	}
	if err := j.rankBaseline(ctx); err != nil {
		return err
	}
	exact, err := in.scanAll(ctx, c.Model, features, j.rows, b.queries)
	if err != nil {
		return err
	}
	if err := j.measureQuality(ctx, &r, exact, features); err != nil {
		return err
	}
	b.exact = exact
	if r.Strategies, err = b.runTrials(ctx); err != nil {
		return err
	}
	if r.Gates, err = in.measureGates(c.Model, features, b.queries, exact.rankings); err != nil {
		return err
	}
	j.bases = append(j.bases, j.basis(exact))
	j.report.Models = append(j.report.Models, r)
	return nil
}

// measureQuality adds the figures of the exact ranking to the report.
func (j *measureModel) measureQuality(ctx context.Context, r *ModelReport, exact *exactScan, t *table.Table) (err error) {
	r.Metrics, r.Histogram = j.sampler.meansOf(exact.values), newHistogram(exact.samples)
	if r.Intervals, err = j.resampleIntervals(ctx, exact.values); err != nil {
		return err
	}
	if j.clicks != nil {
		var baseline []Ranking
		if j.baselineScan != nil {
			baseline = j.baselineScan.rankings
		}
		if r.Clicks, err = j.clicks.estimate(ctx, exact.rankings, baseline, j.in.K, j.sampler); err != nil {
			return err
		}
	}
	if j.baselineScan != nil {
		r.Regressions = j.in.findRegressions(t, j.rows, j.baselineScan, exact)
		differences := map[string][]float64{}
		for name, v := range exact.values {
			differences[name] = subtract(v, j.baselineScan.values[name])
		}
		if r.Gains, err = j.resamplePaired(ctx, differences); err != nil {
			return err
		}
	}
	var baseline map[string][]float64
	if j.baselineScan != nil {
		baseline = j.baselineScan.values
	}
	r.Traffic = j.measureTraffic(exact.values, baseline)
	r.Segments, err = j.measureSegments(ctx, exact)
	return err
}

func (j *measureModel) resamplePaired(ctx context.Context, differences map[string][]float64) (map[string]Paired, error) {
	names := metricNames(j.in.K)
	all := make([]series, len(names))
	for n, name := range names {
		all[n] = series{values: differences[name], weights: j.sampler.weights}
	}
	drawn, err := j.sampler.resample(ctx, all)
	if err != nil {
		return nil, err
	}
	found := map[string]Paired{}
	for n, name := range names {
		found[name] = j.sampler.summarisePaired(all[n], drawn[n])
	}
	return found, nil
}

// basis returns what a ranking is judged by, of each query: the report's metric, or its estimate from
// clicks if the log has positions.
func (j *measureModel) basis(exact *exactScan) series {
	metric := j.report.Method.Metric
	if j.report.Method.FromClicks {
		return j.clicks.perClick(exact.rankings, j.in.K, clickGain(metric, j.in.K))
	}
	return series{values: exact.values[metric], weights: j.sampler.weights}
}

// measureSegments measures each segment by the metric of the verdict.
func (j *measureModel) measureSegments(ctx context.Context, exact *exactScan) ([]Segment, error) {
	basis := j.basis(exact)
	var baseline series
	if j.baselineScan != nil {
		baseline = j.basis(j.baselineScan)
	}
	var all []series
	for _, s := range j.segments {
		all = append(all, series{basis.values, s.members, basis.weights})
		if j.baselineScan != nil {
			all = append(all, series{subtract(basis.values, baseline.values), s.members, basis.weights})
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	drawn, err := j.sampler.resample(ctx, all)
	if err != nil {
		return nil, err
	}
	found := slices.Clone(j.segments)
	step := len(all) / len(found)
	for n := range found {
		s := &found[n]
		s.Metric, _ = all[n*step].mean()
		s.Interval = j.sampler.percentileInterval(drawn[n*step])
		if j.baselineScan != nil {
			base, _ := series{baseline.values, s.members, basis.weights}.mean()
			gain := j.sampler.summarisePaired(all[n*step+1], drawn[n*step+1])
			s.Baseline, s.Gain = &base, &gain
		}
	}
	return found, nil
}

// finish compares the models with the best model and gives the verdict.
func (j *measureModel) finish(ctx context.Context) (*Report, error) {
	r := j.report
	r.Metrics, r.Strategies = r.Models[0].Metrics, r.Models[0].Strategies
	best := 0
	for n := range r.Models {
		if r.Judge(&r.Models[n]).Value > r.Judge(&r.Models[best]).Value {
			best = n
		}
	}
	for n := range r.Models {
		if n == best {
			continue
		}
		d, err := j.sampler.compareSeries(ctx, j.bases[n], j.bases[best])
		if err != nil {
			return nil, err
		}
		r.Models[n].ToBest = &d
	}
	r.Verdict = r.decide()
	if j.in.Power > 0 {
		r.Plan = r.plan(j.in.Power)
	}
	return r, nil
}

// openServed opens the engine for the trials that the model can serve, and returns the
// reason for each trial that it cannot serve.
func (b *trialRunner) openServed(ctx context.Context, only bool) (unserved map[string]string, err error) {
	if len(b.in.Trials) == 0 {
		return nil, nil
	}
	if err = b.openEngine(ctx); err == nil || only || ctx.Err() != nil {
		if err != nil {
			err = errors.Join(err, b.store.Close())
		}
		return nil, err
	}
	_ = b.store.Close()
	all, unserved := b.in.Trials, map[string]string{}
	var served []Trial
	for _, t := range all {
		b.in.Trials = []Trial{t}
		if err := b.openEngine(ctx); err != nil {
			unserved[t.Name] = err.Error()
		} else {
			served = append(served, t)
		}
		_ = b.store.Close()
	}
	b.in.Trials, b.store = served, nil
	if len(served) == 0 {
		return unserved, nil
	}
	if err := b.openEngine(ctx); err != nil {
		return nil, errors.Join(err, b.store.Close())
	}
	return unserved, nil
}
