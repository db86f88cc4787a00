package mmap_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/internal/residence"
	"github.com/likenessdb/likeness/rerank/internal/mmap"
)

// A part of a file that begins within a page is mapped, not copied into memory, and is followed by zeros.
func TestExtendWithinAPage(t *testing.T) {
	const offset, length, room = 4096 + 64, 20000, 5000
	content := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, 5000)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	e, err := mmap.Extend(f, offset, length, room)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if !bytes.Equal(e.Bytes, append(content[offset:offset+length:offset+length], make([]byte, room)...)) {
		t.Fatal("the bytes are not those of the file and zeros")
	}
	e.Bytes[length-1], e.Bytes[length+room-1] = 100, 100
	// Linux shows a write to the file in pages that were not written to.
	if _, err := f.WriteAt([]byte{200}, offset); err != nil {
		t.Fatal(err)
	}
	if e.Bytes[0] != 200 {
		t.Error("the bytes are a copy")
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if after[offset+length-1] == 100 {
		t.Error("a write to the bytes changed the file")
	}
}

// Forgotten pages leave the process's memory, and hold the file's bytes when they are read again.
func TestForget(t *testing.T) {
	const page, pages = 4096, 3000
	content := bytes.Repeat([]byte{7}, pages*page)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	if !bytes.Equal(m.Bytes, content) {
		t.Fatal("not the file's bytes")
	}
	m.Forget(1, pages*page-1)
	if n := residence.OfMapped(t, path); n > 2*page {
		t.Errorf("%d bytes of the file are in the process's memory", n)
	}
	if !bytes.Equal(m.Bytes, content) {
		t.Error("not the file's bytes any more")
	}
}
