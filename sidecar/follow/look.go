package follow

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

const (
	// lookRows are read at once.
	lookRows = 512
	// again is after how long a row is looked at again that failed where others
	// did not.
	again = 5 * time.Second
)

// run does what there is to do, one thing after the other, until ctx is done.
func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 50*time.Millisecond, 10*time.Second
	said := ""
	for ctx.Err() == nil {
		err := k.step(ctx)
		switch {
		case err == nil:
			wait.Reset()
			said = ""
			continue
		case ctx.Err() != nil:
			return
		case err.Error() != said:
			said = err.Error()
			k.log.Warn("what was derived cannot follow its collection; it is tried again", "error", err)
		}
		k.count(&k.failures, 1)
		sleep(ctx, wait.NextBackOff())
	}
}

func (k *keeper) count(counter *int64, n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	*counter += n
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// step looks at rows that are due, or goes on with a pass, or waits.
func (k *keeper) step(ctx context.Context) error {
	k.letGo()
	if looked, err := k.look(ctx); looked || err != nil {
		return err
	}
	due, ok := k.nextPass()
	if ok && !due.After(time.Now()) {
		return k.runPass(ctx)
	}
	k.tellIdle()
	if !ok {
		due = time.Now().Add(time.Hour)
	}
	k.wait(ctx, due)
	return nil
}

// letGo tells who waits that what was replaced is not used any more: a step uses
// what there is when it begins.
func (k *keeper) letGo() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, waiting := range k.quiet {
		close(waiting)
	}
	k.quiet = nil
}

// tellIdle lets drain know that nothing is left.
func (k *keeper) tellIdle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.idle == nil || k.queue.len() > 0 {
		return
	}
	for w := range k.writes {
		if w.left >= 0 {
			return
		}
	}
	close(k.idle)
	k.idle = nil
}

// wait returns at the time, when a row is due, or when there is something new.
func (k *keeper) wait(ctx context.Context, until time.Time) {
	k.mu.Lock()
	if due, ok := k.queue.next(); ok && due.Before(until) {
		until = due
	}
	k.mu.Unlock()
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-k.wake:
	}
}

// look reads the rows that are due and writes what follows from them.
func (k *keeper) look(ctx context.Context) (looked bool, err error) {
	k.mu.Lock()
	at := time.Now()
	taken, all := k.queue.take(lookRows, at), k.all
	k.mu.Unlock()
	if len(taken) == 0 {
		return false, nil
	}
	failed, err := k.showEach(ctx, all, taken)
	k.mu.Lock()
	defer k.mu.Unlock()
	retry := time.Now()
	if err == nil {
		retry = retry.Add(again)
	}
	for _, r := range taken {
		switch {
		case k.queue.byID[r.id] != r: // it was left to a pass
		case slices.Contains(failed, r):
			k.queue.at(r.id, retry)
		default:
			k.looked(r, at)
		}
	}
	return true, err
}

// looked: what is derived of a row shows what the database had at the time or
// later. The caller holds the lock.
func (k *keeper) looked(r *row, at time.Time) {
	if r.found {
		r.found = false
		k.found--
	}
	next := r.until
	kept := r.writes[:0]
	for _, w := range r.writes {
		switch {
		case w.left < 0: // it was left to a pass
		case w.shown.After(at):
			kept = append(kept, w)
			if w.shown.Before(next) {
				next = w.shown
			}
		default:
			if w.left--; w.left == 0 {
				k.settle(w)
			}
		}
	}
	clear(r.writes[len(kept):])
	r.writes = kept
	switch {
	case r.place >= 0: // it was touched meanwhile
	case next.After(at):
		k.queue.at(r.id, next)
	default:
		k.queue.forget(r)
	}
}

