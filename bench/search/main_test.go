package main

import (
	"io"
	"strings"
	"testing"
)

func TestMistakes(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"-searches", "0"}, "-searches starts at 1"},
		{[]string{"-load", "0s"}, "-load is more than 0"},
		{[]string{"-binary", "none"}, "build it with `make build`"},
		{[]string{"-nonsense"}, "not defined"},
	} {
		if err := run(t.Context(), tc.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.want)
		}
	}
	if err := run(t.Context(), []string{"-help"}, io.Discard, io.Discard); err != nil {
		t.Errorf("-help: %v", err)
	}
}
