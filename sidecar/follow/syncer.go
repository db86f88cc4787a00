package follow

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
)

// syncer keeps the tables and companions of one collection in step with it. A write goes
// through these steps:
//
//	seen        begin: the write joins the backlog, and nothing derived is fresh
//	journalled  begin: the journal has it before it is sent to the database
//	queued      applied: the rows that it names are queued, or it is left to a pass
//	read        followRows: the rows are fetched when they are due
//	derived     followRows: features and companion fields are computed from them
//	applied     followRows: tables and companions take what changed
//	withdrawn   settle: the journal forgets the write
//
// A pass over all rows (reconcile, in reconcile.go) settles the writes that name no rows,
// and repairs the rows that differ. Three types decide, and read no store: ledger which writes derived data
// does not show yet, passes when all rows are compared, pass how one comparison goes on. Writes of other
// sidecars join the same backlog: peers finds them.
//
// The state below mu is one queue that writes join and that one goroutine (run) empties. The
// goroutine reads the store and applies rows without the lock, and nobody else does, so that the
// later of two reads of a row counts.
type syncer struct {
	o          Options
	reader     rowReader
	collection string
	dir        string
	log        *slog.Logger
	journal    *ownJournal   // the writes that this process sends
	peers      *peers        // the journals of other sidecars; nil if none are shared
	doubts     *doubts       // the writes that the database may refuse
	wake       chan struct{} // tells run that there is something to do
	started    bool          // start was called
	done       chan struct{} // closed when run has returned
	failing    rowFailures   // only run uses it
	records    recordFile    // only run uses it, and close

	mu     sync.Mutex
	budget time.Duration // how long a write waits for the journal
	ledger ledger
	passes passes
	// The end of the process, and of the use of replaced routes.
	idle     chan struct{}   // closed when only passes are left to do, for drain
	released []chan struct{} // closed when the next step begins, for WaitUnused
	// reembeddings holds the calls of Reembed that wait.
	reembeddings []*reembedding

	unjournaled, failures int64
}

// openSyncer opens the journal and the record of a collection, and takes up the writes
// that the last process left in the journal.
func openSyncer(o Options, collection string, d *doubts) (*syncer, error) {
	store := adapters.AbilitiesOf(o.Store)
	s := &syncer{
		o: o, doubts: d, collection: collection, dir: statedir.Collection(o.Dir, collection), log: o.Logger.With("collection", collection),
		reader: rowReader{store.Fetch, store.Scan, collection, o.Consistency},
		wake:   make(chan struct{}, 1), done: make(chan struct{}), passes: passes{onRequest: o.OnRequest},
	}
	s.records = recordFile{disk: o.Disk, path: recordPath(s.dir), log: s.log}
	s.peers, s.failing = newPeers(o, collection, s), newRowFailures(s.log)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		s.log.Warn("follow: folder of the collection cannot be made, comparing all rows", "error", err)
	}
	j, entries, err := journal.Open(journalDir(o, collection), journal.Options{Disk: o.Disk, Shared: s.peers != nil})
	if j == nil {
		return nil, err
	}
	s.journal = &ownJournal{Journal: j, isShared: s.peers != nil, log: s.log}
	s.ledger = ledger{backlog: newBacklog(), forget: j.Done}
	if err != nil { // it is damaged, or the disk takes no writes
		s.log.Warn("follow: journal may lack writes, comparing all rows", "error", err)
		s.ledger.missed.note(time.Now())
	}
	s.openRecord()
	for _, e := range entries {
		w := s.ledger.backlog.addWrite(time.Now())
		w.seq = e.Seq
		e.Write.Waited = false // the database may not have answered the write
		s.applied(w, e.Write)
	}
	return s, nil
}

