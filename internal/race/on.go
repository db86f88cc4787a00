//go:build race

package race

// Enabled says whether this build has the race detector.
const Enabled = true
