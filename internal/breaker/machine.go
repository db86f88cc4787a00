package breaker

import "time"

// machine is the state of a breaker. It reads no clock and calls nobody: its methods take the time and say what to do.
type machine struct {
	after    int // failures in a row after which the service is probed
	state    State
	failures int       // failures in a row since the last call that worked
	until    time.Time // end of the pause, while open
	probing  bool      // a probe runs, which may open the breaker
}

// permit reports whether a call may be sent. trial: it is the one call after a pause, and decides whether the breaker closes.
func (m *machine) permit(now time.Time) (trial, ok bool) {
	switch {
	case m.state == Closed:
		return false, true
	case m.state == Open && !now.Before(m.until):
		m.state = HalfOpen
		return true, true
	default:
		return false, false
	}
}

// ended takes the verdict of a call. It reports whether the service has to be probed; probed takes the outcome.
func (m *machine) ended(trial bool, v Verdict) (probe bool) {
	switch {
	case trial && v != Works:
		return true
	case trial:
		m.state, m.failures = Closed, 0
		return false
	case m.state != Closed || v == Unknown: // a call that began before the breaker opened says nothing new
		return false
	case v == Works:
		m.failures = 0
		return false
	}
	m.failures++
	if m.failures < m.after || m.probing {
		return false
	}
	m.probing = true
	return true
}

// probed takes the outcome of a probe, and the end of the pause that begins if the breaker opens. A breaker that was closed
// stays closed if another call worked meanwhile.
func (m *machine) probed(works bool, until time.Time) {
	m.probing = false
	if works || m.state == Closed && m.failures < m.after {
		m.state, m.failures = Closed, 0
		return
	}
	m.state, m.until = Open, until
}
