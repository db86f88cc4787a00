// Package intake bounds the bytes of messages that have been announced and are not yet
// answered. A message is let in whole, before it is read: one that has begun can end,
// whatever others do, and what is not let in stays with its sender.
package intake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// Free is the length of messages that are not counted: a call costs more by itself.
	Free = 16 << 10
	// largeShare of a budget: a message of more than that takes turns with others of its kind.
	largeShare = 4
	// waitingShare of a budget may be in the windows of those that wait.
	waitingShare = 2
	// first and pace are how long a message that was let in may take: 10 s, and a second a MiB.
	first = 10 * time.Second
	pace  = 1 << 20
)

var (
	// ErrTooLarge: a message is larger than all that the budget has.
	ErrTooLarge = errors.New("message too large")
	// ErrFull: so many wait for the budget already that no more may.
	ErrFull = errors.New("too many messages at once")
	// ErrStalled: what was announced did not come in time.
	ErrStalled = errors.New("message not received in time")
)

// Setting is the key of the configuration that a budget is of.
const Setting = "limits.max_received_bytes"

// Budget bounds the bytes of messages. A nil one has no bound. It is safe for concurrent use.
type Budget struct {
	most    int64
	room    room
	turn    *semaphore.Weighted // of large messages
	waiting atomic.Int64
}

// New returns a budget of so many bytes; nil where there are none.
func New(most int64) *Budget {
	if most <= 0 {
		return nil
	}
	return &Budget{most: most, room: room{most: most}, turn: semaphore.NewWeighted(1)}
}

// MessageSetting is the key of the configuration that bounds one message.
const MessageSetting = "limits.max_message_bytes"

// Most is the largest message that may come where limits.max_message_bytes is limit: the
// budget, if that is less; setting is the key of the one that counts.
func (b *Budget) Most(limit int) (most int, setting string) {
	if b == nil || int64(limit) <= b.most {
		return limit, MessageSetting
	}
	return int(b.most), Setting
}

// Used is how many bytes are taken; 0 where there is no budget.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.room.taken()
}

// Count counts n bytes that are here already, as an answer to be sent: it waits for
// nothing, and may take more than there is, so that messages wait until it is given back.
func (b *Budget) Count(n int64) *Grant {
	if b == nil || n <= Free {
		return nil
	}
	b.room.add(n)
	return &Grant{of: b, n: n}
}

// Take lets a message of n bytes in, or waits until there is room or ctx is done.
// Those that came first are let in first; large ones one at a time. held is how much of
// the message may be here while it waits. It returns ErrTooLarge, ErrFull or the
// context's error. A message that is not counted has a nil Grant.
func (b *Budget) Take(ctx context.Context, n, held int64) (*Grant, error) {
	if b == nil {
		return nil, nil
	}
	if n > b.most {
		return nil, TooLarge(n, b.most, Setting)
	}
	g := &Grant{of: b}
	if n <= b.most/largeShare && b.room.tryTake(n) {
		g.n = n
		return g, nil
	}
	defer b.waiting.Add(-held)
	if b.waiting.Add(held) > b.most/waitingShare {
		return nil, fmt.Errorf("%w: messages of %s, %d bytes, are being received, and many wait; send fewer or smaller ones at a time, or raise it",
			ErrFull, Setting, b.most)
	}
	if n > b.most/largeShare {
		if err := b.turn.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		g.turn = true
	}
	if err := b.room.take(ctx, n); err != nil {
		g.Release()
		return nil, err
	}
	g.n = n
	return g, nil
}

// TooLarge is an ErrTooLarge: value, limit and remedy.
func TooLarge(n, most int64, setting string) error {
	return fmt.Errorf("%w: it has %d bytes, and %s is %d; send less at a time, or raise it", ErrTooLarge, n, setting, most)
}

// Patience is how long a message of n bytes may take once it is let in.
func Patience(n int64) time.Duration { return first + time.Duration(n)*time.Second/pace }

// Stalled is an ErrStalled about a message of n bytes.
func Stalled(n int64) error {
	return fmt.Errorf("%w: %d bytes were announced and did not come within %s; send %d bytes a second at least",
		ErrStalled, n, Patience(n).Round(time.Second), pace)
}

// Grant is what was taken for a message. A nil one is of nothing.
type Grant struct {
	of   *Budget
	mu   sync.Mutex
	n    int64
	turn bool
}

// Shrink gives back what is more than n bytes.
func (g *Grant) Shrink(n int64) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if back := g.n - n; back > 0 {
		g.n = n
		g.of.room.giveBack(back)
	}
	if g.turn && n <= g.of.most/largeShare {
		g.turn = false
		g.of.turn.Release(1)
	}
}

// Release gives back all of it; once more does nothing.
func (g *Grant) Release() { g.Shrink(0) }
