package relay

// Constants of HTTP/2 (RFC 9113, sections 4.1, 6.2, 6.6, 6.8 and 6.10).
const (
	frameHeader = 9 // bytes: length, type, flags, stream

	typeHeaders      = 0x1
	typePushPromise  = 0x5
	typeGoAway       = 0x7
	typeContinuation = 0x9
	flagEndHeaders   = 0x4
)

// frames parses the frame headers that a server sends. The zero value is ready for the
// first byte of a connection.
type frames struct {
	header [frameHeader]byte
	have   int  // bytes read of the current frame's header
	left   int  // bytes left of its payload
	open   bool // the header block continues in the next frame: no other frame may come between
	seen   bool // the first frame, SETTINGS, was read
}

// between reports whether another frame may be inserted here.
func (f *frames) between() bool { return f.seen && f.have == 0 && !f.open }

// advance parses the next bytes sent. It returns the last offset in b at which another
// frame may be inserted, or -1 if there is none.
func (f *frames) advance(b []byte) int {
	end := -1
	for at := 0; at < len(b); {
		if f.have < frameHeader {
			n := copy(f.header[f.have:], b[at:])
			f.have += n
			at += n
			if f.have < frameHeader {
				break
			}
			f.left = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
		}
		n := min(f.left, len(b)-at)
		f.left -= n
		at += n
		if f.left == 0 {
			f.close()
			if f.between() {
				end = at
			}
		}
	}
	return end
}

// close finishes the current frame.
func (f *frames) close() {
	f.have, f.seen = 0, true
	switch f.header[3] {
	case typeHeaders, typePushPromise, typeContinuation:
		f.open = f.header[4]&flagEndHeaders == 0
	}
}
