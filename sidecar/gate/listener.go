package gate

import (
	"net"
	"time"
)

// readInterval is the time between two reads of a connection during an overload. Reads, and
// refusals written one by one, take the processor from the searches. Calls that came within an
// interval are read, refused and written together, which takes less than half of that time.
const readInterval = 3 * time.Millisecond

// Listener returns a listener whose connections are read less often while the gate is
// overloaded. It returns l on a nil Gate.
func (g *Gate) Listener(l net.Listener) net.Listener {
	if g == nil {
		return l
	}
	return pacedListener{l, g.Overloaded}
}

// pacedListener is a listener whose connections wait between reads during an overload.
type pacedListener struct {
	net.Listener
	isOverloaded func() bool
}

// Accept implements net.Listener.
func (l pacedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &pacedConn{Conn: c, isOverloaded: l.isOverloaded}, nil
}

type pacedConn struct {
	net.Conn
	isOverloaded func() bool
	// filled: the last read filled its buffer, so that more of a large message follows. Only
	// the one reader of the connection uses it.
	filled bool
}

// Read implements net.Conn. It does not pause within a large message.
func (c *pacedConn) Read(p []byte) (int, error) {
	if !c.filled && c.isOverloaded() {
		time.Sleep(readInterval) //nolint:forbidigo // nothing ends the wait but time
	}
	n, err := c.Conn.Read(p)
	c.filled = n == len(p)
	return n, err
}
