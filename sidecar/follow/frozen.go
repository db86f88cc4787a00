package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/disk"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/route"
)

// frozen watches collections whose derived data cannot follow writes: a table that is not live,
// items that own several rows of a collection, items that only a ranker can compute, or any data if no folder is
// given to remember writes in. Such frozen data shows no write that came after its build began, so
// frozen remembers when each collection was last written to.
type frozen struct {
	disk     disk.Disk
	dir      string // if empty, nothing is remembered after the process
	log      *slog.Logger
	doubtsOf func(collection string) *doubts
	wake     chan struct{} // tells the goroutine that there is something to do
	done     chan struct{} // closed when the goroutine has ended; nil if it was never started

	mu     sync.RWMutex
	clocks map[string]*writeClock // by collection
	served map[string]*frozenData // the routes in service, by name
}

// lease is how far into the future a writeClock's file says that writes may come.
const lease = 2 * time.Second

// writeClock knows when a collection was last written to. Before a write is sent to the database,
// the clock's file says until when writes may come: a lease. If the process is killed, the next
// process assumes a write at the end of the lease.
type writeClock struct {
	last   atomic.Int64 // Unix time in nanoseconds; 0 if no write is known
	wake   chan struct{}
	path   string  // if empty, nothing is remembered after the process
	doubts *doubts // the writes on their way

	mu     sync.Mutex
	budget time.Duration // the longest that cover waits; 0 sets no limit
	seen   time.Time     // when cover was last called for a write
	leased time.Time     // until when the file says that writes may come
	tried  chan struct{} // closed after the next attempt to write the file
	retry  time.Time     // the earliest time to write the file again after a failure

	// Only the goroutine uses these.
	file    written // the content of the file
	failure error   // why the last attempt to write the file failed
}

// frozenData is the Freshness of a route with data that cannot follow writes.
type frozenData struct {
	clock      *writeClock
	collection string
	built      int64           // when the build of the data began; 0 if not known
	followed   route.Freshness // the Freshness of the route's followed data; nil without such data
	remedy     string
	since      atomic.Int64 // when a write was first seen that the data does not show; 0 if none was
}

// Fresh implements route.Freshness.
func (o *frozenData) Fresh() bool {
	fresh, doubt := o.Assess()
	return fresh && doubt == nil
}

// Assess implements route.Freshness. It looks for doubtful writes before it reads the clock: a write
// that the database carries out in between has set the clock by then.
func (o *frozenData) Assess() (fresh bool, doubt route.Doubt) {
	fresh, doubt = assessDoubts(o.clock.doubts)
	if !fresh || o.isOutlived() {
		return false, nil
	}
	if o.followed == nil {
		return true, doubt
	}
	fresh, later := o.followed.Assess() // it looked at the same doubts, later
	if later != nil {
		doubt = later
	}
	return fresh, doubt
}

// Horizon implements route.Freshness. No pass compares frozen data, so it cannot dispute the
// operator's declaration about writes.
func (o *frozenData) Horizon() route.Horizon {
	var out route.Horizon
	if o.followed != nil {
		out = o.followed.Horizon()
	}
	if at := time.Unix(0, o.built); o.followed == nil || at.Before(out.AsOf) {
		out.AsOf = at
	}
	if o.built == 0 {
		out.AsOf = time.Time{}
	}
	out.Disputed = route.DisputeUnchecked
	return out
}

// isOutlived reports whether a write came after the data's build began. Tables record the time of
// their build in whole seconds, so a write in the same second counts as later.
func (o *frozenData) isOutlived() bool {
	last := o.clock.last.Load()
	return last != 0 && last >= o.built
}

func newFrozen(d disk.Disk, dir string, log *slog.Logger, doubtsOf func(collection string) *doubts) *frozen {
	return &frozen{
		disk: d, dir: dir, log: log, doubtsOf: doubtsOf,
		wake: make(chan struct{}, 1), clocks: map[string]*writeClock{}, served: map[string]*frozenData{},
	}
}

// clock returns the clock of a collection, or nil if the collection has no frozen data.
func (f *frozen) clock(collection string) *writeClock {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.clocks[collection]
}

