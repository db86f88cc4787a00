package follow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// Several sidecars that stand before one collection see all writes together: each keeps its
// journal in a folder that they share, and reads the journals of the others before it
// believes that it has seen every write. A write of another sidecar goes through these steps:
//
//	journalled  its sidecar has it in the journal before it is sent to the database
//	seen        readPeers: it joins the backlog, and nothing derived is fresh
//	done        readPeers: its sidecar has read it back, so that reads show it
//	queued      as a write of this process that the database has answered
//
// A sidecar that cannot put a write into its journal removes the mark of the journal first,
// which the others take for writes that they do not see. If it cannot do that either, it
// refuses the write.

const (
	// peerInterval is the time between two looks at the journals of the others without a
	// search.
	peerInterval = 200 * time.Millisecond
	// peerPatience is how long a search waits for the look at the journals of the others.
	peerPatience = 50 * time.Millisecond
	// sharedBudget is the least that a write may wait for a shared journal. A write without
	// an entry costs every sidecar a comparison of all rows.
	sharedBudget = time.Second
)

// errHangs means that a file operation in the shared folder does not return.
var errHangs = errors.New("the folder does not answer")

// peers are the journals of the other sidecars. The goroutine of watchPeers uses them.
type peers struct {
	dir      string // of the collection, with a folder for each sidecar
	own      string // the folder of this process
	replicas int    // how many sidecars there are, with this one
	all      map[string]*peer
}

// peer is another sidecar's journal.
type peer struct {
	reader *journal.Reader
	// live: a process has the journal open.
	live bool
	// ended: what the process left when it ended was taken up.
	ended bool
	// open has the writes that its process has not followed, by number.
	open map[uint64]openWrite
}

// openWrite is a write of another sidecar that is on its way, or that it has not read back.
type openWrite struct {
	write   *write
	written journal.Write
}

// look is a look at the journals of the others.
type look struct {
	over    chan struct{} // closed when problem is set
	problem error         // why some write may not have been seen
}

// newPeers returns the journals beside this process's own; nil if none is shared.
func newPeers(o Options, collection string) *peers {
	if o.Shared == "" {
		return nil
	}
	return &peers{
		dir: statedir.Collection(o.Shared, collection), own: filepath.Base(statedir.Replica(o.Shared, o.Replica)),
		replicas: o.Replicas, all: map[string]*peer{},
	}
}

// journalDir returns the folder of the journal that this process writes.
func journalDir(o Options, collection string) string {
	if o.Shared == "" {
		return filepath.Join(statedir.Collection(o.Dir, collection), "journal")
	}
	return statedir.Replica(statedir.Collection(o.Shared, collection), o.Replica)
}

// watchPeers looks at the journals of the others when a search asks for it and from time to
// time, until ctx is done.
func (s *syncer) watchPeers(ctx context.Context) {
	defer close(s.watchEnded)
	tick := time.NewTicker(peerInterval)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ticked = true
		case <-s.lookWanted:
		}
		s.mu.Lock()
		l := s.nextLook
		s.nextLook = nil
		s.mu.Unlock()
		problem := s.readPeers(ticked)
		s.mu.Lock()
		s.peerProblem = problem
		s.mu.Unlock()
		if l != nil {
			l.problem = problem
			close(l.over)
		}
		if ticked {
			s.resume()
		}
	}
}

// waitForWatch waits for the end of watchPeers, unless the folder does not answer.
func (s *syncer) waitForWatch() {
	timer := time.NewTimer(sharedBudget)
	defer timer.Stop()
	select {
	case <-s.watchEnded:
	case <-timer.C:
	}
}

// lookAtPeers waits until the journals of the others were read that were there when it was
// called. It returns why a write may have been missed, nil if all were seen.
func (s *syncer) lookAtPeers(patience time.Duration) error {
	if s.peers == nil {
		return nil
	}
	s.mu.Lock()
	l := s.nextLook
	if l == nil {
		l = &look{over: make(chan struct{})}
		s.nextLook = l
	}
	s.mu.Unlock()
	signal(s.lookWanted)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.over:
		return l.problem
	case <-timer.C:
	case <-s.watchEnded:
	}
	return fmt.Errorf("%s: %w", s.peers.dir, errHangs)
}

// readPeers takes up what the others wrote into their journals since the last call. If
// isProbe it also finds out which of their processes run. It returns why it may have missed
// a write.
func (s *syncer) readPeers(isProbe bool) error {
	p := s.peers
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	there, live := map[string]bool{p.own: true}, 1
	var problems []error
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || name == p.own {
			continue
		}
		there[name] = true
		q := p.all[name]
		isNew := q == nil
		if isNew {
			q = &peer{reader: journal.NewReader(filepath.Join(p.dir, name)), open: map[uint64]openWrite{}}
			p.all[name] = q
		}
		if isProbe || isNew {
			if q.live, err = q.reader.IsHeld(); err != nil {
				problems = append(problems, err)
			}
		}
		events, lost, err := q.reader.Read() // after IsHeld: a process that has ended writes no more
		if !q.live && len(events) > 0 {
			q.live, _ = q.reader.IsHeld() // another process has begun
		}
		s.takeEvents(q, events, lost)
		switch {
		case !q.live:
			s.endPeer(q, err)
			continue
		case err != nil:
			problems = append(problems, err)
		}
		q.ended = false
		live++
	}
	for name, q := range p.all {
		if !there[name] {
			s.takeEvents(q, nil, true)
			delete(p.all, name)
		}
	}
	if live < p.replicas {
		problems = append(problems, fmt.Errorf("%d of %d sidecars have a journal open in %s", live, p.replicas, p.dir))
	}
	return errors.Join(problems...)
}

