package embedded

// dot is the inner product of two vectors of one length, in four partial sums.
func dot(p, x []float32) float32 {
	x = x[:len(p)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(p); i += 4 {
		s0 += p[i] * x[i]
		s1 += p[i+1] * x[i+1]
		s2 += p[i+2] * x[i+2]
		s3 += p[i+3] * x[i+3]
	}
	for ; i < len(p); i++ {
		s0 += p[i] * x[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// dot4 is dot of four vectors with x. Each keeps dot's partial sums, so that a
// probe scores the same bits alone and among others.
func dot4(a, b, c, d, x []float32) (sa, sb, sc, sd float32) {
	n := len(x)
	a, b, c, d = a[:n], b[:n], c[:n], d[:n]
	var a0, a1, a2, a3, b0, b1, b2, b3 float32
	var c0, c1, c2, c3, d0, d1, d2, d3 float32
	i := 0
	for ; i+4 <= n; i += 4 {
		x0, x1, x2, x3 := x[i], x[i+1], x[i+2], x[i+3]
		a0 += a[i] * x0
		b0 += b[i] * x0
		c0 += c[i] * x0
		d0 += d[i] * x0
		a1 += a[i+1] * x1
		b1 += b[i+1] * x1
		c1 += c[i+1] * x1
		d1 += d[i+1] * x1
		a2 += a[i+2] * x2
		b2 += b[i+2] * x2
		c2 += c[i+2] * x2
		d2 += d[i+2] * x2
		a3 += a[i+3] * x3
		b3 += b[i+3] * x3
		c3 += c[i+3] * x3
		d3 += d[i+3] * x3
	}
	for ; i < n; i++ {
		a0 += a[i] * x[i]
		b0 += b[i] * x[i]
		c0 += c[i] * x[i]
		d0 += d[i] * x[i]
	}
	return (a0 + a1) + (a2 + a3), (b0 + b1) + (b2 + b3), (c0 + c1) + (c2 + c3), (d0 + d1) + (d2 + d3)
}
