package ranker

import (
	"context"
	"slices"
	"time"

	"github.com/likenessdb/likeness/internal/breaker"
	"github.com/likenessdb/likeness/plugin"
)

// sample is a query and an item that the ranker has scored. A ranker that scores it again works, whatever else it was sent.
type sample struct {
	query plugin.Query
	item  plugin.Item
	size  int           // bytes of a request with the item
	took  time.Duration // how long the call took that had the item, among others
}

// maxSampleBytes bounds the memory of a sample.
const maxSampleBytes = 256 << 10

// keepSample keeps the smallest query and item that the ranker scored: with those it is least likely to fail, or to be slow.
func (c *Client) keepSample(q plugin.Query, item plugin.Item, took time.Duration) {
	size := querySize(q) + itemSize(&item)
	c.mu.Lock()
	defer c.mu.Unlock()
	if size > maxSampleBytes || c.sample != nil && size >= c.sample.size {
		return
	}
	item.Payload, item.Vector = slices.Clone(item.Payload), slices.Clone(item.Vector) // which may be a part of a large answer
	c.sample = &sample{query: q, item: item, size: size, took: took}
}

// scoresSample reports whether the ranker scores the sample in time. Without a sample it reports false.
func (c *Client) scoresSample(ctx context.Context) bool {
	c.mu.Lock()
	s := c.sample
	c.mu.Unlock()
	if s == nil {
		return false
	}
	ctx = context.WithoutCancel(ctx)
	ended := c.options.Observer.RankerCalled(ctx, c.options.Name, 1)
	asked, cancel := context.WithTimeout(ctx, min(c.options.Timeout, describeTimeout+4*s.took))
	defer cancel()
	b := batch{items: []plugin.Item{s.item}}
	scores, _, err := c.ask(asked, s.query, b.items, "")
	if err == nil {
		_, err = b.check(scores)
	}
	if err != nil {
		err = c.withName(err)
	}
	outcome := c.outcome(ctx, err)
	ended(outcome)
	return verdictOf(outcome, false) == breaker.Works
}
