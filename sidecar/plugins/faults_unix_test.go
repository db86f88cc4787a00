//go:build unix

package plugins_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/likenessdb/likeness/internal/signals"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/plugins/faulty"
)

// exists reports whether a process exists, possibly as a zombie.
func exists(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestKilledAndBack(t *testing.T) {
	p := start(t, options(t, "-fault", faulty.Hang, "-after", "1"))
	ready(t, p)
	answers(t, p)
	call, pid := inFlight(t, p), p.State().PID
	signals.Send(t, pid, syscall.SIGKILL)
	unavailable(t, <-call, `plugin "ranker"`)
	answers(t, p)
	s := p.State()
	if s.PID == pid || s.Restarts != 1 || s.Ends[plugins.Crashed] != 1 || !strings.Contains(s.LastError, "signal: killed") {
		t.Errorf("%+v", s)
	}
	if exists(pid) {
		t.Errorf("process %d is still there", pid)
	}
}

func TestStoppedIsKilledAndBack(t *testing.T) {
	o := options(t)
	o.HealthTimeout = 500 * time.Millisecond
	p := start(t, o)
	ready(t, p)
	pid := p.State().PID
	signals.Send(t, pid, syscall.SIGSTOP)
	err := <-inFlight(t, p)
	for err == nil && p.State().PID == pid { // the signal takes a moment to stop every thread
		err = <-inFlight(t, p)
	}
	unavailable(t, err)
	answers(t, p)
	if s := p.State(); s.PID == pid || s.Ends[plugins.Hung] == 0 || exists(pid) {
		t.Errorf("%+v", s)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says how much a process has")
	}
	o := options(t, "-fault", faulty.Grow, "-bytes", strconv.Itoa(400<<20))
	o.Memory = 300 << 20
	p := start(t, o)
	ready(t, p)
	until(t, p, "its memory", func(s plugins.State) bool { return s.Resident > 0 })
	if _, err := score(t.Context(), p, items(1)); err != nil {
		unavailable(t, err) // it was killed before it could answer
	}
	if s := until(t, p, "too large", ended(plugins.Memory)); !strings.Contains(s.LastError, "at most 314572800") {
		t.Errorf("%+v", s)
	}
	ready(t, p)
}

func TestWhatItPanickedWithIsItsLastWord(t *testing.T) {
	p := start(t, options(t, "-fault", faulty.Panic))
	ready(t, p)
	_, err := score(t.Context(), p, items(1))
	unavailable(t, err)
	if s := until(t, p, "an end", ended(plugins.Crashed)); !strings.Contains(s.LastError, "its last words: panic: runtime error: index out of range") {
		t.Errorf("%q", s.LastError)
	}
}

// A plugin's child processes, which hold its pipes, neither delay the news of its end nor survive
// it.
func TestItsChildrenEndWithIt(t *testing.T) {
	folder := t.TempDir()
	script, note := filepath.Join(folder, "plugin.sh"), filepath.Join(folder, "child")
	if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nsleep 1000 & echo $! >%s\nexec %q %s\n", note, os.Args[0], asPlugin), 0o700); err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.Path, o.Args = script, nil
	p := start(t, o)
	ready(t, p)
	text, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	signals.Send(t, p.State().PID, syscall.SIGKILL)
	until(t, p, "an end", ended(plugins.Crashed))
	gone(t, child)
}

// gone waits until a process that is not our child has been reaped.
func gone(t *testing.T, pid int) {
	t.Helper()
	if _, err := backoff.Retry(t.Context(), func() (struct{}, error) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !strings.Contains(string(stat), ") Z ") || runtime.GOOS != "linux" && exists(pid) {
			return struct{}{}, fmt.Errorf("process %d lives", pid)
		}
		return struct{}{}, nil
	}, backoff.WithBackOff(backoff.NewConstantBackOff(5*time.Millisecond)), backoff.WithMaxElapsedTime(20*time.Second)); err != nil {
		t.Error(err)
	}
}

func TestNoOrphanOfAKilledHost(t *testing.T) {
	host := exec.Command(os.Args[0], asHost, options(t).TempDir)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, parseErr := strconv.Atoi(strings.TrimSpace(line))
	if err := errors.Join(err, parseErr, host.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait()
	gone(t, pid)
	left, err := filepath.Glob(host.Args[2] + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range left { // a host that is killed cannot remove it; the next one does, after a minute
		os.RemoveAll(folder)
	}
}
