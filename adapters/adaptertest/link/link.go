// Package link forwards TCP connections to a server and simulates network faults: it
// can cut connections, swallow data, or delay it.
package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// Link forwards connections to a server. It is safe for concurrent use.
type Link struct {
	// Address is the address on which the link listens.
	Address string

	to       string
	listener net.Listener
	done     context.Context
	end      context.CancelFunc
	group    sync.WaitGroup
	down     atomic.Bool
	stalled  atomic.Bool
	cutNext  atomic.Bool
	delay    func(connection int) time.Duration
	goAways  atomic.Int64
	pings    atomic.Int64
	accepted atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// ForTest opens a link to the address to, which closes when the test ends. If delay is
// not nil, it returns how long to hold back the data of a connection; connections are
// numbered from 0.
func ForTest(t testing.TB, to string, delay func(connection int) time.Duration) *Link {
	t.Helper()
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{Address: listener.Addr().String(), to: to, listener: listener, delay: delay, conns: map[net.Conn]bool{}}
	l.done, l.end = context.WithCancel(context.Background())
	l.group.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

// Down cuts every connection, and every new connection until Up.
func (l *Link) Down() {
	l.down.Store(true)
	l.Cut()
}

// Up lets connections through again.
func (l *Link) Up() { l.down.Store(false) }

// Cut cuts the open connections.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

// CutNext cuts the connections when the next call arrives, before the server has
// received all of it. Cutting an idle connection would not do, because the client may
// replace it before a call notices.
func (l *Link) CutNext() { l.cutNext.Store(true) }

// Stall swallows all data from both sides from now on, and keeps the connections open.
func (l *Link) Stall() { l.stalled.Store(true) }

// Pings counts the HTTP/2 PING frames that clients sent.
func (l *Link) Pings() int64 { return l.pings.Load() }

// GoAways counts the HTTP/2 GOAWAY frames with which the server ended connections.
func (l *Link) GoAways() int64 { return l.goAways.Load() }

func (l *Link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		number := int(l.accepted.Add(1)) - 1
		if l.down.Load() {
			_ = in.Close()
			continue
		}
		var dialer net.Dialer
		out, err := dialer.DialContext(l.done, "tcp", l.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		l.mu.Lock()
		l.conns[in], l.conns[out] = true, true
		l.mu.Unlock()
		l.group.Go(func() { l.forward(out, in, number, true) })
		l.group.Go(func() { l.forward(in, out, number, false) })
	}
}

// forward copies the data of one side until either side closes.
func (l *Link) forward(to, from net.Conn, number int, up bool) {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, c := range []net.Conn{to, from} {
			_ = c.Close()
			delete(l.conns, c)
		}
	}()
	frames, seen := io.Pipe()
	defer seen.Close()
	l.group.Go(func() { l.countFrames(frames, up) })
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if l.delay != nil && up {
			select {
			case <-time.After(l.delay(number)):
			case <-l.done.Done():
				return
			}
		}
		if l.stalled.Load() {
			continue
		}
		if _, err := seen.Write(buffer[:n]); err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// countFrames counts the frames of one side while they are valid HTTP/2, and then
// discards the rest.
func (l *Link) countFrames(r *io.PipeReader, up bool) {
	defer func() { _, _ = io.Copy(io.Discard, r) }()
	if up {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(r, preface); err != nil || !bytes.Equal(preface, []byte(http2.ClientPreface)) {
			return
		}
	}
	framer := http2.NewFramer(io.Discard, r)
	framer.SetMaxReadFrameSize(1<<24 - 1)
	for {
		frame, err := framer.ReadFrame()
		if err != nil && !errors.As(err, &http2.StreamError{}) {
			return
		}
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			if up && l.cutNext.CompareAndSwap(true, false) {
				l.Cut()
			}
		case *http2.PingFrame:
			if up && !f.IsAck() {
				l.pings.Add(1)
			}
		case *http2.GoAwayFrame:
			if !up {
				l.goAways.Add(1)
			}
		}
	}
}

func (l *Link) close() {
	l.end()
	_ = l.listener.Close()
	l.Cut()
	l.group.Wait()
}
