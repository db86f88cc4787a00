package rest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const (
	// maxHeadBytes limits the head of a message. It is large because a path may name many points.
	maxHeadBytes = 256 << 10
	// maxFields limits the header lines of a message. Qdrant accepts 96.
	maxFields = 512
	// unknownLength is the length of a body that does not announce its length.
	unknownLength = -1
)

// malformedError reports a message that breaks RFC 9112, or exceeds a limit, so that its end
// is not certain. The proxy answers such a request itself.
type malformedError struct {
	status  int // of the answer to the request
	problem string
}

func (e *malformedError) Error() string { return e.problem }

func malformed(problem string) error {
	return &malformedError{http.StatusBadRequest, problem}
}

// readLines appends the lines of a head to b, including the empty line that ends it.
func readLines(in *bufio.Reader, b []byte) ([]byte, error) {
	start := len(b)
	for lineStart := start; ; {
		part, err := in.ReadSlice('\n')
		if len(b)+len(part)-start > maxHeadBytes {
			return b, &malformedError{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the head of the request is longer than %d bytes", maxHeadBytes)}
		}
		b = append(b, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // the line continues
		case errors.Is(err, io.EOF) && len(b) > start:
			return b, io.ErrUnexpectedEOF
		case err != nil:
			return b, err
		case len(trimLineEnd(b[lineStart:])) == 0:
			return b, nil
		default:
			lineStart = len(b)
		}
	}
}

// trimLineEnd removes the CRLF or LF at the end of a line.
func trimLineEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// field is one line of a header. name and value are parts of line.
type field struct{ line, name, value string }

func (f field) is(name string) bool {
	return len(f.name) == len(name) && strings.EqualFold(f.name, name)
}

// head is the head of a message: its first line and its fields, unchanged.
type head struct {
	start  string // the first line, without its end
	fields []field

	length     int64 // Content-Length, or unknownLength
	isChunked  bool
	connection string // the values of all Connection fields, separated by commas
}

// parseHead parses a head that readLines has read. It accepts only heads after which all HTTP
// implementations see the end of the body at the same byte.
func parseHead(raw []byte) (h head, err error) {
	text := string(raw)
	h.start, text, _ = strings.Cut(text, "\n")
	h.start = strings.TrimSuffix(h.start, "\r")
	h.length = unknownLength
	h.fields = make([]field, 0, min(strings.Count(text, "\n"), maxFields))
	for {
		end := strings.IndexByte(text, '\n') + 1
		line := text[:end]
		text = text[end:]
		content := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if content == "" {
			return h, h.check()
		}
		if len(h.fields) == maxFields {
			return h, &malformedError{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request has more than %d header lines", maxFields)}
		}
		name, value, ok := strings.Cut(content, ":")
		value = strings.Trim(value, " \t")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return h, malformed("a header line is malformed")
		}
		f := field{line, name, value}
		h.fields = append(h.fields, f)
		if err := h.note(f); err != nil {
			return h, err
		}
	}
}

// note evaluates a field that determines where the message or the connection ends.
func (h *head) note(f field) error {
	switch {
	case f.is("Content-Length"):
		n, err := strconv.ParseUint(f.value, 10, 63)
		if err != nil || h.length >= 0 && h.length != int64(n) {
			return malformed("Content-Length is malformed")
		}
		h.length = int64(n)
	case f.is("Transfer-Encoding"):
		if h.isChunked || !strings.EqualFold(f.value, "chunked") {
			return &malformedError{http.StatusNotImplemented, "Transfer-Encoding is not chunked"}
		}
		h.isChunked = true
	case f.is("Connection"):
		h.connection = strings.TrimPrefix(h.connection+","+f.value, ",")
	}
	return nil
}

// check refuses a message that states two different ends, or that names the field with its end in
// Connection: that field is not forwarded, and the database would read the body as the next request.
func (h *head) check() error {
	if h.lists("Content-Length") || h.lists("Transfer-Encoding") {
		return malformed("Connection names Content-Length or Transfer-Encoding")
	}
	if h.isChunked && (h.length >= 0 || !h.isHTTP11()) {
		return malformed("Transfer-Encoding contradicts Content-Length or HTTP/1.0")
	}
	return nil
}

func (h *head) isHTTP11() bool {
	return strings.HasSuffix(h.start, "HTTP/1.1") || strings.HasPrefix(h.start, "HTTP/1.1")
}

// get returns the value of the first field with a name.
func (h *head) get(name string) string {
	for _, f := range h.fields {
		if f.is(name) {
			return f.value
		}
	}
	return ""
}

// closes reports whether the message is the last on its connection.
func (h *head) closes() bool {
	return !h.isHTTP11() || h.lists("close")
}

// lists reports whether a Connection field has the option, which may be the name of another field.
func (h *head) lists(option string) bool {
	return h.connection != "" && httpguts.HeaderValuesContainsToken([]string{h.connection}, option)
}

// ofConnection reports whether a field concerns the connection and not the message (RFC 9110,
// section 7.6.1).
func (h *head) ofConnection(f field) bool {
	for _, name := range [...]string{"Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade"} {
		if f.is(name) {
			return true
		}
	}
	switch h.connection {
	case "", "close", "keep-alive", "Keep-Alive":
		return false
	}
	return h.lists(f.name)
}

// header returns the fields as a map.
func (h *head) header() http.Header {
	header := make(http.Header, len(h.fields))
	values := make([]string, len(h.fields))
	for i, f := range h.fields {
		name := textproto.CanonicalMIMEHeaderKey(f.name)
		values[i] = f.value
		if there := header[name]; there != nil {
			header[name] = append(there, f.value)
		} else {
			header[name] = values[i : i+1 : i+1]
		}
	}
	return header
}

// requestHead is the head of a request.
type requestHead struct {
	head

	method, target string
}

// parseRequest parses the head of a request.
func parseRequest(raw []byte) (r requestHead, err error) {
	if r.head, err = parseHead(raw); err != nil {
		return r, err
	}
	var version string
	var ok bool
	r.method, version, _ = strings.Cut(r.start, " ")
	r.target, version, ok = strings.Cut(version, " ")
	if !ok || !httpguts.ValidHeaderFieldName(r.method) || r.target == "" || strings.ContainsFunc(r.target, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return r, malformed("the request line is malformed")
	}
	switch {
	case version != "HTTP/1.1" && version != "HTTP/1.0":
		return r, &malformedError{http.StatusHTTPVersionNotSupported, "the version of HTTP is not supported"}
	case r.method == http.MethodConnect:
		return r, &malformedError{http.StatusMethodNotAllowed, "there is no tunnel through a database"}
	}
	// The part after # does not belong to a request; databases ignore it.
	r.target, _, _ = strings.Cut(r.target, "#")
	return r, nil
}

// hasBody reports whether a body follows the head.
func (r *requestHead) hasBody() bool { return r.isChunked || r.length > 0 }

// upgrades reports whether the client asks for another protocol on the connection.
func (r *requestHead) upgrades() bool { return r.get("Upgrade") != "" }

// parsed returns the request without a body, in the form that interceptors read.
func (r *requestHead) parsed() (*http.Request, error) {
	u, err := url.ParseRequestURI(r.target)
	if err != nil {
		return nil, malformed("the target of the request is malformed")
	}
	return &http.Request{
		Method: r.method, URL: u, RequestURI: r.target, Header: r.header(), Host: r.get("Host"), ContentLength: r.length,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}, nil
}

// asked says how a request is changed on its way to the database.
type asked struct {
	host     string // of the database
	path     string // replaces the client's path, escaped; empty: the client's
	length   int64  // of a complete body; unknownLength: the body is framed as it came
	identity bool   // asks for an answer without content encoding
}

// appendTo appends the head for the database: the client's lines in their order, without those
// about the connection, the body's length and the Host.
func (r *requestHead) appendTo(b []byte, as asked) []byte {
	target := r.target
	if as.path != "" {
		target = as.path
		if q := strings.IndexByte(r.target, '?'); q >= 0 {
			target += r.target[q:]
		}
	}
	version := " HTTP/1.1\r\nHost: "
	if !r.isHTTP11() {
		version = " HTTP/1.0\r\nHost: "
	}
	b = append(append(append(append(append(append(b, r.method...), ' '), target...), version...), as.host...), "\r\n"...)
	isWhole := as.length >= 0
	for _, f := range r.fields {
		switch {
		case r.ofConnection(f), f.is("Host"), isWhole && (f.is("Content-Length") || f.is("Transfer-Encoding") || f.is("Expect")),
			as.identity && f.is("Accept-Encoding"):
			continue
		}
		b = append(b, strings.TrimRight(f.line, "\r\n")...)
		b = append(b, "\r\n"...)
	}
	if as.identity {
		b = append(b, "Accept-Encoding: identity\r\n"...)
	}
	if isWhole && (as.length > 0 || r.length >= 0 || r.isChunked) {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), as.length, 10), "\r\n"...)
	}
	if r.upgrades() && !isWhole {
		b = append(append(append(b, "Connection: Upgrade\r\nUpgrade: "...), r.get("Upgrade")...), "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// answerHead is the head of an answer.
type answerHead struct {
	head

	status int
}

// parseAnswer parses the head of an answer.
func parseAnswer(raw []byte) (a answerHead, err error) {
	if a.head, err = parseHead(raw); err != nil {
		return a, err
	}
	const before, after = len("HTTP/1.1 "), len("HTTP/1.1 200")
	line := a.start
	if len(line) < after || line[:before] != "HTTP/1.1 " && line[:before] != "HTTP/1.0 " || len(line) > after && line[after] != ' ' {
		return a, malformed("the status line is malformed")
	}
	status, err := strconv.ParseUint(line[before:after], 10, 16)
	if err != nil || status < 100 {
		return a, malformed("the status is malformed")
	}
	a.status = int(status)
	return a, nil
}

// hasBody reports whether a body follows the head of the answer to a request with that method.
func (a *answerHead) hasBody(method string) bool {
	return method != http.MethodHead && a.status >= 200 && a.status != http.StatusNoContent && a.status != http.StatusNotModified && a.length != 0
}

// appendTo appends the head for the client: the database's lines in their order, without those
// about the connection, and the proxy's lines.
func (a *answerHead) appendTo(b []byte, status string, closes bool) []byte {
	b = append(append(append(b, "HTTP/1.1"...), a.start[len("HTTP/1.1"):]...), "\r\n"...)
	for _, f := range a.fields {
		if !a.ofConnection(f) && (status == "" || !f.is(statusHeader)) {
			b = append(b, strings.TrimRight(f.line, "\r\n")...)
			b = append(b, "\r\n"...)
		}
	}
	if status != "" {
		b = append(append(append(b, statusLine...), status...), "\r\n"...)
	}
	if closes {
		b = append(b, closeLine...)
	}
	return append(b, "\r\n"...)
}

const (
	statusLine = statusHeader + ": "
	closeLine  = "Connection: close\r\n"
)
