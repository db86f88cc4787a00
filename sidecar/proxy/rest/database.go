package rest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/peer"
)

const (
	dialTimeout = 5 * time.Second
	// idleTime is how long an unused connection to the database is kept. It is shorter than
	// Qdrant's limit of five seconds.
	idleTime = 4 * time.Second
	// maxIdle bounds the unused connections to the database.
	maxIdle = 256
	// bufferBytes is the size of a connection's read buffer, which usually holds a search or its
	// answer.
	bufferBytes = 16 << 10
)

// database opens connections to the database's REST API and keeps them between requests. It
// is safe for concurrent use.
type database struct {
	address string      // host:port
	host    string      // the value of the Host header
	secure  *tls.Config // nil: without TLS
	dialer  net.Dialer

	gate *gate.Gate // counts answers; nil counts none

	mu     sync.Mutex
	idle   []*databaseConn // the most recently used last
	expiry *time.Timer     // closes connections that are unused for idleTime; nil if there are none
	closed bool
}

// databaseConn is a connection to the database.
type databaseConn struct {
	net.Conn

	in       *bufio.Reader
	lastUsed time.Time // zero: has answered no request yet
	// stopEnding stops the connection from ending with its context. It returns false if that has
	// happened.
	stopEnding func() bool
}

func newDatabase(upstream *url.URL, secure *tls.Config, g *gate.Gate) *database {
	port := map[string]string{"http": "80", "https": "443"}[upstream.Scheme]
	d := &database{
		address: net.JoinHostPort(upstream.Hostname(), cmp.Or(upstream.Port(), port)), host: upstream.Host,
		gate:   g,
		dialer: net.Dialer{Timeout: dialTimeout, KeepAliveConfig: peer.KeepAlive()},
	}
	if upstream.Scheme == "https" {
		d.secure = &tls.Config{MinVersion: tls.VersionTLS12}
		if secure != nil {
			d.secure = secure.Clone()
		}
		d.secure.ServerName, d.secure.NextProtos = cmp.Or(d.secure.ServerName, upstream.Hostname()), []string{"http/1.1"}
	}
	return d
}

// dial opens a connection.
func (d *database) dial(ctx context.Context) (*databaseConn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	dial := d.dialer.DialContext
	if d.secure != nil {
		dial = (&tls.Dialer{NetDialer: &d.dialer, Config: d.secure}).DialContext
	}
	conn, err := dial(ctx, "tcp", d.address)
	if err != nil {
		return nil, err
	}
	return &databaseConn{Conn: conn, in: bufio.NewReaderSize(conn, bufferBytes)}, nil
}

// take returns an idle connection, or opens a new one.
func (d *database) take(ctx context.Context) (*databaseConn, error) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		c := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		if time.Since(c.lastUsed) < idleTime {
			return c, nil
		}
		_ = c.Close()
	} else {
		d.mu.Unlock()
	}
	return d.dial(ctx)
}

// giveBack keeps a connection that has answered its request for the next request.
func (d *database) giveBack(c *databaseConn) {
	c.lastUsed = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.idle) == maxIdle {
		_ = c.Close()
		return
	}
	d.idle = append(d.idle, c)
	if d.expiry == nil {
		d.expiry = time.AfterFunc(idleTime, d.closeExpired)
	}
}

// closeExpired closes the connections that were unused for too long.
func (d *database) closeExpired() {
	d.mu.Lock()
	defer d.mu.Unlock()
	fresh := slices.IndexFunc(d.idle, func(c *databaseConn) bool { return time.Since(c.lastUsed) < idleTime })
	if fresh < 0 {
		fresh = len(d.idle)
	}
	for _, c := range d.idle[:fresh] {
		_ = c.Close()
	}
	d.idle = slices.Delete(d.idle, 0, fresh)
	d.expiry = nil
	if len(d.idle) > 0 {
		d.expiry = time.AfterFunc(idleTime-time.Since(d.idle[0].lastUsed), d.closeExpired)
	}
}

// close closes the idle connections. The others are closed when they are given back.
func (d *database) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, c := range d.idle {
		_ = c.Close()
	}
	d.idle = nil
	if d.expiry != nil {
		d.expiry.Stop()
	}
}

