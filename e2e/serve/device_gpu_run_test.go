package serve_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGPURun is a dry run of bench/gpu/run.sh: it finds the driver, does its steps, and leaves a
// summary that says of each step what happened, also if no time is left for one.
func TestGPURun(t *testing.T) {
	program := os.Getenv(withGPU)
	if program == "" {
		t.Skipf("%s names no likeness-gpu; `make test` runs this with one, on a driver whose kernels run on the CPU", withGPU)
	}
	script, err := filepath.Abs("../../bench/gpu/run.sh")
	must2(t, err)
	driver := filepath.Join(os.Getenv(withDrivers), "fake")
	run := func(budget, folder string, args ...string) (said string, failed bool) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), script, append([]string{folder}, args...)...)
		cmd.Env = append(os.Environ(), "LIBCUDA="+driver, "BUDGET="+budget)
		out, err := cmd.CombinedOutput()
		summary, readErr := os.ReadFile(filepath.Join(folder, "summary.txt"))
		must2(t, readErr)
		if !bytes.Contains(out, summary) || !strings.Contains(string(summary), "driver: "+driver) {
			t.Errorf("it says\n%s, and the summary\n%s", out, summary)
		}
		return string(summary), err != nil
	}
	folder := t.TempDir()
	said, failed := run("480", folder, "limits", "bench", "--", "--quick", "--rows", "100", "--case", "maxsim-256")
	if failed || !strings.Contains(said, "emulator on a CPU") || !strings.Contains(said, "\nlimits: done in ") || !strings.Contains(said, "\nbench: done in ") {
		t.Errorf("it failed: %t; the summary says\n%s", failed, said)
	}
	for _, name := range []string{"gpu.json", "gpu.md", "gpu.svg", "run.log"} {
		if at, err := os.Stat(filepath.Join(folder, name)); err != nil || at.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	const most = "9" // seconds: the most that ending a step may take
	said, failed = run(most, t.TempDir())
	if want := "No bar was measured.\n"; !failed || !strings.HasPrefix(said, want) || strings.Count(said, ": no time was left") != 5 {
		t.Errorf("without time it failed: %t; the summary says\n%s", failed, said)
	}
}
