package gate

import (
	"context"
	"sync"
)

// answerStep is how many bytes of an answer are counted at a time.
const answerStep = 256 << 10

// AnswerCount counts the bytes of an answer of the database as they come, until the call
// that asked for it ends: a request of few bytes can have an answer of many. The methods do
// nothing on a nil AnswerCount.
type AnswerCount struct {
	gate *Gate
	call context.Context //nolint:containedctx // whose end gives the bytes back

	mu      sync.Mutex
	ended   bool
	counted int
	grants  []*Grant
}

// CountAnswer begins to count an answer that is kept until ctx is done at most. It returns
// nil where bytes are not counted, or ctx never ends.
func (g *Gate) CountAnswer(ctx context.Context) *AnswerCount {
	if !g.CountsBytes() || ctx.Done() == nil {
		return nil
	}
	return &AnswerCount{gate: g, call: ctx}
}

// Grow counts an answer of which so many bytes are here. It waits for nothing: messages of
// clients wait until the answer's bytes are given back. It returns a *RefusedError of the
// kind ErrTooLarge for an answer that has more bytes than all messages together may have.
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
