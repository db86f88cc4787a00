package ranker

import (
	"sync"

	"github.com/likenessdb/likeness/plugin"
)

// Upper bounds of the encoded size of a request's parts, without their text and floats:
// tags, lengths and numbers.
const (
	queryOverhead   = 64
	contextOverhead = 24
	itemOverhead    = 32
)

// querySize and itemSize return upper bounds of encoded sizes in bytes.
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

// bound is the largest batch, in items or bytes, that the scorer accepts: the declared
// limit, or a lower one learned from refusals. After `patience` full batches, a learned
// bound grows by an eighth. Each refusal doubles the patience, so that sizes that the
// scorer cannot handle are tried less and less often.
type bound struct {
	learned  int // 0: nothing learned
	accepted int // largest size accepted so far
	full     int // batches accepted near the bound since it changed
	patience int
}

const (
	firstPatience = 16
	mostPatience  = 4096
)

// within returns the effective bound for a declared limit. 0 means none.
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
		return // another batch has already taught that
	}
	b.learned, b.full = least, 0
	b.patience = min(max(2*b.patience, firstPatience), mostPatience)
}

// limits are the bounds of a batch.
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

// refuse learns from a batch that was too large. The refusal does not say whether the
// number of items or of bytes was the reason. If as many items were accepted before, it
// must be the bytes.
func (l *limits) refuse(items, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if items <= l.items.accepted && bytes <= l.bytes.accepted { // the scorer accepts less than before
		l.items.accepted, l.bytes.accepted = 0, 0
	}
	if items > l.items.accepted {
		l.items.refuse(items)
	} else {
		l.bytes.refuse(bytes)
	}
}

// refuseOne learns from a single item that was too large. If larger batches with this item
// were refused, the item was the reason and not their size, so the learned number of items
// is discarded.
func (l *limits) refuseOne(bytes int, halved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if halved {
		l.items.learned = 0
	}
	l.bytes.refuse(bytes)
}