// openRecord reads the record of the last process, and writes one that is not clean. If it cannot
// be written, openRecord removes the file: a process that is killed must not leave a clean record.
// If a record cannot be read, it may have told of foreign writes, so an operator has to reconcile
// before the route's declaration of writes is believed again.
func (s *syncer) openRecord() {
	var err error
	if s.passes.record, err = readRecord(s.records.path); err != nil {
		s.log.Warn("follow: record cannot be read, comparing all rows", "error", err)
		now := time.Now()
		s.passes.record = record{Foreign: &Foreign{Since: now, Last: now}}
	}
	s.passes.running = resumedPass(s.passes.record.Place, time.Now())
	if !s.passes.record.Clean || s.passes.record.Complete.IsZero() || s.peers != nil { // other sidecars may have followed writes since
		s.ledger.missed.note(time.Now())
	}
	s.passes.record.Clean = false
	if err := s.passes.record.write(s.o.Disk, s.records.path); err != nil {
		s.log.Warn("follow: record cannot be written, comparing all rows", "error", errors.Join(err, removeFile(s.o.Disk, s.records.path)))
		s.ledger.missed.note(time.Now())
	}
}

// applyLimits applies the limits of a route: the strictest limits of all routes hold.
func (s *syncer) applyLimits(r Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget = strictest(s.budget, r.WriteBudget)
	s.passes.interval = strictest(s.passes.interval, r.Interval)
	s.passes.rate = strictest(s.passes.rate, r.RowsPerSecond)
}

// adopt adds a route before start.
func (s *syncer) adopt(d *derivation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.adopt(d)
}

// replace puts a route in the place of the route of the same name. Derived data is not fresh until
// all rows were compared.
func (s *syncer) replace(r *route.Route) error {
	d, err := newDerivation(s.o.Store, r, s.o.Consistency)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !Followed(r) {
		d = nil
	}
	s.ledger.replace(r.Name, d, time.Now())
	s.passes.giveUp(s.ledger.backlog) // a running pass compares the route that was replaced
	s.signal()
	return nil
}

// signal wakes run.
func (s *syncer) signal() { signal(s.wake) }

// begin adds a write to the backlog and to the journal, as Follower.Begin says.
func (s *syncer) begin(ctx context.Context, jw journal.Write) (end func(applied bool, touched []rerank.ID)) {
	s.mu.Lock()
	w := s.ledger.addWrite(time.Now())
	budget := s.budget
	s.mu.Unlock()
	if budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, budget)
		defer cancel()
	}
	err := s.append(ctx, w, jw, budget)
	var once sync.Once
	return func(applied bool, touched []rerank.ID) {
		once.Do(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !applied {
				s.ledger.settle(w) // the database changed nothing
				return
			}
			if err != nil {
				s.missedByJournal(err)
			}
			if touched != nil && jw.All {
				jw.All, jw.IDs = false, touched
			}
			s.applied(w, jw)
		})
	}
}

// append puts a write of the backlog into the journal.
func (s *syncer) append(ctx context.Context, w *write, jw journal.Write, budget time.Duration) error {
	seq, err := s.journal.append(ctx, jw, budget, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.unjournaled = true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	w.seq = seq
	return err
}

// beginApplied follows a write that the database may have carried out already. The write is not put
// into a journal that only this process reads: if the process is killed first, the next process
// compares all rows, as after any kill. Other sidecars learn of the write from the shared journal.
func (s *syncer) beginApplied(jw journal.Write) {
	s.mu.Lock()
	w, budget := s.ledger.addWrite(time.Now()), s.budget
	s.mu.Unlock()
	var err error
	if s.journal.isShared {
		err = s.append(context.Background(), w, jw, budget)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.missedByJournal(err)
	}
	s.applied(w, jw)
}

// missedByJournal notes that the journal lacks a write. This process follows the write all the
// same, but the next process would not know of it. The caller holds the lock.
func (s *syncer) missedByJournal(err error) {
	if !s.ledger.missed.isOpen() {
		s.log.Warn("follow: write forwarded without a journal entry, comparing all rows", "error", err)
	}
	s.ledger.missed.note(time.Now())
	s.unjournaled++
	s.signal()
}

// applied notes that the database carried out a write just now. The caller holds the lock.
func (s *syncer) applied(w *write, jw journal.Write) {
	s.queue(w, jw, readableAt(time.Now(), jw.Waited || s.o.Applied))
}

// queue notes that reads show a write from readable on. The caller holds the lock.
func (s *syncer) queue(w *write, jw journal.Write, readable time.Time) {
	s.ledger.apply(w, jw, time.Now(), readable)
	s.signal()
}

// seePeerWrite implements peerWrites.
func (s *syncer) seePeerWrite(jw journal.Write) *write {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.ledger.addWrite(time.Now())
	w.peers = true
	s.ledger.foreign.explain(jw)
	return w
}

// queuePeerWrite implements peerWrites.
func (s *syncer) queuePeerWrite(w openWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue(w.write, w.written, time.Now())
}

// missPeerWrites implements peerWrites.
func (s *syncer) missPeerWrites(why string, open []openWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ledger.missed.isOpen() {
		s.log.Warn("follow: writes of another sidecar may be missed, comparing all rows", "why", why, "sidecars", s.peers.dir)
	}
	now := time.Now()
	s.ledger.missed.note(now)
	for _, o := range open {
		s.queue(o.write, o.written, now.Add(lag))
	}
	s.signal()
}

// showsAllMissed reports whether all derived data shows the writes that the journal lacks.
func (s *syncer) showsAllMissed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.backlog.hasNoUnjournaled() && !s.ledger.missed.isOpen()
}

