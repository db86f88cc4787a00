package atomicfile_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/powerloss"
)

// version is the content of version n, of several sectors.
func version(n int) []byte { return bytes.Repeat([]byte{byte('a' + n)}, 1500+n) }

func fill(b []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(b); return err }
}

// TestPowerLoss loses power before every call to the disk: the file has the whole old
// content or the whole new one, and once Write has returned the new one.
func TestPowerLoss(t *testing.T) {
	d, rng := powerloss.New(t), rand.New(rand.NewPCG(1, 1))
	path := filepath.Join(d.Root(), "file")
	written, checked := 0, 0
	check := func(call string, newest int) {
		t.Helper()
		for _, loss := range powerloss.Losses() {
			checked++
			b, err := os.ReadFile(filepath.Join(d.Lose(t, rng, loss).Root(), "file"))
			whole := written == 0 && errors.Is(err, os.ErrNotExist)
			for n := max(written, 1); n <= newest; n++ {
				whole = whole || err == nil && bytes.Equal(b, version(n))
			}
			if !whole {
				t.Fatalf("before %q, with version %d written: %d bytes, %.9q, %v", call, written, len(b), b, err)
			}
		}
	}
	d.Before(func(call string) { check(call, written+1) })
	for range 3 {
		if err := atomicfile.WriteOn(d, path, fill(version(written+1))); err != nil {
			t.Fatal(err)
		}
		written++
		check("the next write", written)
	}
	if checked < 3*3*6 {
		t.Errorf("power was lost %d times", checked)
	}
}

// TestRefused: where the content cannot be made or written, the file is as it was, and
// nothing else is left.
func TestRefused(t *testing.T) {
	broken := errors.New("it cannot be made")
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := atomicfile.Write(path, fill(version(1))); err != nil {
		t.Fatal(err)
	}
	err := atomicfile.Write(path, func(w io.Writer) error { _, _ = w.Write(version(2)); return broken })
	if !errors.Is(err, broken) {
		t.Errorf("err = %v", err)
	}
	b, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(b, version(1)) {
		t.Errorf("%.9q, %v", b, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
	if err := atomicfile.Write(filepath.Join(dir, "missing", "file"), fill(nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
}
