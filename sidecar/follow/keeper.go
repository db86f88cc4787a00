package follow

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

const (
	// debounce is how long a row waits for other writes of it, and for other rows.
	debounce = 5 * time.Millisecond
	// lag is after how long a read shows a write that the client did not wait for,
	// and how long after the first look at a row there is a last one: a write whose
	// call was cut off may be applied later than the call ended.
	lag = time.Second
	// maxRows may wait to be looked at; where there are more, all are compared.
	maxRows = 1 << 18
)

// keeper keeps what was derived from one collection in step with it. One
// goroutine reads rows and writes what follows from them, so that of two reads of
// a row the later one counts.
type keeper struct {
	o          Options
	can        adapters.Abilities // of o.Store
	collection string
	dir        string
	log        *slog.Logger
	journal    *journal.Journal
	doubts     *doubts       // the writes that the database may refuse
	wake       chan struct{} // there is something to do
	started    bool
	done       chan struct{} // closed when the goroutine has ended
	unsaved    bool          // the record was not written last; the goroutine's

	mu       sync.Mutex
	all      []*derived // replaced as a whole
	budget   time.Duration
	interval time.Duration
	rate     int
	queue    *rowQueue
	writes   map[*write]struct{} // that were seen and are not settled
	diffs    []*write            // those of them that need all rows compared
	forward  bool                // some of diffs may have changed rows, not only removed
	dropped  bool                // the collection was written to as a whole, and not seen since
	found    int                 // rows of the queue that a pass found
	stale    bool
	since    time.Time // when it became stale
	missedAt time.Time // when something was missed last
	unfit    bool      // some rows cannot be derived as they should
	asked    []chan<- map[string]Drift
	draining bool             // nothing is to be begun
	idle     chan struct{}    // closed when nothing is left to do, for drain
	pass     *pass            // under way
	quiet    []chan struct{}  // closed when the next step begins, for Quiet
	ended    time.Time        // when the last pass ended, of whatever kind
	record   record           // what is remembered of complete ones
	unsaid   map[string]Drift // what passes found since the last that was asked for

	unjournaled, reconciles, failures, rowsRead int64
}

// openKeeper opens the journal and the record of a collection.
func openKeeper(o Options, collection string, d *doubts) (*keeper, error) {
	k := &keeper{
		o: o, can: adapters.AbilitiesOf(o.Store), doubts: d, collection: collection, dir: statedir.Collection(o.Dir, collection), log: o.Logger.With("collection", collection),
		wake: make(chan struct{}, 1), done: make(chan struct{}), queue: newRowQueue(), writes: map[*write]struct{}{},
	}
	j, entries, err := journal.Open(filepath.Join(k.dir, "journal"), journal.Options{Disk: o.Disk})
	if j == nil {
		return nil, err
	}
	k.journal = j
	if err != nil { // it is damaged, or the disk is full
		k.log.Warn("the journal of writes may lack some; all rows are compared", "error", err)
		k.setStale()
	}
	if err := k.openRecord(); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	for _, e := range entries {
		w := &write{began: time.Now(), seq: e.Seq}
		k.writes[w] = struct{}{}
		e.Write.Waited = false // the database may not have answered it
		k.answered(w, e.Write)
	}
	return k, nil
}

// openRecord reads the record, and leaves one that is not clean. Where none can be
// written the one that is there is removed, so that a process that is killed leaves
// no clean one.
func (k *keeper) openRecord() error {
	var err error
	if k.record, err = readRecord(k.recordPath()); err != nil {
		return err
	}
	clean := k.record.Clean
	k.resume()
	if !clean {
		k.setStale()
	}
	k.record.Clean = false
	if err := k.record.write(k.o.Disk, k.recordPath()); err != nil {
		k.log.Warn("what is known of the collection cannot be written down; all rows are compared", "error", errors.Join(err, k.forgetRecord()))
		k.setStale()
	}
	return nil
}

