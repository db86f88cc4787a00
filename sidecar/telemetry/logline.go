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

// A line of the log has at most maxLine bytes, whatever a caller sends: its value is in a
// line sometimes, and nobody's log is to grow by the megabyte.
const (
	maxLine = 4 << 10
	// lineHead is kept for the time, the level, the punctuation and the note of the
	// attributes that were left out.
	lineHead = 256
	// maxValue bounds one message or value, and maxKey one key.
	maxValue = 1 << 10
	maxKey   = 128
)

// Redactor is an error that knows which parts of its text are a caller's own. The log
// shows what Redact leaves of the text of the error, or of an error that wraps it.
type Redactor interface {
	error
	Redact(text string) string
}

// shorten cuts a text to so many bytes of a line, and notes the length that it had.
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

// cost is the most bytes that a text becomes in a line, quoted and escaped.
func cost(text string) (n int) {
	if 10*len(text) <= maxKey { // in any case
		return 10 * len(text)
	}
	for i := 0; i < len(text) && n <= maxLine; {
		r, size := utf8.DecodeRuneInString(text[i:])
		n += runeCost(r, size)
		i += size
	}
	return n
}

// runeCost is the most bytes that a rune of so many bytes is escaped to, as JSON or by
// strconv.Quote.
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

// line is the room that is left in a line.
type line struct {
	left int
	// prefix is the room that the names of the open groups take: as text, each attribute
	// has them before its key.
	prefix int
	// omitted counts the attributes for which there was no room.
	omitted int
}

// keep returns the attributes shortened to the room that is left, and leaves out those
// for which there is none.
func (l *line) keep(attrs []slog.Attr) []slog.Attr {
	kept := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		if a, ok := l.fit(a); ok {
			kept = append(kept, a)
		}
	}
	return kept
}

// fit shortens an attribute.
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

// shortValue shortens a value to so many bytes, and returns how many it may have now.
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
	case slog.KindGroup, slog.KindLogValuer: // fit has resolved and entered those
	}
	text = shorten(text, most)
	return slog.StringValue(text), cost(text)
}

// errorText is the text of an error, without the parts that are a caller's own.
func errorText(err error) string {
	text := err.Error()
	var own Redactor
	if errors.As(err, &own) {
		text = own.Redact(text)
	}
	return strings.ToValidUTF8(text, "�")
}
