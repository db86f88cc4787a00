package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// confined is what an image gives the binary: a root with nothing else in it, of which it may write to /tmp and
// /var/lib/likeness, and a user without rights.
type confined struct {
	root string
	log  bytes.Buffer
}

const nobody = 65532

const confinedConfig = `
stores:
  main:
    kind: embedded
    collections: {questions: {vectors: /models/vectors.npy, metric: cosine}}
models: {learned: {path: /models/learned}}
routes: {questions: {store: main, collection: questions, model: learned, placement: stored, unit_vectors: true, exact_search: true}}
state_dir: /var/lib/likeness
`

func newConfined(t *testing.T, binary string) *confined {
	t.Helper()
	c := &confined{root: t.TempDir()}
	for from, to := range map[string]string{
		binary: "likeness",
		"../examples/data/banking77/train_vectors.npy":                      "models/vectors.npy",
		"../examples/models/banking77-questions-bilinear/config.json":       "models/learned/config.json",
		"../examples/models/banking77-questions-bilinear/model.safetensors": "models/learned/model.safetensors",
	} {
		c.write(t, to, read(t, from))
	}
	c.write(t, "etc/likeness/likeness.yaml", confinedConfig)
	for _, dir := range []string{"tmp", "var/lib/likeness"} {
		at := filepath.Join(c.root, dir)
		if err := errors.Join(os.MkdirAll(at, 0o755), os.Chown(at, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *confined) write(t *testing.T, name, content string) {
	t.Helper()
	at := filepath.Join(c.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// command runs the binary in its root, with an empty environment but for what is given.
func (c *confined) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/likeness", args...)
	cmd.Dir, cmd.Env, cmd.Err = "/", append([]string{"TMPDIR=/tmp"}, env...), nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// checkConfined serves from the binary of an archive as an image would: the health check passes, the probes of the
// chart are answered, and SIGTERM ends it in order.
func checkConfined(t *testing.T, archive []byte, name string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("not served in a root of its own: only root can give a process one")
		return
	}
	dir := t.TempDir()
	untar(t, archive, dir)
	c := newConfined(t, filepath.Join(dir, name, "likeness"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	serve := c.command(ctx, []string{"LIKENESS_LISTEN_GRPC=127.0.0.1:0", "LIKENESS_LISTEN_ADMIN=127.0.0.1:0"},
		"serve", "--config", "/etc/likeness/likeness.yaml", "--ready-file", filepath.Join("/", "tmp", "ready.json"))
	serve.Stderr = &c.log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	at := c.ready(ctx, t, ended)
	if out, err := c.command(ctx, nil, "health", "--address", at.GRPC).CombinedOutput(); err != nil {
		t.Errorf("the image's health check: %v: %s", err, out)
	}
	for _, probe := range []string{"/livez", "/readyz"} {
		checkProbe(ctx, t, "http://"+at.Admin+probe)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, &c.log)
	}
}

type addresses struct{ GRPC, Admin string }

// ready waits for the file that serve writes when searches are answered.
func (c *confined) ready(ctx context.Context, t *testing.T, ended <-chan error) (at addresses) {
	t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		b, err := os.ReadFile(filepath.Join(c.root, "tmp/ready.json"))
		if err == nil && json.Unmarshal(b, &at) == nil {
			return at
		}
		select {
		case <-look.C:
		case err := <-ended:
			t.Fatalf("the sidecar ended: %v\n%s", err, &c.log)
		case <-ctx.Done():
			t.Fatalf("the sidecar does not become ready: %v", strings.TrimSpace(ctx.Err().Error()))
		}
	}
}

func checkProbe(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("%s answers %s", url, response.Status)
	}
}
