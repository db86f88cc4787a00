package server

import (
	"log/slog"
	"os"
	"sync"
	"time"
)

// watched is a value made from files, made again when they have changed. While
// they cannot be read, as in the middle of a rotation, the last value stays.
type watched[T any] struct {
	files []string
	read  func() (T, error)
	log   *slog.Logger

	mu     sync.Mutex
	stamps []stamp
	value  T
}

type stamp struct {
	modified time.Time
	size     int64
}

// watch reads the value for the first time.
func watch[T any](log *slog.Logger, read func() (T, error), files ...string) (*watched[T], error) {
	w := &watched[T]{files: files, read: read, log: log}
	w.stamps = w.look()
	var err error
	w.value, err = read()
	return w, err
}

// get returns the value of the files as they are now.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.look()
	if same(now, w.stamps) {
		return w.value
	}
	value, err := w.read()
	if err != nil {
		w.log.Warn("changed files cannot be used; what was read before stays in force", "files", w.files, "error", err)
		return w.value
	}
	w.stamps, w.value = now, value
	w.log.Info("files read again", "files", w.files)
	return w.value
}

func (w *watched[T]) look() []stamp {
	stamps := make([]stamp, len(w.files))
	for i, name := range w.files {
		if info, err := os.Stat(name); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

func same(a, b []stamp) bool {
	for i := range a {
		if !a[i].modified.Equal(b[i].modified) || a[i].size != b[i].size {
			return false
		}
	}
	return true
}
