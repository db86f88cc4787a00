// Package testbinary gives tests the likeness command as a file that they can run.
package testbinary

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Env is the environment variable that names a likeness command which is built already, by its absolute
// path. tools/test.sh builds the command once and sets it, because linking it takes seconds.
const Env = "LIKENESS_TEST_BINARY"

// Likeness returns the path of a likeness command of this source tree: the one that Env names, or
// one that is built for this test alone.
func Likeness(t testing.TB) string {
	t.Helper()
	if built := os.Getenv(Env); built != "" {
		if _, err := os.Stat(built); err != nil { // go test also caches no result of another file that it saw
			t.Fatalf("%s: %v", Env, err)
		}
		return built
	}
	path := filepath.Join(t.TempDir(), "likeness")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/likenessdb/likeness/cmd/likeness") //nolint:gosec // the path is the test's own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the likeness command: %v\n%s", err, out)
	}
	return path
}
