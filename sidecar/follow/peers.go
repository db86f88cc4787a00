package follow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

const (
	// peerInterval is the time between two reads of the other sidecars' journals if no search
	// asks for one.
	peerInterval = 200 * time.Millisecond
	// peerPatience is how long a search waits until the other sidecars' journals are read.
	peerPatience = 50 * time.Millisecond
	// departedAfter is how long a sidecar must not have run before the others remove its folder.
	// Each of them has read the journal until then; a sidecar that starts compares all rows.
	departedAfter = time.Hour
	// removing names the lock that a sidecar has while it removes folders of a collection.
	removing = "removing"
)

// errHangs means that a file operation in the shared folder does not return.
var errHangs = errors.New("the folder does not answer")

// peers reads the journals of the other sidecars that stand before the same collection.
// Each sidecar keeps its journal in a folder that they share, and reads the journals of the
// others before it believes that it has seen every write. A write of another sidecar goes
// through these steps:
//
//	journalled  its sidecar puts it into its journal before sending it to the database
//	seen        read: it joins the backlog here, and no derived data is fresh
//	done        read: its sidecar has read the rows back, so reads show the write
//	queued      its rows are read here too, as after a write of this process
//
// The journal of this process is an ownJournal. All methods may be called on nil: then no
// journals are shared.
type peers struct {
	dir      string     // of the collection, with a folder for each sidecar
	own      string     // the name of this sidecar's folder
	replicas int        // how many sidecars there are, including this one
	writes   peerWrites // is told of the writes in the journals
	log      *slog.Logger
	all      map[string]*peer // by folder; only watch uses it
	lastRead time.Time        // when the last read began; only watch uses it

	lookWanted chan struct{} // wakes watch, because a search waits
	watchEnded chan struct{} // closed when watch has returned

	mu       sync.Mutex
	nextLook *look // the look that watch begins next; nil if no search waits for one
	problem  error // why the last look may have missed a write
}

// peerWrites is told of the writes that other sidecars journalled. A syncer implements it.
type peerWrites interface {
	// seePeerWrite adds a write that may be on its way to the database.
	seePeerWrite(jw journal.Write) *write
	// queuePeerWrite notes that reads show a write that seePeerWrite returned.
	queuePeerWrite(w openWrite)
	// missPeerWrites notes that writes of another sidecar may have been missed. The database
	// may carry out the open ones, which the sidecar journalled, at any moment.
	missPeerWrites(why string, open []openWrite)
}

// peer is another sidecar's journal.
type peer struct {
	reader *journal.Reader
	// isLive: a process has the journal open.
	isLive bool
	// endHandled: the last process ended, and the writes that it left open were taken up.
	endHandled bool
	// absentSince is when the process was first seen not to run; zero while it runs.
	absentSince time.Time
	// open has the writes that the process has not followed yet, by number.
	open map[uint64]openWrite
}

// openWrite is a write of another sidecar that its sidecar has not read back yet.
type openWrite struct {
	write   *write
	written journal.Write
}

// look is one read of all the other sidecars' journals.
type look struct {
	over    chan struct{} // closed once problem is set
	problem error         // why some write may not have been seen
}

// newPeers returns the other sidecars' journals of a collection, or nil if no journals are
// shared.
func newPeers(o Options, collection string, writes peerWrites) *peers {
	if o.Shared == "" {
		return nil
	}
	return &peers{
		dir: statedir.Collection(o.Shared, collection), own: filepath.Base(statedir.Replica(o.Shared, o.Replica)),
		replicas: o.Replicas, writes: writes, log: o.Logger, all: map[string]*peer{},
		lookWanted: make(chan struct{}, 1), watchEnded: make(chan struct{}),
	}
}

// watch reads the journals of the others every peerInterval, and when a search asks for it,
// until ctx is done. It calls tick after each read that no search asked for.
func (p *peers) watch(ctx context.Context, tick func()) {
	defer close(p.watchEnded)
	ticker := time.NewTicker(peerInterval)
	defer ticker.Stop()
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			ticked = true
		case <-p.lookWanted:
		}
		p.mu.Lock()
		l := p.nextLook
		p.nextLook = nil
		p.mu.Unlock()
		problem := p.read(ticked)
		p.mu.Lock()
		p.problem = problem
		p.mu.Unlock()
		if l != nil {
			l.problem = problem
			close(l.over)
		}
		if ticked {
			tick()
		}
	}
}

// waitForWatch waits until watch has returned. It gives up after sharedBudget, because a
// file operation of watch may hang.
func (p *peers) waitForWatch() {
	if p == nil {
		return
	}
	timer := time.NewTimer(sharedBudget)
	defer timer.Stop()
	select {
	case <-p.watchEnded:
	case <-timer.C:
	}
}

