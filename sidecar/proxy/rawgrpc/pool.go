package rawgrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/h2"
	"github.com/likenessdb/likeness/sidecar/proxy/peer"
)

const (
	dialTimeout = 5 * time.Second
	// maxResets is the number of cancelled calls after which a connection gets no more calls.
	// Qdrant closes a connection after about twenty cancelled calls in quick succession, which
	// would fail the other calls on it.
	maxResets = 8
	// retiredShare limits all connections of a pool, as a multiple of the connections that take
	// calls. The others only finish their last calls.
	retiredShare = 4
)

// dialer connects to a database.
type dialer struct {
	address string
	secure  *tls.Config // nil: plain text
	net     net.Dialer
}

func newDialer(address string, secure *tls.Config) (*dialer, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q of the database: %w", address, err)
	}
	if secure != nil {
		secure = secure.Clone()
		secure.NextProtos = []string{"h2"}
		if secure.ServerName == "" {
			secure.ServerName = host
		}
	}
	return &dialer{address: address, secure: secure, net: net.Dialer{Timeout: dialTimeout, KeepAliveConfig: peer.KeepAlive()}}, nil
}

// run connects and runs c over the connection until it ends.
func (d *dialer) run(ctx context.Context, c *h2.Conn) {
	conn, err := d.net.DialContext(ctx, "tcp", d.address)
	if err != nil {
		c.Fail(&unsentError{err})
		return
	}
	if d.secure == nil {
		_ = c.Run(conn, nil)
		return
	}
	_ = c.Run(conn, func(conn net.Conn) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		t := tls.Client(conn, d.secure)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, &unsentError{err}
		}
		return t, nil
	})
}

// unsentError says that a call failed before the database got it.
type unsentError struct{ err error }

// Error implements error.
func (e *unsentError) Error() string { return "connection error: " + e.err.Error() }

// Unwrap returns why there is no connection.
func (e *unsentError) Unwrap() error { return e.err }

// GRPCStatus returns Unavailable.
func (e *unsentError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// Unsent reports whether a call failed before the database got it.
func Unsent(err error) bool {
	lost := (*unsentError)(nil)
	return errors.As(err, &lost)
}

// leg is a connection to the database.
type leg struct {
	*h2.Conn
	resets  int  // guarded by pool.mu
	retired bool // it takes no more calls
}

// pool holds connections to the database, which it opens as calls need them. It is safe for
// concurrent use.
type pool struct {
	dialer  *dialer
	crowd   int // calls on a connection before another is used too
	most    int // limit of the connections that take calls
	options h2.Options
	client  *h2.Conn        // the connection that the calls' sinks write to; nil: none
	ctx     context.Context //nolint:containedctx // done when the pool is closed
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	legs   []*leg // copied on change
	closed bool
}

func newPool(d *dialer, crowd, most int, o h2.Options, client *h2.Conn) *pool {
	o.StreamWindow, o.ConnWindow, o.MaxHeaderBytes = gate.StreamWindowBytes, connectionWindow, maxAnswerHeaderBytes
	p := &pool{dialer: d, crowd: crowd, most: most, options: o, client: client}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// all returns the connections, including retired ones.
func (p *pool) all() []*leg {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.legs
}

// open opens a stream on the first connection that is not crowded, or else on the one with the
// fewest calls. It does not wait for a connection: if none can be made, the stream's sink gets the
// error. It returns h2.ErrFull or h2.ErrClosed.
func (p *pool) open(fields []hpack.HeaderField, end bool, sink h2.Sink) (*h2.Stream, *leg, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, h2.ErrClosed
	}
	var crowded []*leg
	taking := 0
	for _, l := range p.legs {
		if l.retired {
			continue
		}
		taking++
		if l.Streams() >= p.crowd {
			crowded = append(crowded, l)
		} else if s, err := l.Open(fields, end, sink); err == nil {
			return s, l, nil
		}
	}
	if taking < p.most && len(p.legs) < retiredShare*p.most {
		l := p.add()
		s, err := l.Open(fields, end, sink)
		p.start(l) // after Open: a connection that failed first would open no stream, and the sink would not learn why
		return s, l, err
	}
	slices.SortStableFunc(crowded, func(a, b *leg) int { return a.Streams() - b.Streams() })
	for _, l := range crowded {
		if s, err := l.Open(fields, end, sink); err == nil {
			return s, l, nil
		}
	}
	return nil, nil, h2.ErrFull
}

// add makes a connection that is not started.
func (p *pool) add() *leg {
	l := &leg{}
	o := p.options
	o.BeforeRead = func() {
		p.flush(l)
		l.AwaitRoom()
		if p.client != nil {
			p.client.AwaitRoom()
		}
	}
	l.Conn = h2.New(o)
	p.legs = append(slices.Clip(p.legs), l)
	return l
}

// start connects to the database, and runs the connection until it ends.
func (p *pool) start(l *leg) {
	p.running.Go(func() {
		p.dialer.run(p.ctx, l.Conn)
		p.flush(l)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.legs = slices.DeleteFunc(slices.Clone(p.legs), func(other *leg) bool { return other == l })
	})
}

// flush writes the frames that a connection's frames led to.
func (p *pool) flush(l *leg) {
	if p.client != nil {
		p.client.Flush()
	}
	l.Flush()
}

// countReset counts a call that was cut before its end. A connection with too many such calls gets
// no more calls, and is closed after its last one.
func (p *pool) countReset(l *leg) {
	p.mu.Lock()
	l.resets++
	retires := l.resets >= maxResets && !l.retired && len(p.legs) < retiredShare*p.most
	l.retired = l.retired || retires
	p.mu.Unlock()
	if retires {
		l.Finish()
	}
}

// close closes the connections, which cuts their calls, and waits for all goroutines.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	legs := p.legs
	p.mu.Unlock()
	p.cancel()
	for _, l := range legs {
		l.Close()
	}
	p.running.Wait()
}
