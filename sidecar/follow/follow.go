// Package follow keeps live tables and companions in step with the collection that they
// were derived from: it reads the rows again that a write named, and from time to time
// compares all rows. It also tells which derived data shows every write that was seen.
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
	// ErrRoute means that the data that the route derives cannot be compared or followed.
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
	// Applied: a read with that consistency shows every write that was answered.
	// Otherwise the rows of a write that the client did not wait for are read again later.
	Applied bool
	// OnRequest: all rows are compared only when Reconcile is called.
	OnRequest bool
	// Shared is the folder that several sidecars share, where each keeps its journals by the
	// name Replica. Empty: the journals are in Dir, and no other sidecar is seen. Replicas
	// says how many sidecars there are.
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
	// WriteBudget is the longest that a write waits for the journal; 0: no limit.
	WriteBudget time.Duration
	// Interval is the time between two comparisons of all rows; 0: they run when
	// requested, and where a write may have been missed.
	Interval time.Duration
	// RowsPerSecond limits the reads of a comparison; 0: no limit.
	RowsPerSecond int
}

// Derives reports whether a route has a table or a companion that was derived from its
// collection.
func Derives(r *route.Route) bool {
	return r.Store != nil && (r.Table != nil || r.Live != nil || r.Companion != "")
}

// Followed reports whether a route has a live table or a companion that can follow its
// collection: whatever derives from a row can be derived again from that row alone.
func Followed(r *route.Route) bool {
	return fromRows(r) && r.Store != nil && (r.Live != nil || r.Companion != "")
}

// fromRows reports whether everything that a route derives about an item follows from one
// row of its collection.
func fromRows(r *route.Route) bool {
	return r.Owner == "" && !r.HasBehaviouralVectors() && !r.NeedsRankerToEncode()
}

// Follower follows the collections of one store. It also knows when a collection was
// written to that derived data cannot follow. It is safe for concurrent use.
type Follower struct {
	o       Options
	syncers map[string]*syncer // by collection
	frozen  *frozen
	stop    context.CancelFunc

	mu     sync.Mutex
	doubts map[string]*doubts // by collection
}

