package plugins

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// program is the executable to start.
type program struct {
	path string // the executable, or its verified copy
	dir  string // working directory; empty means the sidecar's own
}

// check copies a plugin's files to a private folder and verifies their digests while
// copying. So the started program is the verified one, even if the originals are modified
// meanwhile. Without checksums the program is started where it is.
func (o Options) check(folder string) (program, error) {
	path, err := filepath.Abs(o.Path)
	as := program{path: path}
	if err != nil {
		return as, err
	}
	if o.Manifest != "" {
		if as, err = o.checkManifest(path, filepath.Join(folder, "files")); err != nil {
			return as, err
		}
	}
	if o.SHA256 == "" || as.path != path { // a verified copy exists already
		return as, nil
	}
	want, err := digestOf(o.SHA256)
	if err != nil {
		return as, err
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return as, err
	}
	defer root.Close()
	as.path = filepath.Join(folder, "bin", filepath.Base(path))
	return as, copyChecked(root, filepath.Base(path), as.path, want, true)
}

// checkManifest copies the files of the manifest. The executable is either one of them or
// outside the manifest's folder.
func (o Options) checkManifest(path, copies string) (program, error) {
	as := program{path: path, dir: copies}
	files, err := readManifest(o.Manifest)
	if err != nil {
		return as, err
	}
	base, err := filepath.Abs(filepath.Dir(o.Manifest))
	if err != nil {
		return as, err
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return as, err
	}
	defer root.Close()
	executable, err := filepath.Rel(base, path)
	if err != nil || !filepath.IsLocal(executable) {
		executable = ""
	}
	if executable != "" {
		if as.path = filepath.Join(copies, executable); o.SHA256 != "" {
			want, err := digestOf(o.SHA256)
			if was, listed := files[executable]; err != nil || listed && was != want {
				return as, fmt.Errorf("%w: the manifest and sha256 give different digests of %s", errChecksum, path)
			}
			files[executable] = want
		}
		if _, listed := files[executable]; !listed {
			return as, fmt.Errorf("%w: %s lies in the manifest's folder and is not in the manifest; add it, or give its sha256", errChecksum, path)
		}
	}
	for name, want := range files {
		if err := copyChecked(root, name, filepath.Join(copies, name), want, name == executable); err != nil {
			return as, err
		}
	}
	return as, nil
}

// copyChecked copies a regular file and verifies its digest. It refuses paths that contain
// a symbolic link.
func copyChecked(root *os.Root, name, to string, want digest, executable bool) error {
	full := filepath.Join(root.Name(), name)
	for part := name; part != "."; part = filepath.Dir(part) {
		info, err := root.Lstat(part)
		if err != nil {
			return fmt.Errorf("%w: %w", errChecksum, err)
		}
		if info.Mode()&os.ModeSymlink != 0 || part == name && !info.Mode().IsRegular() {
			return fmt.Errorf("%w: %s is no regular file, or reached by a symbolic link", errChecksum, full)
		}
	}
	from, err := root.Open(name)
	if err != nil {
		return fmt.Errorf("%w: %w", errChecksum, err)
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	mode := os.FileMode(0o400) | info.Mode()&0o100
	got, err := copyTo(to, from, mode)
	switch {
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("%w: %s has SHA-256 %x, not %x: the file was changed, or the configuration is for another version of it", errChecksum, full, got, want)
	case executable && mode&0o100 == 0:
		return fmt.Errorf("%s is not executable", full)
	default:
		return nil
	}
}

func copyTo(path string, from io.Reader, mode os.FileMode) (d digest, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return d, err
	}
	if mode&0o100 != 0 {
		// A child process that another goroutine forks now would inherit the open file
		// until its exec, and a file that is open for writing cannot be executed.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
	}
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return d, err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(to, sum), from)
	return digest(sum.Sum(nil)), errors.Join(err, to.Close())
}
