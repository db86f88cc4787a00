//go:build !race

// Package race tells tests whether the race detector is on. It makes everything about ten
// times slower and drops a share of the objects given to a sync.Pool.
package race

// Enabled says whether this build has the race detector.
const Enabled = false
