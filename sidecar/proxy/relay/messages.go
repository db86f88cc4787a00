package relay

import (
	"bytes"
	"strconv"
)

// maxLine is how much is kept of a line that comes in pieces: as much of it as may be
// needed. A head has no limit here but the database's.
const maxLine = 4 << 10

// state is where in a message of HTTP/1.1 (RFC 9112) a side is.
type state uint8

const (
	atRest state = iota // between two messages
	inStartLine
	inHead
	inBody
	inChunkSize
	inChunk
	afterChunk
	inTrailer
	untilClose // in a body that has no other end
)

// event is what comes next on a side.
type event uint8

const (
	nothing event = iota
	begins        // a message, at this byte
	started       // its first line has ended
	ended         // the message has
	lost          // this is not understood
)

// method is that of a request, as far as the answer's form depends on it.
type method uint8

const (
	other method = iota
	head
	connect
)

// messages follows the messages of one side of a connection, to know where each ends.
// What it takes for a message is at most cut wrong by it, at the end of the relay: it
// changes nothing and decides nothing, so two readings of the same bytes do no harm.
// The zero value follows a client; it is at the beginning.
type messages struct {
	answers bool // it is the server's side
	state   state
	line    []byte // the beginning of the line under way, if it comes in pieces
	long    bool   // more than that has come
	left    uint64 // bytes that the body, or the chunk, still has
	heads   int    // that have ended

	// Of the message under way.
	method   method // of a request
	status   int    // of an answer
	bodyless bool   // an answer that has no body, whatever its head says
	length   uint64 // of the body, if told
	told     bool
	chunked  bool
	modern   bool // it is of HTTP/1.1, which has chunks
	closing  bool // it is the last on its connection
}

// next takes bytes up to the next event, and returns how many.
func (m *messages) next(b []byte) (n int, e event) {
	for n < len(b) {
		switch m.state {
		case atRest:
			if b[n] != '\r' && b[n] != '\n' { // empty lines may come before a request
				m.state = inStartLine
				return n, begins
			}
			n++
		case untilClose:
			return len(b), nothing
		case inBody, inChunk:
			took := min(m.left, uint64(len(b)-n))
			m.left -= took
			n += int(took)
			if m.left > 0 {
				return n, nothing
			}
			if m.state == inBody {
				return n, m.end()
			}
			m.state = afterChunk
		default:
			line, took := m.takeLine(b[n:])
			n += took
			if line == nil {
				return n, nothing
			}
			if e := m.read(line); e != nothing {
				return n, e
			}
		}
	}
	return n, nothing
}

// takeLine returns the line that ends in b, without its end, or nil, and how many bytes
// it took.
func (m *messages) takeLine(b []byte) (line []byte, n int) {
	end := bytes.IndexByte(b, '\n')
	if len(m.line) == 0 && end >= 0 {
		m.long = false
		return bytes.TrimSuffix(b[:end:end], []byte("\r")), end + 1
	}
	rest := b
	if end >= 0 {
		rest = b[:end]
	}
	if len(m.line) == 0 {
		m.long = false
	}
	kept := min(len(rest), maxLine-len(m.line))
	m.line, m.long = append(m.line, rest[:kept]...), m.long || kept < len(rest)
	if end < 0 {
		return nil, len(b)
	}
	line, m.line = m.line, m.line[:0]
	return bytes.TrimSuffix(line, []byte("\r")), end + 1
}

// read takes a line.
func (m *messages) read(line []byte) event {
	switch m.state {
	case inStartLine:
		m.state, m.told, m.chunked, m.closing = inHead, false, false, false
		if m.answers {
			return m.readStatus(line)
		}
		return m.readRequest(line)
	case inHead:
		if len(line) == 0 {
			return m.endHead()
		}
		return m.readField(line)
	case inChunkSize:
		return m.readChunkSize(line)
	case afterChunk:
		if len(line) > 0 {
			return lost
		}
		m.state = inChunkSize
	case inTrailer:
		if len(line) == 0 {
			return m.end()
		}
	case atRest, inBody, inChunk, untilClose: // have no lines
	}
	return nothing
}

// readRequest takes a request's first line.
func (m *messages) readRequest(line []byte) event {
	name, _, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(name) == 0 {
		return lost
	}
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return lost
		}
	}
	m.modern = bytes.HasSuffix(line, []byte(" HTTP/1.1"))
	m.closing = !m.modern
	switch string(name) {
	case "HEAD":
		m.method = head
	case "CONNECT":
		m.method = connect
	default:
		m.method = other
	}
	return started
}

// readStatus takes an answer's first line.
func (m *messages) readStatus(line []byte) event {
	const before, after = len("HTTP/1.1 "), len("HTTP/1.1 200")
	if len(line) < after || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) && !bytes.HasPrefix(line, []byte("HTTP/1.0 ")) ||
		len(line) > after && line[after] != ' ' {
		return lost
	}
	status, err := strconv.ParseUint(string(line[before:after]), 10, 16)
	if err != nil || status < 100 {
		return lost
	}
	m.status, m.modern = int(status), bytes.HasPrefix(line, []byte("HTTP/1.1"))
	m.closing = !m.modern
	m.bodyless = status < 200 || status == 204 || status == 304
	return started
}

// readField takes a line of a head.
func (m *messages) readField(line []byte) event {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok && m.long {
		return nothing // a name that long is none of those below
	}
	if !ok || len(bytes.TrimSpace(name)) != len(name) { // or a line that goes on in the next
		return lost
	}
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		length, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 63)
		if err != nil || m.long || m.told && length != m.length {
			return lost
		}
		m.length, m.told = length, true
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		if m.chunked || m.long || !m.modern || !bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked")) {
			return lost
		}
		m.chunked = true
	case bytes.EqualFold(name, []byte("Connection")):
		m.closing = m.closing || bytes.Contains(bytes.ToLower(value), []byte("close"))
	}
	return nothing
}

// endHead finds how the body ends (RFC 9112, section 6.3).
func (m *messages) endHead() event {
	m.heads++
	switch {
	case m.answers && m.bodyless:
		return m.end()
	case m.chunked:
		m.state = inChunkSize
	case m.told && m.length > 0:
		m.state, m.left = inBody, m.length
	case m.told || !m.answers:
		return m.end()
	default:
		m.state = untilClose
	}
	return nothing
}

// readChunkSize takes the line before a chunk, or the last one.
func (m *messages) readChunkSize(line []byte) event {
	digits := len(line)
	if i := bytes.IndexAny(line, "; \t"); i >= 0 {
		digits = i
	}
	size, err := strconv.ParseUint(string(line[:digits]), 16, 63)
	if err != nil || m.long {
		return lost
	}
	m.state, m.left = inChunk, size
	if size == 0 {
		m.state = inTrailer
	}
	return nothing
}

func (m *messages) end() event {
	m.state = atRest
	return ended
}
