//go:build !linux || !amd64 || noasm

package kernel

// hasMatrixUnit returns false: this platform has no matrix unit that could be requested.
func hasMatrixUnit() bool { return false }
