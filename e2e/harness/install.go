package harness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/likenessdb/likeness/internal/filelock"
)

// Install installs the Python and Node packages of every folder of clients, all below root. Tests
// that run in a network namespace, without access to registries, call it first. A failed
// installation is reported by the test that needs it.
func Install(ctx context.Context, cache, root string, clients ...string) {
	for _, c := range clients {
		folder := filepath.Join(root, c)
		for _, age := range []Age{Oldest, Newest} {
			_, _ = Python(ctx, cache, filepath.Join(folder, age.Requirements()))
		}
		_, _ = Node(ctx, cache, folder)
	}
}

// Age says which release of a client a test runs.
type Age string

// The oldest release that is supported, and the newest.
const (
	Oldest Age = "oldest"
	Newest Age = "newest"
)

// Requirements returns the name of the file that pins the Python packages of an age.
func (a Age) Requirements() string {
	if a == Oldest {
		return "requirements.txt"
	}
	return "requirements-" + string(a) + ".txt"
}

// Pinned returns the version of a package in a file of pinned Python packages or in a package.json.
func Pinned(file, name string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^\s*"?` + regexp.QuoteMeta(name) + `(?:==|": ")([^"\s]+)`).FindSubmatch(b)
	if m == nil {
		return "", fmt.Errorf("%s does not pin %s", file, name)
	}
	return string(m[1]), nil
}

// Program runs scripts.
type Program struct {
	Path string
	Args []string
	Env  []string // added to this process's
}

// Python creates a virtual environment with the pinned requirements, once: it is cached in a folder
// whose name depends on the requirements.
func Python(ctx context.Context, cache, requirements string) (*Program, error) {
	requirements, err := filepath.Abs(requirements)
	if err != nil {
		return nil, err
	}
	dir, err := once(ctx, cache, "python", []string{requirements}, func(dir string) error {
		if err := command(ctx, dir, "python3", "-m", "venv", dir); err != nil {
			return err
		}
		return command(ctx, dir, filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"--no-input", "--no-deps", "--only-binary", ":all:", "--requirement", requirements)
	})
	if err != nil {
		return nil, fmt.Errorf("Python with %s: %w", filepath.Base(requirements), err)
	}
	return &Program{Path: filepath.Join(dir, "bin", "python"), Args: []string{"-W", "ignore"}, Env: []string{"PYTHONDONTWRITEBYTECODE=1"}}, nil
}

// Wheelhouse downloads the pinned requirements as wheels, once, for tests that install them into
// their own virtual environment: pip install --no-index --find-links.
func Wheelhouse(ctx context.Context, cache, requirements string) (string, error) {
	requirements, err := filepath.Abs(requirements)
	if err != nil {
		return "", err
	}
	dir, err := once(ctx, cache, "wheels", []string{requirements}, func(dir string) error {
		// Debian's python3 has no pip of its own.
		if err := command(ctx, dir, "python3", "-m", "venv", "venv"); err != nil {
			return err
		}
		return command(ctx, dir, filepath.Join(dir, "venv", "bin", "python"), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
			"--only-binary", ":all:", "--dest", dir, "--requirement", requirements)
	})
	if err != nil {
		return "", fmt.Errorf("wheels of %s: %w", filepath.Base(requirements), err)
	}
	return dir, nil
}

// Node installs the packages of a folder's package-lock.json, once. Scripts find them with require.
func Node(ctx context.Context, cache, folder string) (*Program, error) {
	files := []string{filepath.Join(folder, "package.json"), filepath.Join(folder, "package-lock.json")}
	dir, err := once(ctx, cache, "node", files, func(dir string) error {
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o600)
			}
			if err != nil {
				return err
			}
		}
		return command(ctx, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
	})
	if err != nil {
		return nil, fmt.Errorf("Node packages of %s: %w", folder, err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, err
	}
	return &Program{Path: node, Args: []string{"--no-warnings"}, Env: []string{"NODE_PATH=" + filepath.Join(dir, "node_modules")}}, nil
}

// patience limits the wait for another process that fills the same folder.
const patience = 5 * time.Minute

// once fills a folder below cache whose name depends on the contents of files. It tries a failing
// registry three times. A folder that was not filled completely lacks a mark and is filled again.
func once(ctx context.Context, cache, kind string, files []string, fill func(dir string) error) (string, error) {
	sum := sha256.New()
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		_, _ = sum.Write(b)
	}
	dir, err := filepath.Abs(filepath.Join(cache, kind+"-"+hex.EncodeToString(sum.Sum(nil))[:12]))
	if err == nil {
		err = os.MkdirAll(cache, 0o755)
	}
	if err != nil {
		return "", err
	}
	lock, err := backoff.Retry(ctx, func() (*filelock.Lock, error) { return filelock.Take(dir + ".lock") },
		backoff.WithBackOff(backoff.NewConstantBackOff(time.Second)), backoff.WithMaxElapsedTime(patience))
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	mark := filepath.Join(dir, ".filled")
	if _, err := os.Stat(mark); err == nil {
		return dir, nil
	}
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, fill(dir)
	}, backoff.WithMaxTries(3))
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(mark, nil, 0o600)
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, args[0], err, tail(string(out)))
	}
	return nil
}
