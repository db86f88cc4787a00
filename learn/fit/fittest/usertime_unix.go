package fittest

import "syscall"

// UserTime returns the processor time of this process outside the kernel, in seconds.
func UserTime() float64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return float64(r.Utime.Sec) + float64(r.Utime.Usec)/1e6
}
