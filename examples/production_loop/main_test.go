package main

import (
	"fmt"
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
	for _, want := range []string{"stopped: the candidate is worse", "without a click", ", 0 errors"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if promoted := strings.Count(out.String(), "promoted: the candidate is better"); promoted != 2 {
		t.Errorf("%d models were promoted, want 2", promoted)
	}
	var now, first float64
	gains := regexp.MustCompile(`the model in service gains (\S+) .* it was (\S+) at first`).FindAllStringSubmatch(out.String(), -1)
	if len(gains) < 2 {
		t.Fatal("the gain of the learned model is missing")
	}
	if _, err := fmt.Sscan(gains[1][1]+" "+gains[1][2], &now, &first); err != nil || now >= first {
		t.Errorf("more topics leave the learned model a gain of %g, and it was %g; %v", now, first, err)
	}
	if share := regexp.MustCompile(`without a click: (0\.\d+|1\.\d+) of that`).FindStringSubmatch(out.String()); share == nil || share[1] < "0.95" { // docs/how-to/learn-from-production.md says what runs reach
		t.Errorf("what is in service at the end has %q of the quality of a fit on all labels, want 0.95", share)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{{"-binary", "/does/not/exist"}, {"-unknown"}, {"-people", "x"}, {"-topics", "x"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
