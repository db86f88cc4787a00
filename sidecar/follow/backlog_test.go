package follow

import (
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// at returns the time d after the start of a test.
func at(d time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(d) }

func idsOf(all ...uint64) []rerank.ID {
	out := make([]rerank.ID, len(all))
	for i, n := range all {
		out[i] = rerank.UintID(n)
	}
	return out
}

// takeAll takes the rows that are due and returns their ids.
func takeAll(b *backlog, now time.Time) (rows []*row, ids []rerank.ID) {
	rows = b.rows.take(readRows, now)
	for _, r := range rows {
		ids = append(ids, r.id)
	}
	slices.SortFunc(ids, rerank.ID.Compare)
	return rows, ids
}

// TestBacklog: a write is settled once each of its rows was read at a time when the read shows it,
// and not before. A last read follows a second later.
func TestBacklog(t *testing.T) {
	b := newBacklog()
	w := b.addWrite(at(0))
	if b.isShown() || b.isJournaled() || b.waitsForPassOnly() {
		t.Fatal("a write on its way counts as shown, journalled or left to a pass")
	}
	upsert := journal.Write{Kind: journal.Upsert, IDs: idsOf(1, 2, 2)}
	if b.apply(w, upsert, at(0), at(time.Second)) {
		t.Fatal("settled before its rows were read")
	}
	if rows, _ := takeAll(b, at(debounce-1)); len(rows) > 0 {
		t.Fatal("a row is due before other writes could join it")
	}
	early, ids := takeAll(b, at(debounce))
	if !slices.Equal(ids, idsOf(1, 2)) {
		t.Fatalf("rows %v are due, want 1 and 2", ids)
	}
	for _, r := range early {
		if settled := b.rowApplied(r, at(debounce)); len(settled) > 0 {
			t.Fatal("settled by a read that may not show the write")
		}
	}
	late, _ := takeAll(b, at(time.Second))
	if len(late) != 2 {
		t.Fatalf("%d rows are read again, want 2", len(late))
	}
	if settled := b.rowApplied(late[0], at(time.Second)); len(settled) > 0 {
		t.Fatal("settled by the first of two rows")
	}
	if settled := b.rowApplied(late[1], at(time.Second)); !slices.Equal(settled, []*write{w}) {
		t.Fatal("not settled by the last row")
	}
	b.settle(w)
	if !b.isShown() {
		t.Fatal("a settled write is pending")
	}
	if b.isJournaled() {
		t.Error("the next process is not told of rows that wait for their last read")
	}
	last, _ := takeAll(b, at(2*time.Second))
	for _, r := range last {
		b.rowApplied(r, at(2*time.Second))
	}
	if len(last) != 2 || b.rows.len() != 0 || !b.isJournaled() {
		t.Errorf("%d last reads, %d rows left", len(last), b.rows.len())
	}
}

// TestBacklogOfNothing: a write that names no row and no filter is settled at once.
func TestBacklogOfNothing(t *testing.T) {
	b := newBacklog()
	if !b.apply(b.addWrite(at(0)), journal.Write{Kind: journal.Upsert}, at(0), at(0)) {
		t.Error("a write of no rows is pending")
	}
}

// TestBacklogForPass: writes that do not name their rows wait for a pass that begins when
// a read shows them.
func TestBacklogForPass(t *testing.T) {
	for name, c := range map[string]struct {
		write                journal.Write
		rowsChanged, dropped bool
	}{
		"a filter that deletes": {journal.Write{Kind: journal.Delete, Filter: "{}"}, false, false},
		"a filter that changes": {journal.Write{Kind: journal.Payload, Filter: "{}"}, true, false},
		"all rows":              {journal.Write{Kind: journal.Upsert, All: true}, true, false},
		"the collection":        {journal.Write{Kind: journal.Collection}, true, true},
	} {
		b := newBacklog()
		w := b.addWrite(at(0))
		if b.apply(w, c.write, at(0), at(time.Second)) || b.isShown() || !b.waitsForPassOnly() {
			t.Errorf("%s: it does not wait for a pass", name)
		}
		if b.rowsChanged != c.rowsChanged || b.dropped != c.dropped {
			t.Errorf("%s: rows changed %t, dropped %t", name, b.rowsChanged, b.dropped)
		}
		if early := b.takeForPass(at(0)); len(early) > 0 || b.rowsChanged != c.rowsChanged {
			t.Errorf("%s: a pass settles it that may not have seen it", name)
		}
		if taken := b.takeForPass(at(time.Second)); !slices.Equal(taken, []*write{w}) || b.rowsChanged {
			t.Errorf("%s: a pass that sees it does not settle it", name)
		}
		b.returnFromPass([]*write{w})
		if !b.rowsChanged { // the outcome of the running pass is unknown
			t.Errorf("%s: the next pass compares no rows", name)
		}
		if again := b.takeForPass(at(time.Hour)); len(again) != 1 {
			t.Errorf("%s: lost when its pass was given up", name)
		}
	}
}

// TestBacklogOverflow: if too many rows would wait, a pass settles them and everything that waits
// already.
func TestBacklogOverflow(t *testing.T) {
	b := newBacklog()
	first, large := b.addWrite(at(0)), b.addWrite(at(0))
	b.apply(first, journal.Write{Kind: journal.Delete, IDs: idsOf(1, 2)}, at(0), at(0))
	b.noteDiffering(idsOf(3), at(0))
	reading, _ := takeAll(b, at(debounce))
	b.apply(large, journal.Write{Kind: journal.Delete, IDs: make([]rerank.ID, maxRows)}, at(0), at(0))
	if b.rows.len() != 0 || b.differing != 0 || !b.rowsChanged || len(b.forPass) != 2 {
		t.Fatalf("%d rows, %d differing, %d writes for a pass", b.rows.len(), b.differing, len(b.forPass))
	}
	for _, r := range reading { // a read that has begun settles nothing more
		b.retry(r, at(0))
		if settled := b.rowApplied(r, at(time.Hour)); len(settled) > 0 || b.rows.len() != 0 || b.differing != 0 {
			t.Errorf("row %v is followed though a pass takes its place", r.id)
		}
	}
}

// TestBacklogDiffering: rows that a pass found to differ count as not shown until they are applied.
func TestBacklogDiffering(t *testing.T) {
	b := newBacklog()
	b.noteDiffering(idsOf(1, 1, 2), at(0))
	if b.isShown() || b.differing != 2 {
		t.Fatalf("%d rows differ, want 2", b.differing)
	}
	rows, _ := takeAll(b, at(0))
	b.retry(rows[0], at(time.Minute))
	b.rowApplied(rows[1], at(0))
	if due, ok := b.rows.next(); b.isShown() || !ok || !due.Equal(at(time.Minute)) {
		t.Errorf("the row that failed is due at %v", due)
	}
	rows, _ = takeAll(b, at(time.Minute))
	b.rowApplied(rows[0], at(time.Minute))
	if !b.isShown() || b.rows.len() != 0 {
		t.Error("repaired rows count as differing")
	}
}

// TestGap: a pass closes a gap only if it began after the last write that was missed.
func TestGap(t *testing.T) {
	var g gap
	if g.isOpen() {
		t.Fatal("a gap without a missed write")
	}
	g.note(at(1))
	g.note(at(3))
	if g.closeBy(at(2)); !g.isOpen() || !g.since.Equal(at(1)) {
		t.Errorf("closed by a pass that began before the last missed write: %+v", g)
	}
	if g.closeBy(at(3)); g.isOpen() {
		t.Error("open after a pass that covers it")
	}
}

// TestFreshAndClean: each reason alone prevents derived data from being fresh, and an end from
// being clean.
func TestFreshAndClean(t *testing.T) {
	var none, missed gap
	missed.note(at(0))
	pending, journaled, differing := newBacklog(), newBacklog(), newBacklog()
	pending.addWrite(at(0))
	journaled.addWrite(at(0)).seq = 7
	differing.noteDiffering(idsOf(1), at(0))
	for name, c := range map[string]struct {
		backlog      *backlog
		missed       gap
		unfit        bool
		noDoubts     bool
		fresh, clean bool
	}{
		"nothing is left":                  {newBacklog(), none, false, true, true, true},
		"a write is on its way":            {newBacklog(), none, false, false, true, false}, // Assess asks the doubts itself
		"a write is pending":               {pending, none, false, true, false, false},
		"a journalled write is pending":    {journaled, none, false, true, false, true},
		"a row differs":                    {differing, none, false, true, false, false},
		"a write was missed":               {newBacklog(), missed, false, true, false, false},
		"a row does not fit into a table":  {newBacklog(), none, true, true, false, false},
		"a journalled write and a gap":     {journaled, missed, false, true, false, false},
		"a journalled write and a bad row": {journaled, none, true, true, false, false},
	} {
		l := ledger{backlog: c.backlog, missed: c.missed, unfit: c.unfit}
		if got := l.isFresh(); got != c.fresh {
			t.Errorf("%s: fresh %t", name, got)
		}
		if got := l.endsClean(c.noDoubts); got != c.clean {
			t.Errorf("%s: clean %t", name, got)
		}
	}
}

// TestBehindSince: the age counts from the oldest write that was seen or missed.
func TestBehindSince(t *testing.T) {
	l := ledger{backlog: newBacklog()}
	if !l.behindSince().IsZero() {
		t.Error("behind without a reason")
	}
	l.missed.note(at(5))
	if got := l.behindSince(); !got.Equal(at(5)) {
		t.Errorf("%v, want the missed write", got)
	}
	l.addWrite(at(7))
	l.addWrite(at(3))
	if got := l.behindSince(); !got.Equal(at(3)) {
		t.Errorf("%v, want the oldest pending write", got)
	}
}

func TestStrictest(t *testing.T) {
	for _, c := range [][3]int{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {5, 3, 3}, {3, 5, 3}} {
		if got := strictest(c[0], c[1]); got != c[2] {
			t.Errorf("strictest(%d, %d) = %d", c[0], c[1], got)
		}
	}
}

func TestReadableAt(t *testing.T) {
	if got := readableAt(at(0), true); !got.Equal(at(0)) {
		t.Errorf("an applied write is readable at %v", got)
	}
	if got := readableAt(at(0), false); !got.Equal(at(lag)) {
		t.Errorf("a write that nobody waited for is readable at %v", got)
	}
}

// TestTheStrictestRouteCounts: routes of one collection share its journal and its comparisons, which keep the strictest
// of their limits.
func TestTheStrictestRouteCounts(t *testing.T) {
	s := &syncer{}
	for _, r := range []Route{{WriteBudget: 5, Interval: 7, RowsPerSecond: 11}, {WriteBudget: 6, Interval: 3}, {WriteBudget: 4, RowsPerSecond: 9}} {
		s.applyLimits(r)
	}
	if s.budget != 4 || s.passes.interval != 3 || s.passes.rate != 9 {
		t.Errorf("a write waits %d, comparisons begin after %d and read %d rows a second", s.budget, s.passes.interval, s.passes.rate)
	}
}

// TestWritesOfOthersAtTheEnd: a process that ends waits for the writes that it sent or read, not for those that another
// sidecar follows.
func TestWritesOfOthersAtTheEnd(t *testing.T) {
	b := newBacklog()
	w := b.addWrite(at(0))
	w.peers = true
	if !b.waitsForPassOnly() {
		t.Error("it waits for a write that its own sidecar settles")
	}
	w.readable = at(1)
	if b.waitsForPassOnly() {
		t.Error("it does not wait for the rows of a write that the other sidecar has done")
	}
}
