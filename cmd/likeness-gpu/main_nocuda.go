//go:build !cuda

// Command likeness-gpu scores the tables of a sidecar's routes on an NVIDIA device.
// It is built with the tag cuda.
package main

import (
	"fmt"
	"os"
)

func main() {
	_, _ = fmt.Fprintln(os.Stderr, "likeness-gpu: this binary was built without the tag cuda and can use no device; "+
		"`make gpu` builds one that can, on a machine with or without a GPU (docs/how-to/gpu.md)")
	os.Exit(3)
}
