package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const root = "../.."

// TestImage packs an image of this platform twice, from two folders: the bytes are the same, both tarballs are well
// formed, and the image serves, answers its health check and drains in namespaces of its own.
func TestImage(t *testing.T) {
	if os.Getenv(envContained) != "" {
		runContained(t)
		return
	}
	binary := filepath.Join(t.TempDir(), "likeness")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", binary, "./cmd/likeness") // stripped, as a release is
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=-trimpath -buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first, second := packed(t, binary), packed(t, binary)
	for _, name := range []string{"likeness_1.2.3_linux_" + runtime.GOARCH + ".image.tar", "likeness_1.2.3.oci.tar"} {
		a, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(second, name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs when it is packed from another folder: %v", name, err)
		}
	}
	image, err := tarball.ImageFromPath(filepath.Join(first, "likeness_1.2.3_linux_"+runtime.GOARCH+".image.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	checkConfig(t, image)
	checkLayout(t, filepath.Join(first, "likeness_1.2.3.oci.tar"), image)
	unpacked := t.TempDir()
	checkFiles(t, image, unpacked)
	if !t.Failed() {
		contain(t, image, unpacked)
	}
}

// packed runs the command on a folder of its own, and returns the folder that it wrote to.
func packed(t *testing.T, binary string) string {
	t.Helper()
	from, to := t.TempDir(), t.TempDir()
	for name, source := range map[string]string{
		"likeness": binary, "LICENSE": filepath.Join(root, "LICENSE"), "NOTICE": filepath.Join(root, "NOTICE"),
		"licences/example/LICENSE": filepath.Join(root, "LICENSE"),
	} {
		copyFile(t, source, filepath.Join(from, name))
	}
	err := run([]string{"-version", "1.2.3", "-commit", "0123abc", "-date", "2026-01-02T03:04:05Z", "-out", to, "linux/" + runtime.GOARCH + "=" + from}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o755)); err != nil {
		t.Fatal(err)
	}
}

// checkConfig wants a user without rights, the command, the health check and the labels.
func checkConfig(t *testing.T, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || strings.Join(c.Entrypoint, " ") != "/likeness" || c.Healthcheck == nil || len(c.Cmd) == 0 {
		t.Errorf("the image runs %q %q as %q with the health check %v", c.Entrypoint, c.Cmd, c.User, c.Healthcheck)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH || !config.Created.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("the image is of %s/%s, created %s", config.OS, config.Architecture, config.Created)
	}
	for label, want := range map[string]string{"version": "1.2.3", "revision": "0123abc", "licenses": "Apache-2.0"} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
}

// checkLayout wants a well-formed layout with one index, which holds the image of this platform.
func checkLayout(t *testing.T, archive string, image v1.Image) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	unpack(t, f, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	outer, err := index.IndexManifest()
	if err != nil || len(outer.Manifests) != 1 {
		t.Fatalf("the layout lists %v (%v), want one index", outer, err)
	}
	inner, err := index.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifests.Manifests {
		one, err := inner.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if name, err := one.ConfigName(); err != nil || name != config || m.Platform.Architecture != runtime.GOARCH {
			t.Errorf("the index has the image %s of %s (%v), want %s", name, m.Platform, err, config)
		}
	}
}

// checkFiles unpacks the image, and wants root to own what the user shall not write to, and authorities that Go can read.
func checkFiles(t *testing.T, image v1.Image, to string) {
	t.Helper()
	files := mutate.Extract(image)
	defer files.Close()
	for _, h := range unpack(t, files, to) {
		name := strings.TrimSuffix(h.Name, "/")
		writable := name == "tmp" || name == "var/lib/likeness"
		if own := h.Uid != 0 || h.Gid != 0; own != (name == "var/lib/likeness") || !writable && h.Mode&0o022 != 0 {
			t.Errorf("%s has mode %o and belongs to %d:%d", h.Name, h.Mode, h.Uid, h.Gid)
		}
	}
	roots, err := os.ReadFile(filepath.Join(to, authorities))
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(roots) {
		t.Errorf("no certificate authorities: %v", err)
	}
	for _, name := range []string{"LICENSE", "NOTICE", "licences/example/LICENSE"} {
		if _, err := os.Stat(filepath.Join(to, documents, name)); err != nil {
			t.Error(err)
		}
	}
}

// unpack writes the files of a tarball to a folder, with their modes, and returns their headers.
func unpack(t *testing.T, archive io.Reader, dir string) (headers []*tar.Header) {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
		to := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = errors.Join(os.MkdirAll(to, 0o755), os.Chmod(to, h.FileInfo().Mode()))
		} else {
			var b []byte
			b, err = io.ReadAll(r)
			err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, h.FileInfo().Mode()))
		}
		if os.Geteuid() == 0 {
			err = errors.Join(err, os.Chown(to, h.Uid, h.Gid))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefused: what is missing is named before anything is written.
func TestRefused(t *testing.T) {
	empty := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no version":           {[]string{"-date", "2026-01-02T03:04:05Z", "linux/amd64=" + empty}, "no tag"},
		"no date":              {[]string{"-version", "1.2.3", "linux/amd64=" + empty}, "-date"},
		"no platform":          {[]string{"-version", "1.2.3", "-date", "2026-01-02T03:04:05Z"}, "no platform"},
		"a folder alone":       {[]string{"-version", "1.2.3", "-date", "2026-01-02T03:04:05Z", empty}, "linux/amd64=FOLDER"},
		"no binary in it":      {[]string{"-version", "1.2.3", "-date", "2026-01-02T03:04:05Z", "linux/amd64=" + empty}, "CGO_ENABLED=0"},
		"a folder that is not": {[]string{"-version", "1.2.3", "-date", "2026-01-02T03:04:05Z", "linux/amd64=" + filepath.Join(empty, "gone")}, "linux/amd64"},
	} {
		to := t.TempDir()
		err := run(append([]string{"-out", to}, c.args...), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if left, err := fs.Glob(os.DirFS(to), "*"); err != nil || len(left) > 0 {
			t.Errorf("%s: wrote %q", name, left)
		}
	}
}

// The process that has namespaces of its own finds the folder of the unpacked image and the image's command here, an
// argument a line.
const envContained, envCommand = "LIKENESS_IMAGE_ROOT", "LIKENESS_IMAGE_COMMAND"

// contain runs runContained in namespaces of its own: processes, mounts, network, names and interprocess communication.
func contain(t *testing.T, image v1.Image, unpacked string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an image runs in namespaces of its own: only root can make them")
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	test := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestImage$", "-test.v", "-test.timeout", "3m")
	test.Env = append(os.Environ(), envContained+"="+unpacked, envCommand+"="+strings.Join(config.Config.Cmd, "\n"))
	test.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := test.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("an image runs in namespaces of its own: this machine permits none")
	}
	if err != nil {
		t.Errorf("in namespaces of its own: %v\n%s", err, out)
	}
}

