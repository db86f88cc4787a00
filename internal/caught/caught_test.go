package caught_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/caught"
)

func TestCall(t *testing.T) {
	down := errors.New("down")
	if err := caught.Call(func() error { return down }); !errors.Is(err, down) || errors.Is(err, caught.ErrPanic) {
		t.Error(err)
	}
	if err := caught.Call(func() error { return nil }); err != nil {
		t.Error(err)
	}
	err := caught.Call(func() error { panic("canary") })
	if !errors.Is(err, caught.ErrPanic) || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "caught_test.go") {
		t.Error(err)
	}
}