// forgetRecord removes the record durably.
func (k *keeper) forgetRecord() error {
	err := k.o.Disk.Remove(k.recordPath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return k.o.Disk.SyncDir(k.dir)
}

func (k *keeper) recordPath() string { return recordPath(k.dir) }

// recordPath is the file of the record in the folder of a collection.
func recordPath(dir string) string { return filepath.Join(dir, "record.json") }

// adopt adds what a route derives; before start.
func (k *keeper) adopt(d *derived, r Route) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) == 0 {
		k.budget, k.interval, k.rate = r.WriteBudget, r.Interval, r.RowsPerSecond
	}
	if r.WriteBudget > 0 && (k.budget == 0 || r.WriteBudget < k.budget) {
		k.budget = r.WriteBudget
	}
	if r.Interval > 0 && (k.interval == 0 || r.Interval < k.interval) {
		k.interval = r.Interval
	}
	if r.RowsPerSecond > 0 && (k.rate == 0 || r.RowsPerSecond < k.rate) {
		k.rate = r.RowsPerSecond
	}
	k.all = append(slices.Clone(k.all), d)
	k.announceAll(d)
}

// announceAll tells a live table of every write that it does not show yet.
func (k *keeper) announceAll(d *derived) {
	if d.route.Live == nil {
		return
	}
	for range k.writes {
		d.route.Live.Announce()
	}
}

func (k *keeper) start(ctx context.Context) {
	k.started = true
	go k.run(ctx)
}

func (k *keeper) replace(r *route.Route) error {
	d, err := newDerived(k.o.Store, r)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(slices.Clone(k.all), func(d *derived) bool { return d.route.Name == r.Name })
	if Followed(r) {
		k.all = append(k.all, d)
		k.announceAll(d)
	}
	k.setStale()
	k.giveUpPass()
	k.signal()
	return nil
}

func (k *keeper) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// begin is Follower.BeginOpen.
func (k *keeper) begin(ctx context.Context, jw journal.Write) (end func(applied bool, touched []rerank.ID)) {
	k.mu.Lock()
	w := k.announce()
	budget := k.budget
	k.mu.Unlock()
	if budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, budget)
		defer cancel()
	}
	seq, err := k.journal.Append(ctx, jw)
	w.seq = seq
	var once sync.Once
	return func(applied bool, touched []rerank.ID) {
		once.Do(func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if !applied {
				k.settle(w) // the database changed nothing
				return
			}
			if err != nil {
				k.missed(err)
			}
			if touched != nil && jw.All {
				jw.All, jw.IDs = false, touched
			}
			k.answered(w, jw)
		})
	}
}

// announce notes a write that nothing derived shows yet; the caller holds the lock.
func (k *keeper) announce() *write {
	w := &write{began: time.Now()}
	k.writes[w] = struct{}{}
	for _, d := range k.all {
		if d.route.Live != nil {
			d.route.Live.Announce()
		}
	}
	return w
}

// applied follows a write that the journal does not have and that the database may
// have carried out. If the process is killed before the write is followed, all rows
// are compared at the next start, as after any kill.
func (k *keeper) applied(jw journal.Write) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answered(k.announce(), jw)
}

// missed notes that the journal did not take a write. It is followed all the
// same, but if the process ended now, nobody would know of it. The caller holds the
// lock.
func (k *keeper) missed(err error) {
	if !k.stale {
		k.log.Warn("a write was forwarded without a record of it; all rows are compared", "error", err)
	}
	k.setStale()
	k.unjournaled++
	k.signal()
}

// setStale: something was missed now. The caller holds the lock, or is alone.
func (k *keeper) setStale() {
	k.missedAt = time.Now()
	if !k.stale {
		k.stale, k.since = true, k.missedAt
	}
}

