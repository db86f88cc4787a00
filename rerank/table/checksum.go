package table

import (
	"hash/crc32"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// checksumPart is the number of bytes in a part; parts are hashed in parallel.
const checksumPart = 8 << 20

// checksum returns the CRC-32C of b. It hashes parts on all cores and combines their
// checksums.
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

// one is the polynomial 1. The highest bit of a word is the lowest power.
const one = 1 << 31

// shift returns x^(8n) modulo the polynomial. Multiplying a message's checksum with it
// accounts for n bytes that follow the message.
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

// multiply returns the product of two polynomials over GF(2), modulo the polynomial of
// CRC-32C.
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
