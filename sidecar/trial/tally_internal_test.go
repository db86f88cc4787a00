package trial

import (
	"fmt"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
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
	test, err := experiment.NewTest(0.05)
	if err != nil {
		t.Fatal(err)
	}
	return newTally(kind, minute, map[string]float64{"click": 1, "purchase": 5}, test)
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
	if len(y.open) != 3 || y.items != 16 {
		t.Fatalf("%d sessions, %d items", len(y.open), y.items)
	}
	for _, f := range []*events.Feedback{
		clickOn(ann, 0, "click"), clickOn(again, 2, "click"), clickOn(again, 1, "purchase"), // 2 for the control, 5 for the candidate
		clickOn(bob, 1, "click"), clickOn(bob, 1, "click"), clickOn(bob, 0, "click"), clickOn(bob, 2, "click"), // 1 for the candidate, 2 for the control
		clickOn(silent, 0, "look"), clickOn(silent, 77, "click"),
	} {
		y.feed(f)
	}
	for _, period := range []int{10, 11} {
		if next, err := y.end(at(period)); err != nil || next != int64(period)-1 || y.test.Units != 0 {
			t.Errorf("in period %d: %d sessions are counted, %d next, %v", period, y.test.Units, next, err)
		}
	}
	if next, err := y.end(at(12)); err != nil || next != 11 || y.test.Units != 3 || y.test.Sum != 0 || y.test.Squares != 2 {
		t.Errorf("%+v, %d next, %v", y.test, next, err)
	}
	if want := (Segments{
		OneAnswer: Segment{Control: Side{1, 2}}, Several: Segment{Candidate: Side{1, 5}}, Unfiltered: Segment{Candidate: Side{1, 5}}, Filtered: Segment{Control: Side{1, 2}},
	}); y.counts != (Counts{Unnamed: 1, Segments: want}) {
		t.Errorf("%+v, want %+v", y.counts, want)
	}
	y.feed(clickOn(ann, 3, "purchase"))
	if _, err := y.end(at(20)); err != nil || y.test.Units != 3 || len(y.open)+len(y.answers)+y.items != 0 {
		t.Errorf("%+v, %d sessions, %d answers, %d items are left, %v", y.test, len(y.open), len(y.answers), y.items, err)
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
	if _, err := y.end(at(12)); err != nil || y.test.Units != 1 || y.test.Sum != 1 || len(y.waiting[experiment.Candidate]) != 1 {
		t.Errorf("%+v, %v wait, %v", y.test, y.waiting, err)
	}
	if want := (Segment{Control: Side{Sessions: 1}, Candidate: Side{2, 1}}); y.counts.Segments.OneAnswer != want || y.counts.Segments.Several != (Segment{}) {
		t.Errorf("%+v, want %+v", y.counts.Segments, want)
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
	if _, err := y.end(at(12)); err != nil || y.fed != 0 || y.test.Units != 2 || y.test.Sum != 0 {
		t.Errorf("%+v, %d events are left, %v", y.test, y.fed, err)
	}
}
