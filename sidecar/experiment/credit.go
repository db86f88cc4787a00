package experiment

// Session collects the feedback of one person in one visit, which counts as one unit. Its zero value
// is empty.
type Session struct {
	// Control and Candidate add up the feedback on the picks of each arm.
	Control, Candidate float64
}

// Add credits feedback on an item to the arm whose pick it was.
func (s *Session) Add(arm Arm, value float64) {
	switch arm {
	case Control:
		s.Control += value
	case Candidate:
		s.Candidate += value
	case Neither:
	}
}

// Preference returns 1 if the session prefers the candidate, −1 if it prefers the control, and 0 if
// it has no preference.
func (s Session) Preference() float64 {
	switch {
	case s.Candidate > s.Control:
		return 1
	case s.Candidate < s.Control:
		return -1
	default:
		return 0
	}
}
