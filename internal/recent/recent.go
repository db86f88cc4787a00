// Package recent caches what was read elsewhere and can change there, such as the schema of a
// collection in a database.
package recent

import (
	"maps"
	"sync"
	"time"
)

// Cache keeps the value that was last read for a key, for a limited time, and forgets keys that were
// not read within that time. Keep is set before the first call. A Cache is safe for concurrent use.
type Cache[K comparable, V any] struct {
	// Keep is how long a value is used, counted from the moment at which its reading began.
	Keep time.Duration

	mu      sync.Mutex
	entries map[K]*entry[V]
}

// entry holds the value of a key, or marks that the value is being read.
type entry[V any] struct {
	began time.Time // when the reading began
	value V         // only if known
	known bool
}

// Load returns the cached value of a key. If there is none, Load calls read, and caches its value
// unless Forget is called meanwhile. It does not cache read's error. cached reports whether the
// value comes from the cache. Callers that find no value read it at the same time.
func (c *Cache[K, V]) Load(key K, read func() (V, error)) (value V, cached bool, err error) {
	e, value, cached := c.find(key)
	if cached {
		return value, true, nil
	}
	if value, err = read(); err != nil {
		return value, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] == e { // not forgotten, and not read again
		e.value, e.known = value, true
	}
	return value, false, nil
}

// find returns the entry of a key and its value, if that is known. Without a current entry it makes
// one for a reading that begins now, and drops all entries that are too old.
func (c *Cache[K, V]) find(key K) (e *entry[V], value V, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	isOld := func(e *entry[V]) bool { return now.Sub(e.began) >= c.Keep }
	if e = c.entries[key]; e == nil || isOld(e) {
		maps.DeleteFunc(c.entries, func(_ K, e *entry[V]) bool { return isOld(e) })
		if c.entries == nil {
			c.entries = map[K]*entry[V]{}
		}
		e = &entry[V]{began: now}
		c.entries[key] = e
	}
	return e, e.value, e.known
}

// Forget makes the next Load of a key read its value. A reading that has begun already is not
// cached: it may not show what the caller has just changed.
func (c *Cache[K, V]) Forget(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}

// ForgetFunc forgets every key for which match returns true.
func (c *Cache[K, V]) ForgetFunc(match func(K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.entries, func(key K, _ *entry[V]) bool { return match(key) })
}
