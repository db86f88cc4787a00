package tensor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Reader extracts the tensors of a model from a Set, one at a time, and remembers the first
// error. It is not safe for concurrent use.
type Reader struct {
	set  Set
	used map[string]bool
	err  error
}

// NewReader returns a Reader of the set.
func NewReader(s Set) *Reader { return &Reader{set: s, used: map[string]bool{}} }

// Has reports whether the set has the tensor.
func (r *Reader) Has(name string) bool { return r.set.Has(name) }

// Get returns the numbers of a tensor. The tensor must exist, have the given shape (−1
// matches any dimension), and be finite. The result aliases the set. After the first error
// Get returns nil.
func (r *Reader) Get(name string, shape ...int) []float32 {
	if r.err != nil {
		return nil
	}
	t, err := r.set.Get(name, shape...)
	if err != nil {
		r.err = err
		return nil
	}
	if r.err = t.check(name); r.err != nil {
		return nil
	}
	r.used[name] = true
	return t.Data
}

// Dim returns the size of one dimension of a tensor, or 0 if the tensor or the dimension
// does not exist.
func (r *Reader) Dim(name string, axis int) int {
	if t := r.set[name]; axis < len(t.Shape) {
		return t.Shape[axis]
	}
	return 0
}

// Err returns the first error of Get. It also returns ErrShape if the set contains a tensor
// that Get was never called for and whose name begins with none of the prefixes others,
// because then configuration and tensors do not belong together.
func (r *Reader) Err(others ...string) error {
	if r.err != nil {
		return r.err
	}
	for _, name := range slices.Sorted(maps.Keys(r.set)) {
		if r.used[name] || slices.ContainsFunc(others, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		return fmt.Errorf("%w: %q of shape %v has no place in a model of this configuration; correct the configuration or remove the tensor",
			ErrShape, name, r.set[name].Shape)
	}
	return nil
}

// check verifies that the tensor has as many numbers as its shape says, all finite.
func (t Tensor) check(name string) error {
	n := 1
	for _, d := range t.Shape {
		if d < 0 || d > 0 && n > math.MaxInt32/d {
			return fmt.Errorf("%w: %q has shape %v, too large", ErrShape, name, t.Shape)
		}
		n *= d
	}
	if n != len(t.Data) {
		return fmt.Errorf("%w: %q has %d numbers, want %d for shape %v", ErrShape, name, len(t.Data), n, t.Shape)
	}
	for i, v := range t.Data {
		if v-v != 0 {
			return fmt.Errorf("%w: %q[%d] is %v, want a finite number", ErrShape, name, i, v)
		}
	}
	return nil
}
