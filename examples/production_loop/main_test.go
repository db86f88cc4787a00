package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/testbinary"
)

// TestProductionLoop runs the example as a reader would.
func TestProductionLoop(t *testing.T) {
	if os.Getenv("LIKENESS_SOAK") == "" {
		t.Skip("it takes minutes: make soak runs this")
	}
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{})
	binary := testbinary.Likeness(t)
	var out strings.Builder
	err := run(t.Context(), []string{"-binary", binary, "-data", "../data/banking77", "-qdrant", db.Address}, &out, os.Stderr)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Cosine in service", "promoted: the candidate is better", "stopped: the candidate is worse", "without a click", ", 0 errors"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if share := regexp.MustCompile(`without a click: (0\.\d+|1\.\d+) of that`).FindStringSubmatch(out.String()); share == nil || share[1] < "0.97" {
		t.Errorf("what is in service at the end has %q of the quality of a fit on all labels, want 0.97", share)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{{"-binary", "/does/not/exist"}, {"-unknown"}, {"-people", "x"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
