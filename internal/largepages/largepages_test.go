package largepages_test

import (
	"testing"

	"github.com/likenessdb/likeness/internal/largepages"
)

// The advice is taken wherever memory begins and ends, and leaves what is in it.
func TestAdvise(t *testing.T) {
	const size = 6 << 20 // three on Linux
	memory := make([]byte, size+1)
	for i := range memory {
		memory[i] = byte(i * 7)
	}
	for _, b := range [][]byte{nil, {}, memory[:1], memory[1:], memory[:size], memory[5 : size-3], memory[1 : 1+2<<20]} {
		largepages.Advise(b)
	}
	for i, v := range memory {
		if v != byte(i*7) {
			t.Fatalf("byte %d is %d, was %d", i, v, byte(i*7))
		}
	}
}
