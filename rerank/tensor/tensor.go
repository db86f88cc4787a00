// Package tensor defines named arrays of numbers, which model files contain and
// similarities are built from.
package tensor

import (
	"errors"
	"fmt"
	"slices"
)

// ErrShape is wrapped by every error about a tensor that is missing or has the wrong shape
// or number type.
var ErrShape = errors.New("tensor does not fit")

// Tensor is a dense row-major array of float32.
type Tensor struct {
	Shape []int
	Data  []float32
}

// Set holds a model's tensors by name. It is read-only once built.
type Set map[string]Tensor

// Has reports whether the set has the tensor.
func (s Set) Has(name string) bool { _, ok := s[name]; return ok }

// Get returns a tensor of the given shape, in which −1 matches any dimension. It returns
// ErrShape if the tensor is missing or has another shape.
func (s Set) Get(name string, shape ...int) (Tensor, error) {
	t, ok := s[name]
	if !ok {
		return Tensor{}, fmt.Errorf("%w: %q is missing, want shape %v", ErrShape, name, shape)
	}
	match := slices.EqualFunc(t.Shape, shape, func(have, want int) bool { return want < 0 || have == want })
	if !match {
		return Tensor{}, fmt.Errorf("%w: %q has shape %v, want %v", ErrShape, name, t.Shape, shape)
	}
	return t, nil
}
