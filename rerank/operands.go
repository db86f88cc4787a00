package rerank

// Operands are one query's side of φ in numbers, for a processor that computes it
// elsewhere. They are read-only.
type Operands struct {
	// Vectors are multiplied with the item: the P_Q components f_i of a MoL, one a
	// row, or the one row, as long as a feature row, of a kind that is one inner product.
	Vectors Matrix
	// Gates is the query's part of the gates, P_Q·P_X numbers; nil where there is none.
	Gates []float32
	// Scale is multiplied with every inner product: 1/τ of a MoL.
	Scale float32
}

// Operator is implemented by an Encoded whose scores another processor can compute.
type Operator interface {
	Operands() Operands
}
