// Package follow keeps live tables and companions in step with the collection from which they are
// derived. It reads the rows that a write named again, and compares all rows from time to time. It
// also says which derived data shows every write that was seen.
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

// The errors of this package. Errors of the store pass through wrapped.
var (
	// ErrRoute means that a route's derived data cannot be compared or followed.
	ErrRoute = errors.New("route cannot be followed")
	// ErrClosed means that the follower was closed.
	ErrClosed = errors.New("the follower is closed")
)

// Options configure a Follower, which follows the collections of one store.
type Options struct {
	Store adapters.Store // an adapters.Fetcher and adapters.Scanner
	// Dir is the folder of the journals and the collections' records. Without it nothing is
	// followed, and a restart forgets which writes were seen.
	Dir string
	// Consistency is the level of the reads that follow a write, in the store's words.
	Consistency string
	// Applied: a read with that consistency shows every write that the database has answered. If
	// false, the rows of a write that the client did not wait for are read again later.
	Applied bool
	// OnRequest: all rows are compared only when Reconcile is called, never at intervals.
	OnRequest bool
	// Shared is the folder that several sidecars share: each keeps its journals there under its
	// name Replica. If Shared is empty, the journals are in Dir, and no other sidecar's writes are
	// seen. Replicas is the number of sidecars.
	Shared, Replica string
	Replicas        int
	// Disk holds the files in Dir; nil is the operating system's.
	Disk   disk.Disk
	Logger *slog.Logger
}

// Route is a route with the limits of following it. Where several routes share a
// collection, the strictest of their limits hold.
type Route struct {
	*route.Route
	// WriteBudget is the longest that a write waits for the journal; 0 sets no limit.
	WriteBudget time.Duration
	// Interval is the time between two comparisons of all rows. 0: they run only on request, and
	// after a write that may have been missed.
	Interval time.Duration
	// RowsPerSecond limits how fast a comparison reads rows; 0 sets no limit.
	RowsPerSecond int
}

// Derives reports whether a route has a table or a companion that was derived from its
// collection.
func Derives(r *route.Route) bool {
	return r.Store != nil && (r.Table != nil || r.Live != nil || r.Companion != "")
}

// Followed reports whether a route has a live table or a companion that can be kept in step,
// because each row's derived data follows from that row alone.
func Followed(r *route.Route) bool {
	return fromRows(r) && r.Store != nil && (r.Live != nil || r.Companion != "")
}

// fromRows reports whether everything that a route derives for an item follows from one row of its
// collection.
func fromRows(r *route.Route) bool {
	return r.Owner == "" && !r.HasBehaviouralVectors() && !r.NeedsRankerToEncode()
}

// Follower follows the collections of one store. It also notes which collections were written to
// though their derived data cannot be followed. It is safe for concurrent use.
type Follower struct {
	o       Options
	syncers map[string]*syncer // by collection
	frozen  *frozen
	stop    context.CancelFunc

	mu     sync.Mutex
	doubts map[string]*doubts // by collection
}

