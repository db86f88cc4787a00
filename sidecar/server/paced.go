package server

import (
	"net"
	"time"
)

// pace is how far apart a connection is read while more comes than can be answered. A
// read takes the processor from the searches that it keeps busy, and so does each
// refusal that is written alone: what came within a pace is read, refused and
// written together, for less than half of what one by one takes.
const pace = 3 * time.Millisecond

// paced is a listener whose connections are read at a pace while overloaded says so.
type paced struct {
	net.Listener
	overloaded func() bool
}

// Accept implements net.Listener.
func (l paced) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &pacedConn{Conn: c, overloaded: l.overloaded}, nil
}

type pacedConn struct {
	net.Conn
	overloaded func() bool
	more       bool // is there than was read last; of the one reader
}

// Read implements net.Conn. What is read in parts, as a large message, does not wait
// between them.
func (c *pacedConn) Read(p []byte) (int, error) {
	if !c.more && c.overloaded() {
		time.Sleep(pace) //nolint:forbidigo // nothing ends it but time
	}
	n, err := c.Conn.Read(p)
	c.more = n == len(p)
	return n, err
}
