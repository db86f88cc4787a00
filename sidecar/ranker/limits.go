package ranker

import (
	"sync"

	"github.com/likenessdb/likeness/plugin"
)

// Upper bounds of what the parts of a request take on the wire, beside their text and
// their floats: tags, lengths and numbers.
const (
	queryOverhead   = 64
	contextOverhead = 24
	itemOverhead    = 32
)

// querySize and itemSize bound the bytes of a request from above.
func querySize(q plugin.Query) int {
	size := queryOverhead + 4*len(q.Vector) + len(q.Text)
	for name := range q.Context {
		size += contextOverhead + len(name)
	}
	return size
}

func itemSize(item *plugin.Item) int {
	text, _ := item.ID.Text()
	return itemOverhead + len(text) + len(item.Payload) + 4*len(item.Vector)
}

// bound is the greatest batch, in items or in bytes, that the scorer was seen to take:
// what it declares, and below that what it refused. A bound that was learned grows by
// an eighth after patience full batches; each refusal doubles the patience, so that
// what the scorer cannot take is tried ever less often.
type bound struct {
	learned  int // 0: none
	accepted int // the greatest that it took
	full     int // batches taken, near the bound, since it changed
	patience int
}

const (
	firstPatience = 16
	mostPatience  = 4096
)

// within is the bound below a declared one; 0 is none.
func (b *bound) within(declared int) int {
	if b.learned > 0 && (declared <= 0 || b.learned < declared) {
		return b.learned
	}
	return max(declared, 0)
}

func (b *bound) take(size int) {
	b.accepted = max(b.accepted, size)
	if b.learned == 0 || size < b.learned-b.learned/4 {
		return
	}
	if b.full++; b.full >= b.patience {
		b.learned += max(1, b.learned/8)
		b.full = 0
	}
}

func (b *bound) refuse(size int) {
	least := max(size/2, 1)
	if b.accepted < size {
		least = max(least, b.accepted)
	}
	if b.learned > 0 && b.learned <= least {
		return // another batch taught it
	}
	b.learned, b.full = least, 0
	b.patience = min(max(2*b.patience, firstPatience), mostPatience)
}

// limits are what a batch may be.
type limits struct {
	mu           sync.Mutex
	items, bytes bound
}

func (l *limits) within(d plugin.Description) (items, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.items.within(d.MaxItems), l.bytes.within(d.MaxBytes)
}

func (l *limits) take(items, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items.take(items)
	l.bytes.take(bytes)
}

// refuse learns from a batch that was too large. Whether items or bytes were too many
// it does not say: as many items that were taken before speak for the bytes.
func (l *limits) refuse(items, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if items <= l.items.accepted && bytes <= l.bytes.accepted { // it takes less than it did
		l.items.accepted, l.bytes.accepted = 0, 0
	}
	if items > l.items.accepted {
		l.items.refuse(items)
	} else {
		l.bytes.refuse(bytes)
	}
}

// refuseOne learns from an item that is too large alone. Where larger batches with it
// were refused, it was the reason and not their number, which is learned anew.
func (l *limits) refuseOne(bytes int, halved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if halved {
		l.items.learned = 0
	}
	l.bytes.refuse(bytes)
}
