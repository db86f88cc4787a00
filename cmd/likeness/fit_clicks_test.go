package main

import (
	"testing"

	"github.com/likenessdb/likeness/learn/dataset"
)

// TestFitsLetGoOfMappedVectors, which they have copied.
func TestFitsLetGoOfMappedVectors(t *testing.T) {
	f := &clickFlags{positions: positionsIgnore}
	if data, _ := f.correct(&dataset.Dataset{}, 1); data.Forget == nil {
		t.Error("a fit cannot let go of the vectors of its files")
	}
}
