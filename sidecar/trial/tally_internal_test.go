package trial

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/experiment"
)

const minute = time.Minute

// at is a time in the middle of a period of a minute.
func at(period int) time.Time { return time.Unix(int64(60*period+30), 0) }

// shownTo returns an answer with two items of each arm, the control's even.
func shownTo(user string, number uint16, period int) *events.Impression {
	m := &events.Impression{Time: at(period), Answer: events.AnswerID{Part: number}, User: user}
	m.Answer.Call[0] = 1
	for i := range 4 {
		arm := experiment.Control
		if i%2 == 1 {
			arm = experiment.Candidate
		}
		m.Items = append(m.Items, events.Item{ID: rerank.UintID(uint64(i)), Arm: arm})
	}
	return m
}

func clickOn(m *events.Impression, item uint64, kind string) *events.Feedback {
	return &events.Feedback{Answer: m.Answer, Item: rerank.UintID(item), Kind: kind, Weight: 1}
}

func tallyOf(t *testing.T, kind experiment.Kind) *tally {
	t.Helper()
	state, err := begin(config.Experiment{Alpha: 0.05, Session: minute, Share: 1}, "", at(0))
	if err != nil {
		t.Fatal(err)
	}
	return newTally(kind, minute, map[string]float64{"click": 1, "purchase": 5}, state.Comparison, state.Counts)
}

// endAt counts the sessions that are over.
func endAt(y *tally, now time.Time) (next int64, err error) {
	over, next := y.over(now)
	inOrder(over)
	return next, y.end(over)
}

// TestTally: a session counts once, by what its feedback is worth, when the period after its own is
// over; what comes twice or too late, and what is worth nothing, changes nothing.
func TestTally(t *testing.T) {
	y := tallyOf(t, experiment.Interleaving)
	ann, again, bob, silent := shownTo("ann", 1, 10), shownTo("ann", 2, 10), shownTo("bob", 3, 10), shownTo("", 4, 10)
	bob.Narrowed = true
	for _, m := range []*events.Impression{ann, ann, again, bob, silent, {Time: at(10), Answer: events.AnswerID{Part: 9}, Items: []events.Item{{ID: rerank.UintID(1)}}}} {
		y.show(m)
	}
	if len(y.open) != 3 || y.bytes <= 0 {
		t.Fatalf("%d sessions, %d bytes", len(y.open), y.bytes)
	}
	for _, f := range []*events.Feedback{
		clickOn(ann, 0, "click"), clickOn(again, 2, "click"), clickOn(again, 1, "purchase"), // 2 for the control, 5 for the candidate
		clickOn(bob, 1, "click"), clickOn(bob, 1, "click"), clickOn(bob, 0, "click"), clickOn(bob, 2, "click"), // 1 for the candidate, 2 for the control
		clickOn(silent, 0, "look"), clickOn(silent, 77, "click"),
	} {
		y.feed(f)
	}
	for _, period := range []int{10, 11} {
		if next, err := endAt(y, at(period)); err != nil || next != int64(period)-1 || y.Test.Units != 0 {
			t.Errorf("in period %d: %d sessions are counted, %d next, %v", period, y.Test.Units, next, err)
		}
	}
	if next, err := endAt(y, at(12)); err != nil || next != 11 || y.Test.Units != 3 || y.Test.Sum != 0 || y.Test.Squares != 2 {
		t.Errorf("%+v, %d next, %v", y.Test, next, err)
	}
	if y.counts.Unnamed != 1 {
		t.Errorf("%d sessions without a user, want 1", y.counts.Unnamed)
	}
	checkSides(t, y, map[string][2]Side{ // control, candidate
		segmentOneAnswer: {{1, 2}, {}}, segmentSeveral: {{}, {1, 5}}, segmentUnfiltered: {{}, {1, 5}}, segmentFiltered: {{1, 2}, {}},
	})
	y.feed(clickOn(ann, 3, "purchase"))
	if _, err := endAt(y, at(20)); err != nil || y.Test.Units != 3 || len(y.open)+len(y.answers)+y.bytes != 0 {
		t.Errorf("%+v, %d sessions, %d answers, %d bytes are left, %v", y.Test, len(y.open), len(y.answers), y.bytes, err)
	}
}

