// Package follow keeps what was derived from a collection, live tables and
// companions, in step with it: it looks at the rows again that a write named,
// and now and then at all of them.
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

var _ route.Freshness = (*syncer)(nil)

// The errors of this package; those of the store pass through wrapped.
var (
	// ErrRoute: what the route derives cannot be compared or followed.
	ErrRoute = errors.New("route cannot be followed")
	// ErrClosed: the follower was closed.
	ErrClosed = errors.New("the follower is closed")
)

// Options are of a follower, which is of one store.
type Options struct {
	Store adapters.Store // an adapters.Fetcher and adapters.Scanner
	// Dir is where the journals and the states of its collections lie. Without it
	// nothing follows a collection, and what Outdated says ends with the process.
	Dir string
	// Consistency is asked of the reads that follow a write.
	Consistency string
	// Applied: a read with that consistency shows every write that was answered.
	// Otherwise those that the client did not wait for are looked at again later.
	Applied bool
	// OnRequest: all rows are compared when Reconcile is called, and not before.
	OnRequest bool
	// Disk holds the files in Dir; nil is the operating system's.
	Disk   disk.Disk
	Logger *slog.Logger
}

// Route is a route and how it is followed; of several on one collection the
// shortest budget and interval and the least rate hold.
type Route struct {
	*route.Route
	// WriteBudget is the most that a write is kept back for the journal; 0: as long
	// as that takes.
	WriteBudget time.Duration
	// Interval is the time between two reconciles; 0: they run when asked, and
	// where something was missed.
	Interval time.Duration
	// RowsPerSecond is how fast a reconcile reads; 0 is as fast as it can.
	RowsPerSecond int
}

// Derives says whether a route has something that was derived from its collection.
func Derives(r *route.Route) bool {
	return r.Store != nil && (r.Table != nil || r.Live != nil || r.Companion != "")
}

// Followed says whether a route has something that can follow its collection: of
// each of its rows all that was derived can be derived again, from that row alone.
func Followed(r *route.Route) bool {
	return fromRows(r) && r.Store != nil && (r.Live != nil || r.Companion != "")
}

// fromRows: what a route derives of an item follows from one row of its collection.
func fromRows(r *route.Route) bool {
	return r.Owner == "" && !r.HasBehaviouralVectors() && !r.NeedsRankerToEncode()
}

// Follower follows the collections of one store, and knows when one was written to
// that something cannot follow. It is safe for concurrent use.
type Follower struct {
	o       Options
	syncers map[string]*syncer // by collection
	frozen  *frozen
	stop    context.CancelFunc

	mu     sync.Mutex
	doubts map[string]*doubts // by collection
}

// New opens the journals of the routes' collections, sets their Freshness, and
// begins to follow: first what the journals say was under way when the process
// ended. It calls no store before it returns. It returns ErrRoute, or why a
// journal or a state cannot be opened; a disk that is full is no reason, and then all
// rows are compared.
func New(o Options, routes []Route) (*Follower, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Disk = disk.OrOS(o.Disk)
	ctx, stop := context.WithCancel(context.Background())
	f := &Follower{o: o, syncers: map[string]*syncer{}, stop: stop, doubts: map[string]*doubts{}}
	f.frozen = newFrozen(o.Disk, o.Dir, o.Logger, f.doubtsOf)
	for _, r := range routes {
		if err := f.add(r); err != nil {
			stop()
			return nil, errors.Join(err, f.closeAll())
		}
	}
	for _, s := range f.syncers {
		s.start(ctx)
	}
	f.frozen.start(ctx)
	return f, nil
}

// Check returns the error that New would return of the routes and of the states of
// their collections. It opens no journal and writes nothing, so that it can be called
// beside a follower of another process.
func Check(o Options, routes []Route) error {
	o.Disk = disk.OrOS(o.Disk)
	frozen := newFrozen(o.Disk, o.Dir, slog.New(slog.DiscardHandler), func(string) *doubts { return &doubts{} })
	for _, r := range routes {
		follows, err := check(o, r)
		if err == nil && follows {
			_, err = readRecord(recordPath(statedir.Collection(o.Dir, r.Collection)))
			err = syncerFailed(r.Collection, err)
		}
		if err != nil {
			return err
		}
		if _, err := frozen.freshnessOf(r.Route, follows); err != nil {
			return stateFailed(r.Collection, err)
		}
	}
	return nil
}

