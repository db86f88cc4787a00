package index

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// state is how far the build of a companion came.
type state struct {
	Collection   string   `json:"collection"`
	Companion    string   `json:"companion"`
	ModelVersion string   `json:"model_version"`
	Fields       []string `json:"fields"`
	Cursor       string   `json:"cursor"`
	Rows         int      `json:"rows"`
}

// loadState returns nil if there is no such file.
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
	if s.Collection != want.Collection || s.Companion != want.Companion || s.ModelVersion != want.ModelVersion || !slices.Equal(s.Fields, want.Fields) {
		return fmt.Errorf("%w: %s is of collection %q, companion %q, version %s and fields %q, not of %q, %q, %s and %q; begin again with --force",
			ErrSource, path, s.Collection, s.Companion, s.ModelVersion, s.Fields, want.Collection, want.Companion, want.ModelVersion, want.Fields)
	}
	return nil
}

// save writes the state, and returns what ended the build with what ended the writing.
func (s *state) save(path string, cause error) error {
	if path == "" {
		return cause
	}
	b, err := json.Marshal(s)
	if err != nil {
		return errors.Join(cause, err)
	}
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	if err := os.WriteFile(part, b, 0o644); err != nil {
		return errors.Join(cause, err)
	}
	return errors.Join(cause, os.Rename(part, path))
}

func (s *state) remove(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
