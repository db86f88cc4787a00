package main

import (
	"io"
	"os"
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// terminal shows text on a terminal. Payload, names of fields and the errors of a server are written
// by strangers, and a control character in them could move the cursor, set the window's title or
// turn the direction of the text: each is shown as U+FFFD. It is safe for concurrent use.
type terminal struct {
	mu   sync.Mutex
	w    io.Writer
	fd   uintptr
	rest []byte // the first bytes of a letter whose others come with the next Write
}

// forPeople returns a terminal that writes to w if w is one, and otherwise w: programs that read a
// file or a pipe get every byte.
func forPeople(w io.Writer) io.Writer {
	f, ok := w.(*os.File)
	if !ok || !telemetry.IsTerminal(f) {
		return w
	}
	return &terminal{w: f, fd: f.Fd()}
}

// Fd returns the terminal's file descriptor, for telemetry.IsTerminal.
func (t *terminal) Fd() uintptr { return t.fd }

// Write writes text with each control character replaced.
func (t *terminal) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := slices.Concat(t.rest, text)
	shown := make([]byte, 0, len(left))
	for len(left) > 0 && utf8.FullRune(left) {
		r, size := utf8.DecodeRune(left)
		if !showable(r) {
			r = utf8.RuneError
		}
		shown, left = utf8.AppendRune(shown, r), left[size:]
	}
	t.rest = left
	if _, err := t.w.Write(shown); err != nil {
		return 0, err
	}
	return len(text), nil
}

// showable reports whether a letter only shows itself, or ends a line or a cell. Joiners are part of
// words and of emoji; a carriage return is part of a progress bar.
func showable(r rune) bool {
	const zeroWidthNonJoiner, zeroWidthJoiner = 0x200c, 0x200d
	switch r {
	case '\n', '\t', '\r', zeroWidthNonJoiner, zeroWidthJoiner:
		return true
	}
	return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r)
}
