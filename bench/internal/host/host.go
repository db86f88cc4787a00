// Package host is the machine that a benchmark runs on: its processor, its load, and
// the sidecars that the benchmark starts there.
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

// Processor is the name of the processor, empty where the system does not tell.
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

// Load is the load average of the last minute, 0 where the system does not tell.
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

// Start runs a command of likeness, with --ready-file ready behind its arguments, and
// decodes that file, which says where it listens, into at. stop ends it, as a
// supervisor would, and returns how it ended; there is none after an error.
func Start(ctx context.Context, stderr io.Writer, at any, ready string, command ...string) (pid int, stop func() error, err error) {
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "--ready-file", ready)...)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
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
			<-ended // killed by its context
			return 0, nil, ctx.Err()
		case <-tick.C:
		}
	}
}
