package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/experiment"
)

func TestExperimentPlan(t *testing.T) {
	out, _, err := printed(t, "experiment", "plan", "--preference", "0.55", "--decisive", "0.25", "--impressions", "2", "--per-day", "10000", "--share", "0.5", "--output", "json")
	var p experiment.Plan
	if err != nil || json.Unmarshal([]byte(out), &p) != nil || p.Impressions != 2*p.Sessions || p.Preferences < 1000 || p.Preferences > 4000 || p.Days != float64(p.Impressions)/5000 {
		t.Errorf("%s, %v", out, err)
	}
	if out, _, err = printed(t, "experiment", "plan"); err != nil || !strings.Contains(out, "52 : 48 with a chance of 90 %") || strings.Contains(out, "days") {
		t.Errorf("%s, %v", out, err)
	}
	if _, _, err = printed(t, "experiment", "plan", "--preference", "0.5"); err == nil || !strings.Contains(err.Error(), "preference is 0.5") {
		t.Error(err)
	}
}
