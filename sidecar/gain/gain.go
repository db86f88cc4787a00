// Package gain records by how much a route's model beats the store's own order at ranking what people
// choose, at the first measurement and at the last. `likeness refit` measures, and the sidecar shows.
package gain

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
)

// Measurement is the gain of a model on the events of some time.
type Measurement struct {
	Model  string    `json:"model"` // its digest
	Metric string    `json:"metric"`
	Until  time.Time `json:"until"` // the time of the newest events
	Gain   float64   `json:"gain"`
	Low    float64   `json:"low"`  // lower bound of Gain
	High   float64   `json:"high"` // upper bound of Gain
}

// State holds the measured gains of a route. It is kept in routes/ROUTE/gain.json of the state folder.
type State struct {
	// First is the first measurement of the model in service, before it went live if a refit made it. Now
	// is the last one, of the same model.
	First Measurement `json:"first"`
	Now   Measurement `json:"now"`
	// Candidate is the last model that was measured beside the model in service.
	Candidate *Measurement `json:"candidate,omitempty"`
}

// Fell reports that the gain is less than at first, beyond the uncertainty of both.
func (s State) Fell() bool { return s.Now.High < s.First.Low }

// Read returns the state of a route, or nil if nothing was measured.
func Read(stateDir, route string) (*State, error) {
	path := file(stateDir, route)
	s := &State{}
	found, err := statedir.ReadJSON(path, s)
	if err != nil {
		return nil, fmt.Errorf("the gain of route %q, %s: %w; remove it to measure anew", route, path, err)
	}
	if !found {
		return nil, nil
	}
	return s, nil
}

// Record keeps a measurement of the model in service, and of a candidate if there is one.
func Record(stateDir, route string, served Measurement, candidate *Measurement) error {
	before, err := Read(stateDir, route)
	if err != nil {
		return err
	}
	s := State{First: served, Now: served, Candidate: candidate}
	switch {
	case before == nil:
	case before.First.Model == served.Model && before.First.Metric == served.Metric:
		s.First = before.First
	case before.Candidate != nil && before.Candidate.Model == served.Model && before.Candidate.Metric == served.Metric:
		s.First = *before.Candidate
	}
	if candidate == nil && before != nil {
		s.Candidate = before.Candidate
	}
	return statedir.WriteJSON(file(stateDir, route), s)
}

func file(stateDir, route string) string {
	return filepath.Join(statedir.Route(stateDir, route), "gain.json")
}
