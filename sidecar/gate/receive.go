package gate

import (
	"context"
	"time"
)

const (
	// UncountedBytes is the length up to which a message is not counted, because a call itself
	// costs more.
	UncountedBytes = 16 << 10
	// A message that was let in must come within firstTime plus a second for each bytesPerSecond.
	firstTime      = 10 * time.Second
	bytesPerSecond = 1 << 20
)

// MaxMessageBytes returns the length of the largest message that may come if
// limits.max_message_bytes is limit, and the configuration key that sets it: limit's key, or the
// key for the bytes of all messages if those are fewer.
func (g *Gate) MaxMessageBytes(limit int) (most int, setting string) {
	if !g.CountsBytes() || int64(limit) <= g.messages.most {
		return limit, MessageSetting
	}
	return int(g.messages.most), ReceivedSetting
}

// CountsBytes reports whether the bytes of messages are bounded.
func (g *Gate) CountsBytes() bool { return g != nil && g.messages != nil }

// ReceivedBytes returns how many bytes messages hold; 0 if bytes are not counted.
func (g *Gate) ReceivedBytes() int64 {
	if !g.CountsBytes() {
		return 0
	}
	return g.messages.taken()
}

// Hold counts bytes that are here already, such as an answer that is being sent. It never waits,
// and may exceed the limit; messages then wait until the bytes are given back. It returns nil if
// bytes are not counted.
func (g *Gate) Hold(bytes int64) *Grant {
	if !g.CountsBytes() || bytes <= UncountedBytes {
		return nil
	}
	return &Grant{room: g.messages, request: g.messages.overdraw(bytes)}
}

// Receive lets a message of so many bytes come, or waits until there is room. A message is let in
// as a whole before it is read. So a message whose reading has begun can always be read to its
// end, and one that is not let in stays with its sender. A sender (see WithSender) holds either one
// message or at most as many bytes as are left free, so that others still find room. held is how
// many bytes of the message may be here while it waits. Receive returns a *RefusedError of the kind
// ErrTooLarge or ErrFull, or the context's error, and a nil Grant if bytes are not counted.
func (g *Gate) Receive(ctx context.Context, bytes, held int64) (*Grant, error) {
	if !g.CountsBytes() {
		return nil, nil
	}
	if bytes > g.messages.most {
		return nil, messageTooLarge(bytes, g.messages.most, ReceivedSetting)
	}
	request, err := g.messages.take(ctx, CallerOf(ctx), bytes, held)
	if err != nil {
		return nil, err
	}
	return &Grant{room: g.messages, request: request}, nil
}

// messageTime returns how long a message of so many bytes may take after it was let in.
func messageTime(bytes int64) time.Duration {
	return firstTime + time.Duration(bytes)*time.Second/bytesPerSecond
}

// Grant stands for the bytes that a message, or an answer, takes. The methods do nothing on a
// nil Grant. It is safe for concurrent use.
type Grant struct {
	room    *room
	request *roomRequest
}

// Shrink gives back all but so many bytes.
func (g *Grant) Shrink(bytes int64) {
	if g != nil {
		g.room.shrink(g.request, bytes)
	}
}

// Release gives all bytes back. A second Release does nothing.
func (g *Grant) Release() { g.Shrink(0) }
