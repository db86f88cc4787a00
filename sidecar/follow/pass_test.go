package follow

import (
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/sidecar/route"
)

// TestSchedule: the reasons for a pass, when it is due, and whether it compares all rows.
func TestSchedule(t *testing.T) {
	missed := gap{since: at(10), last: at(20)}
	waiting := []*write{{readable: at(30)}, {readable: at(25)}}
	now := at(100)
	for name, c := range map[string]struct {
		schedule schedule
		due      time.Time // zero with ok: at once
		ok, full bool
	}{
		"nothing to do":                   {schedule{}, time.Time{}, false, false},
		"the interval":                    {schedule{interval: 40, full: at(50)}, at(90), true, true},
		"the interval is not over":        {schedule{interval: 60, full: at(50)}, at(110), true, false},
		"no interval":                     {schedule{full: at(50)}, time.Time{}, false, false},
		"a missed write":                  {schedule{missed: missed}, at(20), true, true},
		"writes by a filter that deletes": {schedule{writes: waiting}, at(25), true, false},
		"writes that change rows":         {schedule{writes: waiting, rowsChanged: true}, at(25), true, true},
		"the soonest counts":              {schedule{writes: waiting, missed: missed, interval: 40, full: at(50)}, at(20), true, true},
		"a rest after the last pass":      {schedule{missed: missed, ended: at(40)}, at(40).Add(passRest), true, true},
		"a request does not rest":         {schedule{requested: true, ended: at(40)}, time.Time{}, true, true},
		"one under way goes on":           {schedule{underWay: true, missed: missed, ended: at(40)}, time.Time{}, true, true},
		"nothing begins at the end":       {schedule{draining: true, requested: true, missed: missed}, time.Time{}, false, true},
		"on request, nobody asked":        {schedule{onRequest: true, missed: missed, interval: 40}, time.Time{}, false, true},
		"on request, requested":           {schedule{onRequest: true, requested: true}, time.Time{}, true, true},
		"on request, under way":           {schedule{onRequest: true, underWay: true}, time.Time{}, true, false},
	} {
		due, ok := c.schedule.due()
		if ok != c.ok || !due.Equal(c.due) {
			t.Errorf("%s: due %v, %t, want %v, %t", name, due, ok, c.due, c.ok)
		}
		if full := c.schedule.isFull(now); full != c.full {
			t.Errorf("%s: full %t", name, full)
		}
	}
}

// TestNextPage: pages come at the given rate, and lost time is not made up for.
func TestNextPage(t *testing.T) {
	for name, c := range map[string]struct {
		due  time.Time
		rows int
		rate int
		want time.Time
	}{
		"no rate":  {at(0), 1000, 0, at(time.Minute)},
		"in time":  {at(2 * time.Minute), 1000, 500, at(2*time.Minute + 2*time.Second)},
		"too late": {at(0), 1000, 500, at(time.Minute + 2*time.Second)},
	} {
		if got := nextPageAt(c.due, at(time.Minute), c.rows, c.rate); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestAddPage: a pass adds the counts of a page, and continues after it.
func TestAddPage(t *testing.T) {
	p := &pass{drift: []Drift{{Rows: 1}, {}}}
	p.addPage(page{rows: 10, drift: []Drift{{Rows: 10, Changed: 1}, {Unfit: 2}}, cursor: "there"}, at(0), 5)
	if p.drift[0] != (Drift{Rows: 11, Changed: 1}) || p.cursor != "there" || !p.nextPage.Equal(at(2*time.Second)) || !p.unfit() {
		t.Errorf("%+v", p)
	}
	if (&pass{drift: []Drift{{Changed: 1}}}).unfit() {
		t.Error("a row that differs counts as one that does not fit")
	}
}

// TestResumedPass: a pass continues where the last process left it, with the drift found so far.
func TestResumedPass(t *testing.T) {
	routes := []*derivation{{route: &route.Route{Policy: route.Policy{Name: "r"}}}}
	before := &pass{full: true, complete: true, stage: 1, cursor: "here", routes: routes, drift: []Drift{{Rows: 7, Missing: 2}}}
	left := before.place()
	p := resumedPass(left, at(0))
	if p.start(routes, left); !p.full || p.complete || p.stage != 1 || p.cursor != "here" || p.drift[0] != before.drift[0] {
		t.Errorf("%+v", p)
	}
	p = resumedPass(left, at(0))
	several := slices.Insert(slices.Clone(routes), 1, &derivation{route: &route.Route{Policy: route.Policy{Name: "several", Vectors: "tokens"}}})
	if p.start(several, left); p.stage != 0 || p.cursor != "" || p.drift[0] != (Drift{}) {
		t.Errorf("a pass of one stage is resumed as one of two: %+v", p)
	}
	p = &pass{complete: true}
	if p.start(routes, left); p.drift[0] != (Drift{}) {
		t.Errorf("a new pass begins with %+v", p.drift[0])
	}
	if (&pass{}).place() != nil || resumedPass(nil, at(0)) != nil {
		t.Error("a pass that is not full is resumed")
	}
}

// TestUnreportedDrift: a caller of Reconcile also learns of the repairs of earlier passes; the
// counts of rows and of unfit rows come from the last pass.
func TestUnreportedDrift(t *testing.T) {
	found := map[string]Drift{"r": {Rows: 10, Changed: 1, Unfit: 1}}
	sum := addUnreported(found, map[string]Drift{"r": {Rows: 9, Missing: 2, Changed: 3, Unfit: 5}, "gone": {Missing: 1}})
	if len(sum) != 1 || sum["r"] != (Drift{Rows: 10, Missing: 2, Changed: 4, Unfit: 1}) {
		t.Errorf("%+v", sum)
	}
	if found["r"].Missing != 0 {
		t.Error("what the pass found was changed")
	}
}
