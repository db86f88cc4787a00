package events

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"
	"time"
)

// CallID names what one call answered: milliseconds since 1970 (48 bits), flags (16), a random
// number (64), and the first 64 bits of an HMAC-SHA256 of the route and these. Only a holder of the
// route's key can make one, so an id that a stranger invents is refused without a look at the disk,
// and sidecars that share the key accept each other's.
type CallID [24]byte

const (
	signedBytes = 16
	flagKept    = 1
)

// AnswerID names one answer. Part numbers the answers of a call with several searches, from 0.
type AnswerID struct {
	Call CallID
	Part uint16
}

// errAnswerID means that a text cannot be parsed as an answer id.
var errAnswerID = errors.New("not an answer id")

// String returns the id as clients see it: 32 characters, and ".N" for part N above 0.
func (a AnswerID) String() string {
	text := base64.RawURLEncoding.EncodeToString(a.Call[:])
	if a.Part == 0 {
		return text
	}
	return text + "." + strconv.Itoa(int(a.Part))
}

// IsZero reports whether the id names nothing.
func (a AnswerID) IsZero() bool { return a == AnswerID{} }

// ParseAnswerID parses an id as clients send it. It does not check whether such an answer exists.
func ParseAnswerID(text string) (a AnswerID, err error) {
	call, part, hasPart := strings.Cut(text, ".")
	if len(call) != base64.RawURLEncoding.EncodedLen(len(a.Call)) {
		return a, errAnswerID
	}
	if _, err := base64.RawURLEncoding.Strict().Decode(a.Call[:], []byte(call)); err != nil {
		return AnswerID{}, errAnswerID
	}
	if hasPart {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || strconv.FormatUint(n, 10) != part {
			return AnswerID{}, errAnswerID
		}
		a.Part = uint16(n)
	}
	return a, nil
}

// Time returns when the call was answered.
func (c CallID) Time() time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(c[:]) >> 16)) }

// IsZero reports whether the id names nothing.
func (c CallID) IsZero() bool { return c == CallID{} }

// Kept reports whether the route keeps what the call's answers showed.
func (c CallID) Kept() bool { return c[7]&flagKept != 0 }

// signer makes and checks the ids of a route. It is safe for concurrent use.
type signer struct {
	route string
	macs  sync.Pool // of hash.Hash; to reset one is cheaper than to make one
}

func newSigner(route string, key []byte) *signer {
	return &signer{route: route, macs: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// hash returns the keyed hash of a followed by b.
func (s *signer) hash(a []byte, b string) []byte {
	mac, _ := s.macs.Get().(hash.Hash)
	defer s.macs.Put(mac)
	mac.Reset()
	_, _ = mac.Write(a)
	_, _ = mac.Write([]byte(b))
	return mac.Sum(nil)
}

// newCall returns a new id. It marks a random share of the ids as kept.
func (s *signer) newCall(now time.Time, share float64) (c CallID) {
	_, _ = rand.Read(c[8:signedBytes]) // never fails
	head := uint64(now.UnixMilli()) << 16
	if float64(binary.BigEndian.Uint64(c[8:]))*0x1p-64 < share {
		head |= flagKept
	}
	binary.BigEndian.PutUint64(c[:], head)
	copy(c[signedBytes:], s.sign(c))
	return c
}

func (s *signer) sign(c CallID) []byte {
	return s.hash(c[:signedBytes], s.route)[:len(c)-signedBytes]
}

// check returns ErrUnknownAnswer for an id that the signer did not make, and ErrNotKept for one
// whose answer is not kept.
func (s *signer) check(a AnswerID) error {
	switch {
	case !hmac.Equal(s.sign(a.Call), a.Call[signedBytes:]):
		return fmt.Errorf("%w: send the id as an answer of route %q gave it, to this sidecar or to one with the same events.key_file", ErrUnknownAnswer, s.route)
	case !a.Call.Kept():
		return fmt.Errorf("%w: events.share of route %q left it out", ErrNotKept, s.route)
	}
	return nil
}

// pseudonym returns a keyed hash that replaces a text.
func (s *signer) pseudonym(text string) string {
	return base64.RawURLEncoding.EncodeToString(s.hash([]byte("pseudonym\x00"), text)[:16])
}
