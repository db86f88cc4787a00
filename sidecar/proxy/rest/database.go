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
	// idleTime is how long an unused connection to the database is kept: less than Qdrant
	// keeps it, which is five seconds.
	idleTime = 4 * time.Second
	// maxIdle bounds the unused connections to the database.
	maxIdle = 256
	// bufferBytes is the size of a connection's read buffer: a search and its answer, as a
	// rule.
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
	idle   []*databaseConn // the last used comes last
	expiry *time.Timer     // closes connections that were unused for idleTime; nil if no connection is kept
	closed bool
}

// databaseConn is a connection to the database.
type databaseConn struct {
	net.Conn

	in       *bufio.Reader
	lastUsed time.Time // zero: it has answered no request yet
	// stopEnding ends that the connection ends with a context. It returns false if that is
	// done.
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

// take returns a connection that was used before, if there is one, or a new one.
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

// giveBack keeps a connection that has answered its request for the next one.
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

// close closes the unused connections, and each of the others when it is given back.
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

// unsentError reports a request that the database did not get, as no connection was opened.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// send sends a request whose bytes are all here, and waits for the first byte of the answer.
// The database closes idle connections without saying so: where a connection that was used
// before ends without a byte, the request is sent once more on a new one. The connection ends
// with ctx, until it is released. inUse is called with each connection that is tried.
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

// write sends a request in one piece, as a rule.
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

// release keeps a connection for the next request if it can answer one, or closes it.
func (d *database) release(c *databaseConn, isReusable bool) {
	if !c.stopEnding() || !isReusable || c.in.Buffered() > 0 {
		_ = c.Close()
		return
	}
	d.giveBack(c)
}

// ask sends a whole request of the proxy's own and reads the whole answer. It returns the
// answer as far as it came, with Cut, if the database breaks it off.
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

// readFinal reads the head of an answer, and skips interim ones.
func readFinal(in *bufio.Reader, method string) (*http.Response, error) {
	for {
		r, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil || r.StatusCode >= http.StatusOK || r.StatusCode == http.StatusSwitchingProtocols {
			return r, err
		}
	}
}

// readAll reads the body of an answer, and counts it.
func readAll(r *http.Response, count *gate.AnswerCount) ([]byte, error) {
	if r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength < 0 || r.ContentLength > 1<<20 { // a length is believed up to here
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

// counted writes to a buffer, and counts what it has.
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

// check asks the database for the root of its API, which Qdrant shows without credentials.
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
