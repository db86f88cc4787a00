package rerank_test

import (
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestLacks: an answer carries a calibration if it has no filter, the audited K, and was
// found by the audited rule with lists that are at least as deep.
func TestLacks(t *testing.T) {
	combined := rerank.Rule{Strategy: rerank.Combined, Depth: 100, AverageDepth: 50, Weights: rerank.GateWeights, Head: "h"}
	change := func(f func(*rerank.Rule)) rerank.Rule {
		r := combined
		f(&r)
		return r
	}
	excluding := rerank.Calibration{K: 10, Recall: 0.9, Rule: combined, Excluding: true}
	most, all := rerank.Calibration{K: 10, Recall: 0.9, Rule: combined}, rerank.Calibration{K: 10, Recall: 1, Rule: combined}
	for name, c := range map[string]struct {
		of       rerank.Calibration
		k        int
		rule     rerank.Rule
		filtered bool
		want     string
	}{
		"as audited":              {most, 10, combined, false, ""},
		"deeper":                  {most, 10, change(func(r *rerank.Rule) { r.Depth, r.AverageDepth = 200, 60 }), false, ""},
		"a filter":                {most, 10, combined, true, rerank.UncalibratedFilter},
		"more rows":               {all, 11, combined, false, rerank.UncalibratedK},
		"fewer rows":              {most, 9, combined, false, rerank.UncalibratedK},
		"fewer rows at recall 1":  {all, 9, combined, false, ""},
		"another strategy":        {most, 10, change(func(r *rerank.Rule) { r.Strategy = rerank.Average }), false, rerank.UncalibratedStrategy},
		"other weights":           {most, 10, change(func(r *rerank.Rule) { r.Weights = rerank.UniformWeights }), false, rerank.UncalibratedStrategy},
		"another head":            {most, 10, change(func(r *rerank.Rule) { r.Head = "" }), false, rerank.UncalibratedStrategy},
		"shorter lists":           {most, 10, change(func(r *rerank.Rule) { r.Depth = 99 }), false, rerank.UncalibratedDepth},
		"a shorter averaged list": {most, 10, change(func(r *rerank.Rule) { r.AverageDepth = 49 }), false, rerank.UncalibratedDepth},
	} {
		if got := c.of.Lacks(c.k, c.rule, c.filtered, false); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		of                  rerank.Calibration
		filtered, excluding bool
		want                string
	}{
		"items are excluded, and were":     {excluding, false, true, ""},
		"items are excluded, and were not": {most, false, true, rerank.UncalibratedFilter},
		"items were excluded, and are not": {excluding, false, false, rerank.UncalibratedFilter},
		"a filter beside excluded items":   {excluding, true, true, rerank.UncalibratedFilter},
	} {
		if got := c.of.Lacks(10, combined, c.filtered, c.excluding); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