// unsentError is the error of a request that did not reach the database, because no connection
// could be opened.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// send sends a complete request, and waits for the first byte of the answer. Since the database
// closes idle connections without notice, a request on a used connection that ends without a byte
// is sent once more on a new one. The connection is closed when ctx ends, unless it was released
// before. inUse is called with each connection that is tried.
func (d *database) send(ctx context.Context, head, body []byte, inUse func(*databaseConn)) (*databaseConn, error) {
	c, err := d.take(ctx)
	for {
		if err != nil {
			return nil, unsentError{err}
		}
		c.endWith(ctx)
		inUse(c)
		if err = c.write(head, body); err == nil {
			_, err = c.in.Peek(1)
		}
		if err == nil {
			return c, nil
		}
		d.release(c, false)
		if c.lastUsed.IsZero() || ctx.Err() != nil {
			return nil, err
		}
		c, err = d.dial(ctx)
	}
}

// endWith closes the connection when ctx is done.
func (c *databaseConn) endWith(ctx context.Context) {
	c.stopEnding = context.AfterFunc(ctx, func() { _ = c.Close() })
}

// write sends head and body, if possible in one piece.
func (c *databaseConn) write(head, body []byte) error {
	if len(body) <= bufferBytes {
		_, err := c.Write(append(head, body...))
		return err
	}
	_, err := c.Write(head)
	if err == nil {
		_, err = c.Write(body)
	}
	return err
}

// release keeps a connection for the next request if isReusable, and closes it otherwise.
func (d *database) release(c *databaseConn, isReusable bool) {
	if !c.stopEnding() || !isReusable || c.in.Buffered() > 0 {
		_ = c.Close()
		return
	}
	d.giveBack(c)
}

// ask sends a complete request of the proxy's own and reads the answer. If the database breaks off
// the answer, ask returns what has arrived, with Cut set.
func (d *database) ask(ctx context.Context, method string, head, body []byte) (Answer, error) {
	c, err := d.send(ctx, head, body, func(*databaseConn) {})
	if err != nil {
		return Answer{}, err
	}
	r, err := readFinal(c.in, method)
	if err != nil {
		d.release(c, false)
		return Answer{}, err
	}
	whole, err := readAll(r, d.gate.CountAnswer(ctx))
	_ = r.Body.Close()
	d.release(c, err == nil && !r.Close && r.StatusCode >= http.StatusOK)
	if errors.Is(err, gate.ErrTooLarge) {
		return Answer{}, fmt.Errorf("the database's answer: %w", err)
	}
	r.Header.Del("Connection")
	r.Header.Del("Keep-Alive")
	return Answer{Status: r.StatusCode, Header: r.Header, Body: whole, Cut: err != nil}, nil
}

// readFinal reads the head of an answer, after any interim answers.
func readFinal(in *bufio.Reader, method string) (*http.Response, error) {
	for {
		r, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil || r.StatusCode >= http.StatusOK || r.StatusCode == http.StatusSwitchingProtocols {
			return r, err
		}
	}
}

// readAll reads the body of an answer, and counts its bytes.
func readAll(r *http.Response, count *gate.AnswerCount) ([]byte, error) {
	if r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength < 0 || r.ContentLength > 1<<20 { // a longer announced length is not trusted
		whole := counted{count: count}
		_, err := io.Copy(&whole, r.Body)
		return whole.to.Bytes(), err
	}
	if err := count.Grow(int(r.ContentLength)); err != nil {
		return nil, err
	}
	body := make([]byte, r.ContentLength)
	n, err := io.ReadFull(r.Body, body)
	return body[:n], err
}

// counted writes to a buffer, and counts the bytes.
type counted struct {
	to    bytes.Buffer
	count *gate.AnswerCount
}

// Write implements io.Writer.
func (c *counted) Write(b []byte) (int, error) {
	if err := c.count.Grow(c.to.Len() + len(b)); err != nil {
		return 0, err
	}
	return c.to.Write(b)
}

// check requests the root of the database's API, which Qdrant serves without credentials.
func (d *database) check(ctx context.Context) error {
	_, err := d.ask(ctx, http.MethodGet, []byte("GET / HTTP/1.1\r\nHost: "+d.host+"\r\n\r\n"), nil)
	var network *net.OpError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.As(err, &network):
		return fmt.Errorf("the REST API at %s does not answer: %w", d.host, err)
	}
	return fmt.Errorf("%w: %s does not speak HTTP/1.1: %w; name the port of the REST API, which is not that of gRPC (Qdrant's are 6333 and 6334)",
		ErrURL, d.host, err)
}

// closeWrite half-closes the connection, or closes it if it cannot be half-closed.
func (c *databaseConn) closeWrite() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		_ = c.Close()
	}
}