// New opens the journals of the routes' collections, sets the routes' Freshness, and begins to
// follow, first the writes that the last process left in the journals. It calls no store before it
// returns. It returns ErrRoute, or an error if a journal cannot be opened. A full disk or a damaged
// record is no error; all rows are compared instead.
func New(o Options, routes []Route) (*Follower, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Shared != "" && o.Replica == "" {
		return nil, fmt.Errorf("%w: the journals are shared, and this sidecar has no name in the shared folder", ErrRoute)
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

// Check returns the errors that New would return because of the routes, or of the records of their
// collections. It opens no journal and writes nothing, so it can run while another process follows.
func Check(o Options, routes []Route) error {
	for _, r := range routes {
		follows, err := check(o, r)
		if err == nil && follows {
			_, err = readRecord(recordPath(statedir.Collection(o.Dir, r.Collection)))
			err = syncerFailed(r.Collection, err)
		}
		if err != nil {
			return err
		}
		if o.Dir != "" {
			if _, err := readWritten(writtenPath(statedir.Collection(o.Dir, r.Collection))); err != nil {
				return fmt.Errorf("collection %q: %w", r.Collection, err)
			}
		}
	}
	return nil
}

// check reports whether a route is to be followed. It returns ErrRoute if the route should be
// followed and cannot be.
func check(o Options, r Route) (follows bool, err error) {
	if !Derives(r.Route) {
		return false, fmt.Errorf("%w: route %q has neither a table nor a companion", ErrRoute, r.Name)
	}
	if o.Dir == "" || !Followed(r.Route) {
		return false, nil
	}
	_, err = newDerivation(o.Store, r.Route, o.Consistency)
	return true, err
}

func syncerFailed(collection string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("following collection %q: %w", collection, err)
}

func (f *Follower) add(r Route) error {
	if r.Broken != nil {
		return f.addBroken(r)
	}
	if _, err := check(f.o, r); err != nil {
		return err
	}
	if f.follows(r.Route) {
		if err := f.addSyncer(r); err != nil {
			return err
		}
	}
	fresh := f.Freshness(r.Route)
	r.Freshness = fresh
	f.frozen.adopt(r.Route, fresh)
	f.frozen.clock(r.Collection).limit(r.WriteBudget)
	return nil
}

func (f *Follower) addSyncer(r Route) error {
	d, err := newDerivation(f.o.Store, r.Route, f.o.Consistency)
	if err != nil {
		return err
	}
	s, err := f.syncer(r.Collection)
	if err != nil {
		return err
	}
	s.applyLimits(r)
	s.adopt(d)
	return nil
}

// addBroken opens the journal of a broken route's collection, so that writes are noted until
// Replace opens the route.
func (f *Follower) addBroken(r Route) error {
	if f.o.Dir != "" {
		s, err := f.syncer(r.Collection)
		if err != nil {
			return err
		}
		s.applyLimits(r)
	}
	f.frozen.open(r.Collection).limit(r.WriteBudget)
	return nil
}

// syncer returns the syncer of a collection. It is called before the syncers start.
func (f *Follower) syncer(collection string) (*syncer, error) {
	if s := f.syncers[collection]; s != nil {
		return s, nil
	}
	s, err := openSyncer(f.o, collection, f.doubtsOf(collection))
	if err != nil {
		return nil, syncerFailed(collection, err)
	}
	f.syncers[collection] = s
	return s, nil
}

// follows reports whether a route is to be followed.
func (f *Follower) follows(r *route.Route) bool { return f.o.Dir != "" && Followed(r) }

// Covers reports whether Begin has to be called for writes to the collection.
func (f *Follower) Covers(collection string) bool {
	return f.syncers[collection] != nil || f.frozen.clock(collection) != nil
}

// Begin is called before a write is sent to the database. It returns when the journal has the write,
// after the route's write budget, or when ctx is done. ctx should not end with the client, whose write
// may be on its way. The caller calls end once, when the database has answered or may have carried the
// write out without an answer. If applied is false, the database refused the write, and nothing of it
// remains. touched holds the ids that the database chose for a write that set All until then, or nil
// if its answer does not say. Begin never fails: if the journal does, all rows are compared later.
func (f *Follower) Begin(ctx context.Context, w journal.Write) (end func(applied bool, touched []rerank.ID)) {
	c, s := f.frozen.clock(w.Collection), f.syncers[w.Collection]
	doubtEnds, writeEnds := func(bool) {}, func(bool, []rerank.ID) {}
	if c != nil {
		doubtEnds = c.doubts.begin()
		f.frozen.cover(ctx, c)
	}
	if s != nil {
		writeEnds = s.begin(ctx, w)
	}
	return endWrite(c.written, writeEnds, doubtEnds)
}

// endWrite returns the function that ends a write. The doubt ends last: between two of the calls no search may be certified
// without a write that the database has answered.
func endWrite(noteWritten func(), writeEnds func(bool, []rerank.ID), doubtEnds func(bool)) func(applied bool, touched []rerank.ID) {
	return func(applied bool, touched []rerank.ID) {
		if applied {
			noteWritten()
		}
		writeEnds(applied, touched)
		doubtEnds(applied)
	}
}

// Doubt is called before a write is sent to the database, if it is not known whether the database
// lets its caller write, or whether the write goes to this collection. Such a write is not put into
// the journal. The caller calls end once: with the write if it went to this collection and the
// database did not refuse it, otherwise with nil; then nothing of the write remains.
func (f *Follower) Doubt(collection string) (end func(applied *journal.Write)) {
	doubtEnds := f.doubtsOf(collection).begin()
	ctx, cancel := context.WithTimeout(context.Background(), doubtBudget)
	defer cancel()
	f.frozen.cover(ctx, f.frozen.clock(collection))
	s, sharedEnds := f.syncers[collection], func() {}
	if s != nil {
		sharedEnds = s.journal.beginDoubt(collection)
	}
	return func(applied *journal.Write) {
		if applied != nil {
			f.frozen.clock(collection).written()
			if s != nil {
				s.beginApplied(*applied)
			}
		}
		sharedEnds()
		doubtEnds(applied != nil)
	}
}

// Blocked is called after Begin or Doubt. It reports whether the write must not be
// forwarded: other sidecars certify answers, and could not be told of it. The caller then ends
// the write as one that the database refused.
func (f *Follower) Blocked(collection string) bool {
	s := f.syncers[collection]
	return s != nil && s.isBlocked()
}

// doubtBudget is the longest that Doubt waits until a file says that a write may come, from which
// the next process would know of it.
const doubtBudget = 5 * time.Millisecond

// doubtsOf returns the tracker of the doubtful writes to a collection.
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

// Reconcile compares all rows of a collection with the data derived from them, and repairs the rows
// that differ. It waits for a pass that begins after the call, and returns the differences that
// this pass found, by route. With Options.OnRequest it adds the differences that passes found since
// Reconcile last returned (or since New).
func (f *Follower) Reconcile(ctx context.Context, collection string) (map[string]Drift, error) {
	s := f.syncers[collection]
	if s == nil {
		return nil, fmt.Errorf("%w: collection %q has no data that is followed", ErrRoute, collection)
	}
	return s.awaitPass(ctx)
}

// Replace follows a route instead of the route of the same name, and sets its Freshness: it is not
// fresh until all rows were compared. If the new route has no data to follow, the old route is only
// removed. Replace returns ErrRoute if New was given no followed route of the collection. The old
// route's table stays in use until WaitUnused returns.
func (f *Follower) Replace(r *route.Route) error {
	s := f.syncers[r.Collection]
	if s == nil && f.follows(r) {
		return fmt.Errorf("%w: route %q: nothing of collection %q was followed when the sidecar started; start it again", ErrRoute, r.Name, r.Collection)
	}
	fresh := f.Freshness(r)
	if s != nil {
		if err := s.replace(r); err != nil {
			return err
		}
	}
	if fresh != nil {
		r.Freshness = fresh
	}
	f.frozen.adopt(r, fresh)
	return nil
}

// Freshness returns the Freshness that Replace would set, or nil if it would set none. It covers
// data that is followed, data that cannot be followed, or both. Writes that begin after the call
// count.
func (f *Follower) Freshness(r *route.Route) route.Freshness {
	var followed route.Freshness
	if s := f.syncers[r.Collection]; s != nil && f.follows(r) {
		followed = s
	}
	old := f.frozen.freshnessOf(r, f.follows(r))
	if old == nil {
		return followed
	}
	old.followed = followed
	return old
}

// WaitUnused waits until nothing uses the routes that were replaced before the call, so that
// their tables may be closed. It returns the context's error.
func (f *Follower) WaitUnused(ctx context.Context, collection string) error {
	s := f.syncers[collection]
	if s == nil {
		return nil
	}
	if err := s.waitUnused(ctx); err != nil {
		return fmt.Errorf("collection %q: the route that was replaced is still in use: %w", collection, err)
	}
	return nil
}

// Status says how far a route is behind its collection, and why.
type Status struct {
	Route string `json:"route"`
	// Pending counts the writes that were seen and that the route does not show yet.
	Pending int `json:"pending"`
	// Stale: a write may have been missed, and not all rows were compared since.
	Stale bool `json:"stale"`
	// Age is the time since the oldest write was seen or missed that the route does not
	// show; 0: it shows every write.
	Age time.Duration `json:"age_nanoseconds"`
	// Unjournaled counts the writes that were forwarded before the journal had them.
	Unjournaled int64 `json:"unjournaled"`
	// JournalError says why the journal takes no writes, such as a full disk; "" if it takes them.
	JournalError string `json:"journal_error,omitempty"`
	// PeerError says why writes of other sidecars may be missed; "" if none can be.
	PeerError string `json:"peer_error,omitempty"`
	// Drift has the differences that the last full comparison found, and Reconciled the
	// time when it ended.
	Drift      Drift     `json:"drift"`
	Reconciled time.Time `json:"reconciled,omitzero"`
	// AsOf is the time before which the route shows every write, whoever made it: the last
	// full comparison began then.
	AsOf time.Time `json:"as_of,omitzero"`
	// Foreign describes rows that were written past this process. It is nil if there were none, or
	// none since an operator was last told: a comparison on request that finds no more clears it.
	Foreign     *Foreign `json:"foreign,omitempty"`
	Reconciling bool     `json:"reconciling"`
	// Reconciles counts full comparisons, Failures the attempts to follow that failed,
	// and Rows the rows that comparisons read.
	Reconciles int64 `json:"reconciles"`
	Failures   int64 `json:"failures"`
	Rows       int64 `json:"rows"`
}

// ForeignRows returns how many rows were found that were written past this process.
func (s Status) ForeignRows() int64 {
	if s.Foreign == nil {
		return 0
	}
	return s.Foreign.Rows
}

// Status returns the status of every route, by name.
func (f *Follower) Status() []Status {
	var all []Status
	for _, s := range f.syncers {
		all = append(all, s.status()...)
	}
	all = f.frozen.status(all)
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Route, b.Route) })
	return all
}

// Close follows the pending writes until none is left or ctx is done, and then stops. No write may
// begin after the call. The next process finds the pending rest in the journal.
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
