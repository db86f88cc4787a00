package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/telemetry"
)

func TestATerminalOnlyShowsText(t *testing.T) {
	for text, want := range map[string]string{
		"two words\tand a cell\r\n":          "two words\tand a cell\r\n",
		"日本語　é 👩\u200d💻":                     "日本語　é 👩\u200d💻",
		"\x1b]0;title\a\x1b[2Jgone":          "\ufffd]0;title\ufffd\ufffd[2Jgone",
		"C1 \u009b31m and as a byte \x9b31m": "C1 \ufffd31m and as a byte \ufffd31m",
		"\u202egnp.exe \u2066x\u2069 \x7f":   "\ufffdgnp.exe \ufffdx\ufffd \ufffd",
	} {
		var whole, piecewise bytes.Buffer
		if n, err := (&terminal{w: &whole}).Write([]byte(text)); n != len(text) || err != nil || whole.String() != want {
			t.Errorf("%q is shown as %q, want %q; %d bytes, %v", text, whole.String(), want, n, err)
		}
		screen := &terminal{w: &piecewise}
		for i := range len(text) {
			_, err := screen.Write([]byte{text[i]})
			must(t, err)
		}
		if piecewise.String() != want {
			t.Errorf("%q is shown as %q if it comes in bytes, want %q", text, piecewise.String(), want)
		}
	}
}

// TestTheLogOnATerminalIsText: a log of the format auto knows a terminal though its writer is wrapped.
func TestTheLogOnATerminalIsText(t *testing.T) {
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminal: %v", err)
	}
	defer pty.Close()
	screen, ok := forPeople(pty).(*terminal)
	if !ok {
		t.Fatalf("a terminal is written by %T", forPeople(pty))
	}
	var out bytes.Buffer
	screen.w = &out
	log, err := telemetry.NewLogger(screen, "info", "auto")
	must(t, err)
	log.Info("hello")
	if !strings.Contains(out.String(), "level=INFO msg=hello") {
		t.Errorf("the log on a terminal is %q", out.String())
	}
}

func TestAFileGetsEveryByte(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must(t, err)
	defer f.Close()
	if w := forPeople(f); w != f {
		t.Errorf("a file is written by %T", w)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must(t, err)
	defer null.Close()
	if w := forPeople(null); w != null {
		t.Errorf("a device that shows nothing is written by %T", w)
	}
}
