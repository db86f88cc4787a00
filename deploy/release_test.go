package deploy_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestRelease builds the release of this platform in two clones of the repository: what comes out is the same, bytes
// for bytes, complete, and no longer passes its check once one bit of it is another. `make release-check` runs it.
// With LIKENESS_SOAK each clone compiles everything by itself, in a build cache of its own.
func TestRelease(t *testing.T) {
	if os.Getenv("LIKENESS_RELEASE") == "" && os.Getenv("LIKENESS_SOAK") == "" {
		t.Skip("run it with `make release-check`")
	}
	commit := strings.TrimSpace(command(t, "..", "git", "rev-parse", "HEAD"))
	first, second := release(t), release(t)
	if names := slices.Sorted(maps.Keys(first)); !slices.Equal(names, slices.Sorted(maps.Keys(second))) || len(names) < 3 {
		t.Fatalf("one release has %q, the other %q", names, slices.Sorted(maps.Keys(second)))
	}
	for name, b := range first {
		if !bytes.Equal(b, second[name]) {
			t.Errorf("%s differs from the one of another folder", name)
		}
	}
	platform := runtime.GOOS + "_" + runtime.GOARCH
	checkArchive(t, first["likeness_1.2.3_"+platform+".tar.gz"], "likeness_1.2.3_"+platform, commit)
	checkMaterials(t, first["likeness_1.2.3_"+platform+".cdx.json"])
	if runtime.GOOS == "linux" && (len(first["likeness_1.2.3_"+platform+".image.tar"]) == 0 || len(first["likeness_1.2.3.oci.tar"]) == 0) {
		t.Error("the release lacks its images") // tools/image tests what they hold
	}
	checkWheel(t, first, commit)
	checkChart(t, first["likeness-1.2.3.tgz"])
	checkTampering(t, first)
	if !t.Failed() {
		t.Logf("reliability row=34 figure=%d files of a release are the same from two folders; a changed bit is noticed in each", len(first))
	}
}

// release builds one in a clone of the repository, and returns its files.
func release(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	command(t, "..", "git", "clone", "-q", ".", filepath.Join(dir, "clone"))
	script := exec.Command(filepath.Join(dir, "clone", "tools", "release.sh"), "1.2.3", filepath.Join(dir, "dist"))
	script.Env = append(os.Environ(), "PLATFORMS="+runtime.GOOS+"/"+runtime.GOARCH)
	if os.Getenv("LIKENESS_SOAK") != "" {
		script.Env = append(script.Env, "GOCACHE="+filepath.Join(dir, "cache"))
	}
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("release: %v\n%s", err, out)
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(filepath.Join(dir, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		files[e.Name()] = []byte(read(t, filepath.Join(dir, "dist", e.Name())))
	}
	return files
}

// checkArchive wants everything in an archive that an installation needs, and a binary that knows where it is from.
func checkArchive(t *testing.T, archive []byte, name, commit string) {
	t.Helper()
	dir := t.TempDir()
	for _, want := range untar(t, archive, dir) {
		if !strings.HasPrefix(want, name+"/") {
			t.Errorf("%s lies outside of %s", want, name)
		}
	}
	for _, file := range []string{
		"likeness", "LICENSE", "NOTICE", "likeness.yaml", "likeness.service", "man/man1/likeness.1", "man/man1/likeness-serve.1",
		"completions/likeness.bash", "completions/_likeness", "completions/likeness.fish",
		"licences/google.golang.org/grpc/LICENSE", "licences/go/LICENSE",
	} {
		if info, err := os.Stat(filepath.Join(dir, name, filepath.FromSlash(file))); err != nil || info.Size() == 0 {
			t.Errorf("the archive lacks %s: %v", file, err)
		}
	}
	var version struct{ Version, Commit string }
	out := command(t, dir, filepath.Join(dir, name, "likeness"), "version", "--output", "json")
	if err := json.Unmarshal([]byte(out), &version); err != nil || version.Version != "1.2.3" || version.Commit != commit {
		t.Errorf("the binary says %s (%v), want version 1.2.3 of %s", out, err, commit)
	}
}

// checkWheel wants a wheel whose binary is static and knows where it is from, with the licences of what is linked in and
// the bill of materials that lies beside it.
func checkWheel(t *testing.T, files map[string][]byte, commit string) {
	t.Helper()
	for name, b := range files {
		base, ok := strings.CutSuffix(name, ".whl")
		if !ok {
			continue
		}
		tag := "py3-none-" + map[string]string{"linux/amd64": "manylinux2014_x86_64.musllinux_1_1_x86_64", "linux/arm64": "manylinux2014_aarch64.musllinux_1_1_aarch64",
			"darwin/amd64": "macosx_12_0_x86_64", "darwin/arm64": "macosx_12_0_arm64"}[runtime.GOOS+"/"+runtime.GOARCH]
		if base != "likeness-1.2.3-"+tag {
			t.Errorf("the wheel is called %s, want the tag %s", name, tag)
		}
		dir := t.TempDir()
		unzip(t, b, dir)
		info := filepath.Join(dir, "likeness-1.2.3.dist-info")
		for _, file := range []string{
			"METADATA", "RECORD", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE", "licenses/licences/google.golang.org-grpc-LICENSE", "licenses/licences/go-LICENSE",
		} {
			if stat, err := os.Stat(filepath.Join(info, filepath.FromSlash(file))); err != nil || stat.Size() == 0 {
				t.Errorf("the wheel lacks %s: %v", file, err)
			}
		}
		bills, err := filepath.Glob(filepath.Join(info, "sboms", "*"))
		if err != nil || len(bills) != 1 || read(t, bills[0]) != string(files[base+".cdx.json"]) {
			t.Errorf("the wheel has the bills %q, want the one beside it (%v)", bills, err)
		}
		checkMaterials(t, files[base+".cdx.json"])
		binary := filepath.Join(dir, "likeness", "bin", "likeness")
		var version struct{ Version, Commit string }
		out := command(t, dir, binary, "version", "--output", "json")
		if err := json.Unmarshal([]byte(out), &version); err != nil || version.Version != "1.2.3" || version.Commit != commit {
			t.Errorf("the binary says %s (%v), want version 1.2.3 of %s", out, err, commit)
		}
		if runtime.GOOS == "linux" {
			checkStatic(t, binary)
		}
		return
	}
	t.Error("the release has no wheel")
}

// checkStatic wants a binary without an interpreter, which runs where there is no libc.
func checkStatic(t *testing.T, binary string) {
	t.Helper()
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s is linked dynamically", binary)
		}
	}
}

