package plugins

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestLinesOfTheLog(t *testing.T) {
	var out bytes.Buffer
	l := newLines(slog.New(slog.NewTextHandler(&out, nil)), "stderr")
	for _, part := range []string{"one ", "line\r\n\n", `{"@level":"debug","@message":"quiet"}`, "\n", `{"@level":"error","@message":"loud"}`, "\n{broken\nrest"} {
		_, _ = l.Write([]byte(part))
	}
	if last := l.lastLine(); last != "{broken" {
		t.Errorf("last is %q", last)
	}
	l.flush()
	text := out.String()
	for _, want := range []string{`line="one line"`, "level=ERROR", "loud", "line={broken", "line=rest"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, "quiet") || strings.Count(text, "\n") != 4 {
		t.Errorf("%s", text)
	}
}

func TestAFloodIsCut(t *testing.T) {
	var out bytes.Buffer
	l := newLines(slog.New(slog.NewTextHandler(&out, nil)), "stderr")
	const flood = 100_000
	for i := range flood {
		fmt.Fprintf(l, "%d\n", i)
	}
	if n := strings.Count(out.String(), "\n"); n < maxPerSecond || n > flood/2 {
		t.Errorf("%d lines in the log", n)
	}
	l.second = l.second.Add(-maxPerSecond * 1e9)
	fmt.Fprintln(l, "later")
	if last := out.String()[out.Len()-200:]; !strings.Contains(last, "lines_dropped_before=") || !strings.Contains(last, "line=later") {
		t.Errorf("%s", last)
	}
	out.Reset()
	if fmt.Fprintln(l, "after"); strings.Contains(out.String(), "lines_dropped_before") || !strings.Contains(out.String(), "line=after") {
		t.Errorf("%s", out.String())
	}
}
