package rawgrpc

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
)

const (
	maxMessageBytes = 1 << 30
	connections     = 8
	// maxResets is how many cancelled calls a connection takes before calls go to
	// a new one. Qdrant closes a connection after about twenty in quick
	// succession, which would fail the calls of other clients on it.
	maxResets = 8
)

// Upstream holds the connections to a database that calls take in turn. It is
// safe for concurrent use.
type Upstream struct {
	dial func() (*grpc.ClientConn, error)

	mu     sync.Mutex
	links  []*link
	next   int
	closed bool
}

// link is one connection and what runs on it, guarded by Upstream.mu.
type link struct {
	conn    *grpc.ClientConn
	calls   int
	resets  int
	retired bool // closed after its last call
}

// Dial prepares connections to host:port; it calls nothing, so a database that
// is not there yet is no error. With a nil secure they are plain text.
func Dial(address string, secure *tls.Config) (*Upstream, error) {
	u := &Upstream{dial: func() (*grpc.ClientConn, error) { return grpc.NewClient(address, dialOptions(secure)...) }}
	for range connections {
		conn, err := u.dial()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("address %q of the database: %w", address, err), u.Close())
		}
		u.links = append(u.links, &link{conn: conn})
	}
	return u, nil
}

func dialOptions(secure *tls.Config) []grpc.DialOption {
	transport := insecure.NewCredentials()
	if secure != nil {
		transport = credentials.NewTLS(secure)
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(codec{}),
			grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(math.MaxInt32),
			experimental.AcceptCompressors(), // none: this hop is short, and a client's own compression is the other hop's
		),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		// A database that comes back is found within a second, not within two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
}

// take returns the next connection; the caller gives it back with release.
func (u *Upstream) take() *link {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.links[u.next%len(u.links)]
	u.next++
	l.calls++
	return l
}

// release gives a connection back; reset says that the call was cut before its end.
func (u *Upstream) release(l *link, reset bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l.calls--
	if reset {
		l.resets++
	}
	if l.resets >= maxResets && !l.retired && !u.closed {
		u.replace(l)
	}
	if l.retired && l.calls == 0 {
		_ = l.conn.Close()
	}
}

// replace retires a connection; without a new one the old one stays.
func (u *Upstream) replace(l *link) {
	conn, err := u.dial()
	if err != nil {
		return
	}
	l.retired = true
	for i := range u.links {
		if u.links[i] == l {
			u.links[i] = &link{conn: conn}
		}
	}
}

// Close closes the connections and cuts the calls on those in turn.
func (u *Upstream) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	var failed []error
	for _, l := range u.links {
		failed = append(failed, l.conn.Close())
	}
	return errors.Join(failed...)
}
