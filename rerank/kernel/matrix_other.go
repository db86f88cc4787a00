//go:build !linux || !amd64 || noasm

package kernel

// hasMatrixUnit: none that could be asked for.
func hasMatrixUnit() bool { return false }
