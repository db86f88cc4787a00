package chaos_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// trouble is a fault of the traffic.
type trouble int32

const (
	none     trouble = iota
	slow             // the server's bytes are held back for a while
	hold             // no bytes cross until the trouble is over
	resetAll         // connections are reset
	cut              // a connection ends in the middle of the server's answer
	halfOpen         // existing connections swallow all bytes, for good; new ones work
)

// relay is a TCP link between a sidecar and its store.
type relay struct {
	listener net.Listener
	to       atomic.Pointer[string]
	ledger   *ledger
	now      atomic.Int32 // trouble
	ending   atomic.Bool
	delay    atomic.Int64 // delay of slow

	mu    sync.Mutex
	links map[*link]bool
	wg    sync.WaitGroup
}

// link is one connection.
type link struct {
	client, server *net.TCPConn
	dead           atomic.Bool  // it swallows all bytes
	used           atomic.Int64 // when the sidecar first sent into it, as Unix time in ns; 0: it has not
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// reset ends the link with RST on both sides.
func (l *link) reset() {
	_ = l.client.SetLinger(0)
	_ = l.server.SetLinger(0)
	l.close()
}

func startRelay(t *testing.T, to string, counts *ledger) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, ledger: counts, links: map[*link]bool{}}
	r.to.Store(&to)
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		r.ending.Store(true)
		_ = listener.Close()
		r.now.Store(int32(none))
		r.each((*link).close)
		r.wg.Wait()
	})
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(conn.(*net.TCPConn)) })
	}
}

func (r *relay) serve(client *net.TCPConn) {
	if trouble(r.now.Load()) == resetAll {
		r.ledger.inject("connection reset")
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	server, err := net.DialTimeout("tcp", *r.to.Load(), time.Second)
	if err != nil { // the store is down, so the link breaks too
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server.(*net.TCPConn)}
	r.mu.Lock()
	r.links[l] = true
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { r.copy(l, l.server, l.client, false) })
	both.Go(func() { r.copy(l, l.client, l.server, true) })
	both.Wait()
	l.close()
	if used := l.used.Load(); used != 0 && !r.ending.Load() {
		r.ledger.notice(time.Since(time.Unix(0, used)))
	}
	r.mu.Lock()
	delete(r.links, l)
	r.mu.Unlock()
}

// copy forwards one direction; answers marks the direction from the server.
func (r *relay) copy(l *link, to, from *net.TCPConn, answers bool) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 && !r.carry(l, to, b[:n], answers) {
			l.close()
			return
		}
		if err != nil {
			if !errors.Is(err, io.EOF) || l.dead.Load() {
				l.close()
				return
			}
			_ = to.CloseWrite()
			return
		}
	}
}

// carry forwards a piece, and reports whether the link continues.
func (r *relay) carry(l *link, to *net.TCPConn, piece []byte, answers bool) bool {
	if l.dead.Load() {
		if !answers {
			l.used.CompareAndSwap(0, time.Now().UnixNano())
		}
		r.ledger.inject("swallowed by a half-open link")
		return true
	}
	switch trouble(r.now.Load()) {
	case slow:
		if answers {
			r.ledger.inject("answer kept back")
			until := time.Now().Add(time.Duration(r.delay.Load()))
			for trouble(r.now.Load()) == slow && time.Now().Before(until) {
				time.Sleep(5 * time.Millisecond) //nolint:forbidigo // the delay is the fault
			}
		}
	case hold:
		r.ledger.inject("held")
		for trouble(r.now.Load()) == hold {
			time.Sleep(5 * time.Millisecond) //nolint:forbidigo // the link is held
		}
	case resetAll:
		r.ledger.inject("connection reset")
		l.reset()
		return false
	case cut:
		if answers {
			r.ledger.inject("answer cut in the middle")
			_, _ = to.Write(piece[:len(piece)/2])
			return false
		}
	default:
	}
	_, err := to.Write(piece)
	return err == nil
}

// begin starts a trouble, and returns the function that ends it.
func (r *relay) begin(what trouble, delay time.Duration) (end func()) {
	r.delay.Store(int64(delay))
	switch what {
	case halfOpen:
		r.each(func(l *link) {
			l.dead.Store(true)
		})
		return func() {}
	case resetAll:
		r.now.Store(int32(what))
		r.each(func(l *link) {
			r.ledger.inject("connection reset")
			l.reset()
		})
	default:
		r.now.Store(int32(what))
	}
	return func() { r.now.Store(int32(none)) }
}

// swallows reports whether any half-open connection is left.
func (r *relay) swallows() (left bool) {
	r.each(func(l *link) { left = left || l.dead.Load() })
	return left
}

// turn redirects the link to another server, and resets existing connections.
func (r *relay) turn(to string) {
	r.to.Store(&to)
	r.each(func(l *link) {
		r.ledger.inject("connection reset")
		l.reset()
	})
}

func (r *relay) each(do func(*link)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		do(l)
	}
}
