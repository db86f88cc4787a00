// Package powerloss is a disk for tests that can lose power. A power failure loses data
// that were not synced, in part or completely and in any order, and also names that were
// created, changed or removed in a directory that was not synced afterwards.
//
// The disk works in a directory of the machine, which always shows everything that was
// written, as after the end of a process. After a power failure a second disk holds what is
// left, and files are read from there. So a test need not close anything first.
package powerloss

import (
	"cmp"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/internal/disk"
)

// sector is the number of bytes that a disk writes atomically.
const sector = 512

// Disk is a disk.Disk in Root. It is safe for concurrent use.
type Disk struct {
	root string

	mu     sync.Mutex
	names  map[string]*content     // as the process sees them
	synced map[string]*content     // as a power failure leaves them
	moves  []move                  // changes of names since their directory was synced, oldest first
	before func(call string)       // set by Before
	fail   func(call string) error // set by Fail
	calls  int
}

var _ disk.Disk = (*Disk)(nil)

// content is the content of a file, independent of its name.
type content struct {
	durable []byte   // content at the last Sync
	pending []change // changes since then, oldest first
}

// change is a write or, if data is nil, a truncation to length at.
type change struct {
	at   int64
	data []byte
}

// move is a change of names: it adds a name, removes one, or does both in one step.
type move struct {
	from, to string // empty without one
	content  *content
}

