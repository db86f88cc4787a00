//go:build !linux

package smalldisk

import (
	"errors"
	"os"
)

func mount(int64) (*os.File, error) { return nil, errors.ErrUnsupported }