// awaitRead waits until watch has read the other sidecars' journals, as they were when awaitRead was
// called or later. It returns why a write may have been missed, or nil if every write was
// seen. It is safe for concurrent use: callers share a read.
func (p *peers) awaitRead(patience time.Duration) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	l := p.nextLook
	if l == nil {
		l = &look{over: make(chan struct{})}
		p.nextLook = l
	}
	p.mu.Unlock()
	signal(p.lookWanted)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.over:
		return l.problem
	case <-timer.C:
	case <-p.watchEnded:
	}
	return fmt.Errorf("%s: %w", p.dir, errHangs)
}

// lastProblem returns why the last read may have missed a write, or nil.
func (p *peers) lastProblem() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

// read takes up what the others wrote into their journals since the last call. If isProbe it
// also finds out which of their processes run. It returns why it may have missed a write.
func (p *peers) read(isProbe bool) error {
	began := time.Now()
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
			if q.isLive, err = q.reader.IsHeld(); err != nil {
				problems = append(problems, err)
			}
		}
		events, lost, err := q.reader.Read() // after IsHeld: a process that has ended writes no more
		if !q.isLive && len(events) > 0 {
			q.isLive, _ = q.reader.IsHeld() // another process has begun
		}
		p.takeEvents(q, events, lost)
		switch {
		case !q.isLive:
			p.endPeer(q, err)
			if isProbe {
				p.removeDeparted(name, q, began)
			}
			continue
		case err != nil:
			problems = append(problems, err)
		}
		q.endHandled, q.absentSince = false, time.Time{}
		live++
	}
	sinceLast := began.Round(0).Sub(p.lastRead.Round(0)) // by the wall clock, which goes on while the machine sleeps
	p.lastRead = began
	for name, q := range p.all {
		if !there[name] {
			if !q.endHandled || sinceLast > departedAfter/2 {
				p.takeEvents(q, nil, true)
			}
			delete(p.all, name)
		}
	}
	if live < p.replicas {
		problems = append(problems, fmt.Errorf("%d of %d sidecars have a journal open in %s", live, p.replicas, p.dir))
	}
	return errors.Join(problems...)
}

// takeEvents passes on the events of another sidecar's journal. lost says that some events
// are missing.
func (p *peers) takeEvents(q *peer, events []journal.Event, lost bool) {
	if lost {
		p.miss(q, "its journal lacks some")
	}
	for _, e := range events {
		o, known := q.open[e.Seq]
		switch {
		case e.Done && known:
			delete(q.open, e.Seq)
			p.writes.queuePeerWrite(o)
		case e.Done: // it was missed, or taken up when its process ended
		case known && reflect.DeepEqual(o.written, e.Write): // it was copied to another segment
		default:
			if known {
				p.miss(q, "its journal has two of one number")
			}
			q.open[e.Seq] = openWrite{p.writes.seePeerWrite(e.Write), e.Write}
		}
	}
}

// endPeer takes up what another sidecar left when it ended. failed is why its journal could
// not be read to the end.
func (p *peers) endPeer(q *peer, failed error) {
	if q.endHandled && len(q.open) == 0 {
		return
	}
	q.endHandled = true
	// A record that its process had not completed was not sent to the database.
	if len(q.open) == 0 && (failed == nil || errors.Is(failed, journal.ErrIncomplete)) {
		return
	}
	p.miss(q, "it ended with writes on their way")
}

// removeDeparted removes the folder of a sidecar that has not run for departedAfter.
func (p *peers) removeDeparted(name string, q *peer, now time.Time) {
	switch {
	case q.absentSince.IsZero():
		q.absentSince = now
		return
	case now.Sub(q.absentSince) < departedAfter:
		return
	}
	q.absentSince = now // if the folder cannot be removed, try again after as long
	lock, err := filelock.Take(filepath.Join(p.dir, removing))
	if err == nil {
		err = errors.Join(journal.Remove(filepath.Join(p.dir, name)), lock.Close())
	}
	switch {
	case err == nil:
		p.log.Info("follow: removed the journal of a sidecar that is gone", "sidecar", name, "absent", departedAfter)
	case !errors.Is(err, filelock.ErrHeld) && !errors.Is(err, fs.ErrNotExist): // another sidecar removes it
		p.log.Warn("follow: journal of a sidecar that is gone cannot be removed, will retry", "sidecar", name, "error", err)
	}
}

// miss passes on that writes of another sidecar may have been missed, and that nothing will
// tell when its open writes are done.
func (p *peers) miss(q *peer, why string) {
	open := make([]openWrite, 0, len(q.open))
	for seq, o := range q.open {
		delete(q.open, seq)
		open = append(open, o)
	}
	p.writes.missPeerWrites(why, open)
}
