package rest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
)

const (
	// headTime limits the wait for the first byte of a connection, and for the rest of a head.
	headTime = 30 * time.Second
	// clientIdleTime limits the wait for the next request.
	clientIdleTime = 2 * time.Minute
	// lastBytesTime is how long a client may take to read its last answer and to close.
	lastBytesTime = 5 * time.Second
	// drainTime takes the place of lastBytesTime while the proxy shuts down.
	drainTime = 500 * time.Millisecond
	// watchDelay is how long an answer may take before the proxy checks whether the client has
	// left. Most answers are faster and cost no check.
	watchDelay = 100 * time.Millisecond
	// maxWhole limits the bodies that are read completely before they are forwarded, if no
	// interceptor reads them.
	maxWhole = 64 << 10
	// keptBytes is the size up to which a connection keeps its buffers for the next request.
	keptBytes = 64 << 10
)

// pieces holds the buffers for copying bodies.
var pieces = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// conn serves a client's connection of HTTP/1.1, one request after the other, in the
// goroutine of serve. Only while a request is answered may a second goroutine read from the
// client: it uploads the body, or waits for the client to leave.
type conn struct {
	server *Server
	raw    net.Conn // the client's, below TLS
	client net.Conn
	in     *bufio.Reader
	// isInMemory: the client is net/http in this process, which serves HTTP/2 and announces a drain
	// itself.
	isInMemory bool

	cut context.CancelFunc // ends ctx
	ctx context.Context    //nolint:containedctx // the life of the connection

	isIdle atomic.Bool // no request is being read or answered, so that a drain may close the connection
	heads  []byte      // buffer for heads that are read
	bodies []byte      // buffer for bodies that no interceptor sees
	out    []byte      // write buffer

	// The second goroutine that reads from the client. A read deadline ends it.

	watch       *time.Timer // starts it
	watched     *request    // the request that is being answered
	readerEnded chan struct{}
}

// request is a request that is being answered.
type request struct {
	requestHead

	content *content
	body    io.Reader // the content, read at the pace that the gate requires
	whole   []byte    // the body, if isWhole
	isWhole bool      // the body has been read completely

	ctx    context.Context //nolint:containedctx // ends when the client leaves
	cancel context.CancelCauseFunc
	// passed is the database connection of a request that no interceptor has seen. If the client
	// closes its sending side, which may not mean that it has left, the database's connection is
	// half-closed too.
	passed   atomic.Pointer[databaseConn]
	received atomic.Bool // the client has sent the whole body
}

func newConn(s *Server, raw, client net.Conn) *conn {
	c := &conn{server: s, raw: raw, client: client, in: bufio.NewReaderSize(client, bufferBytes), readerEnded: make(chan struct{}, 1)}
	c.ctx, c.cut = context.WithCancel(gate.WithSender(context.Background(), raw.RemoteAddr().String()))
	c.isIdle.Store(true)
	c.watch = time.AfterFunc(time.Hour, func() {
		c.waitForClient(c.watched)
		c.readerEnded <- struct{}{}
	})
	c.watch.Stop()
	return c
}

// isDraining reports whether the client must connect elsewhere after its request is answered.
func (c *conn) isDraining() bool { return !c.isInMemory && c.server.isDraining() }

// close closes the connection at once, and cancels the work for it.
func (c *conn) close() {
	c.cut()
	_ = c.raw.Close()
}

// reset closes the connection with an error, so that the client does not take a partial answer for
// the whole.
func (c *conn) reset() {
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.close()
}

// closeGently lets the client read its last answer, and discards the bytes that it still sends. A
// client that is cut off while it sends may lose its answer.
func (c *conn) closeGently(within time.Duration) {
	defer c.close()
	half, ok := c.client.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.client.SetReadDeadline(time.Now().Add(within))
	_, _ = io.Copy(io.Discard, c.client)
}

// serve answers requests until the connection ends. It returns true if the client speaks HTTP/2;
// then c.in holds all bytes that were read, and the connection stays open.
func (c *conn) serve() (isHTTP2 bool) {
	defer func() {
		if p := recover(); p != nil {
			c.server.log.Error("REST: a request panicked", "panic", p, "stack", string(debug.Stack()))
			c.close()
		}
	}()
	for first := true; c.awaitRequest(first); first = false {
		if first && c.isPreface() {
			return true
		}
		if !c.serveRequest() {
			return false
		}
		c.dropLongBuffers()
	}
	c.close()
	return false
}

