package gate

import (
	"context"
	"sync"
)

// answerStep is the number of bytes after which an answer's bytes are counted again.
const answerStep = 256 << 10

// AnswerCount counts the bytes of a database's answer as they arrive, until the call that asked for
// it ends, because a short request can have a long answer. The methods do nothing on a nil
// AnswerCount.
type AnswerCount struct {
	gate *Gate
	call context.Context //nolint:containedctx // whose end gives the bytes back

	mu      sync.Mutex
	ended   bool
	counted int
	grants  []*Grant
}

// CountAnswer begins to count an answer that is kept at most until ctx is done. It returns nil if
// bytes are not counted, or if ctx never ends.
func (g *Gate) CountAnswer(ctx context.Context) *AnswerCount {
	if !g.CountsBytes() || ctx.Done() == nil {
		return nil
	}
	return &AnswerCount{gate: g, call: ctx}
}

// Grow adds bytes of an answer that have arrived. It never waits: instead, clients' messages wait
// until the answer's bytes are given back. It returns a *RefusedError of the kind ErrTooLarge if
// the answer is longer than the limit for all messages together.
func (a *AnswerCount) Grow(bytes int) error {
	if a == nil || bytes <= UncountedBytes {
		return nil
	}
	if most := a.gate.messages.most; int64(bytes) > most {
		return messageTooLarge(int64(bytes), most, ReceivedSetting)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counted == 0 {
		context.AfterFunc(a.call, a.release)
	}
	for !a.ended && a.counted < bytes {
		a.grants = append(a.grants, a.gate.Hold(answerStep))
		a.counted += answerStep
	}
	return nil
}

// Reserve lets a call make an answer of so many bytes, about, or waits until there is room: a short request can have a long answer.
// The bytes are given back when ctx, the call's, is done. A caller has the share that Receive gives it of messages. Reserve returns
// a *RefusedError of the kind ErrTooLarge or ErrFull, or the context's error. It does nothing if bytes are not counted, or if ctx never ends.
func (g *Gate) Reserve(ctx context.Context, bytes int64) error {
	if !g.CountsBytes() || bytes <= UncountedBytes || ctx.Done() == nil {
		return nil
	}
	if bytes > g.answers.most {
		return answerTooLarge(bytes, g.answers.most)
	}
	waits, cancel := context.WithTimeout(ctx, firstTime)
	defer cancel()
	request, err := g.answers.take(waits, CallerOf(ctx), bytes, 0)
	switch {
	case err != nil && ctx.Err() == nil:
		return answersFull(g.answers.most)
	case err != nil:
		return err
	}
	context.AfterFunc(ctx, (&Grant{room: g.answers, request: request}).Release)
	return nil
}

// release gives the bytes back.
func (a *AnswerCount) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for _, g := range a.grants {
		g.Release()
	}
	a.grants = nil
}
