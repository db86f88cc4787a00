package servers

import (
	"fmt"
	"os"
	"testing"
)

// envIsolated names the environment variable that says whether the process runs in its
// own network namespace: "yes", or the reason why not.
const envIsolated = "LIKENESS_ISOLATED"

const isolated = "yes"

// Isolated reports whether the process runs in a network namespace that Isolate made,
// or else the reason why not.
func Isolated() (ok bool, reason string) {
	switch v := os.Getenv(envIsolated); v {
	case isolated:
		return true, ""
	case "":
		return false, "the test binary's TestMain does not call servers.Isolate"
	default:
		return false, v
	}
}

// Isolate runs the tests in a new network namespace that has only a loopback
// interface, and returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(servers.Isolate(m)) }
//
// The test binary runs itself again in the namespace. If the machine does not permit
// that, or LIKENESS_SERVERS is not set, the tests run in the current process, and
// Isolated returns the reason.
func Isolate(m *testing.M) int {
	if os.Getenv(envIsolated) == isolated {
		if err := loopbackUp(); err != nil {
			fmt.Fprintf(os.Stderr, "servers: network namespace: %v\n", err)
			return 1
		}
		return m.Run()
	}
	reason := EnvDir + " is not set"
	if Dir() != "" {
		code, err := runIsolated()
		if err == nil {
			return code
		}
		reason = fmt.Sprintf("this machine permits no network namespace: %v", err)
	}
	if err := os.Setenv(envIsolated, reason); err != nil {
		fmt.Fprintf(os.Stderr, "servers: %v\n", err)
		return 1
	}
	return m.Run()
}
