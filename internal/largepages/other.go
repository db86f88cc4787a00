//go:build !linux

package largepages

// Size is 1, because there are no large pages to align to.
const Size = 1

func advise([]byte) {}