// cover waits until the file has a lease for a write that is about to be sent. It gives up after
// the budget, or when ctx is done; then, if the process is killed, the next process may not know of
// the write. It does nothing on a nil clock.
func (f *frozen) cover(ctx context.Context, c *writeClock) {
	if c == nil || c.path == "" {
		return
	}
	now := time.Now()
	c.mu.Lock()
	c.seen = now
	isLeased, fails := c.leased.Sub(now) > lease/4, now.Before(c.retry)
	tried, budget := c.tried, c.budget
	c.mu.Unlock()
	if isLeased || fails {
		return
	}
	signal(c.wake)
	if budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, budget)
		defer cancel()
	}
	select {
	case <-tried:
	case <-f.done:
	case <-ctx.Done():
	}
}

// limit makes cover wait at most for budget, if that is stricter than the present limit. It does nothing on a nil
// clock.
func (c *writeClock) limit(budget time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget = strictest(c.budget, budget)
}

// written notes a write that the database may have carried out. It does nothing on a nil clock.
func (c *writeClock) written() {
	if c == nil {
		return
	}
	c.last.Store(time.Now().UnixNano())
	signal(c.wake)
}

// signal wakes the goroutine that receives from wake, now or when it next does.
func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// freshnessOf returns the Freshness of a route's frozen data, or nil if the route has none. It
// opens the clock of the collection, so that later writes are noted.
func (f *frozen) freshnessOf(r *route.Route, followed bool) *frozenData {
	if !Derives(r) || followed && r.Table == nil {
		return nil // the route has no frozen data
	}
	c := f.open(r.Collection)
	o := &frozenData{clock: c, collection: r.Collection, built: buildStarted(r), remedy: "run `likeness index` again"}
	if r.Table != nil && fromRows(r) && r.Vectors == "" {
		o.remedy += ", or set table_live and state_dir"
	} else if f.dir == "" && Followed(r) {
		o.remedy += ", and set state_dir"
	}
	return o
}

// buildStarted returns when the build of a route's table began, as Unix time in nanoseconds. A
// frozen companion has no such time: it returns 0, so that every known write counts.
func buildStarted(r *route.Route) int64 {
	t := r.CurrentTable()
	if t == nil {
		return 0
	}
	defer t.Release()
	at, err := time.Parse(time.RFC3339, t.Meta().Created)
	if err != nil || r.Companion != "" && !Followed(r) {
		return 0
	}
	return at.UnixNano()
}

// open returns the clock of a collection, with the last write that earlier processes recorded. If
// the file cannot be read, open assumes that a write came just now.
func (f *frozen) open(collection string) *writeClock {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clocks[collection]; c != nil {
		return c
	}
	c := &writeClock{wake: f.wake, doubts: f.doubtsOf(collection), tried: make(chan struct{})}
	if f.dir != "" {
		c.path = writtenPath(statedir.Collection(f.dir, collection))
		var err error
		last := time.Now()
		if c.file, err = readWritten(c.path); err != nil {
			f.log.Warn("follow: time of the last write cannot be read, assuming a write just now", "collection", collection, "error", err)
		} else {
			last = c.file.lastWrite()
		}
		if !last.IsZero() {
			c.last.Store(last.UnixNano())
		}
	}
	f.clocks[collection] = c
	return c
}

// adopt notes the route that is in service from now on, and its Freshness.
func (f *frozen) adopt(r *route.Route, fresh route.Freshness) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.served, r.Name)
	if o, ok := fresh.(*frozenData); ok {
		f.served[r.Name] = o
	}
	signal(f.wake)
}

// start begins the goroutine that writes the files, until ctx is done.
func (f *frozen) start(ctx context.Context) {
	f.done = make(chan struct{})
	go func() {
		defer close(f.done)
		logged := false
		timer := time.NewTimer(lease / 2)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.wake:
			case <-timer.C:
			}
			f.logOutlived()
			again, err := f.save(false)
			if err != nil && !logged {
				f.log.Warn("follow: time of the last write cannot be saved, will retry", "error", err)
			}
			if logged = err != nil; logged || again {
				timer.Reset(lease / 2)
			}
		}
	}()
}

// logOutlived logs, once for each route, that a write came which its frozen data does not show.
func (f *frozen) logOutlived() {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for name, o := range f.served {
		if o.isOutlived() && o.since.CompareAndSwap(0, o.clock.last.Load()) {
			f.log.Warn("follow: route cannot track writes, its answers are not certified any more",
				"route", name, "collection", o.collection, "remedy", o.remedy)
		}
	}
}

