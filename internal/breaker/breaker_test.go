package breaker

import (
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestFailuresInARow ask for a probe, one at a time. A call that works ends the row, and one that says nothing does not.
func TestFailuresInARow(t *testing.T) {
	m := machine{after: 3, state: Closed}
	for i, c := range []struct {
		verdict Verdict
		probe   bool
	}{
		{Fails, false}, {Fails, false}, {Works, false},
		{Fails, false}, {Fails, false}, {Unknown, false}, {Fails, true}, {Fails, false},
	} {
		if probe := m.ended(false, c.verdict); probe != c.probe || m.state != Closed {
			t.Errorf("call %d: probe %v and %s, want %v and closed", i, probe, m.state, c.probe)
		}
	}
	m.probed(true, start) // the callers' requests were at fault
	for i := range 3 {
		if probe := m.ended(false, Fails); m.state != Closed || probe != (i == 2) {
			t.Errorf("failure %d after a probe that worked: probe %v, %s", i, probe, m.state)
		}
	}
	m.ended(false, Works)
	if m.probed(false, start); m.state != Closed {
		t.Error("it opened though a call worked while the probe ran")
	}
}

// opened returns a machine that opened and has a pause of a second from start.
func opened() machine {
	m := machine{after: 1, state: Closed}
	m.ended(false, Fails)
	m.probed(false, start.Add(time.Second))
	return m
}

// TestAPause: no call is sent before its end, and then one, until that call and its probe have ended.
func TestAPause(t *testing.T) {
	for name, c := range map[string]struct {
		verdict       Verdict
		probe, works  bool
		want          State
		sent, another bool // whether calls are sent before and after another pause
	}{
		"the trial works":                {Works, false, false, Closed, true, true},
		"the trial fails, not the probe": {Fails, true, true, Closed, true, true},
		"both fail":                      {Fails, true, false, Open, false, true},
		"the trial's caller leaves":      {Unknown, true, true, Closed, true, true},
	} {
		m := opened()
		if _, ok := m.permit(start.Add(time.Second - 1)); ok {
			t.Error("a call is sent in the pause")
		}
		if trial, ok := m.permit(start.Add(time.Second)); !trial || !ok {
			t.Error("no call is tried after the pause")
		}
		if _, ok := m.permit(start.Add(time.Minute)); ok {
			t.Error("a call is sent beside the trial")
		}
		if m.ended(false, Works); m.state != HalfOpen {
			t.Errorf("%s after a call that began before the pause", m.state)
		}
		if probe := m.ended(true, c.verdict); probe != c.probe {
			t.Errorf("%s: probe %v", name, probe)
		} else if probe {
			m.probed(c.works, start.Add(2*time.Second))
		}
		_, sent := m.permit(start.Add(2*time.Second - 1))
		if want := c.want; m.state != want || sent != c.sent {
			t.Errorf("%s: %s, want %s; a call is sent: %v", name, m.state, want, sent)
		}
		if _, sent := m.permit(start.Add(2 * time.Second)); sent != c.another {
			t.Errorf("%s: a call is sent a pause later: %v", name, sent)
		}
	}
}

// TestEnd: a breaker tells of its states in order, waits as long as it says, and does not hang after a probe that panics.
func TestEnd(t *testing.T) {
	var states []State
	b := New(Options{After: 1, For: time.Hour, Changed: func(_, to State) { states = append(states, to) }})
	fail := func(probe func() bool) {
		defer func() { _ = recover() }()
		call, ok := b.Begin()
		if !ok {
			t.Fatal("no call is sent")
		}
		call.End(Fails, probe)
	}
	if fail(func() bool { return true }); b.State() != Closed || b.Pause() != 0 {
		t.Errorf("%s for %s after a probe that worked", b.State(), b.Pause())
	}
	fail(func() bool { panic("a fault") })
	if pause := b.Pause(); b.State() != Open || pause < 47*time.Minute || pause > 72*time.Minute {
		t.Errorf("%s for %s, want an hour, plus or minus a fifth", b.State(), pause)
	}
	if _, ok := b.Begin(); ok {
		t.Error("a call is sent in the pause")
	}
	b.machine.until = time.Now()
	fail(func() bool { return true })
	want := []State{Open, HalfOpen, Closed}
	for i, s := range want {
		if len(states) != len(want) || states[i] != s {
			t.Fatalf("told %v, want %v", states, want)
		}
	}
}
