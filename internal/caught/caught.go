// Package caught makes an error of a panic in a goroutine, where no caller could recover
// it and the whole process would end.
package caught

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrPanic is the error of a function that panicked.
var ErrPanic = errors.New("it panicked")

// Call returns the error of do. If do panics, Call returns an ErrPanic with the type of
// what it panicked with and the stack; the value itself may hold what must not be logged.
func Call(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: with a %T at\n%s", ErrPanic, cause, debug.Stack())
		}
	}()
	return do()
}
