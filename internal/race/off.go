//go:build !race

// Package race tells a test of the race detector, which makes everything ten
// times slower and drops a share of what a sync.Pool is given.
package race

// Enabled says whether this build has the race detector.
const Enabled = false
