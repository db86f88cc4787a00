//go:build !race

package adaptertest

const raceDetector = false
