package h2

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// socket is a connection whose Write never waits for the peer. It keeps the bytes that the
// kernel does not take at once. While there are such bytes, a goroutine writes them. TLS can be
// layered over it.
type socket struct {
	net.Conn

	raw     syscall.RawConn // nil: every write is left to the goroutine
	attempt func(fd uintptr) bool
	// onProgress is called without locks, after kept bytes were written or lost.
	onProgress func()

	mu       sync.Mutex
	unsent   []byte // what attempt tries to write
	kept     []byte
	draining bool
	err      error
	queued   *atomic.Int64 // counts the bytes of kept, and those that the goroutine is writing
}

func newSocket(conn net.Conn, queued *atomic.Int64, onProgress func()) *socket {
	s := &socket{Conn: conn, queued: queued, onProgress: onProgress}
	if c, ok := conn.(syscall.Conn); ok {
		s.raw, _ = c.SyscallConn()
	}
	s.attempt = func(fd uintptr) bool {
		n, err := syscall.Write(int(fd), s.unsent)
		if err == nil {
			s.unsent = s.unsent[n:]
		}
		return true // an error other than a full buffer comes up again in drain
	}
	return s
}

// Write implements net.Conn. It takes all of b.
func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.unsent = b
	if s.raw != nil && !s.draining {
		if s.err = s.raw.Write(s.attempt); s.err != nil {
			return 0, s.err
		}
	}
	rest := s.unsent
	s.unsent = nil
	if len(rest) == 0 {
		return len(b), nil
	}
	s.kept = append(s.kept, rest...)
	s.queued.Add(int64(len(rest)))
	if !s.draining {
		s.draining = true
		go s.drain()
	}
	return len(b), nil
}

// drain writes the kept bytes, and waits for the peer to take them.
func (s *socket) drain() {
	for {
		s.mu.Lock()
		b := s.kept
		s.kept = nil
		if len(b) == 0 {
			s.draining = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		_, err := s.Conn.Write(b)
		s.queued.Add(-int64(len(b)))
		if err != nil {
			s.fail(err)
			return
		}
		s.onProgress()
	}
}

func (s *socket) fail(err error) {
	s.mu.Lock()
	s.err, s.draining = err, false
	s.queued.Add(-int64(len(s.kept)))
	s.kept = nil
	s.mu.Unlock()
	_ = s.Close() // which also ends reads
	s.onProgress()
}