// New opens the journals of the routes' collections, sets the routes' Freshness, and
// begins to follow, first the writes that the last process left in the journals. It calls
// no store before it returns. It returns ErrRoute, or why a journal cannot be opened. A full
// disk or a damaged record is no error: then all rows are compared.
func New(o Options, routes []Route) (*Follower, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Shared != "" && o.Replica == "" {
		return nil, fmt.Errorf("%w: journals are shared, and this sidecar has no name among the others", ErrRoute)
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

// Check returns the error that New would return because of the routes, or because of the
// records of their collections. It opens no journal and writes nothing, so that another
// process may follow meanwhile.
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

// check reports whether a route is to be followed. It returns ErrRoute if it should be
// and cannot.
func check(o Options, r Route) (follows bool, err error) {
	if !Derives(r.Route) {
		return false, fmt.Errorf("%w: route %q has neither a table nor a companion", ErrRoute, r.Name)
	}
	if o.Dir == "" || !Followed(r.Route) {
		return false, nil
	}
	_, err = newDerivation(o.Store, r.Route)
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
	d, err := newDerivation(f.o.Store, r.Route)
	if err != nil {
		return err
	}
	s, err := f.syncer(r.Collection)
	if err != nil {
		return err
	}
	s.limit(r)
	s.adopt(d)
	return nil
}

// addBroken notes the writes to the collection of a broken route, which Replace will open.
func (f *Follower) addBroken(r Route) error {
	if f.o.Dir != "" {
		s, err := f.syncer(r.Collection)
		if err != nil {
			return err
		}
		s.limit(r)
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

// Begin is called before a write is sent to the database. It returns when the journal has
// the write, after the route's write budget, or when ctx is done. ctx should not end with
// the client, whose write may be on its way. The caller calls done once the database has
// answered and did not refuse the write, or may have carried it out without an answer.
// Begin never fails: if the journal does, all rows are compared later.
func (f *Follower) Begin(ctx context.Context, w journal.Write) (done func()) {
	end := f.BeginOpen(ctx, w)
	return func() { end(true, nil) }
}

// BeginOpen is Begin for a write that the database may refuse, or for one that sets All
// because the database chooses the ids of its rows. The caller calls end once. applied
// says that the database did not refuse the write. touched has the ids that it chose, nil
// if its answer does not say. A refused write leaves nothing behind.
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

// Doubt is called before a write is sent to the database if it is not known whether the
// database lets its caller write, or whether the write goes to this collection. Such a
// write is not put into the journal. The caller calls end once: with the write if it went
// to this collection and the database did not refuse it, and otherwise with nil, which
// leaves nothing behind.
func (f *Follower) Doubt(collection string) (end func(applied *journal.Write)) {
	doubtEnds := f.doubtsOf(collection).begin()
	ctx, cancel := context.WithTimeout(context.Background(), doubtBudget)
	defer cancel()
	f.frozen.cover(ctx, f.frozen.clock(collection))
	s, sharedEnds := f.syncers[collection], func() {}
	if s != nil {
		sharedEnds = s.beginDoubt()
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

// Blocked is called after BeginOpen or Doubt. It reports whether the write must not be
// forwarded: other sidecars certify answers, and could not be told of it. The caller then ends
// the write as one that the database refused.
func (f *Follower) Blocked(collection string) bool {
	s := f.syncers[collection]
	return s != nil && s.isBlocked()
}

// doubtBudget is the most that Doubt waits until the next process would know of the write.
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

// Reconcile compares all rows of a collection with the data derived from them, and repairs
// what differs. It waits for a pass that begins after the call. It returns the differences
// that this pass found, by route. With Options.OnRequest it adds the differences of the
// passes since Reconcile last returned, or since New, which belong to the same run.
func (f *Follower) Reconcile(ctx context.Context, collection string) (map[string]Drift, error) {
	s := f.syncers[collection]
	if s == nil {
		return nil, fmt.Errorf("%w: collection %q has no data that is followed", ErrRoute, collection)
	}
	return s.request(ctx)
}

// Replace follows a route in the place of the route of the same name, and sets its
// Freshness: it is not fresh until all rows were compared. A route without data to follow
// only takes the old route out. Replace returns ErrRoute if the follower was made without
// a followed route of the collection. The old route's table may be used until Quiet.
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

// Freshness returns the Freshness that Replace will set, nil if it will set none: of data
// that follows, of data that cannot, or of both. Writes that come from now on count.
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

// Quiet waits until nothing uses the routes that were replaced before the call, so that
// their tables may be closed. It returns the context's error.
func (f *Follower) Quiet(ctx context.Context, collection string) error {
	s := f.syncers[collection]
	if s == nil {
		return nil
	}
	if err := s.waitReleased(ctx); err != nil {
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
	// Unjournaled counts the writes that the journal did not take in time.
	Unjournaled int64 `json:"unjournaled"`
	// JournalError says why the journal takes no writes, such as a full disk. Empty: it
	// takes them.
	JournalError string `json:"journal_error,omitempty"`
	// PeerError says why writes of other sidecars may not be seen. Empty: all are.
	PeerError string `json:"peer_error,omitempty"`
	// Drift has the differences that the last full comparison found, and Reconciled the
	// time when it ended.
	Drift      Drift     `json:"drift"`
	Reconciled time.Time `json:"reconciled,omitzero"`
	// AsOf is the time before which the route shows every write, whoever made it: the last
	// full comparison began then.
	AsOf time.Time `json:"as_of,omitzero"`
	// Foreign: rows were found that were written past this process; nil: none was, or an
	// operator has been told of them by a comparison that found no more.
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

// Close follows the writes that were seen until none is left or ctx is done, and ends. No
// write may begin after it. The next process finds the rest in the journal.
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
