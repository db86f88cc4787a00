package relay

import (
	"bytes"
	"strconv"
)

// maxLine bounds the bytes kept of a line that arrives in pieces; the rest of a longer line
// is not needed. The relay sets no limit on the length of a head: the database does.
const maxLine = 4 << 10

// state is the position of one side of a connection in a message of HTTP/1.1 (RFC 9112).
type state uint8

const (
	betweenMessages state = iota
	inStartLine
	inHead
	inBody
	inChunkSize
	inChunk
	afterChunk
	inTrailer
	untilClose // in a body that ends when the connection closes
)

// event is a point in the bytes of one side that the relay acts on.
type event uint8

const (
	noEvent        event = iota
	messageBegins        // the next byte is the first of a message
	startLineEnded       // the request line or status line was read
	messageEnded
	notHTTP // the bytes cannot be parsed
)

// method is the method of a request, as far as the form of the response depends on it.
type method uint8

const (
	other method = iota
	head
	connect
)

// messages parses the messages of one side of a connection to find where each one ends. A
// wrong reading can at most close a connection too early during a drain: the relay
// changes no message and decides nothing by its content, so a database that reads the same
// bytes differently does no harm. The zero value parses requests from the first byte on.
type messages struct {
	answers       bool // the messages are responses
	state         state
	line          []byte // the beginning of an incomplete line
	lineTruncated bool   // the line is longer than maxLine
	remaining     uint64 // bytes left of the body or chunk
	headsRead     int    // heads that were read to their end

	// The fields below describe the current message.

	method           method // of a request
	status           int    // of a response
	noBody           bool   // the response has no body, whatever its head says
	length           uint64 // Content-Length
	lengthKnown      bool   // length is set
	chunked          bool
	isHTTP11         bool // the version is HTTP/1.1, which has chunks
	closesConnection bool // the message is the last on its connection
}

// next parses b up to the next event. It returns the number of bytes parsed.
func (m *messages) next(b []byte) (n int, e event) {
	for n < len(b) {
		switch m.state {
		case betweenMessages:
			if b[n] != '\r' && b[n] != '\n' { // empty lines may come before a request
				m.state = inStartLine
				return n, messageBegins
			}
			n++
		case untilClose:
			return len(b), noEvent
		case inBody, inChunk:
			took := min(m.remaining, uint64(len(b)-n))
			m.remaining -= took
			n += int(took)
			if m.remaining > 0 {
				return n, noEvent
			}
			if m.state == inBody {
				return n, m.end()
			}
			m.state = afterChunk
		default:
			line, took := m.takeLine(b[n:])
			n += took
			if line == nil {
				return n, noEvent
			}
			if e := m.read(line); e != noEvent {
				return n, e
			}
		}
	}
	return n, noEvent
}

// takeLine returns the line that ends in b, without its line end, or nil if b has no line
// end. n is the number of bytes that it consumed.
func (m *messages) takeLine(b []byte) (line []byte, n int) {
	end := bytes.IndexByte(b, '\n')
	if len(m.line) == 0 && end >= 0 {
		m.lineTruncated = false
		return bytes.TrimSuffix(b[:end:end], []byte("\r")), end + 1
	}
	rest := b
	if end >= 0 {
		rest = b[:end]
	}
	if len(m.line) == 0 {
		m.lineTruncated = false
	}
	kept := min(len(rest), maxLine-len(m.line))
	m.line, m.lineTruncated = append(m.line, rest[:kept]...), m.lineTruncated || kept < len(rest)
	if end < 0 {
		return nil, len(b)
	}
	line, m.line = m.line, m.line[:0]
	return bytes.TrimSuffix(line, []byte("\r")), end + 1
}

// read parses one line.
func (m *messages) read(line []byte) event {
	switch m.state {
	case inStartLine:
		m.state, m.lengthKnown, m.chunked, m.closesConnection = inHead, false, false, false
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
			return notHTTP
		}
		m.state = inChunkSize
	case inTrailer:
		if len(line) == 0 {
			return m.end()
		}
	case betweenMessages, inBody, inChunk, untilClose: // these states read no lines
	}
	return noEvent
}

// readRequest parses a request line.
func (m *messages) readRequest(line []byte) event {
	name, _, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(name) == 0 {
		return notHTTP
	}
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return notHTTP
		}
	}
	m.isHTTP11 = bytes.HasSuffix(line, []byte(" HTTP/1.1"))
	m.closesConnection = !m.isHTTP11
	switch string(name) {
	case "HEAD":
		m.method = head
	case "CONNECT":
		m.method = connect
	default:
		m.method = other
	}
	return startLineEnded
}

// readStatus parses a status line.
func (m *messages) readStatus(line []byte) event {
	const before, after = len("HTTP/1.1 "), len("HTTP/1.1 200")
	if len(line) < after || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) && !bytes.HasPrefix(line, []byte("HTTP/1.0 ")) ||
		len(line) > after && line[after] != ' ' {
		return notHTTP
	}
	status, err := strconv.ParseUint(string(line[before:after]), 10, 16)
	if err != nil || status < 100 {
		return notHTTP
	}
	m.status, m.isHTTP11 = int(status), bytes.HasPrefix(line, []byte("HTTP/1.1"))
	m.closesConnection = !m.isHTTP11
	m.noBody = status < 200 || status == 204 || status == 304
	return startLineEnded
}

// readField parses one header field.
func (m *messages) readField(line []byte) event {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok && m.lineTruncated {
		return noEvent // no name below is that long
	}
	if !ok || len(bytes.TrimSpace(name)) != len(name) { // also refuses a folded line
		return notHTTP
	}
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		length, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 63)
		if err != nil || m.lineTruncated || m.lengthKnown && length != m.length {
			return notHTTP
		}
		m.length, m.lengthKnown = length, true
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		if m.chunked || m.lineTruncated || !m.isHTTP11 || !bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked")) {
			return notHTTP
		}
		m.chunked = true
	case bytes.EqualFold(name, []byte("Connection")):
		m.closesConnection = m.closesConnection || bytes.Contains(bytes.ToLower(value), []byte("close"))
	}
	return noEvent
}

// endHead decides how the body's end is found (RFC 9112, section 6.3).
func (m *messages) endHead() event {
	m.headsRead++
	switch {
	case m.answers && m.noBody:
		return m.end()
	case m.chunked:
		m.state = inChunkSize
	case m.lengthKnown && m.length > 0:
		m.state, m.remaining = inBody, m.length
	case m.lengthKnown || !m.answers:
		return m.end()
	default:
		m.state = untilClose
	}
	return noEvent
}

// readChunkSize parses the line that begins a chunk. A size of 0 begins the trailer.
func (m *messages) readChunkSize(line []byte) event {
	digits := len(line)
	if i := bytes.IndexAny(line, "; \t"); i >= 0 {
		digits = i
	}
	size, err := strconv.ParseUint(string(line[:digits]), 16, 63)
	if err != nil || m.lineTruncated {
		return notHTTP
	}
	m.state, m.remaining = inChunk, size
	if size == 0 {
		m.state = inTrailer
	}
	return noEvent
}

// end finishes the current message.
func (m *messages) end() event {
	m.state = betweenMessages
	return messageEnded
}
