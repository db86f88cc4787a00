// Package eval measures similarities. It ranks logged queries by each model and by a
// plain baseline, and reports recall, MRR, nDCG and precision with confidence
// intervals, for all queries and for segments of them. It measures how much each
// first-stage strategy loses against the exact ranking, and finds the simplest model
// that is as good as the best.
package eval

import (
	"errors"
	"slices"

	"github.com/likenessdb/likeness/learn/clicks"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
)

// ErrInput means that the pairs, matrices or strategies do not fit each other or the
// model.
var ErrInput = errors.New("evaluation input is not valid")

// Progress reports the progress of long work. It is called at the start of a stage
// with the stage's number of steps. The returned function is called, concurrently,
// with the number of steps just done. A nil Progress reports nothing.
type Progress func(stage string, steps int) (done func(n int))

func (p Progress) begin(stage string, steps int) func(n int) {
	if p == nil {
		return func(int) {}
	}
	return p(stage, steps)
}

// Report is the outcome of an evaluation. Model, Metrics and Strategies describe the
// first model; Models describes every model.
type Report struct {
	Model    Model   `json:"model"`
	K        int     `json:"k"`
	Metrics  Metrics `json:"metrics"`
	Baseline Metrics `json:"baseline,omitempty"`
	// BaselineName names the similarity that Baseline measures.
	BaselineName string     `json:"baseline_name,omitempty"`
	Strategies   Strategies `json:"strategies,omitempty"`
	Counts       Counts     `json:"counts"`
	Method       Method     `json:"method"`
	// BaselineIntervals holds the confidence interval of each metric of Baseline.
	BaselineIntervals map[string]Interval `json:"baseline_intervals,omitempty"`
	BaselineHistogram *Histogram          `json:"baseline_histogram,omitempty"`
	Models            []ModelReport       `json:"models"`
	Verdict           Verdict             `json:"verdict"`
	// Clicks and BaselineClicks are there if the log says at which positions items were shown.
	Clicks         *clicks.Report           `json:"clicks,omitempty"`
	BaselineClicks map[string]ClickEstimate `json:"baseline_clicks,omitempty"`
	// Plan is there if Input.Power asked for it.
	Plan *Plan `json:"plan,omitempty"`
}

// MetricGroups lists the metrics in reading order. Those that are equal for every model and the baseline
// share a group.
func (r *Report) MetricGroups() (groups [][]string) {
	for _, name := range metricNames(r.K) {
		at := slices.IndexFunc(groups, func(group []string) bool { return r.equalMetrics(group[0], name) })
		if at < 0 {
			groups = append(groups, []string{name})
		} else {
			groups[at] = append(groups[at], name)
		}
	}
	return groups
}

// equalMetrics reports whether two metrics are equal for every model and the baseline.
func (r *Report) equalMetrics(a, b string) bool {
	equal := r.Baseline[a] == r.Baseline[b]
	for _, m := range r.Models {
		equal = equal && m.Metrics[a] == m.Metrics[b]
	}
	return equal
}

// Method says how the intervals were computed.
type Method struct {
	// Metric names the metric that differences, segments and the verdict use. FromClicks says
	// that segments and the verdict use its estimate from clicks (SNIPS).
	Metric     string `json:"metric"`
	FromClicks bool   `json:"from_clicks,omitempty"`
	// Confidence is the confidence of every interval. Intervals are percentiles of
	// Resamples bootstrap samples of the queries, drawn with Seed. Queries with equal
	// vectors are drawn together; Clusters is the number of distinct query vectors.
	Confidence float64 `json:"confidence"`
	Resamples  int     `json:"resamples"`
	Clusters   int     `json:"clusters"`
	Seed       uint64  `json:"seed"`
	// Popularity says which log gave the items' popularity: training_pairs or pairs.
	Popularity string `json:"popularity"`
	// ByTraffic means that a query counts as often as it was asked.
	ByTraffic bool `json:"by_traffic,omitempty"`
	// Margin is the share of the best model's gain that a simpler model may lose and
	// still be as good. LeastGain is the smallest gain worth having; 0 stands for
	// verdict.LeastGainOf the baseline's metric.
	Margin    float64 `json:"margin"`
	LeastGain float64 `json:"least_gain,omitempty"`
}

// Model names the model that was evaluated.
type Model struct {
	Name    string      `json:"name"`
	Version string      `json:"version"`
	Kind    rerank.Kind `json:"kind"`
}

// ModelReport is the part of a report about one model.
type ModelReport struct {
	Model
	Class      Class               `json:"class"`
	Parameters int                 `json:"parameters,omitempty"`
	OneProbe   bool                `json:"single_inner_product"`
	Metrics    Metrics             `json:"metrics"`
	Intervals  map[string]Interval `json:"intervals"`
	// Clicks estimates mrr@k, ndcg@k and recall@k from clicks, if the log has positions.
	Clicks map[string]ClickEstimate `json:"clicks,omitempty"`
	// Gains holds the difference to the baseline for each metric.
	Gains map[string]Paired `json:"gains,omitempty"`
	// ToBest is the difference to the best model, in what Report.Judge returns. It is nil for
	// the best model.
	ToBest *Paired `json:"to_best,omitempty"`
	// Standing says how the model stands to the best one. AsGood means that it is the
	// best, or that a loss of more than Verdict.Margin is excluded.
	Standing verdict.Standing `json:"standing"`
	AsGood   bool             `json:"as_good_as_best"`
	Segments []Segment        `json:"segments,omitempty"`
	// Traffic is the quality by traffic, if it is known which queries were seen before.
	Traffic    []Traffic  `json:"traffic,omitempty"`
	Strategies Strategies `json:"strategies,omitempty"`
	// Unserved names the strategies that the model cannot serve, with the reason.
	Unserved    map[string]string `json:"unserved,omitempty"`
	Regressions []Regression      `json:"regressions,omitempty"`
	Histogram   *Histogram        `json:"histogram,omitempty"`
	Gates       *GateUsage        `json:"gates,omitempty"`
	// Spectrum holds the singular values of W − I, the greatest first.
	Spectrum []float64 `json:"spectrum,omitempty"`
}

// Counts says on how much data an evaluation rests, and how much it left out.
type Counts struct {
	Items int `json:"items"`
	// Queries counts the ranked queries, which have at least one pair. Pairs counts
	// their pairs.
	Queries int `json:"queries"`
	Pairs   int `json:"pairs"`
	// QueriesWithoutPairs counts queries that no pair names. They are in no mean.
	QueriesWithoutPairs int `json:"queries_without_pairs"`
	// QueriesSkipped counts queries that were left out because only every nth was
	// asked for.
	QueriesSkipped int `json:"queries_skipped"`
	// DuplicatePairs counts pairs that were given more than once. Each pair counts
	// once.
	DuplicatePairs int `json:"duplicate_pairs"`
	// Copies counts the queries whose rankings are without the items that have the query's own vector, as where
	// the items are questions.
	Copies int `json:"copies,omitempty"`
	// SeenBefore counts the queries that were left out because the fit learned from them; see Input.NewOnly.
	SeenBefore int `json:"seen_before,omitempty"`
	// UnknownItems counts pairs that were dropped because they name an unknown item.
	UnknownItems int `json:"unknown_items"`
	// NotFiniteItems counts items with NaN or an infinity in their vector. They rank
	// last.
	NotFiniteItems int `json:"not_finite_items"`
	// MissingItems counts rows of a collection that were left out because they lack
	// the vector. FirstMissingItem is the id of the first such row.
	MissingItems     int    `json:"missing_items,omitempty"`
	FirstMissingItem string `json:"first_missing_item,omitempty"`
}
