package fit

import (
	"slices"
	"strings"
)

// Measure rates the ranking of a query between 0 and 1. A fit chooses its settings by one
// measure, and is judged by it.
type Measure string

const (
	// MRR is the reciprocal rank of the first right item among the first ten. It suits
	// queries that look for one item.
	MRR Measure = "mrr@10"
	// NDCG is the normalised discounted cumulative gain of the first ten items. It suits
	// queries that have many right items.
	NDCG Measure = "ndcg@10"
)

// Measures returns every measure.
func Measures() []Measure { return []Measure{MRR, NDCG} }

// Check returns ErrOption if m is none of Measures.
func (m Measure) Check() error {
	if !slices.Contains(Measures(), m) {
		return NotOneOf("metric", m, Measures())
	}
	return nil
}

// Name returns the name as texts write it, such as "nDCG@10".
func (m Measure) Name() string { return ByMeasure(m, "MRR@10", "nDCG@10") }

// ByMeasure returns the one of two values that belongs to the measure: mrr was computed by MRR, ndcg by NDCG.
func ByMeasure[T any](m Measure, mrr, ndcg T) T {
	if m == NDCG {
		return ndcg
	}
	return mrr
}

// MeasureFor returns the measure by which a fit should choose if a metric of package eval,
// such as "recall@20", is to be great: MRR for metrics that the first right item decides,
// NDCG for metrics that count all right items.
func MeasureFor(metric string) Measure {
	if name, _, _ := strings.Cut(metric, "@"); name == "mrr" || name == "hit_rate" {
		return MRR
	}
	return NDCG
}