// answered puts what a write touched in the queue; the caller holds the lock.
func (k *keeper) answered(w *write, jw journal.Write) {
	defer k.signal()
	now := time.Now()
	w.shown = now
	if !jw.Waited && !k.o.Applied {
		w.shown = now.Add(lag)
	}
	whole := jw.Kind == journal.Collection || jw.All || jw.Filter != ""
	if whole || k.queue.len()+len(jw.IDs) > maxRows {
		k.dropped = k.dropped || jw.Kind == journal.Collection
		k.forward = k.forward || jw.Kind != journal.Delete
		if !whole {
			k.overflow()
		}
		k.later(w)
		return
	}
	for _, id := range jw.IDs {
		r := k.queue.at(id, now.Add(debounce))
		if n := len(r.writes); n > 0 && r.writes[n-1] == w {
			continue // it names the row twice
		}
		r.writes = append(r.writes, w)
		w.left++
		if until := w.shown.Add(lag); until.After(r.until) {
			r.until = until
		}
	}
	if w.left == 0 {
		k.settle(w)
	}
}

// later leaves a write to the next pass.
func (k *keeper) later(w *write) {
	w.left = -1
	k.diffs = append(k.diffs, w)
}

// overflow leaves all writes in the queue to the next pass.
func (k *keeper) overflow() {
	for _, r := range k.queue.byID {
		for _, w := range r.writes {
			if w.left >= 0 {
				k.later(w)
			}
		}
	}
	k.queue, k.found, k.forward = newRowQueue(), 0, true
}

// settle: everything derived shows the write.
func (k *keeper) settle(w *write) {
	delete(k.writes, w)
	for _, d := range k.all {
		if d.route.Live != nil {
			d.route.Live.Settle()
		}
	}
	if w.seq > 0 {
		k.journal.Done(w.seq)
	}
}

// Fresh implements route.Freshness: every write that was seen is shown, none was
// missed, and none is on its way.
func (k *keeper) Fresh() bool {
	fresh, doubt := k.Look()
	return fresh && doubt == nil
}

// Look implements route.Freshness. It looks for doubtful writes first: one that
// turns out to be carried out in between is pending by then.
func (k *keeper) Look() (fresh bool, doubt route.Doubt) {
	fresh, doubt = look(true, k.doubts)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !fresh || len(k.writes) > 0 || k.found > 0 || k.stale || k.unfit {
		return false, nil
	}
	return true, doubt
}

func (k *keeper) status() []Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	oldest := time.Time{}
	if k.stale {
		oldest = k.since
	}
	for w := range k.writes {
		if oldest.IsZero() || w.began.Before(oldest) {
			oldest = w.began
		}
	}
	s := Status{
		Pending: len(k.writes), Stale: k.stale, Unjournaled: k.unjournaled, Reconciled: k.record.Reconciled, Reconciling: k.pass != nil,
		Reconciles: k.reconciles, Failures: k.failures, Rows: k.rowsRead,
	}
	if err := k.journal.Stats().Failed; err != nil {
		s.JournalError = err.Error()
	}
	if !oldest.IsZero() {
		s.Age = time.Since(oldest)
	}
	all := make([]Status, len(k.all))
	for i, d := range k.all {
		all[i] = s
		all[i].Route, all[i].Drift = d.route.Name, k.record.Drift[d.route.Name]
	}
	return all
}

// drain waits until all that was seen is shown, but for writes that need all rows
// compared, or until ctx is done.
func (k *keeper) drain(ctx context.Context) {
	k.mu.Lock()
	k.idle, k.draining = make(chan struct{}), true
	idle := k.idle
	k.signal()
	k.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	case <-k.done:
	}
}

// close ends after the goroutine has; it remembers whether anything is left that
// the journal does not know.
func (k *keeper) close() error {
	if k.started {
		<-k.done
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.record.Clean = !k.stale && !k.unfit && k.queue.len() == 0 && k.doubts.none()
	for w := range k.writes {
		k.record.Clean = k.record.Clean && w.seq > 0
	}
	k.keepPlace()
	return errors.Join(k.record.write(k.o.Disk, k.recordPath()), k.journal.Close())
}
