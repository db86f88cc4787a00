package calibrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
)

// Report is the result of a calibration, and the content of its file in the state folder.
type Report struct {
	// Calibration is the promise that was shown; nil: no rule shows it.
	Calibration *rerank.Calibration `json:"calibration,omitempty"`

	Route      string `json:"route"`
	Collection string `json:"collection"`
	// Rows counts the rows of the collection at the time, −1 if the store does not tell.
	Rows int64 `json:"rows"`
	// Settings has the settings of the indices that were searched, in the store's words.
	Settings map[string]string `json:"settings,omitempty"`
	// Indexing says what the store still built when the searches began, "" if nothing: the promise may not hold once it is done.
	Indexing string `json:"indexing,omitempty"`
	Model    string `json:"model"`
	Version  string `json:"version"`
	// Source says where the queries come from: the promise holds for such queries.
	Source       string  `json:"source"`
	Promise      Promise `json:"promise"`
	Queries      int     `json:"queries"`
	LeastQueries int     `json:"least_queries"`
	// Exact says where exact answers came from: table or collection.
	Exact string `json:"exact"`
	// Depths counts the depths that might be tried. The test of each errs with probability Alpha/Depths.
	Depths int `json:"depths"`
	// Rules has the outcomes of the rules that were tried. The last one shows the promise, if any does.
	Rules   []Outcome `json:"rules"`
	HeldOut *Outcome  `json:"held_out,omitempty"`
}

// ErrFile means that a file of the state folder cannot be used.
var ErrFile = errors.New("calibration file not valid")

// Path returns the file of the calibration of a route with a model version.
func Path(stateDir, route, version string) string {
	return filepath.Join(statedir.Route(stateDir, route), "calibration-"+version+".json")
}

// JournalPath returns the file of an unfinished calibration of a route.
func JournalPath(stateDir, route, version string) string {
	return filepath.Join(statedir.Route(stateDir, route), "calibration-"+version+".journal")
}

// auditPath returns the file of the audit of a calibration.
func auditPath(calibration string) string {
	dir, name := filepath.Split(calibration)
	return filepath.Join(dir, strings.Replace(name, "calibration-", "audit-", 1))
}

// Load reads a calibration. It returns nil without an error if there is no file, and
// ErrFile if the file cannot be used.
func Load(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // a route need not be calibrated
	}
	if err != nil {
		return nil, err
	}
	r, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; calibrate again", path, err)
	}
	return r, nil
}

func parse(b []byte) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	c := r.Calibration
	if c == nil {
		return nil, fmt.Errorf("%w: it holds no calibration", ErrFile)
	}
	p := Promise{K: c.K, Recall: c.Recall, Share: c.Share, Alpha: c.Alpha}
	if p.check() != nil || c.Queries < p.LeastQueries() || c.Rule.Depth < 1 || c.Rule.AverageDepth < 0 {
		return nil, fmt.Errorf("%w: its %d queries cannot show its promise, or its rule has no depth", ErrFile, c.Queries)
	}
	return r, nil
}

// Save replaces the file of a calibration.
func (r *Report) Save(path string) error { return statedir.WriteJSON(path, r) }