// isBlocked reports whether a write must not be forwarded, because other sidecars certify
// answers and cannot be told of it.
func (s *syncer) isBlocked() bool {
	if !s.journal.isBlocked() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.declaresProxy()
}

func (s *syncer) start(ctx context.Context) {
	s.started = true
	go s.run(ctx)
	if s.peers != nil {
		go s.peers.watch(ctx, func() { s.journal.resume(s.showsAllMissed) })
	}
}

// run takes one step after the other until ctx is done. After each failed step in a row it waits
// longer.
func (s *syncer) run(ctx context.Context) {
	defer close(s.done)
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 50*time.Millisecond, 10*time.Second
	logged := "" // the last error that was logged
	for ctx.Err() == nil {
		err := s.step(ctx)
		switch {
		case err == nil:
			wait.Reset()
			logged = ""
			continue
		case ctx.Err() != nil:
			return
		case err.Error() != logged:
			logged = err.Error()
			s.log.Warn("follow: collection cannot be followed, will retry", "error", err)
		}
		s.mu.Lock()
		s.failures++
		s.mu.Unlock()
		sleep(ctx, wait.NextBackOff())
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// step follows the rows that are due. If none is due, it runs the pass that is due. If none is due
// either, it waits.
func (s *syncer) step(ctx context.Context) error {
	s.beginStep()
	if followed, err := s.followRows(ctx); followed || err != nil {
		return err
	}
	due, ok := s.nextPass()
	if ok && !due.After(time.Now()) {
		return s.reconcile(ctx)
	}
	s.reportIdle()
	if !ok {
		due = time.Now().Add(time.Hour)
	}
	s.wait(ctx, due)
	return nil
}

// followRows reads the rows that are due, applies them to the derived data, and settles the writes
// that are shown now. It reports whether any row was due.
func (s *syncer) followRows(ctx context.Context) (followed bool, err error) {
	s.reembed(ctx)
	s.mu.Lock()
	readAt := time.Now()
	rows, routes, dropped := s.ledger.backlog.rows.take(readRows, readAt), s.ledger.routes, s.ledger.backlog.dropped
	s.mu.Unlock()
	if len(rows) == 0 {
		return false, nil
	}
	unfit := false
	failed, unapplied, err := applyEach(ctx, rows, func(rows []*row) error {
		ids := make([]rerank.ID, len(rows))
		for i, r := range rows {
			ids[i] = r.id
		}
		have, err := s.reader.read(ctx, routes, ids, dropped)
		if err != nil {
			return err
		}
		some, err := deriveAndApply(ctx, routes, rows, have)
		unfit = unfit || some
		return err
	})
	s.failing.note(rows, failed, unapplied)
	s.noteRows(rows, failed, unapplied, readAt, unfit)
	return true, err
}

// noteRows records the outcome of applyEach for rows that were read at readAt.
func (s *syncer) noteRows(rows []*row, failed []rowFailure, unapplied []*row, readAt time.Time, unfit bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures += int64(len(failed))
	s.ledger.noteRows(rows, failed, unapplied, readAt, unfit, time.Now())
}

// beginStep tells the callers of WaitUnused that replaced routes are no longer in use: a step uses the
// routes that there are when it begins. It also looks for foreign rows among the suspects, because
// writes on their way may have ended.
func (s *syncer) beginStep() {
	s.mu.Lock()
	suspects := len(s.ledger.foreign.suspects) > 0
	s.mu.Unlock()
	missesPeers := suspects && s.peers.awaitRead(sharedBudget) != nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findForeign(time.Now(), missesPeers)
	for _, waiting := range s.released {
		close(waiting)
	}
	s.released = nil
}

// waitUnused implements Follower.WaitUnused.
func (s *syncer) waitUnused(ctx context.Context) error {
	released := make(chan struct{})
	s.mu.Lock()
	s.released = append(s.released, released)
	s.signal()
	s.mu.Unlock()
	select {
	case <-released:
		return nil
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reportIdle tells drain once only passes are left to do.
func (s *syncer) reportIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil && s.ledger.backlog.waitsForPassOnly() {
		close(s.idle)
		s.idle = nil
	}
}

// wait returns at the given time, when a row is due, or when signal is called.
func (s *syncer) wait(ctx context.Context, until time.Time) {
	s.mu.Lock()
	if due, ok := s.ledger.backlog.rows.next(); ok && due.Before(until) {
		until = due
	}
	s.mu.Unlock()
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-s.wake:
	}
}

// Fresh implements route.Freshness: everything derived shows every write that was seen,
// none was missed, and none is on its way.
func (s *syncer) Fresh() bool {
	fresh, doubt := s.Assess()
	return fresh && doubt == nil
}

// Assess implements route.Freshness. It looks for doubtful writes before it reads the backlog: a
// write that the database carries out in between is in the backlog by then.
func (s *syncer) Assess() (fresh bool, doubt route.Doubt) {
	fresh, doubt = assessDoubts(s.doubts)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !fresh || !s.ledger.isFresh() {
		return false, nil
	}
	return true, doubt
}

func (s *syncer) status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := Status{
		Pending: len(s.ledger.backlog.writes), Stale: s.ledger.missed.isOpen(), Unjournaled: s.unjournaled, Reconciled: s.passes.record.Reconciled, Reconciling: s.passes.running != nil,
		AsOf: s.passes.record.Complete, Foreign: s.passes.record.Foreign,
		Reconciles: s.passes.reconciles, Failures: s.failures, Rows: s.passes.rowsRead,
	}
	if err := s.journal.Stats().Failed; err != nil {
		shared.JournalError = err.Error()
	}
	if problem := s.peers.lastProblem(); problem != nil {
		shared.PeerError = problem.Error()
	}
	if since := s.ledger.behindSince(); !since.IsZero() {
		shared.Age = time.Since(since)
	}
	all := make([]Status, len(s.ledger.routes))
	for i, d := range s.ledger.routes {
		all[i] = shared
		all[i].Route, all[i].Drift = d.route.Name, s.passes.record.Drift[d.route.Name]
	}
	return all
}

// drain stops new passes, and waits until all derived data shows all writes except those that need
// a pass, or until ctx is done.
func (s *syncer) drain(ctx context.Context) {
	s.mu.Lock()
	s.idle, s.passes.draining = make(chan struct{}), true
	idle := s.idle
	s.signal()
	s.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	case <-s.done:
	}
}

// close waits for run to end. It tells the next process whether the journal is enough to go on
// from.
func (s *syncer) close() error {
	if s.started {
		<-s.done
		s.peers.waitForWatch()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passes.record.Clean = s.ledger.endsClean(s.doubts.none())
	s.passes.keepPlace()
	return errors.Join(s.passes.record.write(s.o.Disk, s.records.path), s.journal.Close())
}