// takeEvents takes up events of another sidecar's journal. lost says that some are missing.
func (s *syncer) takeEvents(q *peer, events []journal.Event, lost bool) {
	if len(events) == 0 && !lost {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost {
		s.missedByPeer(q, "its journal lacks some")
	}
	for _, e := range events {
		o, known := q.open[e.Seq]
		switch {
		case !e.Done && !known:
			s.openPeerWrite(q, e.Entry)
		case !e.Done && reflect.DeepEqual(o.written, e.Write): // it was copied to another segment
		case !e.Done:
			s.missedByPeer(q, "its journal has two of one number")
			s.openPeerWrite(q, e.Entry)
		case known:
			delete(q.open, e.Seq)
			s.queue(o.write, o.written, time.Now())
		}
	}
}

// openPeerWrite adds another sidecar's write to the backlog. The caller holds the lock.
func (s *syncer) openPeerWrite(q *peer, e journal.Entry) {
	w := s.see()
	w.peers = true
	s.foreign.explain(e.Write)
	q.open[e.Seq] = openWrite{w, e.Write}
}

// endPeer takes up what another sidecar left when it ended. failed is why its journal could
// not be read to the end.
func (s *syncer) endPeer(q *peer, failed error) {
	if q.ended && len(q.open) == 0 {
		return
	}
	q.ended = true
	// A record that its process had not completed was not sent to the database.
	if len(q.open) == 0 && (failed == nil || errors.Is(failed, journal.ErrIncomplete)) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missedByPeer(q, "it ended with writes on their way")
}

// missedByPeer notes that writes of another sidecar may have been missed. Those of its writes
// that are known may be carried out at any moment. The caller holds the lock.
func (s *syncer) missedByPeer(q *peer, why string) {
	if !s.missed.isOpen() {
		s.log.Warn("follow: writes of another sidecar may be missed, comparing all rows", "why", why, "sidecars", s.peers.dir)
	}
	now := time.Now()
	s.missed.note(now)
	for seq, o := range q.open {
		delete(q.open, seq)
		s.queue(o.write, o.written, now.Add(lag))
	}
	s.signal()
}

// appendShared puts a write into the journal that other sidecars read. If that fails it tells
// them that the journal lacks a write. The caller has noted in the backlog, or in doubtful,
// that a write is under way.
func (s *syncer) appendShared(jw journal.Write, budget time.Duration, unjournaled func()) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), max(budget, sharedBudget))
	defer cancel()
	seq, err := s.journal.Append(ctx, jw)
	if err != nil {
		s.mu.Lock()
		unjournaled() // before the journal is interrupted, so that it is not resumed
		s.mu.Unlock()
		s.interrupt()
	}
	return seq, err
}

// interrupt tells the other sidecars that the journal lacks writes. If that fails, blocked says
// why until it succeeds.
func (s *syncer) interrupt() {
	s.mu.Lock()
	over := s.interrupting
	if over == nil {
		over = make(chan struct{})
		s.interrupting = over
		go func() {
			err := s.journal.Interrupt()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.block(err)
			s.interrupting = nil
			close(over)
		}()
	}
	s.mu.Unlock()
	timer := time.NewTimer(sharedBudget)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.interrupting == over {
			s.block(errHangs)
		}
	}
}

// block notes why the other sidecars cannot be told that the journal lacks writes; nil: they
// were told. The caller holds the lock.
func (s *syncer) block(err error) {
	if err != nil && s.blocked == nil {
		s.log.Error("follow: shared journal cannot be written, refusing writes", "error", err)
	}
	s.blocked = err
}

// resume tells the other sidecars that the journal has every write again, once everything
// derived shows the writes that it lacks. It tries again to interrupt a journal that could
// not be interrupted.
func (s *syncer) resume() {
	s.mu.Lock()
	blocked := s.blocked != nil
	s.mu.Unlock()
	if blocked {
		s.interrupt()
	}
	if !s.journal.Interrupted() {
		return
	}
	s.mu.Lock()
	for _, seq := range s.stuck {
		s.journal.Done(seq)
	}
	s.stuck = nil
	s.mu.Unlock()
	err := s.journal.Resume(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.doubtful == 0 && s.backlog.hasNoUnjournaled() && !s.missed.isOpen() && s.journal.Stats().Failed == nil
	})
	if err != nil {
		s.log.Debug("follow: shared journal cannot be resumed, will retry", "error", err)
	}
}

// beginDoubt tells the other sidecars of a write whose rows are not known yet. The caller
// calls end once the write is in the journal, or the database has refused it.
func (s *syncer) beginDoubt() (end func()) {
	if s.peers == nil {
		return func() {}
	}
	seq, err := s.appendShared(journal.Write{Collection: s.collection, Kind: journal.Doubt}, 0, func() { s.doubtful++ })
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err != nil: // the journal lacks it
			s.doubtful--
		case s.blocked != nil: // the write may have been carried out, and the others do not know
			s.stuck = append(s.stuck, seq)
		default:
			s.journal.Done(seq)
		}
	}
}

// isBlocked reports whether a write must not be forwarded, because other sidecars certify
// answers and cannot be told of it.
func (s *syncer) isBlocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked != nil && s.declaresProxy()
}
