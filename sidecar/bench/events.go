package bench

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/search"
)

// EventsCost says how much the events of a route add to a search: keeping what the answer shows, and writing
// it to a file.
type EventsCost struct {
	Searches int `json:"searches"` // with events; as many ran without
	// Added is the processor time that events add to a search, in microseconds: the difference between the
	// fastest tenths of the turns with and without events, which other programs of the machine delay least.
	// Median is the median of the differences of the turns.
	Added  float64 `json:"added_us"`
	Median float64 `json:"median_us"`
	// Allocations are the allocations that events add to a search.
	Allocations float64 `json:"allocations"`
	// Dropped counts the answers that were not kept because the disk was too slow.
	Dropped int64 `json:"dropped"`
}

// eventsBlock is how many searches run between two writes of their events to the disk. It is long enough for
// each block to collect garbage.
const eventsBlock = 250

// keptEvents keeps the events of one route in a temporary folder.
type keptEvents struct {
	dir   string
	route *events.Route
}

// openEvents makes the folder, in which every answer of the route is kept with its query vector and a hash
// of its user.
func openEvents(route string) (*keptEvents, error) {
	dir, err := os.MkdirTemp("", "likeness-events-")
	if err != nil {
		return nil, err
	}
	of, err := events.OpenRoute(dir, route, events.RouteOptions{Share: 1, Keep: []string{events.FieldVector, events.FieldUser}, Hash: []string{events.FieldUser}})
	e := &keptEvents{dir, of}
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *keptEvents) close() error { return errors.Join(e.route.Close(), os.RemoveAll(e.dir)) }

// compare measures searches of p with and without events. In each turn it runs eventsBlock searches of
// either sort.
func (e *keptEvents) compare(ctx context.Context, p *search.Engine, r search.Request, queries []rerank.Query, turns int) (*EventsCost, error) {
	r.User = "somebody"
	out := &EventsCost{Searches: turns * eventsBlock}
	var spent [2][]time.Duration // without events, with
	var added []time.Duration
	allocated := int64(0)
	for turn := -1; turn < turns; turn++ { // the first one warms up
		var took [2]time.Duration
		var made [2]int64
		for i := range 2 {
			with := (turn + i) & 1 // either goes first as often
			r.Shown = with == 1
			now, before := processorTime(), allocations()
			now()
			if err := e.block(ctx, p, r, queries); err != nil {
				return nil, err
			}
			took[with], made[with] = now(), allocations()-before
		}
		if turn < 0 {
			continue
		}
		spent[0], spent[1] = append(spent[0], took[0]), append(spent[1], took[1])
		added, allocated = append(added, took[1]-took[0]), allocated+made[1]-made[0]
	}
	out.Added = microseconds(spent[1], 0.1) - microseconds(spent[0], 0.1)
	out.Median, out.Allocations = microseconds(added, 0.5), float64(allocated)/float64(out.Searches)
	out.Dropped = e.route.Stats().Dropped
	return out, nil
}

// block runs eventsBlock searches. If their answers are kept, it waits until they are on the disk.
func (e *keptEvents) block(ctx context.Context, p *search.Engine, r search.Request, queries []rerank.Query) error {
	var last search.Answer
	for i := range eventsBlock {
		r.Query = queries[i%len(queries)]
		var err error
		if last, err = searchWhole(ctx, p, r); err != nil {
			return err
		}
	}
	if !r.Shown || len(last.Hits) == 0 {
		return nil
	}
	id, err := events.ParseAnswerID(last.ID)
	if err != nil {
		return err
	}
	// Feed returns when the event is durable, and with it all impressions before.
	_, err = e.route.Feed(ctx, []events.Feedback{{Answer: id, Item: last.Hits[0].ID, Kind: "click", Weight: 1}})
	return err
}

// allocations returns how many objects the process has allocated.
func allocations() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Mallocs)
}

// microseconds returns the p-quantile of the times of blocks of searches, divided by the searches of a block.
func microseconds(blocks []time.Duration, p float64) float64 {
	return 1000 * eval.Percentile(blocks, p) / eventsBlock
}
