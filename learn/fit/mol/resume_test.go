package mol

import (
	"context"
	"errors"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"reflect"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
)

// A fit that is ended at any of its stages, and then goes on, gives the model
// and the report of one that was never disturbed.
func TestMoLGoesOn(t *testing.T) {
	d := smallData(t)
	for name, tc := range map[string]struct {
		change func(o *Options)
		at     string // the note after which it ends
		model  bool   // there is a best so far
	}{
		"in the judged fit": {func(*Options) {}, "judged fit, round 2", true},
		"in the cold look":  {func(*Options) {}, "without item set 0, round 2", true},
		"in the final fit":  {func(o *Options) { o.UserTables = []int{3} }, "final fit, round 2", true},
		"in the choice of a pull": {func(o *Options) {
			o.Cold, o.Pulls = fit.ColdGuard, []float64{1e-4, 1e-2}
		}, "without item set 1, round 1", false},
		"in a guarded fit": {func(o *Options) {
			o.Cold, o.Pulls = fit.ColdGuard, []float64{1e-2}
		}, "judged fit, round 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			o := smallMoL()
			tc.change(&o)
			undisturbed, err := Fit(t.Context(), d, o)
			if err != nil {
				t.Fatal(err)
			}
			kept := &fittest.Checkpoint{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o.Checkpoint, o.Note = kept, func(line string) {
				if strings.Contains(line, tc.at) {
					cancel()
				}
			}
			best, err := Fit(ctx, d, o)
			if !errors.Is(err, context.Canceled) || (best != nil) != tc.model || kept.State == nil {
				t.Fatalf("interrupted: model %t, want %t; state of %d bytes; %v", best != nil, tc.model, len(kept.State), err)
			}
			if best != nil && (!best.Report.Interrupted || best.Report.Logged.Queries == 0) {
				t.Errorf("reported %+v", best.Report)
			}
			other := o
			other.Seed = 9
			if _, err := Fit(t.Context(), d, other); !errors.Is(err, fit.ErrCheckpoint) {
				t.Errorf("the state of other options: %v", err)
			}
			o.Note = nil
			resumed, err := Fit(t.Context(), d, o)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(undisturbed, resumed) {
				t.Errorf("a fit that goes on gives another model or report:\n%+v\n%+v", undisturbed.Report, resumed.Report)
			}
		})
	}
}
