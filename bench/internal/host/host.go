// Package host describes the machine that a benchmark runs on (its processor and load), and
// starts sidecars on it.
package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Processor returns the name of the processor, or "" if the system does not tell.
func Processor() string {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return ""
	}
	cpus, err := fs.CPUInfo()
	if err != nil || len(cpus) == 0 {
		return ""
	}
	return strings.TrimSpace(cpus[0].ModelName)
}

// Load returns the load average of the last minute, or 0 if the system does not tell.
func Load() float64 {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	load, err := fs.LoadAvg()
	if err != nil {
		return 0
	}
	return load.Load1
}

// Start runs a likeness command with the additional arguments --ready-file ready. It
// decodes that file, which contains the addresses, into at. stop ends the command as a
// supervisor would and returns its error. After an error of Start, stop is nil.
func Start(ctx context.Context, stderr io.Writer, at any, ready string, command ...string) (pid int, stop func() error, err error) {
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "--ready-file", ready)...)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		return <-ended
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if text, err := os.ReadFile(ready); err == nil {
			if err := json.Unmarshal(text, at); err != nil {
				return 0, nil, errors.Join(fmt.Errorf("%s: %w", ready, err), stop())
			}
			return cmd.Process.Pid, stop, nil
		}
		select {
		case err := <-ended:
			return 0, nil, fmt.Errorf("%s ended before it was ready: %w", strings.Join(command, " "), err)
		case <-ctx.Done():
			<-ended // killed when its context ended
			return 0, nil, ctx.Err()
		case <-tick.C:
		}
	}
}
