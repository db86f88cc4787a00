package rerank

// Operands are the numbers with which another processor can compute φ for one encoded
// query. They are read-only.
type Operands struct {
	// Vectors has the rows that are multiplied with an item: the P_Q components f_i of a
	// MoL, or a single row as long as a feature row for a kind that is one inner product.
	Vectors Matrix
	// Gates is the query's share of the gate input, P_Q·P_X numbers; nil for kinds without
	// gates.
	Gates []float32
	// Scale is the factor of every inner product: 1/τ for a MoL.
	Scale float32
}

// Operator is implemented by an Encoded whose scores another processor can compute.
type Operator interface {
	Operands() Operands
}
