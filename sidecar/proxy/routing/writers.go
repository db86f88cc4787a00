package routing

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

const (
	// writerFor is how long a credential is believed to be one that the database lets
	// write to a collection.
	writerFor = time.Minute
	// maxWriters are remembered.
	maxWriters = 4096
)

// credentialHeaders are those that can tell one caller of a database from another.
var credentialHeaders = []string{"api-key", "authorization", "token", "cookie", "x-api-key", "proxy-authorization"}

// writer is the digest of a credential and of the collections that it writes to.
type writer [sha256.Size]byte

// writerOf is the writer of a call, whose credential is in its outgoing metadata.
func writerOf(ctx context.Context, w Writing) (out writer) {
	h := sha256.New()
	note := func(values ...string) {
		for _, v := range values {
			sum := sha256.Sum256([]byte(v))
			h.Write(sum[:])
		}
		h.Write([]byte{0}) // ends a list of values
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	for _, name := range credentialHeaders {
		note(md.Get(name)...)
	}
	note(w.Collections...)
	note(w.Renamed...)
	h.Sum(out[:0])
	return out
}

// writers remembers which credentials the database lately let write to which
// collections. Nothing is refused by it: what is not remembered only leaves no trace
// until the database has answered.
type writers struct {
	mu    sync.Mutex
	until map[writer]time.Time
}

// has reports whether the database let the writer write lately.
func (a *writers) has(w writer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.until[w])
}

// remember notes that the database let the writer write.
func (a *writers) remember(w writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.until == nil {
		a.until = map[writer]time.Time{}
	}
	if _, known := a.until[w]; !known && len(a.until) >= maxWriters {
		clear(a.until) // they are learned again with their next write
	}
	a.until[w] = now.Add(writerFor)
}

// forget notes that the database refused the writer.
func (a *writers) forget(w writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.until, w)
}
