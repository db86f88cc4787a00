package rest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
)

// content reads the body of a message from a connection, and never beyond its end.
type content struct {
	in      *bufio.Reader
	left    int64     // remaining bytes, or unknownLength
	chunks  io.Reader // the content of a chunked body
	trailer []byte    // of a chunked body, including the final empty line
}

// newContent returns the body after a head. If the body is not chunked and its length is
// unknownLength, it ends with the connection.
func newContent(in *bufio.Reader, h *head) *content {
	c := &content{in: in, left: h.length}
	if h.isChunked {
		c.chunks = httputil.NewChunkedReader(in)
	}
	return c
}

// Read implements io.Reader. It returns io.EOF only at the end of the body.
func (c *content) Read(p []byte) (n int, err error) {
	switch {
	case c.left == 0:
		return 0, io.EOF
	case c.chunks != nil:
		n, err = c.chunks.Read(p)
		var network net.Error
		switch {
		case errors.Is(err, io.EOF):
			c.left = 0
			err = c.readTrailer()
		case err != nil && !errors.As(err, &network) && !errors.Is(err, io.ErrUnexpectedEOF):
			err = malformed("a chunk of the body is malformed")
		}
		return n, err
	case c.left < 0:
		return c.in.Read(p)
	}
	n, err = c.in.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	switch {
	case c.left == 0:
		return n, io.EOF
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readTrailer reads the fields after the last chunk. It returns io.EOF if they are complete.
func (c *content) readTrailer() error {
	raw, err := readLines(c.in, []byte("\r\n")) // the trailer looks like a head without its first line
	if err == nil {
		_, err = parseHead(raw)
	}
	if err != nil {
		return err
	}
	c.trailer = raw[len("\r\n"):]
	return io.EOF
}

// isHere reports whether the rest of the body is in the read buffer.
func (c *content) isHere() bool { return c.left >= 0 && int64(c.in.Buffered()) >= c.left }

// appendChunk appends a piece of a body as a chunk.
func appendChunk(b, piece []byte) []byte {
	if len(piece) == 0 {
		return b // an empty chunk would end the body
	}
	b = append(strconv.AppendInt(b, int64(len(piece)), 16), "\r\n"...)
	return append(append(b, piece...), "\r\n"...)
}

// appendLastChunk appends the end of a chunked body with its trailer.
func appendLastChunk(b, trailer []byte) []byte { return append(append(b, "0\r\n"...), trailer...) }
