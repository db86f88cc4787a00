//go:build arm64 && !noasm

package kernel

// gemmNEON adds a panel of four rows times a tile to c, whose rows are stride bytes apart; k > 0.
//
//go:noescape
func gemmNEON(c *float32, stride int, a, b *float32, k int)

// siluNEON replaces every one of the n·16 numbers x by x·sigmoid(x); n > 0.
//
//go:noescape
func siluNEON(x *float32, n int)

// mixNEON writes Σ_l softmax(gates)_l · logits_l of each of 16 lanes to out; both are n×16, n > 0.
//
//go:noescape
func mixNEON(out, logits, gates *float32, n int)

// maddNEON adds a·b to each of the n·16 numbers c; n > 0.
//
//go:noescape
func maddNEON(c, a, b *float32, n int)

// rowsNEON writes the inner products of v with four rows of n·8 numbers to dst; n > 0.
//
//go:noescape
func rowsNEON(dst, v, r0, r1, r2, r3 *float32, n int)
