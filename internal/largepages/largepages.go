// Package largepages asks the system for large pages behind memory that is read here
// and there: the processor then finds its addresses sooner.
package largepages

// Advise asks for large pages behind b, which begins with a page, as mapped memory and
// long slices do. It is advice, to be given before the memory is touched: where b begins
// elsewhere or is shorter than a large page, or the system has none, nothing changes.
func Advise(b []byte) {
	if len(b) >= Size {
		advise(b)
	}
}
