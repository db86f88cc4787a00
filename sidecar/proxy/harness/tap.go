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

// Tap stands between two peers, hands on every byte and keeps it. It reads
// nothing of what passes: Exchanges does that at the end.
type Tap struct {
	listener net.Listener
	upstream string
	group    sync.WaitGroup

	mu    sync.Mutex
	wires []*wire
}

// wire is one connection, with what went to the server and what came back.
type wire struct {
	peers    [2]net.Conn
	up, down bytes.Buffer // each is written by one goroutine and read after both ended
}

// NewTap listens on a free port in front of host:port. Close it.
func NewTap(ctx context.Context, upstream string) (*Tap, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	t := &Tap{listener: listener, upstream: upstream}
	t.group.Go(t.accept)
	return t, nil
}

// Address is where the tap listens, host:port.
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
	both.Go(func() { pump(server, client, &w.up) })
	both.Go(func() { pump(client, server, &w.down) })
	both.Wait()
}

// pump copies until the source ends, and ends the destination's reading.
func pump(dst, src net.Conn, kept *bytes.Buffer) {
	_, err := io.Copy(io.MultiWriter(kept, dst), src)
	half, ok := dst.(*net.TCPConn)
	if err != nil || !ok || half.CloseWrite() != nil {
		_ = dst.Close() // one of them is broken: so is the other
	}
}

// Close cuts what still runs and waits until all bytes are kept.
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

// Exchanges are the calls that crossed, REST's and gRPC's. Call it after Close.
// It returns an error where the bytes are neither protocol.
func (t *Tap) Exchanges() ([]Exchange, error) {
	var all []Exchange
	for _, w := range t.wires {
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
