package plugins

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/likenessdb/likeness/plugin"
)

// Status is the current activity of a plugin.
type Status string

// The statuses.
const (
	Starting    Status = "starting"
	Ready       Status = "ready"
	Unhealthy   Status = "unhealthy"   // it ended or was killed, and is being restarted
	Quarantined Status = "quarantined" // it ended too often and is not restarted for a while
	Stopped     Status = "stopped"     // for good
)

// Reason says why a session ended.
type Reason string

// The reasons.
const (
	Crashed  Reason = "crashed"  // the process or the connection to it ended
	Hung     Reason = "hung"     // it did not answer in time, or reported that it is not healthy
	Memory   Reason = "memory"   // it exceeded its memory limit
	Checksum Reason = "checksum" // a file does not have the expected digest, so the plugin was not started
	Failed   Reason = "start"    // it could not be started
)

// Reasons returns all reasons.
func Reasons() []Reason { return []Reason{Crashed, Hung, Memory, Checksum, Failed} }

// State describes a plugin.
type State struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"` // of a plugin that another party runs
	Status  Status `json:"status"`
	// Since is when the status began.
	Since time.Time `json:"since"`
	// PID is the process id, or 0 if there is no process.
	PID int `json:"pid,omitempty"`
	// Version is the version that the plugin last reported.
	Version string `json:"version,omitempty"`
	// LastError says how the last session ended.
	LastError string `json:"last_error,omitempty"`
	// Restarts counts the starts after the first.
	Restarts int64 `json:"restarts"`
	// Ends counts the ended sessions by reason.
	Ends map[Reason]int64 `json:"ends"`
	// Resident is the resident memory in bytes, or 0 if unknown.
	Resident int64 `json:"resident_bytes,omitempty"`
}

// State returns the current state.
func (p *Plugin) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	s.Ends = maps.Clone(s.Ends)
	return s
}

// enter sets the status and applies edit to the state.
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

// unavailable returns plugin.ErrUnavailable with the plugin's state and the cause, or, if
// cause is nil, the last error.
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

// Handler serves the states of plugins as JSON.
func Handler(states func() []State) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(states())
	})
}