// check reports whether a route is to follow its collection. It returns ErrRoute where
// it cannot.
func check(o Options, r Route) (follows bool, err error) {
	if !Derives(r.Route) {
		return false, fmt.Errorf("%w: route %q has neither a table nor a companion", ErrRoute, r.Name)
	}
	if o.Dir == "" || !Followed(r.Route) {
		return false, nil
	}
	_, err = newDerived(o.Store, r.Route)
	return true, err
}

func syncerFailed(collection string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("following collection %q: %w", collection, err)
}

func stateFailed(collection string, err error) error {
	return fmt.Errorf("collection %q: %w", collection, err)
}

func (f *Follower) add(r Route) error {
	if _, err := check(f.o, r); err != nil {
		return err
	}
	if f.follows(r.Route) {
		if err := f.addSyncer(r); err != nil {
			return err
		}
	}
	fresh, err := f.freshness(r.Route)
	if err != nil {
		return err
	}
	r.Freshness = fresh
	f.frozen.adopt(r.Route, fresh)
	f.frozen.clock(r.Collection).limit(r.WriteBudget)
	return nil
}

func (f *Follower) addSyncer(r Route) error {
	d, err := newDerived(f.o.Store, r.Route)
	if err != nil {
		return err
	}
	s := f.syncers[r.Collection]
	if s == nil {
		if s, err = openSyncer(f.o, r.Collection, f.doubtsOf(r.Collection)); err != nil {
			return syncerFailed(r.Collection, err)
		}
		f.syncers[r.Collection] = s
	}
	s.adopt(d, r)
	return nil
}

// follows says whether what a route has is to follow its collection.
func (f *Follower) follows(r *route.Route) bool { return f.o.Dir != "" && Followed(r) }

// freshness is that of all that a route derives: of what follows, of what cannot,
// or of both. It is nil where it derives nothing.
func (f *Follower) freshness(r *route.Route) (route.Freshness, error) {
	var followed route.Freshness
	if s := f.syncers[r.Collection]; s != nil && f.follows(r) {
		followed = s
	}
	old, err := f.frozen.freshnessOf(r, f.follows(r))
	switch {
	case err != nil:
		return nil, stateFailed(r.Collection, err)
	case old == nil:
		return followed, nil
	}
	old.followed = followed
	return old, nil
}

// Covers reports whether writes to the collection are to be told to Begin.
func (f *Follower) Covers(collection string) bool {
	return f.syncers[collection] != nil || f.frozen.clock(collection) != nil
}

// Begin says that a write is about to be sent to the database, and keeps it back
// until the journal has it, for the route's write budget at most, or until ctx is
// done, which should not end with the client: its write may be on its way. The
// caller calls done once the database has answered and did not refuse the write, or
// may have carried it out without an answer. Begin never fails: where the journal
// does, all rows are compared later.
func (f *Follower) Begin(ctx context.Context, w journal.Write) (done func()) {
	end := f.BeginOpen(ctx, w)
	return func() { end(true, nil) }
}

// BeginOpen is Begin for a write that the database may refuse, or whose rows get
// their ids from the database, which has All. The caller calls end once: applied says
// that the database did not refuse the write; touched are the ids that it chose, nil
// where its answer did not say. A write that was refused leaves nothing behind.
func (f *Follower) BeginOpen(ctx context.Context, w journal.Write) (end func(applied bool, touched []rerank.ID)) {
	c, s := f.frozen.clock(w.Collection), f.syncers[w.Collection]
	doubtEnds, writeEnds := func(bool) {}, func(bool, []rerank.ID) {}
	if c != nil {
		doubtEnds = c.doubts.begin()
		f.frozen.cover(ctx, c)
	}
	if s != nil {
		writeEnds = s.begin(ctx, w)
	}
	return func(applied bool, touched []rerank.ID) {
		if applied {
			c.written()
		}
		writeEnds(applied, touched)
		doubtEnds(applied)
	}
}

// Doubt notes that a write is on its way of which nobody knows yet whether the
// database lets its caller write, or whether it is to this collection. The journal does
// not get it. The caller calls end once: with the write, as soon as it is known
// that the database did not refuse it and that it is to this collection, and
// otherwise with nil, which leaves nothing behind.
func (f *Follower) Doubt(collection string) (end func(applied *journal.Write)) {
	doubtEnds := f.doubtsOf(collection).begin()
	ctx, cancel := context.WithTimeout(context.Background(), doubtBudget)
	defer cancel()
	f.frozen.cover(ctx, f.frozen.clock(collection))
	return func(applied *journal.Write) {
		if applied != nil {
			f.frozen.clock(collection).written()
			if s := f.syncers[collection]; s != nil {
				s.beginApplied(*applied)
			}
		}
		doubtEnds(applied != nil)
	}
}

