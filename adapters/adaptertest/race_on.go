//go:build race

package adaptertest

const raceDetector = true
