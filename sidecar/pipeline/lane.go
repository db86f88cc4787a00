package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
)

// lane is a route in service: checked by New as far as that goes without its
// store, and once with it. Each search holds the lane that it began with.
type lane struct {
	holds   atomic.Int64           // searches, and the slot or Standby that has it
	ended   chan struct{}          // closed when the last of them has let go
	static  *opened                // the route as configured, with its defaults
	turn    chan struct{}          // held by the one that asks the store
	target  atomic.Pointer[string] // what the route's alias stood for last; nil: not known
	checked atomic.Pointer[opened]
}

// opened is a route with what is known of its model and collection. It is
// read-only.
type opened struct {
	Route
	turns   *turns.Turns // of what keeps processors busy
	spec    rerank.Spec
	deriver rerank.Deriver // nil: the model derives no fields
	// behavioural: the model has vectors of items that are no rows of the collection;
	// they stand in the companion, or in the table alone.
	behavioural bool
	// elsewhere: the collection's vectors are not what the model makes feature rows of;
	// those stand in the table or the companion alone.
	elsewhere bool
	// scanner is of the table, nil if there is none; of a live one, of the snapshot
	// that was scanned last.
	scanner *atomic.Pointer[scan.Scanner]
	// featureFields are the names of the companion's fields that make a feature row.
	featureFields []string
	// companion are the dimensions of the companion's fields; nil: not known.
	companion map[string]int
	maxProbes int  // 0: not known
	agreed    bool // with its store, which was asked
	// target is the collection's own name in the store when the route was opened, which
	// differs from Collection where that is an alias; empty: not known.
	target string
	// switched: the alias stands for another collection than when the route was opened.
	switched bool
	planner  *planner // nil: nothing is to be chosen
	supports *held
}

func newLane(r *Route, t *turns.Turns) (*lane, error) {
	o := &opened{Route: *r, turns: t}
	if err := o.configure(); err != nil {
		return nil, err
	}
	o.scanner, o.supports = new(atomic.Pointer[scan.Scanner]), new(held)
	if o.ScanIfFaster {
		o.planner = new(planner)
	}
	l := &lane{static: o, turn: make(chan struct{}, 1), ended: make(chan struct{})}
	l.holds.Store(1)
	return l, nil
}

// hold reports false where the last holder has gone.
func (l *lane) hold() bool {
	for {
		n := l.holds.Load()
		if n == 0 {
			return false
		}
		if l.holds.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *lane) release() {
	if l.holds.Add(-1) == 0 {
		close(l.ended)
	}
}

// scannerOf is the scanner of a table that the caller holds; those who scan one
// snapshot at a time share it.
func (o *opened) scannerOf(t *table.Table) *scan.Scanner {
	last := o.scanner.Load()
	if last != nil && last.Table() == t {
		return last
	}
	mine := scan.NewShared(t, o.spec, o.turns)
	if !o.scanner.CompareAndSwap(last, mine) {
		if other := o.scanner.Load(); other.Table() == t {
			return other
		}
	}
	return mine
}

// current is the route as far as it is known without a call.
func (l *lane) current() *opened {
	if o := l.checked.Load(); o != nil {
		return o
	}
	return l.static
}

// open returns the route checked against its store; the first caller asks it.
func (l *lane) open(ctx context.Context) (*opened, error) {
	if o := l.checked.Load(); o != nil {
		return o, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("route %q is being checked against its store: %w", l.static.Name, ctx.Err())
	}
	if o := l.checked.Load(); o != nil {
		return o, nil
	}
	o := *l.static
	if err := o.agree(ctx); err != nil {
		return nil, err
	}
	o.agreed = true
	if err := o.measureScan(ctx); err != nil {
		return nil, err
	}
	l.checked.Store(&o)
	return &o, nil
}

// forget makes the next search check the route again, if the error says that
// the collection is not what it was.
func (l *lane) forget(err error) {
	for _, changed := range []error{adapters.ErrNotFound, adapters.ErrField, adapters.ErrDimension, adapters.ErrMetric} {
		if errors.Is(err, changed) {
			l.checked.Store(nil)
		}
	}
}
