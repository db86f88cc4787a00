package routing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/likenessdb/likeness/adapters"
)

const (
	// strangerPatience is how long a stranger's write may be on its way before the database
	// is asked whether the stranger may write at all. While such a write is on its way
	// answers wait, and soon are not certified.
	strangerPatience = 10 * time.Millisecond
	// mayWriteWithin bounds that question.
	mayWriteWithin = 5 * time.Second
)

// watchStranger ends the doubts about a stranger's write that takes long, or whose body
// trickles, if the database does not let the stranger write.
func (f *flight) watchStranger(ctx context.Context) {
	f.mayWrite = sync.OnceValue(func() bool { return f.askMayWrite(ctx) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow = time.AfterFunc(strangerPatience, func() {
		if !f.mayWrite() {
			f.excuse()
		}
	})
}

// askMayWrite asks the database whether the stranger may write to any collection that the
// write may be to. It is true if the database does not say no.
func (f *flight) askMayWrite(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(adapters.AsCaller(context.WithoutCancel(ctx)), mayWriteWithin)
	defer cancel()
	defer context.AfterFunc(f.closing, cancel)()
	for name, store := range f.followed() {
		check := adapters.AbilitiesOf(store).CheckWrite
		if check == nil || !errors.Is(check.CheckWrite(ctx, name), adapters.ErrRefused) {
			return true
		}
	}
	return false
}

// excuse ends the doubts about a stranger's write that is on its way.
func (f *flight) excuse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.excused = true
		f.clearDoubts()
	}
}

// endWatch ends what watchStranger began. The doubts of a write that was carried out
// although its caller could not write a moment ago begin again.
func (f *flight) endWatch(o WriteOutcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow.Stop()
	f.over = true
	if !f.excused || o != Answered {
		return
	}
	for _, t := range f.targets {
		f.doubtOne(t.collection)
	}
	if f.elsewhere {
		f.doubt()
	}
}
