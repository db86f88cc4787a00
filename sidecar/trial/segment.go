package trial

import (
	"fmt"

	"github.com/likenessdb/likeness/sidecar/experiment"
)

// Names of the segments. Each session is in one of the first two, one of the second two, and one of the last two
// if its queries are known.
const (
	segmentOneAnswer  = "one answer"
	segmentSeveral    = "several answers"
	segmentUnfiltered = "no filter"
	segmentFiltered   = "a filter"
	// segmentNew has the sessions whose first query nobody had asked before in the experiment, segmentReturning
	// the others.
	segmentNew       = "new queries"
	segmentReturning = "returning queries"
)

// segmentNames returns the segments in the order in which people read them.
func segmentNames() []string {
	return []string{segmentOneAnswer, segmentSeveral, segmentUnfiltered, segmentFiltered, segmentNew, segmentReturning}
}

// Segments divide the counted sessions, by name of the segment. They show where a candidate is good, and
// decide nothing. Their tests divide the experiment's alpha among them, so that one wrong verdict of any of
// them comes with chance alpha at most.
type Segments map[string]*Segment

// Segment compares the sessions of one kind.
type Segment struct {
	Comparison
	Control   Side `json:"control"`
	Candidate Side `json:"candidate"`
}

// Side is one arm of a segment. If answers are interleaved, Sessions prefer the arm; if requests are divided,
// they are the arm's sessions.
type Side struct {
	Sessions int     `json:"sessions"`
	Worth    float64 `json:"worth"` // sum of the feedback on the arm in these sessions
}

func newSegments(alpha float64) (Segments, error) {
	names := segmentNames()
	out := Segments{}
	for _, name := range names {
		test, err := experiment.NewTest(alpha / float64(len(names)))
		if err != nil {
			return nil, err
		}
		out[name] = &Segment{Comparison: Comparison{Test: test}}
	}
	return out, nil
}

// areValid reports whether segments that were read from a file can go on.
func (s Segments) areValid() bool {
	for _, name := range segmentNames() {
		if s[name] == nil || !s[name].Test.IsValid() {
			return false
		}
	}
	return true
}

// add counts a session in each of its segments.
func (s Segments) add(of *session, kind experiment.Kind, arm experiment.Arm, worth float64) error {
	side, sideWorth := arm, worth
	if kind == experiment.Interleaving {
		switch of.credit.Preference() {
		case 1:
			side, sideWorth = experiment.Candidate, of.credit.Candidate
		case -1:
			side, sideWorth = experiment.Control, of.credit.Control
		}
	}
	for _, name := range of.segments() {
		segment := s[name]
		switch side {
		case experiment.Control:
			segment.Control.add(sideWorth)
		case experiment.Candidate:
			segment.Candidate.add(sideWorth)
		case experiment.Neither: // a session that prefers none
		}
		if err := segment.count(of, kind, arm, worth); err != nil {
			return err
		}
	}
	return nil
}

// segments names the segments that a session is in.
func (s *session) segments() []string {
	names := []string{segmentOneAnswer, segmentUnfiltered}
	if len(s.answers) > 1 {
		names[0] = segmentSeveral
	}
	if s.filtered {
		names[1] = segmentFiltered
	}
	switch {
	case s.query == 0:
	case s.returning:
		names = append(names, segmentReturning)
	default:
		names = append(names, segmentNew)
	}
	return names
}

func (s *Side) add(worth float64) {
	s.Sessions++
	s.Worth += worth
}

func (s Side) mean() float64 { return s.Worth / float64(max(s.Sessions, 1)) }

// SegmentStatus describes a segment that has sessions.
type SegmentStatus struct {
	Name string `json:"name"`
	Verdict
	Sessions  int  `json:"sessions"` // those that were compared
	Control   Side `json:"control"`
	Candidate Side `json:"candidate"`
	// Sides says in words what the sessions of either side did.
	Sides string `json:"sides"`
}

// statuses describes the segments that have sessions.
func (s Segments) statuses(kind experiment.Kind) []SegmentStatus {
	var all []SegmentStatus
	for _, name := range segmentNames() {
		of := s[name]
		if of == nil || of.Test.Units+of.Control.Sessions+of.Candidate.Sessions == 0 {
			continue
		}
		status := SegmentStatus{Name: name, Verdict: verdictOf(of.Test), Sessions: of.Test.Units, Control: of.Control, Candidate: of.Candidate}
		status.Sides = fmt.Sprintf("candidate %d, in service %d", of.Candidate.Sessions, of.Control.Sessions)
		if kind == experiment.Dividing {
			status.Sides = fmt.Sprintf("candidate %.3f a session (%d), in service %.3f (%d)",
				of.Candidate.mean(), of.Candidate.Sessions, of.Control.mean(), of.Control.Sessions)
		}
		all = append(all, status)
	}
	return all
}

// queryMemory remembers the keys of queries in limited space. A query whose place another one has taken is
// forgotten.
type queryMemory []uint64

// rememberedQueries is the number of places of a queryMemory, which take 2 MiB.
const rememberedQueries = 1 << 18

// add remembers a query, and reports whether it was remembered already.
func (m queryMemory) add(key uint64) bool {
	place := &m[key%uint64(len(m))]
	seen := *place == key
	*place = key
	return seen
}