// TestWorthlessFeedback takes no room that a session has for feedback.
func TestWorthlessFeedback(t *testing.T) {
	y := tallyOf(t, experiment.Interleaving)
	m := shownTo("ann", 1, 10)
	y.show(m)
	y.feed(clickOn(m, 0, "look"))
	if s := y.answers[m.Answer].session; len(s.seen) != 0 || y.fed != 0 {
		t.Errorf("%d events of the session and %d in all take room", len(s.seen), y.fed)
	}
}

// TestFilteredSessions: a session with a filter in any of its searches counts as filtered.
func TestFilteredSessions(t *testing.T) {
	for name, narrowed := range map[string][2]bool{"the first search": {true, false}, "the last": {false, true}, "none": {}} {
		y := tallyOf(t, experiment.Interleaving)
		for i, is := range narrowed {
			m := shownTo("ann", uint16(i+1), 10)
			m.Narrowed = is
			y.show(m)
		}
		if _, err := endAt(y, at(12)); err != nil {
			t.Fatal(err)
		}
		in := segmentUnfiltered
		if narrowed[0] || narrowed[1] {
			in = segmentFiltered
		}
		if of := y.counts.Segments; of[segmentFiltered].Test.Units+of[segmentUnfiltered].Test.Units != 1 || of[in].Test.Units != 1 {
			t.Errorf("%s has a filter: the session is not in %q alone", name, in)
		}
	}
}

// TestTallyOfDivided: sessions of the two arms are compared in pairs, and one without a partner waits.
func TestTallyOfDivided(t *testing.T) {
	y := tallyOf(t, experiment.Dividing)
	for number, user := range []string{"a", "b", "c"} {
		m := shownTo(user, uint16(number+1), 10)
		if m.Arm = experiment.Candidate; user == "b" {
			m.Arm = experiment.Control
		}
		for i := range m.Items {
			m.Items[i].Arm = m.Arm
		}
		if user == "c" { // an answer without an item counts too
			m.Items = nil
		}
		y.show(m)
		if user == "a" {
			y.feed(clickOn(m, 0, "purchase"))
		}
	}
	if _, err := endAt(y, at(12)); err != nil || y.Test.Units != 1 || y.Test.Sum != 1 || len(y.Waiting[experiment.Candidate]) != 1 {
		t.Errorf("%+v, %v wait, %v", y.Test, y.Waiting, err)
	}
	all := [2]Side{{Sessions: 1}, {2, 1}}
	checkSides(t, y, map[string][2]Side{segmentOneAnswer: all, segmentUnfiltered: all})
	if test := y.counts.Segments[segmentOneAnswer].Test; test.Units != 1 || test.Sum != 1 {
		t.Errorf("the sessions with one answer: %+v", test)
	}
}

// TestTallyIsBounded: feedback without end takes no memory without end, and no other session's place.
func TestTallyIsBounded(t *testing.T) {
	y := tallyOf(t, experiment.Interleaving)
	bot, ann := shownTo("bot", 1, 10), shownTo("ann", 2, 10)
	y.show(bot)
	y.show(ann)
	for i := range 3 * mostFed {
		f := clickOn(bot, 0, "click")
		f.ID = fmt.Sprint(i)
		y.feed(f)
	}
	y.feed(clickOn(ann, 1, "click"))
	if y.fed != mostFed+1 || y.dropped != 2*mostFed {
		t.Errorf("%d events are counted, %d not", y.fed, y.dropped)
	}
	if _, err := endAt(y, at(12)); err != nil || y.fed != 0 || y.Test.Units != 2 || y.Test.Sum != 0 {
		t.Errorf("%+v, %d events are left, %v", y.Test, y.fed, err)
	}
}

