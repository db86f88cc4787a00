package trial

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/experiment"
)

// Limits of the open sessions of an experiment. Answers and feedback beyond them are not counted.
const (
	maxBytes = 128 << 20 // memory of the answers of all sessions, see room
	maxFed   = 1 << 20   // feedback of all sessions, about 50 MB
	mostFed  = 1000      // feedback of one session, so that a bot leaves room for people
)

// mostWaiting is how many sessions of an arm may wait for a partner. Of more, the oldest are not compared.
const mostWaiting = 1000

// tally credits feedback to the arms of an experiment, and counts each session once, when it is over.
// A session is one user's answers of one period, or the answers to one query if users are unknown.
type tally struct {
	kind   experiment.Kind
	period time.Duration
	worth  map[string]float64 // by kind of feedback
	Comparison

	asked   queryMemory // the queries of the experiment
	open    map[sessionKey]*session
	answers map[events.AnswerID]*answer // the answers of open sessions
	bytes   int                         // memory of the answers, see room
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
	// query is the key of its first query, 0 if that is not known; returning reports whether somebody had asked it before.
	query     uint64
	returning bool
}

type answer struct {
	session *session
	items   []events.Item
}

func newTally(kind experiment.Kind, period time.Duration, worth map[string]float64, from Comparison, counts Counts) *tally {
	return &tally{
		kind: kind, period: period, worth: worth, Comparison: from, counts: counts,
		asked: make(queryMemory, rememberedQueries), open: map[sessionKey]*session{}, answers: map[events.AnswerID]*answer{},
	}
}

// periodOf returns the number of the period of a time.
func (t *tally) periodOf(at time.Time) int64 { return at.UnixNano() / int64(t.period) }

// isOf reports whether an answer is one of the experiment.
func (t *tally) isOf(m *events.Impression) bool {
	if t.kind == experiment.Interleaving {
		return slices.ContainsFunc(m.Items, func(i events.Item) bool { return i.Arm != experiment.Neither })
	}
	return m.Arm != experiment.Neither
}

// remember remembers the query of an answer whose session is counted already.
func (t *tally) remember(m *events.Impression) {
	if key := m.QueryKey(); key != 0 && t.isOf(m) {
		t.asked.add(key)
	}
}

// show adds an answer of an experiment. Other answers, and those that are known, change nothing.
func (t *tally) show(m *events.Impression) {
	if t.answers[m.Answer] != nil || !t.isOf(m) {
		return
	}
	who, query := m.User, m.QueryKey()
	if who == "" && query != 0 {
		who = strconv.FormatUint(query, 16)
	}
	who = cmp.Or(who, m.Answer.String())
	bytes := room(who, m.Items)
	if t.bytes+bytes > maxBytes {
		t.dropped++
		return
	}
	returning := query != 0 && t.asked.add(query)
	key := sessionKey{who: who, period: t.periodOf(m.Time)}
	if t.kind == experiment.Dividing {
		key.arm = m.Arm
	}
	s := t.open[key]
	if s == nil {
		s = &session{seen: map[events.EventKey]bool{}, unnamed: m.User == "", query: query, returning: returning}
		t.open[key] = s
	}
	s.answers, s.filtered = append(s.answers, m.Answer), s.filtered || m.Narrowed
	t.answers[m.Answer] = &answer{s, slices.Clone(m.Items)}
	t.bytes += bytes
}

// room returns an upper bound of the bytes that an answer takes, together with a session of its own.
func room(who string, items []events.Item) int {
	const session, item = 576, 48 // without texts
	bytes := session + len(who) + item*len(items)
	for i := range items {
		text, _ := items[i].ID.Text()
		bytes += len(text)
	}
	return bytes
}

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

// over returns the sessions that are over, in no order, and the number of the first period that is not. A session takes feedback
// until the end of the period after its own.
func (t *tally) over(now time.Time) (over []sessionKey, next int64) {
	next = t.periodOf(now) - 1
	if next == t.counted { // sessions end when a period does
		return nil, next
	}
	t.counted = next
	for key := range t.open {
		if key.period < next {
			over = append(over, key)
		}
	}
	return over, next
}

// inOrder sorts sessions into the order in which they are counted.
func inOrder(sessions []sessionKey) {
	slices.SortFunc(sessions, func(a, b sessionKey) int {
		return cmp.Or(cmp.Compare(a.period, b.period), cmp.Compare(a.who, b.who), cmp.Compare(a.arm, b.arm))
	})
}

// end counts sessions that are over.
func (t *tally) end(over []sessionKey) error {
	for _, key := range over {
		s := t.open[key]
		delete(t.open, key)
		t.fed -= len(s.seen)
		for _, id := range s.answers {
			t.bytes -= room(key.who, t.answers[id].items)
			delete(t.answers, id)
		}
		if err := t.count(s, key.arm); err != nil {
			return err
		}
	}
	return nil
}

// count adds an ended session to the comparison, and to those of its segments.
func (t *tally) count(s *session, arm experiment.Arm) error {
	if s.unnamed {
		t.counts.Unnamed++
	}
	most := 0.0
	for _, worth := range t.worth {
		most = max(most, worth)
	}
	worth := min(1, (s.credit.Control+s.credit.Candidate)/most)
	return errors.Join(t.Comparison.count(s, t.kind, arm, worth), t.counts.Segments.add(s, t.kind, arm, worth))
}

// count adds an ended session to the test. In an experiment that divides requests, it compares the worth of each session
// with that of a session of the other arm, in the order in which they ended. Which sessions are compared does not depend on their worth.
func (c *Comparison) count(s *session, kind experiment.Kind, arm experiment.Arm, worth float64) error {
	if kind == experiment.Interleaving {
		_, err := c.Test.Add(s.credit.Preference())
		return err
	}
	c.Waiting[arm] = append(c.Waiting[arm], worth)
	control, candidate := &c.Waiting[experiment.Control], &c.Waiting[experiment.Candidate]
	for len(*control) > 0 && len(*candidate) > 0 {
		if _, err := c.Test.Add((*candidate)[0] - (*control)[0]); err != nil {
			return err
		}
		*control, *candidate = (*control)[1:], (*candidate)[1:]
	}
	if over := len(c.Waiting[arm]) - mostWaiting; over > 0 {
		c.Waiting[arm] = c.Waiting[arm][over:]
	}
	return nil
}
