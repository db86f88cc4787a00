package server

import (
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// watched is a value made from files. It is made again when the files have changed. While the files
// cannot be read, as in the middle of a rotation, the last value stays in use.
type watched[T any] struct {
	files []string
	read  func() (T, error)
	log   *slog.Logger

	mu      sync.Mutex
	stamps  []stamp
	value   T
	refused []stamp   // why the changed files cannot be used; nil if they can
	again   time.Time // when to read refused files again even if they have not changed
}

// retryFiles is how often changed files that could not be used are read again. Every call or
// handshake asks for the value, and waits while it is read.
const retryFiles = time.Second

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

// get returns the value made from the files as they are now.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.look()
	if same(now, w.stamps) {
		w.refused = nil
		return w.value
	}
	seen := same(now, w.refused)
	if seen && time.Now().Before(w.again) {
		return w.value
	}
	value, err := w.read()
	if err != nil {
		if !seen {
			w.log.Warn("changed files cannot be used, the previous content stays in force", "files", w.files, "error", err)
		}
		w.refused, w.again = now, time.Now().Add(retryFiles)
		return w.value
	}
	w.stamps, w.value, w.refused = now, value, nil
	w.log.Info("files read again", "files", w.files)
	return w.value
}

// state returns what get returns, and whether the files are refused now.
func (w *watched[T]) state() (value T, refused bool) {
	value = w.get()
	w.mu.Lock()
	defer w.mu.Unlock()
	return value, w.refused != nil
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
	return slices.EqualFunc(a, b, func(a, b stamp) bool { return a.modified.Equal(b.modified) && a.size == b.size })
}
