package table_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/likenessdb/likeness/internal/smalldisk"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
)

// A live table is opened on a full disk, and takes writes once there is room.
func TestLiveOnAFullDisk(t *testing.T) {
	disk, err := smalldisk.New(t, 4<<20)
	if err != nil {
		t.Skipf("this machine makes no small file system: %v", err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	c := liveCases()[string(rerank.FormatInt8)]
	from, _ := c.base(t, rng, 50)
	path := filepath.Join(disk, "t.table")
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	filler := smalldisk.Fill(t, disk)
	l := openLive(t, path, table.LiveOptions{})
	s := l.Snapshot()
	id := s.ID(0)
	s.Release()
	if err := l.Delete([]rerank.ID{id}); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, table.ErrClosed) {
		t.Errorf("a write to a full disk: %v", err)
	}
	if err := l.Compact(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a compaction on a full disk: %v", err)
	}
	if got := l.Stats(); got.Items != 50 || got.LogBytes != 0 {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := l.Delete([]rerank.ID{id}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := openLive(t, path, table.LiveOptions{})
	defer again.Close()
	if got := again.Stats().Items; got != 49 {
		t.Errorf("%d items after the write", got)
	}
}
