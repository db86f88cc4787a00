package index

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/likenessdb/likeness/internal/atomicfile"
)

// state is the recorded progress of a companion's build.
type state struct {
	Collection   string   `json:"collection"`
	Companion    string   `json:"companion"`
	ModelVersion string   `json:"model_version"`
	Fields       []string `json:"fields"`
	Part         Part     `json:"part,omitzero"`
	Bounds       bounds   `json:"bounds,omitzero"`
	Cursor       string   `json:"cursor"`
	Rows         int      `json:"rows"`    // rows of the collection read so far
	Written      int      `json:"written"` // rows of the companion written so far
	// Done means that the build is complete, so that a rerun has nothing to do.
	Done bool `json:"done,omitempty"`
}

// loadState returns nil if the file does not exist.
func loadState(path string) (*state, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &state{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("%w: %s: %w; begin again with --force", ErrSource, path, err)
	}
	return s, nil
}

func (s *state) matches(want state, path string) error {
	if s.Collection != want.Collection || s.Companion != want.Companion || s.ModelVersion != want.ModelVersion || !slices.Equal(s.Fields, want.Fields) || s.Part != want.Part {
		return fmt.Errorf("%w: %s is of collection %q, companion %q, version %s and fields %q, not of %q, %q, %s and %q; begin again with --force",
			ErrSource, path, s.Collection, s.Companion, s.ModelVersion, s.Fields, want.Collection, want.Companion, want.ModelVersion, want.Fields)
	}
	return nil
}

// save writes the state. It joins the error that ended the build, cause, with its own.
func (s *state) save(path string, cause error) error {
	if path == "" {
		return cause
	}
	return errors.Join(cause, atomicfile.Write(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(s) }))
}
