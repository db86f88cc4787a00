// Package python tests the Python package as a user has it: installed from its wheel, without
// compilers on the PATH.
package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/likenessdb/likeness/e2e/harness"
)

// cache is where packages are kept between runs.
const cache = "../.cache/clients"

// TestPackage builds the wheel of this platform, installs it into an empty virtual environment,
// and runs the tests in that.
func TestPackage(t *testing.T) {
	python := install(t, buildWheel(t))
	pytest(t, python, "tests/test_client.py", "tests/test_retrievers.py", "tests/test_binary.py")
}

// buildWheel makes the wheel as tools/release.sh does, but for the version and the licences. The
// binary is the one that other tests build.
func buildWheel(t *testing.T) string {
	t.Helper()
	hatchling, err := harness.Python(t.Context(), cache, "../tools/supply/hatchling.txt")
	if err != nil {
		unavailable(t, err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "likeness")
	command(t, nil, "go", "build", "-o", binary, "../cmd/likeness")
	command(t, append(hatchling.Env, "LIKENESS_WHEEL_BINARY="+binary, "LIKENESS_WHEEL_PLATFORM="+runtime.GOOS+"/"+runtime.GOARCH),
		hatchling.Path, "-m", "hatchling", "build", "-t", "wheel", "-d", dir)
	wheels, err := filepath.Glob(filepath.Join(dir, "likeness-*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("hatchling made %q, want one wheel (%v)", wheels, err)
	}
	return wheels[0]
}

// install makes a virtual environment of the wheel, what it needs, and pytest. It returns the
// environment's folder of programs.
func install(t *testing.T, wheel string) string {
	t.Helper()
	house, err := harness.Wheelhouse(t.Context(), cache, filepath.Join("tests", "requirements.txt"))
	if err != nil {
		unavailable(t, err)
	}
	dir := t.TempDir()
	command(t, nil, "python3", "-m", "venv", dir)
	programs := filepath.Join(dir, "bin")
	command(t, nil, filepath.Join(programs, "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
		"--find-links", house, "pytest", wheel)
	return programs
}

// pytest runs test files with only an environment's programs on the PATH.
func pytest(t *testing.T, programs string, files ...string) {
	t.Helper()
	out := command(t, []string{"PATH=" + programs, "PYTHONDONTWRITEBYTECODE=1"},
		filepath.Join(programs, "python"), append([]string{"-m", "pytest", "-q"}, files...)...)
	t.Logf("%s", out)
}

// unavailable ends a test whose packages could not be fetched.
func unavailable(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func command(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