// doubtBudget is the most that Doubt waits until the next process would know of the write.
const doubtBudget = 5 * time.Millisecond

// doubtsOf returns the doubtful writes to a collection.
func (f *Follower) doubtsOf(collection string) *doubts {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.doubts[collection]
	if d == nil {
		d = &doubts{}
		f.doubts[collection] = d
	}
	return d
}

// Reconcile compares a collection with what was derived from it, repairs what
// differs, and returns what that was, by route, with what other passes found since
// the last time that it was asked, or since the follower was made. It waits for a
// pass that begins after it was called.
func (f *Follower) Reconcile(ctx context.Context, collection string) (map[string]Drift, error) {
	s := f.syncers[collection]
	if s == nil {
		return nil, fmt.Errorf("%w: nothing is followed of collection %q", ErrRoute, collection)
	}
	return s.request(ctx)
}

// Replace makes a route take the place of the one of its name, whose table or
// companion is followed no more, and sets its Freshness; until all rows were
// compared it is not fresh. A route that has nothing to follow only takes the other
// out. It returns ErrRoute if nothing was followed of its collection when the
// follower was made. Until Quiet, the other's table may still be read.
func (f *Follower) Replace(r *route.Route) error {
	s := f.syncers[r.Collection]
	if s == nil && f.follows(r) {
		return fmt.Errorf("%w: route %q: nothing of collection %q was followed when the sidecar started; start it again", ErrRoute, r.Name, r.Collection)
	}
	fresh, err := f.freshness(r)
	if err == nil && s != nil {
		err = s.replace(r)
	}
	if err != nil {
		return err
	}
	if fresh != nil {
		r.Freshness = fresh
	}
	f.frozen.adopt(r, fresh)
	return nil
}

// Freshness is what Replace will set; nil where it will set none. Writes that come
// from now on are noted. It returns why the state of the collection cannot be read.
func (f *Follower) Freshness(r *route.Route) (route.Freshness, error) { return f.freshness(r) }

// Quiet waits until nothing reads or writes what was replaced before the call: its
// table may be closed then. It returns the context's error.
func (f *Follower) Quiet(ctx context.Context, collection string) error {
	s := f.syncers[collection]
	if s == nil {
		return nil
	}
	if err := s.waitReleased(ctx); err != nil {
		return fmt.Errorf("collection %q: what was replaced is still followed: %w", collection, err)
	}
	return nil
}

// Status says how far one route is followed.
type Status struct {
	Route string `json:"route"`
	// Pending are the writes that were seen and that it does not show yet.
	Pending int `json:"pending"`
	// Stale: something was missed, and not all rows were compared since.
	Stale bool `json:"stale"`
	// Age is how long ago the oldest write was seen that it does not show, or
	// since when it is stale; 0: it shows every write that was seen.
	Age time.Duration `json:"age_nanoseconds"`
	// Unjournaled are the writes that the journal did not take in time.
	Unjournaled int64 `json:"unjournaled"`
	// JournalError is why the journal takes no write, as of a disk that is full; it is
	// tried again. Empty: it takes them.
	JournalError string `json:"journal_error,omitempty"`
	// Drift is what the last reconcile found, Reconciled when it ended.
	Drift       Drift     `json:"drift"`
	Reconciled  time.Time `json:"reconciled,omitzero"`
	Reconciling bool      `json:"reconciling"`
	// Reconciles and Failures count passes that ended and attempts that failed,
	// Rows what they read.
	Reconciles int64 `json:"reconciles"`
	Failures   int64 `json:"failures"`
	Rows       int64 `json:"rows"`
}

// Status lists the routes by name.
func (f *Follower) Status() []Status {
	var all []Status
	for _, s := range f.syncers {
		all = append(all, s.status()...)
	}
	all = f.frozen.status(all)
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Route, b.Route) })
	return all
}

// Close follows what was seen until nothing is left or ctx is done, and ends. No
// write may begin after. What is left is in the journal.
func (f *Follower) Close(ctx context.Context) error {
	for _, s := range f.syncers {
		s.drain(ctx)
	}
	f.stop()
	return f.closeAll()
}

func (f *Follower) closeAll() error {
	var failed []error
	for _, s := range f.syncers {
		failed = append(failed, s.close())
	}
	failed = append(failed, f.frozen.close())
	return errors.Join(failed...)
}