// TestSessionsAreBounded: sessions with long users and long ids take no more memory than the limit, and those that
// find no partner do not pile up.
func TestSessionsAreBounded(t *testing.T) {
	y := tallyOf(t, experiment.Dividing)
	item := rerank.TextID(strings.Repeat("i", 60<<10))
	const users = 2*mostWaiting + 1000
	for i := range users {
		m := shownTo(fmt.Sprint("user ", i), uint16(i+1), 10)
		m.Arm, m.Items = experiment.Control, []events.Item{{ID: item}}
		y.show(m)
	}
	if most := maxBytes / (60 << 10); len(y.open) > most || len(y.open) < most*9/10 || int(y.dropped) != users-len(y.open) {
		t.Errorf("%d sessions are open, %d answers are dropped; want about %d open", len(y.open), y.dropped, most)
	}
	if _, err := endAt(y, at(12)); err != nil || len(y.Waiting[experiment.Control]) != mostWaiting || y.bytes != 0 {
		t.Errorf("%d sessions wait, want %d; %d bytes are left, %v", len(y.Waiting[experiment.Control]), mostWaiting, y.bytes, err)
	}
	for name, of := range y.counts.Segments {
		if n := len(of.Waiting[experiment.Control]); n > mostWaiting {
			t.Errorf("%s: %d sessions wait, at most %d", name, n, mostWaiting)
		}
	}
}

// TestShortSessionsAreBounded: a session of one short answer counts with what it takes, not only with its item.
func TestShortSessionsAreBounded(t *testing.T) {
	var before, after runtime.MemStats
	y := tallyOf(t, experiment.Dividing)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 20_000 {
		m := shownTo(fmt.Sprintf("%0240d", i), uint16(i), 10)
		m.Arm, m.Items = experiment.Control, m.Items[:1:1]
		y.show(m)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int(after.HeapAlloc - before.HeapAlloc); took > y.bytes {
		t.Errorf("20,000 sessions take %d bytes and count as %d", took, y.bytes)
	}
	runtime.KeepAlive(y)
}

// checkSides compares the sides of all segments with the control's and the candidate's that are wanted.
func checkSides(t *testing.T, y *tally, want map[string][2]Side) {
	t.Helper()
	for name, of := range y.counts.Segments {
		if got := [2]Side{of.Control, of.Candidate}; got != want[name] {
			t.Errorf("%s: %+v, want %+v", name, got, want[name])
		}
	}
}

// TestSegmentsOfQueries: a session is of new queries if nobody in the experiment had asked its first query, also
// in a session that is counted already; each segment has a verdict of its own.
func TestSegmentsOfQueries(t *testing.T) {
	y := tallyOf(t, experiment.Interleaving)
	known, unkept := shownTo("ann", 9999, 9), shownTo("ann", 9998, 10)
	known.Text = "question 0"
	y.remember(known)
	y.show(unkept) // its query is in neither segment
	foreign := &events.Impression{Answer: events.AnswerID{Part: 9997}, Text: "question 1", Items: []events.Item{{ID: rerank.UintID(1)}}}
	y.remember(foreign) // no answer of the experiment
	y.show(foreign)
	for i := range 40 {
		for n, likes := range []uint64{1, 0} { // who asks first likes the candidate's
			m := shownTo(fmt.Sprint("user ", 2*i+n), uint16(2*i+n), 10)
			m.Text = fmt.Sprint("question ", i)
			y.show(m)
			y.feed(clickOn(m, likes, "click"))
		}
	}
	if _, err := endAt(y, at(12)); err != nil {
		t.Fatal(err)
	}
	got := map[string]SegmentStatus{}
	for _, s := range y.counts.Segments.statuses(y.kind) {
		got[s.Name] = s
	}
	fresh, back, all := got[segmentNew], got[segmentReturning], got[segmentOneAnswer]
	if fresh.Sessions != 39 || fresh.Decision != experiment.Better || fresh.Mean != 1 || fresh.Sides != "candidate 39, in service 0" {
		t.Errorf("new queries: %+v", fresh)
	}
	if back.Sessions != 41 || back.Decision != experiment.Worse || all.Sessions != 81 || all.Decision != experiment.Undecided || len(got) != 4 {
		t.Errorf("returning queries: %+v, all: %+v, %d segments", back, all, len(got))
	}
}

// TestSegmentsShareAlpha: all segments together err as seldom as the experiment.
func TestSegmentsShareAlpha(t *testing.T) {
	sum := 0.0
	for _, s := range tallyOf(t, experiment.Interleaving).counts.Segments {
		sum += s.Test.Alpha
	}
	if !(math.Abs(sum-0.05) <= 1e-12) {
		t.Errorf("the segments err with chance %g, want 0.05", sum)
	}
}
