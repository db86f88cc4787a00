//go:build race

package fit

// raceEnabled: the race detector makes a fit ten times slower.
const raceEnabled = true
