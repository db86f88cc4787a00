package main

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// containerShare of the container's memory is the soft limit of the Go heap where nothing
// else sets one. The rest is for what the heap does not hold, such as stacks of threads and
// the pages of tables in use.
const containerShare = 0.9

// limitMemory sets the soft limit of the Go heap from the memory of the process's
// cgroup, unless GOMEMLIMIT is set, and logs the limit in force. configured is
// limits.memory, which serve.Run sets and which takes precedence over both; 0 means
// not configured. restore restores the previous limit.
func limitMemory(log *slog.Logger, configured int64) (restore func()) {
	gomemlimit, isSet := os.LookupEnv("GOMEMLIMIT")
	container := memlimit.FromCgroup
	if isSet && gomemlimit != "" {
		container = func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	}
	before := debug.SetMemoryLimit(-1)
	limit, source, err := heapLimit(configured, before, container)
	if err != nil {
		log.Warn("container memory limit unreadable; set limits.memory or GOMEMLIMIT", "error", err)
	}
	if source == "" {
		log.Warn("no memory limit: requests may take any amount of memory; set limits.memory or GOMEMLIMIT")
		return func() {}
	}
	log.Info("memory limit set", "bytes", limit, "source", source)
	if source == "container" {
		debug.SetMemoryLimit(limit)
	}
	return func() { debug.SetMemoryLimit(before) }
}

// heapLimit returns the soft limit of the Go heap, and where it comes from: limits.memory,
// GOMEMLIMIT, which the runtime has set before, or the container. source is empty where
// none of them sets a limit.
func heapLimit(configured, runtimeLimit int64, container memlimit.Provider) (limit int64, source string, err error) {
	if configured > 0 {
		return configured, "limits.memory", nil
	}
	if runtimeLimit < math.MaxInt64 {
		return runtimeLimit, "GOMEMLIMIT", nil
	}
	share, err := memlimit.ApplyRatio(container, containerShare)()
	switch {
	case errors.Is(err, memlimit.ErrNoLimit), errors.Is(err, memlimit.ErrCgroupsNotSupported), errors.Is(err, memlimit.ErrNoCgroup):
		return 0, "", nil
	case err != nil:
		return 0, "", err
	case share == 0 || share >= math.MaxInt64:
		return 0, "", nil
	}
	return int64(share), "container", nil
}
