package journal

import (
	"fmt"
	"os"
	"time"
)

// signal wakes the committer; one signal is enough for all that is waiting.
func (j *Journal) signal() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run commits what comes until Close. What comes during a commit is in the next:
// the disk is the clock, and there is no other. Behind a failure it is tried again
// after a while.
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
			if j.broken() {
				continue // until it is tried again
			}
		case <-retry.C:
		case <-j.stop:
			_ = j.commit() // those who wait are told
			return
		}
		if j.commit() != nil {
			retry.Reset(j.o.Retry)
		}
	}
}

func (j *Journal) broken() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed != nil
}

// commit writes down what is waiting and lets everybody know.
func (j *Journal) commit() error {
	batch, done := j.take()
	err := j.write(batch, done)
	j.settle(batch, done, err)
	j.prune()
	return err
}

// take takes what is waiting, and gives the writes their numbers. Those of a
// write that fails are not given again.
func (j *Journal) take() (batch []*request, done []uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	batch, done = j.queue, j.done
	j.queue, j.queued, j.done = nil, 0, nil
	for _, r := range batch {
		r.seq = j.next
		putSequence(r.record, r.seq)
		j.next++
	}
	return batch, done
}

// write writes records and makes the writes among them durable.
func (j *Journal) write(batch []*request, done []uint64) error {
	if j.lock == nil {
		if err := j.claimLate(); err != nil {
			return err
		}
	}
	if j.active == nil || j.active.size >= j.o.Segment {
		if err := j.rotate(); err != nil {
			return err
		}
	}
	for more := true; more && j.crowded(); {
		var err error
		if more, err = j.carry(); err != nil {
			return err
		}
	}
	var b []byte
	for _, seq := range done {
		at := len(b)
		b = appendRecord(b, nil)
		putSequence(b[at:], seq)
	}
	for _, r := range batch {
		b = append(b, r.record...)
	}
	return j.active.write(b, len(batch) > 0)
}

// claimLate is claim behind Open. What is found is dropped: whoever opened the journal
// was told that anything may be missing.
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

// settle notes what a commit did, and tells those who wait.
func (j *Journal) settle(batch []*request, done []uint64, err error) {
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
		batch = append(batch, j.queue...) // they came while it was tried
		j.queue, j.queued = nil, 0
	} else {
		j.place(batch)
	}
	j.measure()
	for _, r := range batch {
		r.committed <- err
	}
}

// place notes where the writes of a batch lie.
func (j *Journal) place(batch []*request) {
	for _, r := range batch {
		j.add(r.seq, place{j.active, int64(len(r.record))})
		j.durable = r.seq
		if r.abandoned {
			j.forget(r.seq)
		}
	}
}

// rotate begins a segment.
func (j *Journal) rotate() error {
	j.mu.Lock()
	durable, number := j.durable, j.number
	j.number++
	j.mu.Unlock()
	s, err := createSegment(j.o.Disk, j.dir, number, durable)
	if err != nil {
		return err
	}
	if j.active != nil {
		j.active.end()
	}
	j.mu.Lock()
	j.segments, j.active = append(j.segments, s), s
	j.measure()
	j.mu.Unlock()
	return nil
}

// crowded: half of the journal is used, and half of that is not needed.
func (j *Journal) crowded() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size >= j.o.Limit/2 && j.needed <= j.o.Limit/4 && len(j.segments) > 1
}

// carry moves what is needed of the oldest segment to the active one, so that one
// write that takes long does not keep all that came after it. It reports whether
// the segment is gone: what cannot be read stays where it is.
func (j *Journal) carry() (bool, error) {
	from := j.segments[0]
	b, err := os.ReadFile(from.path)
	if err != nil {
		return false, nil //nolint:nilerr // as above
	}
	var copies []placed
	var out []byte
	j.mu.Lock()
	for _, p := range read(b, segmentHeader).records {
		if at := j.pending[p.seq]; at.segment == from && len(p.body) > 0 {
			copies, out = append(copies, p), append(out, p.raw...)
		}
	}
	j.mu.Unlock()
	if err := j.active.write(out, true); err != nil {
		return false, err
	}
	j.moved(copies)
	j.prune()
	return len(j.segments) == 0 || j.segments[0] != from, nil
}

// moved notes that writes lie in the active segment now.
func (j *Journal) moved(copies []placed) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range copies {
		if j.remove(p.seq) { // not done meanwhile
			j.add(p.seq, place{j.active, int64(len(p.raw))})
		}
	}
	j.measure()
}

// prune removes the oldest segments while nothing of them is needed. Only the
// oldest: a later one may say that a write of an earlier one is done.
func (j *Journal) prune() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.segments) > 0 && j.segments[0] != j.active && j.segments[0].live == 0 {
		s := j.segments[0]
		if err := j.o.Disk.Remove(s.path); err != nil && !os.IsNotExist(err) {
			return // it is tried again
		}
		j.size -= s.size
		j.segments = j.segments[1:]
	}
}
