package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// long is a value that is expensive to write.
type long struct{ Text []string }

// LogValue implements slog.LogValuer.
func (l long) LogValue() slog.Value { return slog.GroupValue(slog.Any("texts", l.Text)) }

// TestLogLinesAreShort logs values of every kind and length: each line is complete, has at most 4
// KiB, and states the length of shortened values.
func TestLogLinesAreShort(t *testing.T) {
	units := []string{"a", "\"", "\\", "\n", "\x00", "\xff", "é", "\u2028", "�", "😀", "<", "\x7f", "\U0010ffff", "\u200b"}
	values := func(s string) map[string]slog.Attr {
		return map[string]slog.Attr{
			"string": slog.String("k", s), "error": slog.Any("k", fmt.Errorf("because: %w", errors.New(s))), "key": slog.String(s, "v"),
			"bytes": slog.Any("k", []byte(s)), "strings": slog.Any("k", []string{s, s}), "map": slog.Any("k", map[string]any{s: s}),
			"group": slog.Group("g", slog.String(s, s), slog.Group("h", slog.String("k", s))), "valuer": slog.Any("k", long{[]string{s}}),
			"name of a group": slog.Group(s, slog.Int("k", 1)), "struct": slog.Any("k", struct{ A, B string }{s, s}), "function": slog.Any("k", func() {}),
		}
	}
	for _, format := range []string{"json", "text"} {
		for _, unit := range units {
			for _, n := range []int{0, 1, 100, 1500, 1 << 16} {
				s := strings.Repeat(unit, n/len(unit))
				for kind, a := range values(s) {
					write(t, format, kind, func(l *slog.Logger) { l.Warn("event", a) })
					write(t, format, "message", func(l *slog.Logger) { l.Warn(s, a) })                                                  //nolint:sloglint // the message is what is tried
					write(t, format, "with "+kind, func(l *slog.Logger) { l.With(a).With(a, a, a).WithGroup(s).With(a).Warn(s, a, a) }) //nolint:sloglint // likewise
				}
			}
		}
		many := make([]any, 0, 5000)
		for i := range 5000 {
			many = append(many, slog.Int(fmt.Sprint("key", i), i))
		}
		if line := write(t, format, "many", func(l *slog.Logger) { l.Warn("event", many...) }); !strings.Contains(line, "attributes_left_out") {
			t.Errorf("%s: no attribute was left out of %s", format, line)
		}
		if line := write(t, format, "filter", func(l *slog.Logger) { l.Warn("event", "error", strings.Repeat("x", 3<<20)) }); !strings.Contains(line, "…(3145728 bytes)") {
			t.Errorf("%s: the length is not in %s", format, line)
		}
		whole := write(t, format, "short", func(l *slog.Logger) {
			l.With("a", "b").WithGroup("g").Warn("event", "duration", time.Second, "n", 3, "list", []string{"x", "y"}, "error", errors.New("why"))
		})
		for _, want := range map[string][]string{
			"json": {`"msg":"event","a":"b","g":{"duration":1000000000,"n":3,"list":["x","y"],"error":"why"}`},
			"text": {"msg=event a=b g.duration=1s g.n=3", "g.error=why"},
		}[format] {
			if !strings.Contains(whole, want) {
				t.Errorf("%s: %s\nwant %s", format, whole, want)
			}
		}
	}
}

// TestLogLinesOfChance does the same with random attributes.
func TestLogLinesOfChance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		b := make([]byte, rng.IntN(1<<rng.IntN(14)))
		for i := range b {
			b[i] = byte(rng.IntN(256))
		}
		return string(b)
	}
	for range 500 {
		format := []string{"json", "text"}[rng.IntN(2)]
		write(t, format, "chance", func(l *slog.Logger) {
			for range rng.IntN(4) {
				if l = l.With(text(), text()); rng.IntN(2) == 0 {
					l = l.WithGroup(text())
				}
			}
			var attrs []any
			for range rng.IntN(20) {
				attrs = append(attrs, slog.String(text(), text()))
			}
			l.Error(text(), attrs...) //nolint:sloglint // likewise
		})
	}
}

// write returns the line that a logger writes, after checking it.
func write(t *testing.T, format, kind string, say func(l *slog.Logger)) string {
	t.Helper()
	var b bytes.Buffer
	l, err := telemetry.NewLogger(&b, "info", format)
	if err != nil {
		t.Fatal(err)
	}
	say(l)
	line := b.String()
	if len(line) > 4096 || strings.Count(line, "\n") != 1 || !utf8.ValidString(line) || format == "json" && !json.Valid(b.Bytes()) {
		t.Fatalf("%s %s: %d bytes, valid %v: %.300q", format, kind, len(line), json.Valid(b.Bytes()), line)
	}
	return line
}

// callersError has a part of a caller's request in its text.
type callersError struct{ part string }

func (e callersError) Error() string             { return "no index on " + e.part }
func (e callersError) Redact(text string) string { return strings.ReplaceAll(text, e.part, "[filter]") }

// TestLogRedactsErrors: an error that knows which part of its text is a caller's hides that part,
// however it is wrapped.
func TestLogRedactsErrors(t *testing.T) {
	own := callersError{"secret-key"}
	for _, err := range []error{own, fmt.Errorf("search: %w", own), errors.Join(errors.New("a"), fmt.Errorf("b: %w: %w", errors.New("c"), own))} {
		line := write(t, "json", "error", func(l *slog.Logger) { l.Warn("event", "error", err) })
		if strings.Contains(line, own.part) || !strings.Contains(line, "no index on [filter]") {
			t.Errorf("%v: %s", err, line)
		}
	}
}
