package gate

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// accepts is a listener that has one connection.
type accepts struct{ net.Conn }

func (l accepts) Accept() (net.Conn, error) {
	if l.Conn == nil {
		return nil, net.ErrClosed
	}
	return l.Conn, nil
}
func (accepts) Addr() net.Addr { return nil }

// A connection is read at once, and during an overload after readInterval. Reads of the rest of a
// buffer do not wait.
func TestListenerReadsLessOftenDuringAnOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		var over atomic.Bool
		c, err := pacedListener{accepts{theirs}, over.Load}.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			for _, size := range []int{5, 5, 20, 5} {
				_, _ = ours.Write(make([]byte, size))
			}
		}()
		for i, want := range []struct {
			over bool
			n    int
			wait time.Duration
		}{
			{false, 5, 0}, {true, 5, readInterval},
			{true, 8, readInterval}, {true, 8, 0}, {true, 4, 0}, // of the twenty
			{true, 5, readInterval},
		} {
			over.Store(want.over)
			began := time.Now()
			n, err := c.Read(make([]byte, 8))
			if took := time.Since(began); err != nil || n != want.n || took != want.wait {
				t.Errorf("read %d: %d bytes after %s, %v, want %d after %s", i, n, took, err, want.n, want.wait)
			}
		}
		if _, err := (pacedListener{accepts{}, over.Load}).Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}
