package kernel

// Narrowest returns the set without the instructions for reduced precision, as
// on a processor that lacks them.
func (s *Set) Narrowest() *Set { return &Set{name: s.name + " without", isa: s.isa} }
