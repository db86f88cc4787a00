package bench

import (
	"regexp"
	"testing"

	"github.com/likenessdb/likeness/gpu/workload"
)

// TestSummary: every bar comes first, a line each: met, missed and why, or not measured.
func TestSummary(t *testing.T) {
	r := &Report{Cases: []Result{{
		Case: workload.Case{Name: "c", Bars: workload.Bars{Device: 1, Answer: 2, Plugin: 3}}, Device: workload.Times{P50: 0.5},
		Answer: workload.Answered{Batch: workload.Times{P50: 2.5}}, Steps: []Step{{Way: "bounded", Score: 0.4, Shares: Shares{Tensor: 0.5, Binds: "tensor cores"}}},
	}}}
	r.judge()
	const want = `^MET +c, on the device, with copies +at most 1 ms +0.500 ms *
MISSED +c, certified answers +at most 2 ms +2.500 ms +scoring takes 0.400 ms of the bounded step, and tensor cores bind: 50 % .*
NOT MEASURED +c, through the plugin +at most 3 ms *
`
	if got := r.Summary(); !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("the summary is\n%s, want\n%s", got, want)
	}
}
