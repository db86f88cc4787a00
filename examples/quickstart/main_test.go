package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/testbinary"
)

// The quickstart runs as a reader would run it, with fewer questions.
func TestQuickstart(t *testing.T) {
	binary := testbinary.Likeness(t)
	questions, train := filepath.Join(t.TempDir(), "questions-mol.safetensors"), "../data/banking77/train_vectors.npy"
	small := []string{"fit", "companion", "--model", "../models/banking77-questions-mol", "--items", train, "--queries", train,
		"--dim", "32", "--anchors", "200", "--hidden", "0", "--fit-items", "1000", "--out", questions}
	if out, err := exec.CommandContext(t.Context(), binary, small...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	stores := []string{"qdrant"} // the one store that `make quickstart` does not try in every build
	switch isLong := os.Getenv("LIKENESS_SOAK") != ""; {
	case servers.Dir() == "" || testing.Short():
		stores = []string{"embedded"}
	case isLong:
		stores = []string{"embedded", "qdrant", "milvus"}
	}
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			var out strings.Builder
			err := run(t.Context(), []string{
				"-binary", binary, "-store", store, "-every", "60", "-data", "../data/banking77", "-models", "../models", "-questions-mol", questions,
			}, &out, os.Stderr)
			if err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			for _, want := range []string{"every 60th of the questions", "MoL, scan of the table 10003 1.000 100%", "MoL, companion 200 200", "raises p@10", "All of this took"} {
				if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
					t.Errorf("%q is missing in\n%s", want, out.String())
				}
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{{"-store", "redis"}, {"-every", "0"}, {"-binary", "/does/not/exist"}, {"-unknown"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
