//go:build !race

package pipeline_test

// raceEnabled: the race detector slows every test down.
const raceEnabled = false
