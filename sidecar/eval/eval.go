// Package eval measures a similarity: how well it ranks (recall, MRR, precision
// against logged pairs, beside a plain baseline) and what each first-stage
// strategy finds of its exact ranking.
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

// Report is the outcome of an evaluation.
type Report struct {
	Model    Model   `json:"model"`
	K        int     `json:"k"`
	Metrics  Metrics `json:"metrics"`
	Baseline Metrics `json:"baseline,omitempty"`
	// BaselineName says what Baseline is of.
	BaselineName string     `json:"baseline_name,omitempty"`
	Strategies   Strategies `json:"strategies,omitempty"`
	Counts       Counts     `json:"counts"`
}

// Model names what was evaluated.
type Model struct {
	Name    string      `json:"name"`
	Version string      `json:"version"`
	Kind    rerank.Kind `json:"kind"`
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
}
