package servers

import (
	"fmt"
	"os"
	"testing"
)

// envIsolated tells whether the process runs in a network namespace of its own:
// "yes", or the reason why not.
const envIsolated = "LIKENESS_ISOLATED"

const isolated = "yes"

// Isolated reports whether the process runs in a network namespace that Isolate
// has made; where it does not, the reason.
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

// Isolate runs the tests in a fresh network namespace with nothing but a
// loopback interface, and returns the exit code, for use as
//
//	func TestMain(m *testing.M) { os.Exit(servers.Isolate(m)) }
//
// The test binary runs itself again in the namespace. Where the machine does not
// permit that, or LIKENESS_SERVERS is not set, the tests run where they are, and
// Isolated says why.
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
