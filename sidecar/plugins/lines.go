package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Limits on a plugin's output in the log: bytes per line, and lines per second.
const (
	maxLine      = 4096
	maxPerSecond = 200
)

// lines writes a plugin's output to the log, one entry per line. It is safe for concurrent
// use.
type lines struct {
	log *slog.Logger

	mu   sync.Mutex
	line []byte
	cut  int // bytes of the line beyond maxLine
	last string

	second  time.Time // start of the current second
	written int       // lines written in the current second
	dropped int       // lines dropped since the last one written
}

func newLines(log *slog.Logger, stream string) *lines {
	return &lines{log: log.With("stream", stream)}
}

// Write implements io.Writer. It never fails.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		part, rest, whole := bytes.Cut(b, []byte{'\n'})
		take := min(len(part), maxLine-len(l.line))
		l.line = append(l.line, part[:take]...)
		l.cut += len(part) - take
		if whole {
			l.emit()
		}
		b = rest
	}
	return n, nil
}

// flush logs an unfinished line.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emit()
}

// lastLine returns the last line that was not empty. If a Go program panicked, it returns
// the panic message instead of the last line of its stacks.
func (l *lines) lastLine() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *lines) emit() {
	text := strings.ToValidUTF8(string(bytes.TrimRight(l.line, "\r ")), "\uFFFD")
	if l.cut > 0 {
		text += fmt.Sprintf("… (%d bytes more)", l.cut)
	}
	l.line, l.cut = l.line[:0], 0
	if text == "" {
		return
	}
	level, text := parseLine(text)
	if level > slog.LevelDebug && !panics(l.last) {
		l.last = text
	}
	if l.tooMany(time.Now()) {
		return
	}
	log := l.log
	if l.dropped > 0 {
		log = log.With("lines_dropped_before", l.dropped)
		l.dropped = 0
	}
	log.Log(context.Background(), level, "plugin output", "line", text)
}

// tooMany counts a line and reports whether it exceeds the limit.
func (l *lines) tooMany(now time.Time) bool {
	if now.Sub(l.second) >= time.Second {
		l.second, l.written = now, 0
	}
	if l.written++; l.written > maxPerSecond {
		l.dropped++
		return true
	}
	return false
}

func panics(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// parseLine returns the level and text of a line. go-plugin writes JSON with both. Other
// lines have the level info.
func parseLine(line string) (slog.Level, string) {
	var said struct {
		Level   string `json:"@level"`
		Message string `json:"@message"`
	}
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &said) != nil || said.Message == "" {
		return slog.LevelInfo, line
	}
	switch said.Level {
	case "trace", "debug":
		return slog.LevelDebug, line
	case "warn":
		return slog.LevelWarn, line
	case "error":
		return slog.LevelError, line
	default:
		return slog.LevelInfo, line
	}
}
