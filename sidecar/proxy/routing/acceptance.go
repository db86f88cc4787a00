package routing

import (
	"container/list"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

const (
	// acceptedFor is how long an accepted credential counts as accepted.
	acceptedFor = time.Minute
	// maxAccepted limits the remembered credentials.
	maxAccepted = 4096
)

// CredentialHeaders returns the headers that can tell one caller of a database from another.
func CredentialHeaders() []string {
	return []string{"api-key", "authorization", "token", "cookie", "x-api-key", "proxy-authorization"}
}

// Access says whether an answer of the database shows that its caller may do what it asked
// for.
type Access int

const (
	// AccessUnknown: the answer is an error that the database may have found before it looked at
	// the credential.
	AccessUnknown Access = iota
	AccessGranted
	AccessDenied
)

// right is a permission that a call of the database requires.
type right string

const (
	toSearch right = "search"
	toWrite  right = "write"
	toRename right = "rename" // create, drop or rename a collection or an alias
)

// acceptance is the digest of a credential, a right, and the collections for which the
// database grants it. The digest is keyed, so without the key it does not identify the
// credential.
type acceptance [sha256.Size]byte

// acceptances remembers which credentials the database accepted lately. It holds no
// credential, and decides nothing in the database's stead: the sidecar works only for
// accepted callers, and the database still checks every call. A zero acceptances is ready,
// and safe for concurrent use.
type acceptances struct {
	open bool // credentials tell no callers apart, see Options

	mu      sync.Mutex
	key     []byte // random, the same for the life of the process
	entries map[acceptance]*list.Element
	oldest  list.List // acceptedEntry values, the least recently confirmed first
}

type acceptedEntry struct {
	of    acceptance
	until time.Time
}

// of returns the acceptance that a call needs: of the credential in the outgoing metadata of ctx,
// for a right to the collections. has says whether it is remembered.
func (a *acceptances) of(ctx context.Context, to right, collections ...string) acceptance {
	return sha256.Sum256(appendLists(a.appendCredential(ctx), []string{string(to)}, collections))
}

// caller returns a name for a call's credential that does not reveal the credential.
func (a *acceptances) caller(ctx context.Context) string {
	sum := sha256.Sum256(a.appendCredential(ctx))
	return string(sum[:])
}

// appendCredential returns the key of the digests, followed by the credential in the outgoing
// metadata of ctx. A digest of these bytes must not leave this process.
func (a *acceptances) appendCredential(ctx context.Context) []byte {
	out := append(make([]byte, 0, 512), a.secret()...)
	if a.open {
		return out
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	for _, name := range CredentialHeaders() {
		out = appendLists(out, md[name])
	}
	return out
}

// sendable returns a context without the headers of the outgoing metadata that gRPC refuses to send: by one of those, a
// caller could keep the sidecar from asking the database. ok is false if a credential is among them.
func sendable(ctx context.Context) (clean context.Context, ok bool) {
	md, _ := metadata.FromOutgoingContext(ctx)
	ok = true
	for name, values := range md {
		if !isHeaderName(name) || !strings.HasSuffix(name, "-bin") && slices.ContainsFunc(values, isUnprintable) {
			delete(md, name)
			ok = ok && !slices.Contains(CredentialHeaders(), name)
		}
	}
	return metadata.NewOutgoingContext(ctx, md), ok
}

// isHeaderName reports whether gRPC sends headers of this name.
func isHeaderName(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// isUnprintable reports whether a text has other bytes than those of printable ASCII.
func isUnprintable(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// appendLists appends lists in an encoding that no other lists share.
func appendLists(out []byte, lists ...[]string) []byte {
	for _, values := range lists {
		out = binary.AppendUvarint(out, uint64(len(values)))
		for _, v := range values {
			out = append(binary.AppendUvarint(out, uint64(len(v))), v...)
		}
	}
	return out
}

// secret returns the key of the digests.
func (a *acceptances) secret() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.key == nil {
		a.key = make([]byte, sha256.Size)
		_, _ = rand.Read(a.key) // cannot fail
	}
	return a.key
}

// has reports whether the database accepted a credential lately.
func (a *acceptances) has(of acceptance) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.entries[of]
	return e != nil && time.Now().Before(e.Value.(*acceptedEntry).until)
}

// remember records that the database accepted a credential. If too many are remembered, it forgets
// the one that was confirmed least recently.
func (a *acceptances) remember(of acceptance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	until := time.Now().Add(acceptedFor)
	if e := a.entries[of]; e != nil {
		e.Value.(*acceptedEntry).until = until
		a.oldest.MoveToBack(e)
		return
	}
	if a.entries == nil {
		a.entries = map[acceptance]*list.Element{}
	}
	if len(a.entries) >= maxAccepted {
		a.drop(a.oldest.Front())
	}
	a.entries[of] = a.oldest.PushBack(&acceptedEntry{of, until})
}

// forget records that the database refused a credential.
func (a *acceptances) forget(of acceptance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.entries[of]; e != nil {
		a.drop(e)
	}
}

// drop removes an entry. The caller holds mu.
func (a *acceptances) drop(e *list.Element) {
	delete(a.entries, e.Value.(*acceptedEntry).of)
	a.oldest.Remove(e)
}
