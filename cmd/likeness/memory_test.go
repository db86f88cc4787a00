package main

import (
	"errors"
	"math"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestHeapLimit(t *testing.T) {
	unreadable := errors.New("unreadable")
	fails := func(err error) memlimit.Provider { return func() (uint64, error) { return 0, err } }
	const none = math.MaxInt64
	for name, tc := range map[string]struct {
		configured, runtimeLimit int64
		container                memlimit.Provider
		limit                    int64
		source                   string
		err                      error
	}{
		"configured":     {5 << 20, 6 << 20, memlimit.Limit(7 << 20), 5 << 20, "limits.memory", nil},
		"environment":    {0, 6 << 20, memlimit.Limit(7 << 20), 6 << 20, "GOMEMLIMIT", nil},
		"container":      {0, none, memlimit.Limit(1000), 900, "container", nil},
		"no limit":       {0, none, fails(memlimit.ErrNoLimit), 0, "", nil},
		"no cgroups":     {0, none, fails(memlimit.ErrCgroupsNotSupported), 0, "", nil},
		"version 1's no": {0, none, memlimit.Limit(math.MaxUint64), 0, "", nil},
		"unreadable":     {0, none, fails(unreadable), 0, "", unreadable},
	} {
		limit, source, err := heapLimit(tc.configured, tc.runtimeLimit, tc.container)
		if limit != tc.limit || source != tc.source || !errors.Is(err, tc.err) {
			t.Errorf("%s: %d of %q, %v", name, limit, source, err)
		}
	}
}
