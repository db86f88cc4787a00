package fit_test

import (
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
)

// TestWorkEndsAtItsPlan: a task counts what it does up to its plan, and all of its plan when it
// ends early. All tasks together count no more than the plan.
func TestWorkEndsAtItsPlan(t *testing.T) {
	var planned, done int
	w := fit.NewWork(func(_ string, steps int) func(int) {
		planned = steps
		return func(n int) { done += n }
	}, "fitting", 10e6)
	over := w.Begin(4e6)
	for range 10 {
		over.Add(0.9e6)
	}
	over.End()
	if done != 4 {
		t.Errorf("a task of 4 that does 9 counts %d", done)
	}
	early := w.Begin(6e6)
	if !early.Has(6e6) || early.Has(6.5e6) {
		t.Error("a task of 6 has not 6, or has 6.5")
	}
	early.Add(0.5e6)
	if !early.Has(5.5e6) || early.Has(6e6) {
		t.Error("a task of 6 that did 0.5 has not 5.5, or has 6")
	}
	if done != 4 {
		t.Errorf("half a unit counts: %d", done)
	}
	early.End()
	if done != 10 || planned != 11 {
		t.Errorf("%d of %d are done, want 10 of 11", done, planned)
	}
	w.Begin(5e6).End()
	if done != planned {
		t.Errorf("%d of %d are done after a task that the plan lacks", done, planned)
	}
	var none *fit.Task
	if none.Has(0) {
		t.Error("no task has something left")
	}
	none.Add(1)
	none.End()
}
