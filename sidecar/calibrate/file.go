package calibrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
)

// Report is what a calibration found. It is also what a sidecar keeps of it.
type Report struct {
	// Calibration is the promise that is kept; nil: no rule shows it.
	Calibration *rerank.Calibration `json:"calibration,omitempty"`

	Route      string `json:"route"`
	Collection string `json:"collection"`
	// Rows of the collection when it was calibrated, −1 if the store does not tell.
	Rows int64 `json:"rows"`
	// Settings of the indices that were searched, as the store words them.
	Settings map[string]string `json:"settings,omitempty"`
	Model    string            `json:"model"`
	Version  string            `json:"version"`
	// Source says where the queries are from: the promise is of such queries.
	Source       string  `json:"source"`
	Promise      Promise `json:"promise"`
	Queries      int     `json:"queries"`
	LeastQueries int     `json:"least_queries"`
	// Exact says where exact answers came from: table or collection.
	Exact string `json:"exact"`
	// Rules are in the order in which they were tested.
	Rules   []Outcome `json:"rules"`
	HeldOut *Outcome  `json:"held_out,omitempty"`
}

// ErrFile: a file of the state folder cannot be used.
var ErrFile = errors.New("calibration file not valid")

// Path is where the calibration of a route with a model version is kept.
func Path(stateDir, route, version string) string {
	return filepath.Join(statedir.Route(stateDir, route), "calibration-"+version+".json")
}

// JournalPath is where an interrupted calibration of a route is.
func JournalPath(stateDir, route, version string) string {
	return filepath.Join(statedir.Route(stateDir, route), "calibration-"+version+".journal")
}

// auditPath is where the audit of a calibration is kept.
func auditPath(calibration string) string {
	dir, name := filepath.Split(calibration)
	return filepath.Join(dir, strings.Replace(name, "calibration-", "audit-", 1))
}

// Load reads a calibration; nil without an error if there is none. It returns ErrFile.
func Load(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none, and that is no failure
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
	switch {
	case c == nil:
		return nil, fmt.Errorf("%w: it holds no calibration", ErrFile)
	case (Promise{K: c.K, Recall: c.Recall, Share: c.Share, Alpha: c.Alpha}).check(c.Queries) != nil, c.Rule.Depth < 1, c.Rule.AverageDepth < 0:
		return nil, fmt.Errorf("%w: it promises what %d queries cannot show, or names no depth", ErrFile, c.Queries)
	}
	return r, nil
}

// Save writes a calibration in one step.
func (r *Report) Save(path string) error { return save(path, r) }

// save writes JSON in one step: path has its old content or the whole.
func save(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}
