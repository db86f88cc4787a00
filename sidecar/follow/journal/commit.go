package journal

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/likenessdb/likeness/internal/record"
)

// signal wakes the committer. One signal is enough for any number of requests.
func (j *Journal) signal() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run is the committer: until Close it commits the requests that wait. Requests that come during a
// commit are in the next one. After a failure it waits for Options.Retry.
func (j *Journal) run(failed bool) {
	defer close(j.ended)
	retry := time.NewTimer(j.o.Retry)
	if !failed {
		retry.Stop()
	}
	defer retry.Stop()
	for {
		select {
		case <-j.wake:
			if j.hasFailed() {
				continue // the next commit, after the wait, includes it
			}
		case <-retry.C:
		case <-j.stop:
			_ = j.commit() // which tells the callers that wait
			return
		}
		if j.commit() != nil {
			retry.Reset(j.o.Retry)
		}
	}
}

func (j *Journal) hasFailed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed != nil
}

// commit writes the requests that wait, and tells their callers.
func (j *Journal) commit() error {
	batch, done := j.take()
	err := j.write(batch, done)
	j.finish(batch, done, err)
	j.prune()
	return err
}

// take empties the queues and numbers the writes. The numbers of writes that fail are not used
// again.
func (j *Journal) take() (batch []*request, done []uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	batch, done = j.queue.take(), j.done
	j.done = nil
	for _, r := range batch {
		r.seq = j.next
		record.Finish(r.record, r.seq)
		j.next++
	}
	return batch, done
}

// write writes the records of a commit, and syncs the file if it wrote new writes. Before that it
// takes the lock if Open could not, begins a segment if one is due, and compacts.
//
// Once a commit has failed, readers of a shared journal cannot tell which records were cut off, so
// no commit succeeds before the journal is interrupted.
func (j *Journal) write(batch []*request, done []uint64) error {
	if j.lock == nil {
		if err := j.claimLate(); err != nil {
			return err
		}
	}
	if j.o.Shared && j.hasFailed() {
		if err := j.Interrupt(); err != nil {
			return err
		}
	}
	if j.active == nil || j.active.size >= j.o.Segment {
		if err := j.rotate(); err != nil {
			return err
		}
	}
	for more := true; more && j.shouldCompact(); {
		var err error
		if more, err = j.compactOldest(); err != nil {
			return err
		}
	}
	var b []byte
	for _, seq := range done {
		b = record.Append(b, seq, nil)
	}
	for _, r := range batch {
		b = append(b, r.record...)
	}
	return j.active.write(b, len(batch) > 0 || j.o.Shared)
}

// claimLate claims the journal if Open could not. It drops the writes that it finds, because the
// caller of Open was told that any write may be missing.
func (j *Journal) claimLate() error {
	entries, _, err := j.claim()
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		j.forget(e.Seq)
	}
	return nil
}

// finish records the result of a commit, and tells the callers of Append.
func (j *Journal) finish(batch []*request, done []uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = nil
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrDisk, err)
		j.failed = err
		j.done = append(done, j.done...)
		if j.active != nil {
			if j.active.abandon(j.o.Disk) {
				j.segments = j.segments[:len(j.segments)-1]
			}
			j.active = nil
		}
		batch = append(batch, j.queue.take()...) // they came during the commit, and fail too
	} else {
		j.addBatch(batch)
	}
	j.measure()
	for _, r := range batch {
		r.committed <- err
	}
}

// addBatch notes that the writes of a batch lie in the active segment.
func (j *Journal) addBatch(batch []*request) {
	for _, r := range batch {
		j.add(r.seq, location{j.active, int64(len(r.record))})
		j.durable = r.seq
		if r.abandoned {
			j.forget(r.seq)
		}
	}
}

// rotate begins a new segment.
func (j *Journal) rotate() error {
	j.mu.Lock()
	durable, number := j.durable, j.number
	j.number++
	j.mu.Unlock()
	s, err := createSegment(j.o.Disk, j.dir, number, durable)
	if err != nil {
		return err
	}
	if j.o.Shared {
		if err := j.seal(s); err != nil {
			return errors.Join(err, s.file.Close(), j.o.Disk.Remove(s.path))
		}
	}
	if j.active != nil {
		j.active.complete()
	}
	j.mu.Lock()
	j.segments, j.active = append(j.segments, s), s
	j.measure()
	j.mu.Unlock()
	return nil
}

// seal ends the segments before the new one with trailers, so that a reader finds the next segment.
// The new segment is durable by then, and has no record yet.
func (j *Journal) seal(next *segment) error {
	following := next
	for _, s := range slices.Backward(j.segments) {
		if err := s.seal(j.o.Disk, following.number); err != nil {
			return err
		}
		following = s
	}
	return nil
}

func (j *Journal) shouldCompact() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return compactionPays(j.size, j.needed, j.o.Limit, len(j.segments))
}

// compactionPays reports whether to compact the oldest segment: if the files take half of the
// limit, and the pending writes at most half of that. A single segment is not compacted, because
// there is no other to copy to.
func compactionPays(size, needed, limit int64, segments int) bool {
	return size >= limit/2 && needed <= limit/4 && segments > 1
}

// compactOldest copies the pending writes of the oldest segment to the active one, so that one slow
// write does not keep all later segments. It reports whether the segment is gone. A segment that
// cannot be read stays.
func (j *Journal) compactOldest() (gone bool, err error) {
	from := j.segments[0]
	b, err := os.ReadFile(from.path)
	if err != nil {
		return false, nil //nolint:nilerr // the segment stays
	}
	var copies []record.Placed
	var out []byte
	j.mu.Lock()
	for _, p := range record.ReadAll(b, segmentHeader).Records {
		if at := j.pending[p.Number]; at.segment == from {
			copies, out = append(copies, p), append(out, p.Raw...)
		}
	}
	j.mu.Unlock()
	if err := j.active.write(out, true); err != nil {
		return false, err
	}
	j.addCopies(copies)
	j.prune()
	return len(j.segments) == 0 || j.segments[0] != from, nil
}

// addCopies notes that the copied writes that are still pending lie in the active segment now.
func (j *Journal) addCopies(copies []record.Placed) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range copies {
		if j.remove(p.Number) { // the write is still pending
			j.add(p.Number, location{j.active, int64(len(p.Raw))})
		}
	}
	j.measure()
}

// prune removes the oldest segments that hold no pending write. It never removes a segment while an
// older one stays, because the segment may say that a write of the older one is done. A shared
// journal keeps the segment before the active one for readers that are behind.
func (j *Journal) prune() {
	j.mu.Lock()
	defer j.mu.Unlock()
	kept := 0
	if j.o.Shared {
		kept = 2
	}
	for len(j.segments) > kept && j.segments[0] != j.active && j.segments[0].live == 0 {
		s := j.segments[0]
		if err := j.o.Disk.Remove(s.path); err != nil && !os.IsNotExist(err) {
			return // the next commit tries again
		}
		j.size -= s.size
		j.segments = j.segments[1:]
	}
}
