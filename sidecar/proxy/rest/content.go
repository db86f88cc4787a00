package rest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
)

// content is the body of a message that is read from a connection, up to its end and no
// further.
type content struct {
	in      *bufio.Reader
	left    int64     // bytes that are left, or unknownLength
	chunks  io.Reader // the content of a chunked body
	trailer []byte    // of a chunked body, with the empty line that ends it
}

// newContent returns the body that follows a head. A length of unknownLength is a body that
// ends with its connection, unless it is chunked.
func newContent(in *bufio.Reader, h *head) *content {
	c := &content{in: in, left: h.length}
	if h.isChunked {
		c.chunks = httputil.NewChunkedReader(in)
	}
	return c
}

// Read implements io.Reader. It returns io.EOF at the end of the body only.
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

// readTrailer reads the fields behind the last chunk. It returns io.EOF if they are whole.
func (c *content) readTrailer() error {
	raw, err := readLines(c.in, []byte("\r\n")) // where the first line of a head would be
	if err == nil {
		_, err = parseHead(raw)
	}
	if err != nil {
		return err
	}
	c.trailer = raw[len("\r\n"):]
	return io.EOF
}

// isHere reports whether the whole rest of the body has been read from the connection.
func (c *content) isHere() bool { return c.left >= 0 && int64(c.in.Buffered()) >= c.left }

// appendChunk appends a piece of a chunked body.
func appendChunk(b, piece []byte) []byte {
	if len(piece) == 0 {
		return b // an empty chunk would be the last
	}
	b = append(strconv.AppendInt(b, int64(len(piece)), 16), "\r\n"...)
	return append(append(b, piece...), "\r\n"...)
}

// appendLastChunk appends the end of a chunked body.
func appendLastChunk(b, trailer []byte) []byte { return append(append(b, "0\r\n"...), trailer...) }
