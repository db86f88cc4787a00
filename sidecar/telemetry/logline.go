package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"
)

// A line of the log has at most maxLine bytes. Some lines show values that a caller sent,
// and a caller must not be able to fill the log.
const (
	maxLine = 4 << 10
	// lineHead is reserved for the time, the level, punctuation, and the count of omitted
	// attributes.
	lineHead = 256
	// maxValue bounds one message or value, and maxKey one key.
	maxValue = 1 << 10
	maxKey   = 128
)

// Redactor is an error that knows which parts of its text come from a caller. The log shows what
// Redact returns for the text of the error, or of an error that wraps it.
type Redactor interface {
	error
	Redact(text string) string
}

// shorten cuts a text to at most so many bytes of a line, and notes its full length.
func shorten(text string, most int) string {
	if cost(text) <= most {
		return text
	}
	note := fmt.Sprintf("…(%d bytes)", len(text))
	left := most - len(note) - 8 // the ellipsis may be escaped
	end := 0
	for end < len(text) {
		r, n := utf8.DecodeRuneInString(text[end:])
		if left -= runeCost(r, n); left < 0 {
			break
		}
		end += n
	}
	return text[:end] + note
}

// cost returns the most bytes that a text can take in a line, quoted and escaped.
func cost(text string) (n int) {
	if 10*len(text) <= maxKey { // short enough whatever it holds
		return 10 * len(text)
	}
	for i := 0; i < len(text) && n <= maxLine; {
		r, size := utf8.DecodeRuneInString(text[i:])
		n += runeCost(r, size)
		i += size
	}
	return n
}

// runeCost returns the most bytes that a rune of size bytes takes when JSON or
// strconv.Quote escapes it.
func runeCost(r rune, size int) int {
	switch {
	case r == '"' || r == '\\':
		return 2
	case r >= ' ' && r <= '~':
		return 1
	case r == utf8.RuneError && size == 1, r < 1<<16:
		return 6
	default:
		return 12
	}
}

// line counts the bytes that are left in a log line.
type line struct {
	left int
	// prefix is the length of the open groups' names, which stand before each attribute's key in
	// the text format.
	prefix int
	// omitted counts the attributes for which there was no room.
	omitted int
}

// keep shortens attributes to the room that is left, and omits the ones that do not fit.
func (l *line) keep(attrs []slog.Attr) []slog.Attr {
	kept := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		if a, ok := l.fit(a); ok {
			kept = append(kept, a)
		}
	}
	return kept
}

// fit shortens an attribute. It reports false if there is no room for it.
func (l *line) fit(a slog.Attr) (slog.Attr, bool) {
	a.Key = shorten(a.Key, maxKey)
	room := l.left - l.prefix - cost(a.Key) - 8 // quotes and punctuation
	if room < 64 {
		l.omitted++
		return a, false
	}
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		inner := line{left: room, prefix: l.prefix + cost(a.Key) + 1}
		a.Value = slog.GroupValue(inner.keep(value.Group())...)
		l.left, l.omitted = inner.left, l.omitted+inner.omitted
		return a, true
	}
	shown, n := shortValue(value, min(room, maxValue))
	a.Value, l.left = shown, room-n
	return a, true
}

// shortValue shortens a value to at most so many bytes, and returns the most bytes that it can
// take.
func shortValue(v slog.Value, most int) (slog.Value, int) {
	var text string
	switch v.Kind() {
	case slog.KindString:
		text = v.String()
	case slog.KindAny:
		switch x := v.Any().(type) {
		case error:
			text = errorText(x)
		case fmt.Stringer:
			text = x.String()
		default:
			made, err := json.Marshal(x)
			if err != nil {
				made = fmt.Appendf(nil, "%+v", x)
			}
			if text = string(made); 2*cost(text) <= most { // as text it is quoted
				return v, 2 * cost(text)
			}
		}
	case slog.KindBool, slog.KindDuration, slog.KindFloat64, slog.KindInt64, slog.KindTime, slog.KindUint64:
		return v, len(time.RFC3339Nano) + 8
	case slog.KindGroup, slog.KindLogValuer: // fit has resolved these
	}
	text = shorten(text, most)
	return slog.StringValue(text), cost(text)
}

// errorText returns the text of an error without the parts that a caller sent.
func errorText(err error) string {
	text := err.Error()
	var own Redactor
	if errors.As(err, &own) {
		text = own.Redact(text)
	}
	return strings.ToValidUTF8(text, "�")
}