const sidecarConfig = `
stores:
  main:
    kind: embedded
    collections: {questions: {vectors: /etc/likeness/vectors.npy, metric: cosine}}
models: {learned: {path: /etc/likeness/learned}}
routes: {questions: {store: main, collection: questions, model: learned, placement: stored, unit_vectors: true, exact_search: true}}
state_dir: /var/lib/likeness
shutdown: {delay: 1s}
`

// runContained serves from the image as an engine would with --read-only: its files cannot be written but for /tmp and
// /var/lib/likeness, /etc/likeness is a volume, and the process is the image's user.
func runContained(t *testing.T) {
	at := os.Getenv(envContained)
	for name, source := range map[string]string{
		"vectors.npy":               "examples/data/banking77/train_vectors.npy",
		"query.npy":                 "examples/data/banking77/test_vectors.npy",
		"learned/config.json":       "examples/models/banking77-questions-bilinear/config.json",
		"learned/model.safetensors": "examples/models/banking77-questions-bilinear/model.safetensors",
	} {
		copyFile(t, filepath.Join(root, filepath.FromSlash(source)), filepath.Join(at, "etc/likeness", name))
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(at, "etc/likeness/likeness.yaml"), []byte(sidecarConfig), 0o644),
		loopbackUp(),
		syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""),
		syscall.Mount(at, at, "", syscall.MS_BIND, ""),
		syscall.Mount("", at, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""),
		syscall.Mount("tmpfs", filepath.Join(at, "tmp"), "tmpfs", 0, "mode=1777"),
		syscall.Mount("tmpfs", filepath.Join(at, "var/lib/likeness"), "tmpfs", 0, "uid=65532,gid=65532,mode=755"),
	); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var log bytes.Buffer
	serve := contained(ctx, at, strings.Split(os.Getenv(envCommand), "\n")...)
	serve.Stderr = &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()

	awaitStatus(ctx, t, http.StatusOK, ended, &log)
	if out, err := contained(ctx, at, "health").CombinedOutput(); err != nil {
		t.Errorf("the image's health check: %v: %s", err, out)
	}
	out, err := contained(ctx, at, "query", "--address", "127.0.0.1:7600", "--route", "questions", "--vector-file", "/etc/likeness/query.npy", "--row", "6", "--k", "3").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "exact: ") {
		t.Errorf("a search: %v: %s", err, out)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitStatus(ctx, t, http.StatusServiceUnavailable, ended, &log) // while it still takes calls, for shutdown.delay
	if err := <-ended; err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, &log)
	}
	var last struct{ Level string }
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err == nil && last.Level == "ERROR" {
		t.Errorf("the last line of the log is %s", lines[len(lines)-1])
	}
}

// contained runs the image's binary in its root, as its user, with an empty environment.
func contained(ctx context.Context, at string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/likeness", args...)
	cmd.Dir, cmd.Env, cmd.Err = "/", []string{"TMPDIR=/tmp"}, nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: at, Credential: &syscall.Credential{Uid: user, Gid: user}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// awaitStatus asks the readiness probe until it answers with a status.
func awaitStatus(ctx context.Context, t *testing.T, status int, ended chan error, log *bytes.Buffer) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:7601/readyz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := client.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == status {
				return
			}
		}
		select {
		case <-again.C:
		case err := <-ended:
			t.Fatalf("the sidecar ended before /readyz answered %d: %v\n%s", status, err, log)
		case <-ctx.Done():
			t.Fatalf("/readyz does not answer %d: %v", status, ctx.Err())
		}
	}
}
