// Package eval measures similarities: how well they rank (recall, MRR, nDCG,
// precision against logged pairs, beside a plain baseline, with confidence
// intervals), for whom, what each first-stage strategy loses of the exact
// ranking, and which is the simplest that is as good as the best.
package eval

import (
	"errors"

	"github.com/likenessdb/likeness/rerank"
)

// ErrInput: the pairs, matrices or strategies do not fit each other or the model.
var ErrInput = errors.New("evaluation input is not valid")

// Progress is told of long work. It is called at the start of a stage with the
// number of its steps, and returns what is called, concurrently, with the number
// of steps just done. A nil Progress is told nothing.
type Progress func(stage string, steps int) (done func(n int))

func (p Progress) begin(stage string, steps int) func(n int) {
	if p == nil {
		return func(int) {}
	}
	return p(stage, steps)
}

// Report is the outcome of an evaluation. Model, Metrics and Strategies are the
// first model's; Models has all of them.
type Report struct {
	Model    Model   `json:"model"`
	K        int     `json:"k"`
	Metrics  Metrics `json:"metrics"`
	Baseline Metrics `json:"baseline,omitempty"`
	// BaselineName says what Baseline is of.
	BaselineName string     `json:"baseline_name,omitempty"`
	Strategies   Strategies `json:"strategies,omitempty"`
	Counts       Counts     `json:"counts"`
	Method       Method     `json:"method"`
	// BaselineIntervals are those of Baseline.
	BaselineIntervals map[string]Interval `json:"baseline_intervals,omitempty"`
	BaselineHistogram *Histogram          `json:"baseline_histogram,omitempty"`
	Models            []ModelReport       `json:"models"`
	Verdict           Verdict             `json:"verdict"`
}

// Method says how intervals were made.
type Method struct {
	// Metric is the one that differences, segments and the verdict are about.
	Metric string `json:"metric"`
	// Confidence of every interval: percentiles of Resamples bootstrap samples of
	// the queries, drawn with Seed. Queries with equal vectors are one draw:
	// Clusters is the number of distinct ones.
	Confidence float64 `json:"confidence"`
	Resamples  int     `json:"resamples"`
	Clusters   int     `json:"clusters"`
	Seed       uint64  `json:"seed"`
	// Popularity says where that of the items is from: training_pairs or pairs.
	Popularity string `json:"popularity"`
}

// Model names what was evaluated.
type Model struct {
	Name    string      `json:"name"`
	Version string      `json:"version"`
	Kind    rerank.Kind `json:"kind"`
}

// ModelReport is one model's part of a report.
type ModelReport struct {
	Model
	Class      Class               `json:"class"`
	Parameters int                 `json:"parameters,omitempty"`
	OneProbe   bool                `json:"single_inner_product"`
	Metrics    Metrics             `json:"metrics"`
	Intervals  map[string]Interval `json:"intervals"`
	// Gains are differences to the baseline, by metric.
	Gains map[string]Paired `json:"gains,omitempty"`
	// ToBest is the difference to the best model on Method.Metric; nil for itself.
	ToBest     *Paired    `json:"to_best,omitempty"`
	AsGood     bool       `json:"as_good_as_best"`
	Segments   []Segment  `json:"segments,omitempty"`
	Strategies Strategies `json:"strategies,omitempty"`
	// Unserved are strategies that the model cannot serve, and why.
	Unserved    map[string]string `json:"unserved,omitempty"`
	Regressions []Regression      `json:"regressions,omitempty"`
	Histogram   *Histogram        `json:"histogram,omitempty"`
	Gates       *GateUsage        `json:"gates,omitempty"`
	// Spectrum are the singular values of W − I, the greatest first.
	Spectrum []float64 `json:"spectrum,omitempty"`
}

// Counts say what an evaluation rests on, and what it left out.
type Counts struct {
	Items int `json:"items"`
	// Queries were ranked and have at least one pair; Pairs are theirs.
	Queries int `json:"queries"`
	Pairs   int `json:"pairs"`
	// QueriesWithoutPairs are in the matrix but in no pair; no mean counts them.
	QueriesWithoutPairs int `json:"queries_without_pairs"`
	// QueriesSkipped were left out on request (every nth).
	QueriesSkipped int `json:"queries_skipped"`
	// DuplicatePairs were given more than once and count once.
	DuplicatePairs int `json:"duplicate_pairs"`
	// UnknownItems are pairs whose item id is none of the items'; they were dropped.
	UnknownItems int `json:"unknown_items"`
	// NotFiniteItems have NaN or an infinity in their vector and rank last.
	NotFiniteItems int `json:"not_finite_items"`
	// MissingItems are rows of a collection without the vector, which were left out, and
	// FirstMissingItem is the id of the first of them.
	MissingItems     int    `json:"missing_items,omitempty"`
	FirstMissingItem string `json:"first_missing_item,omitempty"`
}
