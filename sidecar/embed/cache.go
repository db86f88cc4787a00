package embed

import "container/list"

// entryBytes is the memory of a cache entry beside its text and vector.
const entryBytes = 200

// cache keeps the vectors of the texts that were used last, within a number of bytes.
type cache struct {
	limit, bytes int64
	entries      map[string]*list.Element
	order        *list.List // of *entry, the last used first
}

type entry struct {
	text   string
	vector []float32
}

func (e *entry) bytes() int64 { return int64(len(e.text)) + 4*int64(len(e.vector)) + entryBytes }

func newCache(limit int64) cache {
	return cache{limit: limit, entries: map[string]*list.Element{}, order: list.New()}
}

// get returns the vector of a text, or nil.
func (c *cache) get(text string) []float32 {
	element := c.entries[text]
	if element == nil {
		return nil
	}
	c.order.MoveToFront(element)
	return element.Value.(*entry).vector
}

// put keeps the vector of a text that is not there yet, unless it alone exceeds the limit, and drops
// those that were not used for longest.
func (c *cache) put(text string, vector []float32) {
	e := &entry{text, vector}
	if e.bytes() > c.limit {
		return
	}
	c.entries[text] = c.order.PushFront(e)
	for c.bytes += e.bytes(); c.bytes > c.limit; {
		last := c.order.Remove(c.order.Back()).(*entry)
		delete(c.entries, last.text)
		c.bytes -= last.bytes()
	}
}