// dropLongBuffers frees the long buffers of an idle connection.
func (c *conn) dropLongBuffers() {
	for _, b := range []*[]byte{&c.heads, &c.out, &c.bodies} {
		if cap(*b) > keptBytes {
			*b = nil
		}
	}
}

// awaitRequest waits for the first byte of a request. It returns false if none comes, or if the
// server drains.
func (c *conn) awaitRequest(first bool) bool {
	if c.in.Buffered() > 0 && !c.isDraining() {
		return true
	}
	c.isIdle.Store(true)
	if c.isDraining() {
		return false
	}
	wait := clientIdleTime
	if first {
		wait = headTime
	}
	_ = c.client.SetReadDeadline(time.Now().Add(wait))
	_, err := c.in.Peek(1)
	return c.isIdle.CompareAndSwap(true, false) && err == nil
}

// preface is the start of the HTTP/2 connection preface (RFC 9113, section 3.4). No request
// of HTTP/1.1 begins with it.
const preface = "PRI * HTTP/2.0\r\n"

// isPreface reports whether the connection begins as HTTP/2. It reads only as far as necessary.
func (c *conn) isPreface() bool {
	for n := 1; n <= len(preface); n++ {
		if b, err := c.in.Peek(n); err != nil || b[n-1] != preface[n-1] {
			return false
		}
	}
	return true
}

// serveRequest reads a request and answers it. It returns false if it has closed the connection.
func (c *conn) serveRequest() (goesOn bool) {
	r, err := c.readRequest()
	if err != nil {
		c.refuse(r, err)
		return false
	}
	r.ctx, r.cancel = context.WithCancelCause(c.ctx)
	defer r.cancel(nil)
	if c.server.intercept != nil && c.server.wants(r.method, r.target) {
		return c.intercepted(r)
	}
	if err := c.readWhole(r); err != nil {
		c.refuse(r, err)
		return false
	}
	return c.pass(r, Reply{}, false)
}

// readRequest reads the head of a request.
func (c *conn) readRequest() (*request, error) {
	if !c.headIsHere() {
		_ = c.client.SetReadDeadline(time.Now().Add(headTime))
	}
	for { // empty lines may precede a request (RFC 9112, section 2.2)
		b, err := c.in.Peek(1)
		if err != nil {
			return nil, err
		}
		if b[0] != '\r' && b[0] != '\n' {
			break
		}
		_, _ = c.in.Discard(1)
	}
	var err error
	if c.heads, err = readLines(c.in, c.heads[:0]); err != nil {
		return nil, err
	}
	_ = c.client.SetReadDeadline(time.Time{})
	r := &request{}
	if r.requestHead, err = parseRequest(c.heads); err != nil {
		return r, err
	}
	r.content = newContent(c.in, &r.head)
	if !r.hasBody() {
		r.content.left = 0
	}
	r.body = gate.NewBody(r.content, c.client)
	r.isWhole = !r.hasBody() && !r.upgrades()
	return r, nil
}

// headIsHere reports whether the whole head of the next request is in the read buffer. Empty lines
// before it are no head.
func (c *conn) headIsHere() bool {
	b, _ := c.in.Peek(c.in.Buffered())
	return bytes.Contains(bytes.TrimLeft(b, "\r\n"), []byte("\r\n\r\n"))
}

// readWhole reads a short body that no interceptor sees, if its length is known and the client does
// not wait for 100 Continue. Other bodies are streamed.
func (c *conn) readWhole(r *request) error {
	if r.isWhole || r.isStreamed() || r.isChunked || r.length > maxWhole || r.get("Expect") != "" {
		return nil
	}
	c.bodies = slices.Grow(c.bodies[:0], int(r.length))
	r.whole = c.bodies[:r.length]
	return c.readInto(r, r.whole)
}

// readInto reads a whole body of length len(b) into b.
func (c *conn) readInto(r *request, b []byte) error {
	from := r.body
	if r.content.isHere() {
		from = r.content // the body is in the buffer, so that reading does not block
	}
	_, err := io.ReadFull(from, b)
	r.isWhole = err == nil
	return err
}

