package trial

import (
	"fmt"

	"github.com/likenessdb/likeness/sidecar/experiment"
)

// Segments divide the counted sessions in two ways. They show where a candidate is good, and decide
// nothing: who looks at several segments finds a difference in one of them by chance.
type Segments struct {
	OneAnswer  Segment `json:"one_answer"`
	Several    Segment `json:"several_answers"`
	Unfiltered Segment `json:"unfiltered"`
	Filtered   Segment `json:"filtered"`
}

// Segment adds up the sessions of one kind.
type Segment struct {
	Control   Side `json:"control"`
	Candidate Side `json:"candidate"`
}

// Side is one arm of a segment. If answers are interleaved, Sessions prefer the arm; if requests are divided,
// they are the arm's sessions.
type Side struct {
	Sessions int     `json:"sessions"`
	Worth    float64 `json:"worth"` // sum of the feedback on the arm in these sessions
}

// add counts a session.
func (s *Segments) add(of *session, kind experiment.Kind, arm experiment.Arm, worth float64) {
	if kind == experiment.Interleaving {
		switch of.credit.Preference() {
		case 1:
			arm, worth = experiment.Candidate, of.credit.Candidate
		case -1:
			arm, worth = experiment.Control, of.credit.Control
		}
	}
	segments := [2]*Segment{&s.OneAnswer, &s.Unfiltered}
	if len(of.answers) > 1 {
		segments[0] = &s.Several
	}
	if of.filtered {
		segments[1] = &s.Filtered
	}
	for _, segment := range segments {
		switch arm {
		case experiment.Control:
			segment.Control.add(worth)
		case experiment.Candidate:
			segment.Candidate.add(worth)
		case experiment.Neither: // a session that prefers none
		}
	}
}

func (s *Side) add(worth float64) {
	s.Sessions++
	s.Worth += worth
}

// SegmentStatus describes a segment in words.
type SegmentStatus struct {
	Name string
	Text string
}

// SegmentStatuses describes the segments that have sessions.
func (s Status) SegmentStatuses() (all []SegmentStatus) {
	for _, named := range []struct {
		name string
		Segment
	}{{"one answer", s.Segments.OneAnswer}, {"several answers", s.Segments.Several}, {"without a filter", s.Segments.Unfiltered}, {"with a filter", s.Segments.Filtered}} {
		candidate, control := named.Candidate, named.Control
		switch {
		case candidate.Sessions+control.Sessions == 0:
		case s.Kind == experiment.Interleaving:
			all = append(all, SegmentStatus{named.name, fmt.Sprintf("%d prefer the candidate, %d the version in service", candidate.Sessions, control.Sessions)})
		default:
			all = append(all, SegmentStatus{named.name, fmt.Sprintf("candidate %.3f a session (%d), version in service %.3f (%d)", candidate.mean(), candidate.Sessions, control.mean(), control.Sessions)})
		}
	}
	return all
}

func (s Side) mean() float64 { return s.Worth / float64(max(s.Sessions, 1)) }
