package fit_test

import (
	"reflect"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/verdict"
)

// TestAGainIsClear: a gain is clear if it is above 0 and reaches its standard error.
func TestAGainIsClear(t *testing.T) {
	for _, c := range []struct {
		gain, standardError float64
		want                bool
	}{{0.02, 0.01, true}, {0.01, 0.01, true}, {0.01, 0.02, false}, {0, 0, false}, {-0.02, 0.01, false}} {
		if got := (fit.Comparison{Gain: c.gain, StandardError: c.standardError}).ClearlyBetter(); got != c.want {
			t.Errorf("%+v is clear: %t", c, got)
		}
	}
}

// TestTrafficWeighsItemsWithoutLogs: a trial is worth its MRR@10 over all traffic, of which the given share looks for items
// without logs.
func TestTrafficWeighsItemsWithoutLogs(t *testing.T) {
	trial := fit.PullTrial{LoggedMRR: 0.75, LoggedNDCG: 0.9, Cold: &fit.Comparison{Value: 0.375, Baseline: 0.5}}
	if got := trial.Value(fit.MRR, 0.25); got != 0.75*0.75+0.25*0.375 {
		t.Errorf("the value is %g", got)
	}
	if got := trial.Value(fit.NDCG, 0.25); got != 0.75*0.9+0.25*0.375 {
		t.Errorf("the value by nDCG@10 is %g", got)
	}
	trial.Cold = nil
	if got := trial.Value(fit.MRR, 0.25); got != 0.75 {
		t.Errorf("without held-out items the value is %g", got)
	}
}

// TestWhatGuardingCosts: the chosen trial is compared with the one that is best for logged items by MRR@10.
func TestWhatGuardingCosts(t *testing.T) {
	trial := func(logged, ndcg, cold float64) fit.PullTrial {
		return fit.PullTrial{LoggedMRR: logged, LoggedNDCG: ndcg, Cold: &fit.Comparison{Value: cold, Baseline: 0.5}}
	}
	chosen := trial(0.625, 0.5, 0.5)
	all := []fit.PullTrial{trial(0.5, 0.9, 0.125), chosen, trial(0.75, 0.6, 0.25), trial(0.6875, 0.7, 0.375)}
	if got := *fit.NewGuarding(fit.MRR, 0.25, chosen, all); got != (fit.Guarding{Measure: fit.MRR, Traffic: 0.25, LoggedLoss: 0.125, ColdGain: 0.25}) {
		t.Errorf("guarding: %+v", got)
	}
	if got := *fit.NewGuarding(fit.MRR, 0.25, all[2], all); got != (fit.Guarding{Measure: fit.MRR, Traffic: 0.25}) {
		t.Errorf("the best trial for logged items: %+v", got)
	}
	if got := *fit.NewGuarding(fit.NDCG, 0.25, chosen, all); got.LoggedLoss != 0.4 || got.ColdGain != 0.375 {
		t.Errorf("guarding by nDCG@10: %+v", got)
	}
	want := "Holding back for items without logs (25.0 % of the traffic to come) costs logged items 0.1250 of MRR@10 and buys the others 0.2500: -0.0312 over all traffic."
	if got := fit.NewGuarding(fit.MRR, 0.25, chosen, all).Text(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestMeasureForAMetric: where the first right item decides, MRR@10 chooses, and otherwise nDCG@10.
func TestMeasureForAMetric(t *testing.T) {
	for metric, want := range map[string]fit.Measure{"mrr@10": fit.MRR, "hit_rate@3": fit.MRR, "ndcg@5": fit.NDCG, "recall@10": fit.NDCG, "map@7": fit.NDCG, "p@10": fit.NDCG} {
		if got := fit.MeasureFor(metric); got != want {
			t.Errorf("%s: %s, want %s", metric, got, want)
		}
	}
}

// TestVerdictOfADecision has all that the decision says.
func TestVerdictOfADecision(t *testing.T) {
	d := verdict.Decision{Answer: verdict.Unclear, Choice: 1, Margin: 0.02, QueriesNeeded: 900, Text: []string{"a", "b"}}
	got := fit.NewVerdict(d, 40, "full")
	want := fit.Verdict{Answer: verdict.Unclear, Choose: "full", Margin: 0.02, Queries: 40, QueriesNeeded: 900, Text: []string{"a", "b"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestSentencesOfAReport name the figures, and what to do.
func TestSentencesOfAReport(t *testing.T) {
	c := fit.Comparison{Gain: -0.04, StandardError: 0.01}
	for got, want := range map[string]string{
		fit.ColdWarning(fit.MRR, c, true):                  "items without logs lose 0.0400 ± 0.0100 of MRR@10; no pull that was tried keeps them",
		fit.ColdWarning(fit.MRR, c, false):                 "items without logs lose 0.0400 ± 0.0100 of MRR@10; when the collection gets such items, fit again with --cold guard",
		fit.UnguardedText(fit.MRR, c, 0.25):                "Items without logs (25.0 % of the traffic to come) are not guarded: -0.0400 of MRR@10 against the plain similarity, -0.0100 over all traffic.",
		fit.Guarding{}.Text():                              "Nothing is held back for items without logs (0.0 % of the traffic to come): the setting that is best for logged items is taken.",
		fit.NotOneOf("a", "x", []string{"y", "z"}).Error(): "fit option is not valid: a \"x\" is none of y, z",
	} {
		if got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
