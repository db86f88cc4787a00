// Package python tests the Python package as a user has it: installed from its wheel, without
// compilers on the PATH.
package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/internal/testbinary"
)

// cache is where packages are kept between runs.
const cache = "../.cache/clients"

// TestWheel installs the wheel into an empty virtual environment, and runs the tests of the package
// and every command of the quickstart in that.
func TestWheel(t *testing.T) {
	programs := install(t, buildWheel(t, testbinary.Likeness(t)))
	t.Run("package", func(t *testing.T) {
		pytest(t, filepath.Join(programs, "python"), []string{"PATH=" + programs}, "client", "arguments", "binary", "fitting")
	})
	t.Run("quickstart", func(t *testing.T) { runQuickstart(t, programs) })
}

// TestFrameworks runs the tests of the classes for other frameworks where those are installed.
func TestFrameworks(t *testing.T) {
	if os.Getenv("LIKENESS_SOAK") == "" {
		t.Skip("it installs three frameworks; set LIKENESS_SOAK=1")
	}
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	milvus := servers.NewestMilvusLiteForTest(t, servers.Options{})
	python, err := harness.Python(t.Context(), cache, filepath.Join("tests", "frameworks.txt"))
	if err != nil {
		unavailable(t, err)
	}
	pytest(t, python.Path, []string{
		"QDRANT_URL=" + db.REST, "QDRANT_GRPC=" + db.Address, "MILVUS=" + milvus.Address, "LIKENESS_BINARY=" + testbinary.Likeness(t), "PYTHONPATH=src",
		"HAYSTACK_TELEMETRY_ENABLED=false",
	}, "langchain", "llama_index", "haystack", "milvus", "frames")
}

// TestSentenceTransformers runs the module of sentence-transformers.
func TestSentenceTransformers(t *testing.T) {
	if os.Getenv("LIKENESS_SOAK") == "" {
		t.Skip("it installs PyTorch, 5 GB; set LIKENESS_SOAK=1")
	}
	binary := testbinary.Likeness(t)
	python, err := harness.Python(t.Context(), cache, filepath.Join("tests", "st.txt"))
	if err != nil {
		unavailable(t, err)
	}
	pytest(t, python.Path, []string{"LIKENESS_BINARY=" + binary, "PYTHONPATH=src", "HF_HUB_OFFLINE=1"}, "st")
}

// buildWheel makes the wheel of this platform as tools/release.sh does, but for the version and the
// licences.
func buildWheel(t *testing.T, binary string) string {
	t.Helper()
	hatchling := builder(t)
	dir := t.TempDir()
	command(t, append(hatchling.Env, "LIKENESS_WHEEL_BINARY="+binary, "LIKENESS_WHEEL_PLATFORM="+runtime.GOOS+"/"+runtime.GOARCH),
		hatchling.Path, "-m", "hatchling", "build", "-t", "wheel", "-d", dir)
	wheels, err := filepath.Glob(filepath.Join(dir, "likeness-*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("hatchling made %q, want one wheel (%v)", wheels, err)
	}
	return wheels[0]
}

// builder returns the Python that builds wheels.
func builder(t *testing.T) *harness.Program {
	t.Helper()
	hatchling, err := harness.Python(t.Context(), cache, "../tools/supply/hatchling.txt")
	if err != nil {
		unavailable(t, err)
	}
	return hatchling
}

// install makes a virtual environment of the wheel, the packages that the wheel needs, and pytest.
// It returns the environment's folder of programs.
func install(t *testing.T, wheel string) string {
	t.Helper()
	house, err := harness.Wheelhouse(t.Context(), cache, filepath.Join("tests", "requirements.txt"))
	if err != nil {
		unavailable(t, err)
	}
	dir := t.TempDir()
	command(t, nil, "python3", "-m", "venv", "--without-pip", dir) // installing pip takes as long as the rest
	command(t, nil, builder(t).Path, "-m", "pip", "--python", dir, "install", "--quiet", "--disable-pip-version-check", "--no-index",
		"--find-links", house, "pytest", wheel)
	return filepath.Join(dir, "bin")
}

// pytest runs the tests of some subjects.
func pytest(t *testing.T, python string, env []string, subjects ...string) {
	t.Helper()
	args := []string{"-m", "pytest", "-q"}
	for _, s := range subjects {
		args = append(args, filepath.Join("tests", "test_"+s+".py"))
	}
	t.Logf("%s", command(t, append(env, "PYTHONDONTWRITEBYTECODE=1"), python, args...))
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
