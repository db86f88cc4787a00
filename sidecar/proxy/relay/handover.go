package relay

import (
	"net"
	"sync"
)

// handover is a listener whose connections were accepted elsewhere: serve hands them over.
type handover struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

var _ net.Listener = (*handover)(nil)

func newHandover() *handover {
	return &handover{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener. The address cannot be called.
func (h *handover) Addr() net.Addr { return &net.UnixAddr{Name: "relay", Net: "unix"} }

// serve hands conn to Accept and waits until conn is closed. first holds the bytes that
// were already read from conn.
func (h *handover) serve(conn net.Conn, first []byte) {
	c := &handed{Conn: conn, first: first, closed: make(chan struct{})}
	select {
	case h.conns <- c:
		<-c.closed
	case <-h.closed:
	}
}

// handed is a connection that returns first before the bytes of Conn.
type handed struct {
	net.Conn

	first  []byte
	closed chan struct{}
	once   sync.Once
}

// Read implements net.Conn.
func (c *handed) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// Close implements net.Conn.
func (c *handed) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
