package gate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// UncountedBytes is the length up to which a message is not counted, because a call itself
	// costs more.
	UncountedBytes = 16 << 10
	// A message of more than 1/largeShare of the bytes is large: large messages are received
	// one at a time.
	largeShare = 4
	// Messages that wait may have at most 1/waitingShare of the bytes in their windows.
	waitingShare = 2
	// A message that was let in must come within firstTime plus a second for each bytesPerSecond.
	firstTime      = 10 * time.Second
	bytesPerSecond = 1 << 20
)

// messages bounds the bytes of all messages that were announced and are not answered yet. A message
// is let in as a whole before it is read. So a message whose reading has begun can always be read
// to its end, and one that is not let in stays with its sender.
type messages struct {
	most    int64
	room    room
	large   *semaphore.Weighted // held by the large message that is being received
	waiting atomic.Int64        // bytes in the windows of messages that wait
}

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
	return g.messages.room.taken()
}

// Hold counts bytes that are here already, such as an answer that is being sent. It never waits,
// and may exceed the limit; messages then wait until the bytes are given back. It returns nil if
// bytes are not counted.
func (g *Gate) Hold(bytes int64) *Grant {
	if !g.CountsBytes() || bytes <= UncountedBytes {
		return nil
	}
	g.messages.room.add(bytes)
	return &Grant{messages: g.messages, bytes: bytes}
}

// Receive lets a message of so many bytes come, or waits until there is room. Messages come in the
// order in which they asked, large ones one at a time. held is how many bytes of the message may be
// here while it waits. Receive returns a *RefusedError of the kind ErrTooLarge or ErrFull, or the
// context's error, and a nil Grant if bytes are not counted.
func (g *Gate) Receive(ctx context.Context, bytes, held int64) (*Grant, error) {
	if !g.CountsBytes() {
		return nil, nil
	}
	m := g.messages
	if bytes > m.most {
		return nil, messageTooLarge(bytes, m.most, ReceivedSetting)
	}
	grant := &Grant{messages: m}
	isLarge := bytes > m.most/largeShare
	if !isLarge && m.room.tryTake(bytes) {
		grant.bytes = bytes
		return grant, nil
	}
	defer m.waiting.Add(-held)
	if m.waiting.Add(held) > m.most/waitingShare {
		return nil, messagesFull(m.most)
	}
	if isLarge {
		if err := m.large.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		grant.isLarge = true
	}
	if err := m.room.take(ctx, bytes); err != nil {
		grant.Release()
		return nil, err
	}
	grant.bytes = bytes
	return grant, nil
}

// messageTime returns how long a message of so many bytes may take after it was let in.
func messageTime(bytes int64) time.Duration {
	return firstTime + time.Duration(bytes)*time.Second/bytesPerSecond
}

// Grant stands for the bytes of the budget that a message holds. The methods do nothing on a
// nil Grant. It is safe for concurrent use.
type Grant struct {
	messages *messages

	mu      sync.Mutex
	bytes   int64
	isLarge bool // it holds messages.large
}

// Shrink gives back all but so many bytes.
func (g *Grant) Shrink(bytes int64) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if back := g.bytes - bytes; back > 0 {
		g.bytes = bytes
		g.messages.room.giveBack(back)
	}
	if g.isLarge && bytes <= g.messages.most/largeShare {
		g.isLarge = false
		g.messages.large.Release(1)
	}
}

// Release gives all bytes back. A second Release does nothing.
func (g *Grant) Release() { g.Shrink(0) }
