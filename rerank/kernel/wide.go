package kernel

// DotWide returns the inner product of a and b, multiplied and summed in float64.
func DotWide(a, b []float32) float64 {
	var s0, s1, s2, s3 float64 // four sums, so that additions do not wait for each other
	k := 0
	for ; k+4 <= len(a); k += 4 {
		s0 += float64(a[k]) * float64(b[k])
		s1 += float64(a[k+1]) * float64(b[k+1])
		s2 += float64(a[k+2]) * float64(b[k+2])
		s3 += float64(a[k+3]) * float64(b[k+3])
	}
	for ; k < len(a); k++ {
		s0 += float64(a[k]) * float64(b[k])
	}
	return s0 + s1 + s2 + s3
}
