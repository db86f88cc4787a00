// Package largepages asks the system to use large pages for memory with scattered access,
// which makes address translation faster.
package largepages

// Advise requests large pages for b. b should begin at a page, as mapped memory and long
// slices do, and should not have been used yet. If b is shorter than a large page, or the
// system has none, Advise has no effect.
func Advise(b []byte) {
	if len(b) >= Size {
		advise(b)
	}
}
