package kernel

// Narrowest returns the set without the instructions for reduced precision, as
// on a processor that lacks them.
func (s *Set) Narrowest() *Set { return &Set{name: s.name + " without", isa: s.isa} }

// WithoutMatrices returns the set without a unit for matrices, and whether it had one.
func (s *Set) WithoutMatrices() (*Set, bool) {
	return &Set{name: s.name + " without matrices", isa: s.isa, bf16: s.bf16, vnni: s.vnni}, s.amx
}

// Exactly tells whether the set sums products of bfloat16 in the order of the others.
func (s *Set) Exactly() bool { return !s.amx }
