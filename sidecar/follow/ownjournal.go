package follow

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
)

// sharedBudget is the least time that a write may wait for a shared journal. A write without
// an entry there costs every sidecar a comparison of all rows.
const sharedBudget = time.Second

// ownJournal is the journal of the writes that this process sends to the database. Its next
// process reads it. If it is shared, the other sidecars read it all the time, and must learn
// of every write before the database does. If a write cannot be put into a shared journal,
// ownJournal interrupts the journal: it removes the journal's mark, so that the others know
// that they do not see every write. If that fails too, it is blocked: writes must be refused.
// It is safe for concurrent use.
type ownJournal struct {
	*journal.Journal
	isShared bool
	log      *slog.Logger

	mu sync.Mutex
	// blocked is why the others could not be told that the journal lacks a write. It is nil if
	// they were told, or need not be.
	blocked error
	// interrupting is closed when the attempt to interrupt the journal ends; nil: none runs.
	interrupting chan struct{}
	missedDoubts int      // doubtful writes on their way that the journal lacks
	stuckDoubts  []uint64 // doubts that stay in the journal until the others were told
}

// journalDir returns the folder of the journal that this process writes.
func journalDir(o Options, collection string) string {
	if o.Shared == "" {
		return filepath.Join(statedir.Collection(o.Dir, collection), "journal")
	}
	return statedir.Replica(statedir.Collection(o.Shared, collection), o.Replica)
}

// append puts a write into the journal. A shared journal gets at least sharedBudget for it,
// whatever ctx allows. If a shared journal does not take the write, append calls noteMissing,
// and then interrupts the journal; allWritesShown must not hold from noteMissing on.
func (j *ownJournal) append(ctx context.Context, jw journal.Write, budget time.Duration, noteMissing func()) (uint64, error) {
	if !j.isShared {
		return j.Append(ctx, jw)
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(budget, sharedBudget))
	defer cancel()
	seq, err := j.Append(ctx, jw)
	if err != nil {
		noteMissing() // before the journal is interrupted, so that it is not resumed
		j.interrupt()
	}
	return seq, err
}

// interrupt tells the other sidecars that the journal lacks writes. If that fails, the journal
// is blocked until an attempt succeeds.
func (j *ownJournal) interrupt() {
	j.mu.Lock()
	over := j.interrupting
	if over == nil {
		over = make(chan struct{})
		j.interrupting = over
		go func() {
			err := j.Interrupt()
			j.mu.Lock()
			defer j.mu.Unlock()
			j.setBlocked(err)
			j.interrupting = nil
			close(over)
		}()
	}
	j.mu.Unlock()
	timer := time.NewTimer(sharedBudget)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.interrupting == over {
			j.setBlocked(errHangs)
		}
	}
}

// setBlocked sets blocked, and logs the first error. The caller holds the lock.
func (j *ownJournal) setBlocked(err error) {
	if err != nil && j.blocked == nil {
		j.log.Error("follow: shared journal cannot be written, refusing writes", "error", err)
	}
	j.blocked = err
}

// resume tells the other sidecars that the journal has every write again, once allWritesShown
// says that all derived data shows the writes that the journal lacks. It also retries a failed
// interruption. It does nothing for a journal that is not interrupted.
func (j *ownJournal) resume(allWritesShown func() bool) {
	if j.isBlocked() {
		j.interrupt()
	}
	if !j.Interrupted() {
		return
	}
	j.mu.Lock()
	for _, seq := range j.stuckDoubts {
		j.Done(seq)
	}
	j.stuckDoubts = nil
	j.mu.Unlock()
	err := j.Resume(func() bool {
		j.mu.Lock()
		noDoubts := j.missedDoubts == 0
		j.mu.Unlock()
		return noDoubts && allWritesShown() && j.Stats().Failed == nil
	})
	if err != nil {
		j.log.Debug("follow: shared journal cannot be resumed, will retry", "error", err)
	}
}

// beginDoubt tells the other sidecars of a write to the collection whose rows are not known
// yet. The caller calls end once the write is in the journal, or the database has refused it.
func (j *ownJournal) beginDoubt(collection string) (end func()) {
	if !j.isShared {
		return func() {}
	}
	seq, err := j.append(context.Background(), journal.Write{Collection: collection, Kind: journal.Doubt}, 0, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.missedDoubts++
	})
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		switch {
		case err != nil: // the journal lacks the doubt
			j.missedDoubts--
		case j.blocked != nil: // the write may have been carried out, and the others do not know
			j.stuckDoubts = append(j.stuckDoubts, seq)
		default:
			j.Done(seq)
		}
	}
}

// isBlocked reports whether the journal lacks writes and the other sidecars could not be told.
func (j *ownJournal) isBlocked() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.blocked != nil
}