// save writes the files of all clocks. atEnd says that the process ends in order. again reports
// that a lease has to be renewed or ended soon.
func (f *frozen) save(atEnd bool) (again bool, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var failed []error
	for _, c := range f.clocks {
		if c.path != "" {
			failed = append(failed, c.save(f.disk, atEnd))
			again = again || !c.file.OnItsWay.IsZero()
		}
	}
	return again, errors.Join(failed...)
}

// save writes the clock's file if its content has changed, and wakes the callers of cover. After a
// failure it waits at least lease/2 before the next attempt.
func (c *writeClock) save(d disk.Disk, atEnd bool) error {
	now := time.Now()
	c.mu.Lock()
	next, retry, tried := c.nextFile(now, atEnd), c.retry, c.tried
	if next.OnItsWay.IsZero() {
		c.leased = time.Time{} // before the file loses its lease, so that the next write waits for a new lease
	}
	c.tried = make(chan struct{})
	c.mu.Unlock()
	defer close(tried)
	switch {
	case next == c.file:
		return nil
	case now.Before(retry) && !atEnd:
		return c.failure
	}
	c.failure = next.write(d, c.path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		c.retry = now.Add(lease / 2)
		return c.failure
	}
	c.file, c.leased = next, next.OnItsWay
	return nil
}

// nextFile returns the content that the file should have. It looks for writes on their way before
// it reads last: a write that ends in between has set last by then. The caller holds the lock.
func (c *writeClock) nextFile(now time.Time, atEnd bool) written {
	mayCome := !c.doubts.none() || !atEnd && now.Sub(c.seen) < lease/2
	var last time.Time
	if at := c.last.Load(); at != 0 {
		last = time.Unix(0, at).UTC()
	}
	return c.file.next(now, last, mayCome)
}

// status adds routes with frozen data to the status of the routes that are followed.
func (f *frozen) status(all []Status) []Status {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for rt, o := range f.served {
		i := slices.IndexFunc(all, func(s Status) bool { return s.Route == rt })
		if i < 0 {
			i, all = len(all), append(all, Status{Route: rt})
		}
		if !o.isOutlived() {
			continue
		}
		since := o.since.Load()
		if since == 0 {
			since = o.clock.last.Load()
		}
		all[i].Stale, all[i].Age = true, max(all[i].Age, time.Since(time.Unix(0, since)))
	}
	return all
}

// close waits for the goroutine to end, and writes the files one last time.
func (f *frozen) close() error {
	if f.done != nil {
		<-f.done
	}
	_, err := f.save(true)
	return err
}

// written is the content of a writeClock's file, from which the next process learns when the last write may
// have come.
type written struct {
	Last time.Time `json:"last,omitzero"`
	// OnItsWay is the end of the lease. Until then the proxy may have forwarded writes that Last does not
	// count. It is zero without a lease.
	OnItsWay time.Time `json:"on_its_way,omitzero"`
}

// next returns the content that replaces w in the file. mayCome says that a write is on its way, or may
// come before the file is written again: next then takes a lease, or keeps w while most of its lease is
// left.
func (w written) next(now, last time.Time, mayCome bool) written {
	switch {
	case !mayCome:
		return written{Last: last}
	case w.OnItsWay.Sub(now) > lease/2:
		return w
	default:
		return written{Last: last, OnItsWay: now.Add(lease).UTC()}
	}
}

// lastWrite returns when the last write may have come; zero if none did.
func (w written) lastWrite() time.Time {
	if w.OnItsWay.After(w.Last) {
		return w.OnItsWay
	}
	return w.Last
}

// writtenPath returns the file of the writeClock of the collection with the given folder.
func writtenPath(dir string) string { return filepath.Join(dir, "written.json") }

// readWritten reads the file of a writeClock. If there is no file, no write is known.
func readWritten(path string) (w written, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	if err != nil {
		return w, fmt.Errorf("%s: %w; build the tables of the collection again and remove the file", path, err)
	}
	return w, nil
}

// write replaces the file, or removes it if there is nothing to remember.
func (w written) write(d disk.Disk, path string) error {
	if w == (written{}) {
		return removeFile(d, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteOn(d, path, func(to io.Writer) error { return json.NewEncoder(to).Encode(w) })
}
