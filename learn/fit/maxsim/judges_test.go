package maxsim

import (
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/samples"
)

// TestWhoJudgesHeldOutItems: queries that chose nothing but such items, of both sides of the
// split, since what they chose is withheld from the clusters.
func TestWhoJudgesHeldOutItems(t *testing.T) {
	l, err := samples.PrepareUnscaled(fittest.RandomData(300, 20, 4))
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Cold, o.ColdShare = fit.ColdGuard, 0.4
	split, err := l.Split(o.Common)
	if err != nil {
		t.Fatal(err)
	}
	j, err := (&fitter{log: l, options: o, split: split}).newJudges()
	if err != nil || j.cold == nil {
		t.Fatal(j, err)
	}
	for _, q := range j.cold.Queries {
		if slices.ContainsFunc(l.Relevant[q], func(x int32) bool { return !j.coldItems[x] }) {
			t.Errorf("query %d chose %v, of which the clusters learn", q, l.Relevant[q])
		}
	}
	if len(j.cold.Queries) < 20 || len(j.logged.Queries) != len(split.HeldOut) {
		t.Errorf("%d queries judge the held-out items, %d of %d the others", len(j.cold.Queries), len(j.logged.Queries), len(split.HeldOut))
	}
}