// checkChart wants the release's version in the chart.
func checkChart(t *testing.T, archive []byte) {
	t.Helper()
	dir := t.TempDir()
	untar(t, archive, dir)
	chart := read(t, filepath.Join(dir, "likeness", "Chart.yaml"))
	if !strings.Contains(chart, "\nversion: 1.2.3\n") || !strings.Contains(chart, "\nappVersion: \"1.2.3\"\n") {
		t.Errorf("the chart is not of the version:\n%s", chart)
	}
	if _, err := os.Stat(filepath.Join(dir, "likeness", "values.schema.json")); err != nil {
		t.Error(err)
	}
}

// checkMaterials wants the bill to name the version, the toolchain and what is linked in, and no path of this machine.
func checkMaterials(t *testing.T, bill []byte) {
	t.Helper()
	var b struct {
		BOMFormat string
		Metadata  struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(bill, &b); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, c := range b.Components {
		names[c.Name] = c.Version != "" && c.PURL != ""
	}
	if b.BOMFormat != "CycloneDX" || b.Metadata.Component.Version != "v1.2.3" || !names["std"] || !names["google.golang.org/grpc"] {
		t.Errorf("the bill of materials is a %s of %v with %v", b.BOMFormat, b.Metadata.Component, names)
	}
}

// checkTampering changes one bit in one file after the other.
func checkTampering(t *testing.T, files map[string][]byte) {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func() error {
		c := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
		c.Dir = dir
		return c.Run()
	}
	if err := check(); err != nil {
		t.Fatalf("a release as it was built does not pass: %v", err)
	}
	for name, b := range files {
		if name == "SHA256SUMS" {
			continue
		}
		changed := bytes.Clone(b)
		changed[len(b)/2] ^= 1
		if err := errors.Join(os.WriteFile(filepath.Join(dir, name), changed, 0o600), check()); err == nil {
			t.Errorf("%s was changed, and passes", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// untar unpacks a .tar.gz, and returns the names in it.
func untar(t *testing.T, archive []byte, dir string) (names []string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		to := filepath.Join(dir, filepath.FromSlash(h.Name))
		b, err := io.ReadAll(r)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, b, h.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
	}
}

// unzip unpacks a wheel, with the modes of its files.
func unzip(t *testing.T, archive []byte, dir string) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		to := filepath.Join(dir, filepath.FromSlash(f.Name))
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close(), os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, b, f.Mode())); err != nil {
			t.Fatal(err)
		}
	}
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return string(out)
}
