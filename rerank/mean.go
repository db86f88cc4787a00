package rerank

// Mean adds up a weighted mean of vectors, such as the query that a history of items stands for.
// The zero value is the mean of no vectors.
type Mean struct {
	// Unit means that every vector counts with norm 1.
	Unit bool

	sum   []float64
	total float64
}

// Add adds a vector with a weight. All vectors have the same length. A vector of norm 0 has no
// direction and counts as it is.
func (m *Mean) Add(x []float32, weight float64) {
	if m.sum == nil {
		m.sum = make([]float64, len(x))
	}
	m.total += weight
	if m.Unit {
		if norm := Norm(x); norm > 0 {
			weight /= norm
		}
	}
	for i, v := range x {
		m.sum[i] += weight * float64(v)
	}
}

// Vector returns the mean, or false if the weights add up to 0.
func (m *Mean) Vector() ([]float32, bool) {
	if m.total == 0 {
		return nil, false
	}
	mean := make([]float32, len(m.sum))
	for i, v := range m.sum {
		mean[i] = float32(v / m.total)
	}
	return mean, true
}
