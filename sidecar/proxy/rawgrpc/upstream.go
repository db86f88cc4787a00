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

	"github.com/likenessdb/likeness/internal/uncompressed"
)

const (
	maxMessageBytes = 1 << 30
	// maxHeaderBytes bounds what a client says before its message.
	maxHeaderBytes = 64 << 10
	connections    = 8
	// Windows of a fixed size are not measured, which takes a ping after every
	// message: as many bytes again to write and to read as those of a small call.
	streamWindow     = 1 << 20
	connectionWindow = 16 << 20
	// maxResets is how many cancelled calls a connection takes before calls go to
	// a new one. Qdrant closes a connection after about twenty in quick
	// succession, which would fail the calls of other clients on it.
	maxResets = 8
	// crowd is how many calls share a connection before others are used too. What
	// they send and get at the same time is then written and read at once; and a
	// connection that is replaced sees at most maxResets + crowd - 1 cancelled.
	crowd = 8
)

// Upstream holds the connections to a database that calls share. It is
// safe for concurrent use.
type Upstream struct {
	dial func() (*grpc.ClientConn, error)

	mu     sync.Mutex
	links  []*link
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
			uncompressed.Answers(), // this hop is short, and a client's own compression is the other hop's
		),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		// A database that comes back is found within a second, not within two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
}

// take returns the first connection that is not crowded, or that with the fewest
// calls; the caller gives it back with release.
func (u *Upstream) take() *link {
	u.mu.Lock()
	defer u.mu.Unlock()
	least := u.links[0]
	for _, l := range u.links {
		if l.calls < crowd {
			least = l
			break
		}
		if l.calls < least.calls {
			least = l
		}
	}
	least.calls++
	return least
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

// Close closes the connections and cuts the calls on them.
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