// isStreamed reports whether a request is forwarded while it is read: one for another protocol, or
// the upload of a snapshot.
func (r *request) isStreamed() bool {
	kind := r.get("Content-Type")
	return r.upgrades() || len(kind) >= len("multipart/") && strings.EqualFold(kind[:len("multipart/")], "multipart/")
}

// startWatching waits in a second goroutine, after watchDelay, for the client to leave. endReading
// ends it.
func (c *conn) startWatching(r *request) {
	c.watched = r
	c.watch.Reset(watchDelay)
}

// endReading waits for the end of the second goroutine that reads from the client: of startWatching
// if the request is complete, else of the upload.
func (c *conn) endReading(r *request) {
	if r.isWhole && c.watch.Stop() {
		return
	}
	_ = c.client.SetReadDeadline(time.Unix(1, 0))
	<-c.readerEnded
	_ = c.client.SetReadDeadline(time.Time{})
}

// waitForClient returns when the client sends its next request, leaves, or the read deadline
// passes. If the client left, it cancels the request.
func (c *conn) waitForClient(r *request) {
	_, err := c.in.Peek(1)
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		return
	}
	if passed := r.passed.Load(); passed != nil && errors.Is(err, io.EOF) {
		passed.closeWrite() // the database can still answer, and then closes
		return
	}
	r.cancel(err)
}

// upload sends the body to the database while it arrives. It returns false if the database did not take
// all of it.
func (c *conn) upload(r *request, to io.Writer) (sent bool, err error) {
	piece := pieces.Get().(*[32 << 10]byte)
	defer pieces.Put(piece)
	var chunk []byte
	for {
		n, err := r.body.Read(piece[:])
		b := piece[:n]
		if r.isChunked {
			chunk = appendChunk(chunk[:0], b)
			b = chunk
		}
		isEnd := errors.Is(err, io.EOF)
		if isEnd {
			r.received.Store(true)
		}
		if isEnd && r.isChunked {
			b = appendLastChunk(b, r.content.trailer)
		}
		if _, err := to.Write(b); len(b) > 0 && err != nil {
			return false, nil // the database closed the connection, perhaps after an answer that says why
		}
		switch {
		case isEnd:
			return true, nil
		case err != nil:
			return false, err
		}
	}
}

// refuse answers a request that could not be read, and closes the connection. r is nil if there is
// no head.
func (c *conn) refuse(r *request, err error) {
	var wrong *malformedError
	status, problem := http.StatusBadRequest, "the body of the request is not whole"
	switch {
	case errors.As(err, &wrong):
		status, problem = wrong.status, wrong.problem
	case errors.Is(err, gate.ErrFull):
		status, problem = http.StatusTooManyRequests, err.Error()
	case errors.Is(err, gate.ErrStalled):
		status, problem = http.StatusRequestTimeout, err.Error()
	case r == nil: // the client left, or was silent for too long
		c.close()
		return
	default:
		c.server.log.DebugContext(c.ctx, "the request body ended early", "error", err)
	}
	c.writeError(r, status, problem)
	c.closeGently(lastBytesTime)
}

// writeError sends an answer in the form of the database's errors, the last answer on the
// connection.
func (c *conn) writeError(r *request, status int, problem string) {
	header := lastHeader()
	if status == http.StatusTooManyRequests {
		header["Retry-After"] = []string{"1"}
	}
	c.writeAnswer(r, Answer{Status: status, Header: header, Body: errorBody(problem)}, "")
}

// lastHeader returns the header of the proxy's own last answer on a connection.
func lastHeader() http.Header {
	return http.Header{"Content-Type": {"application/json"}, "Connection": {"close"}}
}

// writeAnswer writes a whole answer. It returns false if the client does not take it.
func (c *conn) writeAnswer(r *request, a Answer, status string) bool {
	b := fmt.Appendf(c.out[:0], "HTTP/1.1 %d %s\r\n", a.Status, http.StatusText(a.Status))
	for name, values := range a.Header {
		if name == "Content-Length" {
			continue
		}
		for _, v := range values {
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	if status != "" {
		b = append(append(append(b, statusLine...), status...), "\r\n"...)
	}
	if a.Status != http.StatusNoContent && a.Status != http.StatusNotModified {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(len(a.Body)), 10), "\r\n"...)
	}
	b = append(b, "\r\n"...)
	if r == nil || r.method != http.MethodHead {
		b = append(b, a.Body...)
	}
	c.out = b
	_, err := c.client.Write(b)
	return err == nil
}
