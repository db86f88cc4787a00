package kernels

import "fmt"

// Cubin returns the module of all kernels as a cubin for devices of a compute capability, and
// the architecture that it was assembled for, such as sm_86. A device runs cubins of its own
// major version and of a minor version up to its own; Cubin returns the newest of these. Both
// results are "" if there is none, as in a binary that was built without the tag cubins.
func Cubin(major, minor int) (architecture, image string) {
	for ; minor >= 0; minor-- {
		architecture = fmt.Sprintf("sm_%d%d", major, minor)
		if code, err := cubins.ReadFile("cubins/kernels." + architecture + ".cubin"); err == nil {
			return architecture, string(code)
		}
	}
	return "", ""
}
