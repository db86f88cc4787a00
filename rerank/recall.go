package rerank

import (
	"math"
	"slices"
)

// StoredSearch names a first stage that searches the stored vectors with the query itself, as the
// database does without likeness. No request can ask for it.
const StoredSearch Strategy = "stored"

// FirstStage says which share of the exact top K a first stage finds, as a mean over queries.
type FirstStage struct {
	Strategy Strategy `json:"strategy"`
	Head     string   `json:"head,omitempty"`
	// Searches is how many searches a query sends. Candidates are taken from their lists in turn:
	// all first rows, then all second rows, and so on.
	Searches int `json:"searches"`
	// Companion means that the searches need a companion collection.
	Companion bool `json:"companion"`
	// Recall holds the share found at each of the table's Depths.
	Recall []float64 `json:"recall"`
}

// Name returns the strategy and the head.
func (s FirstStage) Name() string {
	if s.Head == "" {
		return string(s.Strategy)
	}
	return string(s.Strategy) + " " + s.Head
}

// RecallTable compares first stages of one model on the same queries.
type RecallTable struct {
	// K is the length of the exact answer.
	K int `json:"k"`
	// Depths lists numbers of candidates, ascending.
	Depths []int        `json:"depths"`
	Stages []FirstStage `json:"first_stages"`
}

// IsValid reports whether the numbers of the table can be compared: ascending depths, and as many
// recalls from 0 to 1 of every stage.
func (t *RecallTable) IsValid() bool {
	for i, d := range t.Depths {
		if d < 1 || i > 0 && d <= t.Depths[i-1] {
			return false
		}
	}
	for _, s := range t.Stages {
		if len(s.Recall) != len(t.Depths) || len(s.Recall) == 0 || s.Searches < 1 ||
			slices.ContainsFunc(s.Recall, func(v float64) bool { return !(v >= 0 && v <= 1+1e-6) }) {
			return false
		}
	}
	return true
}

// Find returns the measured stage of a strategy, or nil. An empty head stands for the head that found
// most. The table must be valid.
func (t *RecallTable) Find(s Strategy, head string) *FirstStage {
	var found *FirstStage
	for i := range t.Stages {
		stage := &t.Stages[i]
		if stage.Strategy != s || head != "" && stage.Head != head {
			continue
		}
		if found == nil || stage.Recall[0] > found.Recall[0] {
			found = stage
		}
	}
	return found
}

// RecallAt returns the recall of a stage of the table with a number of candidates: between measured
// numbers on the line between their recalls, outside them the nearest one's.
func (t *RecallTable) RecallAt(s *FirstStage, candidates int) float64 {
	at, ok := slices.BinarySearch(t.Depths, candidates)
	switch {
	case ok:
		return s.Recall[at]
	case at == 0:
		return s.Recall[0]
	case at == len(t.Depths):
		return s.Recall[at-1]
	}
	below, above := t.Depths[at-1], t.Depths[at]
	share := float64(candidates-below) / float64(above-below)
	return math.FMA(share, s.Recall[at]-s.Recall[at-1], s.Recall[at-1])
}
