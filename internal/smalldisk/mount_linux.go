package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// mount creates a tmpfs that only a file descriptor refers to. The kernel removes it when
// the last process closes it.
func mount(bytes int64) (*os.File, error) {
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("opening a tmpfs: %w", err)
	}
	defer unix.Close(context)
	err = errors.Join(
		unix.FsconfigSetString(context, "size", strconv.FormatInt(bytes, 10)),
		unix.FsconfigSetString(context, "nr_inodes", strconv.FormatInt(max(bytes/4096, 8), 10)),
		unix.FsconfigCreate(context),
	)
	if err != nil {
		return nil, fmt.Errorf("making a tmpfs of %d bytes: %w", bytes, err)
	}
	fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mounting a tmpfs: %w", err)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)), nil
}
