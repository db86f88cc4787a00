package h2

import "testing"

// TestPermitted: a frame has no more bytes than the windows of stream and connection, the frames
// of the peer, and the bytes that may wait for the kernel permit.
func TestPermitted(t *testing.T) {
	for name, c := range map[string]struct {
		connection, stream, queued, frame int64
		want                              int
	}{
		"all":            {1000, 1000, 0, 1000, 100},
		"the connection": {7, 1000, 0, 1000, 7},
		"the stream":     {1000, 8, 0, 1000, 8},
		"the frame":      {1000, 1000, 0, 9, 9},
		"the kernel":     {1000, 1000, softLimit - 10, 1000, 10},
		"nothing":        {1000, 1000, softLimit + 1, 1000, 0},
	} {
		conn := &Conn{sendWindow: c.connection, initialWindow: c.stream + 5, maxFrame: uint32(c.frame)}
		conn.queued.Store(c.queued)
		if got := (&Stream{conn: conn, sendBalance: -5}).permitted(100); got != c.want {
			t.Errorf("%s: %d of 100 bytes, want %d", name, got, c.want)
		}
	}
}
