// Package signals sends signals to processes that tests watch.
package signals

import (
	"os"
	"testing"
)

// Send sends a signal to a process. It ends the test if there is none: as the number 0, which means a
// process that has not started, the system understands all processes of the test's own group.
func Send(t testing.TB, pid int, s os.Signal) {
	t.Helper()
	if pid <= 0 {
		t.Fatalf("no process to send %s to", s)
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Signal(s)
	}
	if err != nil {
		t.Fatalf("sending %s to process %d: %v", s, pid, err)
	}
}
