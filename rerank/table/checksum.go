package table

import (
	"hash/crc32"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// checksumPart is what one core checks at once.
const checksumPart = 8 << 20

// checksum is the CRC-32C of b, computed on every core: the checksums of parts
// are put together.
func checksum(b []byte) uint32 {
	parts := (len(b) + checksumPart - 1) / checksumPart
	if parts < 2 {
		return crc32.Checksum(b, castagnoli)
	}
	sums := make([]uint32, parts)
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range sums {
		g.Go(func() error {
			sums[i] = crc32.Checksum(b[i*checksumPart:min((i+1)*checksumPart, len(b))], castagnoli)
			return nil
		})
	}
	_ = g.Wait()
	sum, whole := sums[0], shift(checksumPart)
	for i, s := range sums[1:] {
		by := whole
		if i+2 == parts {
			by = shift(len(b) - (parts-1)*checksumPart)
		}
		sum = multiply(by, sum) ^ s
	}
	return sum
}

// one is the polynomial 1: the lowest power has the highest bit.
const one = 1 << 31

// shift is x^(8n) modulo the polynomial: what the checksum of a message is
// multiplied by when n bytes follow it.
func shift(n int) uint32 {
	result, square := uint32(one), uint32(one>>8) // x⁸
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result = multiply(result, square)
		}
		square = multiply(square, square)
	}
	return result
}

// multiply is the product of two polynomials over the field of two elements,
// modulo the one of CRC-32C.
func multiply(a, b uint32) uint32 {
	var product uint32
	for bit := uint32(one); bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= crc32.Castagnoli
		}
	}
	return product
}
