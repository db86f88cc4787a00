package gate_test

import (
	"bytes"
	"compress/gzip"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// TestGunzip: a message of the maximum length is complete, and a longer one is reported as too
// large instead of being cut off.
func TestGunzip(t *testing.T) {
	const most = 1000
	d := gate.NewGunzip(most, gate.MessageSetting)
	for _, length := range []int{0, 1, most - 1, most, most + 1, 100 * most} {
		want := bytes.Repeat([]byte{7}, length)
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(want); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		got, err := d.Do(&packed)
		isTooLarge := d.IsTooLarge(mem.BufferSlice{mem.SliceBuffer(got)})
		if err != nil || isTooLarge != (length > most) || !isTooLarge && !bytes.Equal(got, want) {
			t.Errorf("%d bytes became %d, too large: %t, %v", length, len(got), isTooLarge, err)
		}
	}
}
