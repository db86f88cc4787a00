//go:build !linux

package largepages

// Size is 1 where there is nobody to ask: memory need not begin anywhere.
const Size = 1

func advise([]byte) {}
