package trial

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/experiment"
)

// Limits of the open sessions of an experiment. Answers and feedback beyond them are not counted.
const (
	maxItems = 1 << 20 // shown items of all sessions, about 50 MB
	maxFed   = 1 << 20 // feedback of all sessions, about 50 MB
	mostFed  = 1000    // feedback of one session, so that a bot leaves room for people
)

// tally credits feedback to the arms of an experiment, and counts each session once, when it is over.
// A session is one user's answers of one period, or the answers to one query if users are unknown.
type tally struct {
	kind    experiment.Kind
	period  time.Duration
	worth   map[string]float64 // by kind of feedback
	test    *experiment.Test
	waiting [3][]float64 // as State.Waiting

	open    map[sessionKey]*session
	answers map[events.AnswerID]*answer // the answers of open sessions
	items   int                         // items of the answers, see room
	counts  Counts
	fed     int   // events of feedback on the answers
	dropped int64 // answers and feedback that were not counted
	counted int64 // the number of the first period that is not counted yet
}

// sessionKey names a session: the user, or the query if users are unknown, and the number of the period.
// In an experiment that divides requests, also the arm that answered them.
type sessionKey struct {
	who    string
	period int64
	arm    experiment.Arm // Neither if answers are interleaved
}

type session struct {
	credit   experiment.Session
	answers  []events.AnswerID
	seen     map[events.EventKey]bool
	unnamed  bool // its user is not known
	filtered bool // one of its requests was restricted
}

type answer struct {
	session *session
	items   []events.Item
}

func newTally(kind experiment.Kind, period time.Duration, worth map[string]float64, test *experiment.Test) *tally {
	return &tally{kind: kind, period: period, worth: worth, test: test, open: map[sessionKey]*session{}, answers: map[events.AnswerID]*answer{}}
}

// periodOf returns the number of the period of a time.
func (t *tally) periodOf(at time.Time) int64 { return at.UnixNano() / int64(t.period) }

// show adds an answer of an experiment. Other answers, and those that are known, change nothing.
func (t *tally) show(m *events.Impression) {
	isOf := m.Arm != experiment.Neither
	if t.kind == experiment.Interleaving {
		isOf = slices.ContainsFunc(m.Items, func(i events.Item) bool { return i.Arm != experiment.Neither })
	}
	if t.answers[m.Answer] != nil || !isOf {
		return
	}
	if t.items+room(len(m.Items)) > maxItems {
		t.dropped++
		return
	}
	who := m.User
	if key := m.QueryKey(); who == "" && key != 0 {
		who = strconv.FormatUint(key, 16)
	}
	key := sessionKey{who: cmp.Or(who, m.Answer.String()), period: t.periodOf(m.Time)}
	if t.kind == experiment.Dividing {
		key.arm = m.Arm
	}
	s := t.open[key]
	if s == nil {
		s = &session{seen: map[events.EventKey]bool{}, unnamed: m.User == ""}
		t.open[key] = s
	}
	s.answers, s.filtered = append(s.answers, m.Answer), s.filtered || m.Narrowed
	t.answers[m.Answer] = &answer{s, slices.Clone(m.Items)}
	t.items += room(len(m.Items))
}

// room returns what an answer adds to tally.items: its items, or 1 if it is empty, so that the limit bounds
// empty answers too.
func room(items int) int { return max(items, 1) }

// feed credits feedback to the arm of its item. Feedback on an answer whose session is over, or that is
// known, changes nothing.
func (t *tally) feed(f *events.Feedback) {
	a, worth := t.answers[f.Answer], t.worth[f.Kind]*f.Weight
	if a == nil || worth <= 0 {
		return
	}
	key := f.Key()
	switch {
	case a.session.seen[key]:
		return
	case len(a.session.seen) == mostFed, t.fed == maxFed:
		t.dropped++
		return
	}
	a.session.seen[key] = true
	t.fed++
	a.session.credit.Add(a.armOf(f.Item), worth)
}

func (a *answer) armOf(id rerank.ID) experiment.Arm {
	for _, i := range a.items {
		if i.ID == id {
			return i.Arm
		}
	}
	return experiment.Neither
}

// end counts the sessions that are over. A session takes feedback until the end of the period after its own. It returns the number of the first period that is not counted yet.
func (t *tally) end(now time.Time) (next int64, err error) {
	next = t.periodOf(now) - 1
	if next == t.counted { // sessions end when a period does
		return next, nil
	}
	t.counted = next
	var over []sessionKey
	for key := range t.open {
		if key.period < next {
			over = append(over, key)
		}
	}
	slices.SortFunc(over, func(a, b sessionKey) int {
		return cmp.Or(cmp.Compare(a.period, b.period), cmp.Compare(a.who, b.who), cmp.Compare(a.arm, b.arm))
	})
	for _, key := range over {
		s := t.open[key]
		delete(t.open, key)
		t.fed -= len(s.seen)
		for _, id := range s.answers {
			t.items -= room(len(t.answers[id].items))
			delete(t.answers, id)
		}
		if err := t.count(s, key.arm); err != nil {
			return next, err
		}
	}
	return next, nil
}

// count adds an ended session to the test. In an experiment that divides requests, it compares each session
// with one of the other arm, in the order in which they ended.
func (t *tally) count(s *session, arm experiment.Arm) error {
	if s.unnamed {
		t.counts.Unnamed++
	}
	if t.kind == experiment.Interleaving {
		t.counts.Segments.add(s, t.kind, arm, 0)
		_, err := t.test.Add(s.credit.Preference())
		return err
	}
	most := 0.0
	for _, worth := range t.worth {
		most = max(most, worth)
	}
	worth := min(1, (s.credit.Control+s.credit.Candidate)/most)
	t.counts.Segments.add(s, t.kind, arm, worth)
	t.waiting[arm] = append(t.waiting[arm], worth)
	control, candidate := &t.waiting[experiment.Control], &t.waiting[experiment.Candidate]
	for len(*control) > 0 && len(*candidate) > 0 {
		if _, err := t.test.Add((*candidate)[0] - (*control)[0]); err != nil {
			return err
		}
		*control, *candidate = (*control)[1:], (*candidate)[1:]
	}
	return nil
}
