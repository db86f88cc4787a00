package main

import (
	"testing"
	"time"
)

// TestRatesOfSlowWork: a few steps a minute are not none.
func TestRatesOfSlowWork(t *testing.T) {
	for _, c := range []struct {
		steps, count int64
		want         string
	}{
		{8, 2, "fitting: 2 of 8 (0.10/s, 1m0s left)"},
		{8000, 4000, "fitting: 4000 of 8000 (200/s, 20s left)"},
		{-1, 3, "fitting: 3 (0.15/s)"},
		{8, 9, "fitting: 9 of 8 (0.45/s, 0s left)"},
	} {
		s := stageLines{stage: "fitting", steps: c.steps}
		if got := s.line(c.count, 20*time.Second); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
