package kernel

import (
	"math"
	"sync/atomic"
)

// RaiseMax sets the float32 whose bits are stored in a to x, if x is greater and finite.
func RaiseMax(a *atomic.Uint32, x float32) {
	if !(x <= math.MaxFloat32) {
		return
	}
	for {
		old := a.Load()
		if !(x > math.Float32frombits(old)) || a.CompareAndSwap(old, math.Float32bits(x)) {
			return
		}
	}
}
