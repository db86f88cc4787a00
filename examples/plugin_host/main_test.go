package main

import (
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/testbinary"
)

// The host runs as a reader would run it.
func TestPluginHost(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-examples", "..", "-binary", testbinary.Likeness(t)}, &out, t.Output()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"protocol version 1", "was killed (SIGKILL)", "answered by process", "this host 2 and 3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it prints\n%s\nwithout %q", &out, want)
		}
	}
	if strings.Count(out.String(), "CERTIFICATE_STATUS_EXACT") != 2 {
		t.Errorf("it prints\n%s\nwant the answer twice", &out)
	}
}
