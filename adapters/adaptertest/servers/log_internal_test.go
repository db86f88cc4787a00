package servers

import (
	"os"
	"strings"
	"testing"
)

// TestLogShowsTheCrash: a log has its end, and before it where the server crashed, however much followed.
func TestLogShowsTheCrash(t *testing.T) {
	s := &Server{dir: t.TempDir()}
	long := strings.Repeat("goroutine 7\n", logTail/10)
	for text, want := range map[string]string{
		"ready\n": "ready",
		"ready\npanic: no segment\n" + long + "last\n":   "panic: no segment\ngoroutine 7",
		long + "SIGSEGV: segmentation violation\nlast\n": "SIGSEGV: segmentation violation\nlast",
	} {
		if err := os.WriteFile(s.logPath(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := s.Log()
		if !strings.Contains(got, want) || !strings.HasSuffix(text, got[len(got)-4:]+"\n") || len(got) > 2*logTail+8 {
			t.Errorf("the log is %d bytes, %.60q…; want %q in it, and its end", len(got), got, want)
		}
	}
}
