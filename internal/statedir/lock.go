package statedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/likenessdb/likeness/internal/filelock"
)

// Lock makes the folder and takes it for this process. It returns filelock.ErrHeld, with the remedy, if
// another sidecar uses the folder, or the error of the file.
func Lock(dir string) (*filelock.Lock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("state_dir: %w", err)
	}
	lock, err := filelock.Take(filepath.Join(dir, "lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("state_dir %s belongs to another sidecar that runs: give each sidecar its own, or stop that one first (%w)", dir, err)
	}
	return lock, err
}
