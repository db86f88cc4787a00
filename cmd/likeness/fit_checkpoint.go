package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/likenessdb/likeness/learn/fit"
)

var _ fit.Checkpoint = checkpointFile{}

// checkpointFile stores the state of a fit in a file beside the model.
type checkpointFile struct {
	path   string
	resume bool // Load reads an existing state
}

// Load implements fit.Checkpoint.
func (c checkpointFile) Load() ([]byte, error) {
	if !c.resume {
		return nil, nil
	}
	state, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return state, err
}

// Save implements fit.Checkpoint. It replaces the file atomically.
func (c checkpointFile) Save(state []byte) error {
	part := c.path + ".part"
	if err := os.WriteFile(part, state, 0o644); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, c.path)
}

func (c checkpointFile) exists() bool {
	_, err := os.Lstat(c.path)
	return err == nil
}

// remove deletes the state when the fit has ended.
func (c checkpointFile) remove() error {
	if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
