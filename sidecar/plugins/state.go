package plugins

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/likenessdb/likeness/plugin"
)

// Status is what a plugin is doing.
type Status string

// The statuses.
const (
	Starting    Status = "starting"
	Ready       Status = "ready"
	Unhealthy   Status = "unhealthy"   // it ended, or was ended, and is started again
	Quarantined Status = "quarantined" // it ended too often and is left alone for a while
	Stopped     Status = "stopped"     // for good
)

// Reason is why a life ended.
type Reason string

// The reasons.
const (
	Crashed  Reason = "crashed"  // the process ended, or the connection to it
	Hung     Reason = "hung"     // it did not answer in time, or said that it is not well
	Memory   Reason = "memory"   // it was above its limit
	Checksum Reason = "checksum" // a file of it is not what was promised; it was not started
	Failed   Reason = "start"    // it could not be started
)

// Reasons are all of them.
func Reasons() []Reason { return []Reason{Crashed, Hung, Memory, Checksum, Failed} }

// State is what there is to say of a plugin.
type State struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"` // of one that runs elsewhere
	Status  Status `json:"status"`
	// Since is when the status began.
	Since time.Time `json:"since"`
	// PID of the process, 0 without.
	PID int `json:"pid,omitempty"`
	// Version is what the plugin said of itself last.
	Version string `json:"version,omitempty"`
	// LastError says how the last life ended.
	LastError string `json:"last_error,omitempty"`
	// Restarts are the starts after the first.
	Restarts int64 `json:"restarts"`
	// Ends are the lives that ended, by reason.
	Ends map[Reason]int64 `json:"ends"`
	// Resident is its memory, in bytes; 0 where it is not known.
	Resident int64 `json:"resident_bytes,omitempty"`
}

// State of now.
func (p *Plugin) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	s.Ends = maps.Clone(s.Ends)
	return s
}

// enter changes the status, and what edit changes beside it.
func (p *Plugin) enter(status Status, edit func(s *State)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Status, p.state.Since = status, time.Now()
	if edit != nil {
		edit(&p.state)
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Plugin) setResident(bytes int64) {
	p.mu.Lock()
	p.state.Resident = bytes
	p.mu.Unlock()
}

// unavailable is plugin.ErrUnavailable with the state and, if it is given, what ended
// a call.
func (p *Plugin) unavailable(cause error) error {
	s := p.State()
	why := s.LastError
	if cause != nil {
		why = cause.Error()
	}
	if why != "" {
		why = ": " + why
	}
	return fmt.Errorf("%w: plugin %q is %s%s", plugin.ErrUnavailable, s.Name, s.Status, why)
}

// Handler answers with the states as JSON.
func Handler(states func() []State) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(states())
	})
}
