package peer_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/sidecar/proxy/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listener accepts what its function returns.
type listener struct {
	net.Listener
	accept func() (net.Conn, error)
}

func (l listener) Accept() (net.Conn, error) { return l.accept() }
func (l listener) Addr() net.Addr            { return &net.TCPAddr{} }

// TestAccept: a failure to accept is tried again, and only a listener that was closed before
// the drain ends with an error.
func TestAccept(t *testing.T) {
	for name, c := range map[string]struct {
		last     error
		draining bool
		want     error
	}{
		"closed by somebody else": {last: net.ErrClosed, want: net.ErrClosed},
		"closed by the drain":     {last: net.ErrClosed, draining: true},
		"failed in the drain":     {last: io.ErrUnexpectedEOF, draining: true},
	} {
		t.Run(name, func(t *testing.T) {
			draining := make(chan struct{})
			calls, served := 0, 0
			l := listener{accept: func() (net.Conn, error) {
				switch calls++; calls {
				case 1:
					return nil, errors.New("too many open files")
				case 2:
					conn, _ := net.Pipe()
					return conn, nil
				}
				if c.draining {
					close(draining)
				}
				return nil, c.last
			}}
			err := peer.Accept(l, draining, slog.New(slog.DiscardHandler), func(conn net.Conn) {
				served++
				_ = conn.Close()
			})
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("Accept returned %v, want %v", err, c.want)
			}
			if calls != 3 || served != 1 {
				t.Errorf("%d connections served in %d calls, want 1 in 3", served, calls)
			}
		})
	}
}

func TestOutlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "caller"))
		own, cancel := peer.Outlive(ctx)
		defer cancel()
		leave()
		left := time.Now()
		<-own.Done()
		if got := time.Since(left); got != time.Second || own.Value(key{}) != "caller" {
			t.Errorf("ended after %v with the value %v, want a second and the caller", got, own.Value(key{}))
		}
	})
}

type key struct{}
