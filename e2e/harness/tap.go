package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Tap forwards and records all bytes between two peers. It interprets nothing before Exchanges is
// called.
type Tap struct {
	listener net.Listener
	upstream string
	group    sync.WaitGroup

	mu      sync.Mutex // guards wires and their contents
	wires   []*wire
	changed chan struct{} // holds an element if bytes arrived since the last look
}

// wire is one connection, with the bytes in both directions.
type wire struct {
	peers    [2]net.Conn
	up, down bytes.Buffer
}

// keeper writes to one of a wire's buffers.
type keeper struct {
	tap *Tap
	to  *bytes.Buffer
}

func (k keeper) Write(b []byte) (int, error) {
	k.tap.mu.Lock()
	defer k.tap.mu.Unlock()
	select {
	case k.tap.changed <- struct{}{}:
	default:
	}
	return k.to.Write(b)
}

// NewTap listens on a free port in front of host:port. Close it.
func NewTap(ctx context.Context, upstream string) (*Tap, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	t := &Tap{listener: listener, upstream: upstream, changed: make(chan struct{}, 1)}
	t.group.Go(t.accept)
	return t, nil
}

// Address returns the address at which the tap listens, host:port.
func (t *Tap) Address() string { return t.listener.Addr().String() }

func (t *Tap) accept() {
	for {
		client, err := t.listener.Accept()
		if err != nil {
			return
		}
		t.group.Go(func() { t.join(client) })
	}
}

func (t *Tap) join(client net.Conn) {
	defer client.Close()
	var dialer net.Dialer
	server, err := dialer.DialContext(context.Background(), "tcp", t.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	w := &wire{peers: [2]net.Conn{client, server}}
	t.mu.Lock()
	t.wires = append(t.wires, w)
	t.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { pump(server, client, keeper{t, &w.up}) })
	both.Go(func() { pump(client, server, keeper{t, &w.down}) })
	both.Wait()
}

// pump copies until the source ends, and then closes the destination for writing.
func pump(dst, src net.Conn, kept keeper) {
	_, err := io.Copy(io.MultiWriter(kept, dst), src)
	half, ok := dst.(*net.TCPConn)
	if err != nil || !ok || half.CloseWrite() != nil {
		_ = dst.Close() // if one of them is broken, so is the other
	}
}

// Close cuts running connections and waits until all bytes are recorded.
func (t *Tap) Close() error {
	err := t.listener.Close()
	t.mu.Lock()
	for _, w := range t.wires {
		for _, p := range w.peers {
			err = errors.Join(err, ignoreClosed(p.Close()))
		}
	}
	t.mu.Unlock()
	t.group.Wait()
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Exchanges returns the recorded REST and gRPC calls. Before Close, calls in flight count as cut.
// It returns an error if the bytes are neither protocol.
func (t *Tap) Exchanges() ([]Exchange, error) {
	t.mu.Lock()
	var kept []wire
	for _, w := range t.wires {
		var c wire
		c.up.Write(w.up.Bytes())
		c.down.Write(w.down.Bytes())
		kept = append(kept, c)
	}
	t.mu.Unlock()
	var all []Exchange
	for i := range kept {
		w := &kept[i]
		read := restExchanges
		if bytes.HasPrefix(w.up.Bytes(), []byte("PRI * HTTP/2")) {
			read = grpcExchanges
		}
		found, err := read(w.up.Bytes(), w.down.Bytes())
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// Await waits until enough returns true for the recorded calls. It calls enough whenever more bytes
// have arrived. It returns the error of ctx if ctx ends first.
func (t *Tap) Await(ctx context.Context, enough func([]Exchange) bool) error {
	for {
		if all, err := t.Exchanges(); err == nil && enough(all) { // incomplete bytes may not be a protocol yet
			return nil
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			return fmt.Errorf("tap: calls that were waited for did not cross: %w", ctx.Err())
		}
	}
}
