package smalldisk_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/likenessdb/likeness/internal/smalldisk"
)

// A disk takes what fits, and takes more once there is room again.
func TestFill(t *testing.T) {
	for name, fill := range map[string]func(testing.TB, string) string{"bytes": smalldisk.Fill, "names": smalldisk.FillNames} {
		t.Run(name, func(t *testing.T) {
			disk, err := smalldisk.New(t, 1<<20)
			if err != nil {
				t.Skipf("this machine makes no small file system: %v", err)
			}
			filler := fill(t, disk)
			file := filepath.Join(disk, "a")
			if err := os.WriteFile(file, []byte("x"), 0o600); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("writing to a full disk: %v", err)
			}
			if err := os.RemoveAll(filler); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
				t.Error(err)
			}
		})
	}
}