// showEach shows rows, and where some cannot be shown, the others. It returns
// those that failed, and the error if it is not of single rows.
func (k *keeper) showEach(ctx context.Context, all []*derived, taken []*row) (failed []*row, err error) {
	err = k.show(ctx, all, taken)
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil || ofAll(err):
		return taken, err
	case len(taken) == 1 && errors.Is(err, adapters.ErrID):
		return nil, nil // no row can have it
	case len(taken) == 1:
		k.log.Warn("a row cannot be followed; it is tried again", "id", taken[0].id.String(), "error", err)
		k.count(&k.failures, 1)
		return taken, nil
	}
	half := len(taken) / 2
	failed, err = k.showEach(ctx, all, taken[:half])
	if err != nil {
		return taken, err
	}
	more, err := k.showEach(ctx, all, taken[half:])
	return append(failed, more...), err
}

// ofAll reports whether an error is of the whole collection, so that it would be
// of every row alone too.
func ofAll(err error) bool {
	return slices.ContainsFunc([]error{adapters.ErrUnavailable, adapters.ErrRefused, adapters.ErrNotFound, adapters.ErrDimension},
		func(target error) bool { return errors.Is(err, target) })
}

// show reads rows and makes what is derived of them what it should be.
func (k *keeper) show(ctx context.Context, all []*derived, taken []*row) error {
	ids := make([]rerank.ID, len(taken))
	for i, r := range taken {
		ids[i] = r.id
	}
	fields := vectorFields(all)
	have, err := k.can.Fetch.Fetch(ctx, adapters.FetchRequest{
		Collection: k.collection, IDs: ids, Vectors: fields, Payload: hasCompanion(all), Consistency: k.o.Consistency,
	})
	if errors.Is(err, adapters.ErrNotFound) && k.wasDropped() {
		have, err = adapters.Rows{Vectors: make([]rerank.Matrix, len(fields))}, nil
	}
	if err != nil {
		return err
	}
	have, gone, sums := changed(have, taken)
	for _, d := range all {
		r, err := d.encode(ctx, have, have.Vectors[slices.Index(fields, d.route.Vector)])
		if err != nil {
			return err
		}
		unfit, err := d.apply(ctx, r, gone)
		if err != nil {
			return err
		}
		if unfit > 0 {
			k.markUnfit()
		}
	}
	for i, r := range taken {
		r.sum, r.applied = sums[i], true
	}
	return nil
}

func (k *keeper) wasDropped() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dropped
}

func (k *keeper) markUnfit() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unfit = true
}

// seed is of the sums of rows, which never leave the process.
var seed = maphash.MakeSeed()

// changed picks the rows that are not what was applied last, and lists those that
// are gone since; sums are of all rows taken.
func changed(have adapters.Rows, taken []*row) (picked adapters.Rows, gone []rerank.ID, sums []uint64) {
	place := make(map[rerank.ID]int, len(have.IDs))
	for i, id := range have.IDs {
		place[id] = i
	}
	sums = make([]uint64, len(taken))
	var keep []int
	for i, r := range taken {
		at, there := place[r.id]
		if there {
			sums[i] = sumOf(have, at)
		}
		if r.applied && !r.found && sums[i] == r.sum {
			continue
		}
		if there {
			keep = append(keep, at)
		} else {
			gone = append(gone, r.id)
		}
	}
	return pick(have, keep), gone, sums
}

// sumOf is of what a row has; 0 is that of a row that is not there.
func sumOf(rows adapters.Rows, i int) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	var b [4]byte
	for _, m := range rows.Vectors {
		for _, x := range m.Row(i) {
			n := math.Float32bits(x)
			b[0], b[1], b[2], b[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
			_, _ = h.Write(b[:])
		}
	}
	if rows.Payloads != nil {
		_, _ = h.Write(rows.Payloads[i])
	}
	return max(h.Sum64(), 1)
}

func pick(rows adapters.Rows, places []int) adapters.Rows {
	out := adapters.Rows{IDs: make([]rerank.ID, len(places)), Vectors: make([]rerank.Matrix, len(rows.Vectors))}
	for f, m := range rows.Vectors {
		out.Vectors[f] = rerank.NewMatrix(len(places), m.Cols)
	}
	for i, at := range places {
		out.IDs[i] = rows.IDs[at]
		for f, m := range rows.Vectors {
			copy(out.Vectors[f].Row(i), m.Row(at))
		}
		if rows.Payloads != nil {
			out.Payloads = append(out.Payloads, rows.Payloads[at])
		}
	}
	return out
}