// New returns a disk in a temporary directory of the test. Files from the given directories
// are copied to it and are durable.
func New(t testing.TB, from ...string) *Disk {
	t.Helper()
	d := newDisk(t)
	for _, dir := range from {
		if err := os.CopyFS(d.root, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func newDisk(t testing.TB) *Disk {
	t.Helper()
	return &Disk{root: t.TempDir(), names: map[string]*content{}, synced: map[string]*content{}}
}

// Root returns the directory of the disk, as the process sees it.
func (d *Disk) Root() string { return d.root }

// Before makes the disk call f before every call that changes it, with the name of the call
// and of the file. A power failure in f happens in the middle of the caller's work. f runs
// in the caller's goroutine and may call Lose.
func (d *Disk) Before(f func(call string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = f
}

// Fail makes f decide whether a call that changes the disk fails, and with which error. A
// failing write still writes half of its bytes. A nil f ends the failures.
func (d *Disk) Fail(f func(call string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = f
}

// Calls returns the number of calls so far that changed the disk.
func (d *Disk) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// announce reports a call to the functions set by Before and Fail, and returns an error if
// the call must fail.
func (d *Disk) announce(call, path string) error {
	d.mu.Lock()
	d.calls++
	before, fail := d.before, d.fail
	d.mu.Unlock()
	call += " " + filepath.Base(path)
	if before != nil {
		before(call)
	}
	if fail == nil {
		return nil
	}
	return fail(call)
}

// Loss says how much of the data that were not synced a power failure loses.
type Loss int

// The losses.
const (
	All  Loss = iota // everything that was not synced
	Some             // any part of it
	None             // nothing: the disk had already written everything
)

// Losses returns all losses; each is a case for a test.
func Losses() []Loss { return []Loss{All, Some, None} }

// Lose returns a disk with the data that are left after a power failure at this moment, all
// durable. The original disk continues unaffected.
func (d *Disk) Lose(t testing.TB, rng *rand.Rand, loss Loss) *Disk {
	t.Helper()
	after := newDisk(t)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.copyOthers(after.root); err != nil {
		t.Fatal(err)
	}
	kept := func() bool { return loss == None || loss == Some && rng.IntN(2) == 0 }
	names := maps.Clone(d.synced)
	for _, m := range d.moves {
		if kept() {
			m.apply(names)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(names)) {
		if err := d.write(after.root, path, names[path].left(kept)); err != nil {
			t.Fatal(err)
		}
	}
	return after
}

// copyOthers copies directories, and files that were never opened through the disk. All of
// these are durable. The caller holds the lock.
func (d *Disk) copyOthers(root string) error {
	return filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(d.root, path)
		if err != nil {
			return err
		}
		to := filepath.Join(root, below)
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		if d.names[path] != nil || d.synced[path] != nil {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	})
}

func (d *Disk) write(root, path string, b []byte) error {
	below, err := filepath.Rel(d.root, path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, below), b, 0o600)
}

// apply changes names. It removes a name only if the name still belongs to the same file,
// because a power failure may have kept a later change of the name but not this one.
func (m move) apply(names map[string]*content) {
	if m.from != "" && names[m.from] == m.content {
		delete(names, m.from)
	}
	if m.to != "" {
		names[m.to] = m.content
	}
}

// dir returns the directory of the names. A rename stays within one directory.
func (m move) dir() string { return filepath.Dir(cmp.Or(m.to, m.from)) }

// left returns what is left of a file. kept decides, for each sector that was written but
// not synced, whether it survives. A lost sector without earlier content reads as zeros.
func (c *content) left(kept func() bool) []byte {
	b := slices.Clone(c.durable)
	for _, p := range c.pending {
		if p.data == nil {
			if kept() {
				b = resized(b, p.at)
			}
			continue
		}
		if end := p.at + int64(len(p.data)); kept() { // the file's length can survive without the data
			b = resized(b, max(int64(len(b)), end))
		}
		for at := int64(0); at < int64(len(p.data)); {
			// Sectors are counted from the start of the file, not of the write.
			n := min(sector-(p.at+at)%sector, int64(len(p.data))-at)
			if kept() {
				b = resized(b, max(int64(len(b)), p.at+at+n))
				copy(b[p.at+at:], p.data[at:at+n])
			}
			at += n
		}
	}
	return b
}

func resized(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

// OpenFile implements disk.Disk.
func (d *Disk) OpenFile(path string, flag int, perm fs.FileMode) (disk.File, error) {
	if err := d.announce("open", path); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, missing := os.Lstat(path)
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	c, err := d.content(path, missing != nil)
	if err == nil && flag&os.O_TRUNC != 0 {
		c.pending = append(c.pending, change{})
	}
	return &file{f, d, c}, err
}

// content returns the content of a file that was opened. The caller holds the lock.
func (d *Disk) content(path string, created bool) (*content, error) {
	if c := d.names[path]; c != nil {
		return c, nil
	}
	c := &content{}
	d.names[path] = c
	if created {
		d.moves = append(d.moves, move{to: path, content: c})
		return c, nil
	}
	d.synced[path] = c
	var err error
	c.durable, err = os.ReadFile(path)
	return c, err
}

// CreateTemp implements disk.Disk.
func (d *Disk) CreateTemp(dir, pattern string) (disk.File, error) {
	if err := d.announce("create", filepath.Join(dir, strings.TrimSuffix(pattern, "*"))); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	c, err := d.content(f.Name(), true)
	return &file{f, d, c}, err
}

// Rename implements disk.Disk.
func (d *Disk) Rename(from, to string) error {
	if err := d.announce("rename", to); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range []string{from, to} {
		if _, err := os.Lstat(path); err == nil {
			if _, err := d.content(path, false); err != nil {
				return err
			}
		}
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	m := move{from: from, to: to, content: d.names[from]}
	m.apply(d.names)
	d.moves = append(d.moves, m)
	return nil
}

// Remove implements disk.Disk.
func (d *Disk) Remove(path string) error {
	if err := d.announce("remove", path); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := os.Lstat(path); err == nil {
		if _, err := d.content(path, false); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	m := move{from: path, content: d.names[path]}
	m.apply(d.names)
	d.moves = append(d.moves, m)
	return nil
}

// SyncDir implements disk.Disk.
func (d *Disk) SyncDir(dir string) error {
	if err := d.announce("sync", dir); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var rest []move
	for _, m := range d.moves {
		if m.dir() == filepath.Clean(dir) {
			m.apply(d.synced)
		} else {
			rest = append(rest, m)
		}
	}
	d.moves = rest
	return nil
}

// file is an open file of a Disk.
type file struct {
	disk.File
	disk    *Disk
	content *content
}

// Write implements io.Writer.
func (f *file) Write(b []byte) (int, error) {
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	failed := f.disk.announce("write", f.Name())
	if failed != nil {
		b = b[:len(b)/2]
	}
	n, err := f.File.Write(b)
	f.note(at, b[:n])
	return n, cmp.Or(failed, err)
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(b []byte, at int64) (int, error) {
	failed := f.disk.announce("write", f.Name())
	if failed != nil {
		b = b[:len(b)/2]
	}
	n, err := f.File.WriteAt(b, at)
	f.note(at, b[:n])
	return n, cmp.Or(failed, err)
}

func (f *file) note(at int64, b []byte) {
	if len(b) == 0 {
		return
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.content.pending = append(f.content.pending, change{at, slices.Clone(b)})
}

// Truncate implements disk.File.
func (f *file) Truncate(size int64) error {
	if err := f.disk.announce("truncate", f.Name()); err != nil {
		return err
	}
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.content.pending = append(f.content.pending, change{at: size})
	return nil
}

// Sync implements disk.File.
func (f *file) Sync() error {
	if err := f.disk.announce("sync", f.Name()); err != nil {
		return err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.content.durable = f.content.left(func() bool { return true })
	f.content.pending = nil
	return nil
}
