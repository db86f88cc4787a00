// Package caught converts panics to errors in goroutines, where no caller could recover
// from them and the whole process would end.
package caught

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrPanic is the error of a function that panicked.
var ErrPanic = errors.New("it panicked")

// Call returns the error of do. If do panics, Call returns an ErrPanic with the stack and
// the type of the panic value. The value itself may contain data that must not be logged.
// A fault in memory that do reads is such a panic, too: a mapped file can get shorter, or
// its disk fail.
func Call(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: with a %T at\n%s", ErrPanic, cause, debug.Stack())
		}
	}()
	return do()
}
