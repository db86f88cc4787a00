package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/disk"
)

const (
	// rest is the least time between two passes that nobody asked for.
	rest = time.Second
	// saveEvery is how much of a pass the end of the process loses at most.
	saveEvery = 5 * time.Second
	// maxFound rows that differ may wait before a pass goes on.
	maxFound = 4 * lookRows
)

// pass compares all rows once, and has those looked at that differ.
type pass struct {
	began time.Time
	// full: all rows are compared; otherwise only derived rows are looked for whose
	// own rows are gone.
	full bool
	// whole: it began at the first row, in this process.
	whole  bool
	all    []*derived
	stage  int
	cursor string
	drift  []Drift // of all
	next   time.Time
	saved  time.Time
	writes []*write                  // that it settles
	asked  []chan<- map[string]Drift // by whom it was asked for
}

// record is what is remembered of a collection between two runs of the process.
type record struct {
	// Clean: the process ended in order, and nothing was missed. While it runs this
	// is false, so that a process that was killed leaves it so.
	Clean bool `json:"clean"`
	// Reconciled is when a pass over all rows last ended, Drift what it found, by route.
	Reconciled time.Time        `json:"reconciled,omitzero"`
	Drift      map[string]Drift `json:"drift,omitempty"`
	// Place is where a pass is.
	Place *place `json:"place,omitempty"`
}

type place struct {
	Stage  int              `json:"stage"`
	Cursor string           `json:"cursor"`
	Drift  map[string]Drift `json:"drift"`
}

// readRecord returns an empty record where there is none: then nothing is known.
func readRecord(path string) (r record, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w; remove the file, and all rows are compared", path, err)
	}
	return r, nil
}

func (r record) write(d disk.Disk, path string) error {
	return atomicfile.WriteOn(d, path, func(w io.Writer) error { return json.NewEncoder(w).Encode(r) })
}

// resume takes up the pass that the last process did not end.
func (k *keeper) resume() {
	if p := k.record.Place; p != nil {
		k.pass = &pass{began: time.Now(), full: true, stage: p.Stage, cursor: p.Cursor}
	}
}

// keepPlace puts the place of the pass that is under way in the record.
func (k *keeper) keepPlace() {
	p := k.pass
	if p != nil && p.all == nil {
		return // it did not get anywhere
	}
	k.record.Place = nil
	if p == nil || !p.full {
		return
	}
	k.record.Place = &place{Stage: p.stage, Cursor: p.cursor, Drift: p.byRoute()}
}

func (p *pass) byRoute() map[string]Drift {
	out := map[string]Drift{}
	for i, d := range p.all {
		out[d.route.Name] = p.drift[i]
	}
	return out
}

// giveUpPass leaves what the pass under way was for to the next one.
func (k *keeper) giveUpPass() {
	if p := k.pass; p != nil {
		k.diffs, k.asked = append(k.diffs, p.writes...), append(k.asked, p.asked...)
		k.pass, k.forward = nil, true
	}
}

// ask is Follower.Reconcile.
func (k *keeper) ask(ctx context.Context) (map[string]Drift, error) {
	answer := make(chan map[string]Drift, 1)
	k.mu.Lock()
	k.asked = append(k.asked, answer)
	k.signal()
	k.mu.Unlock()
	select {
	case drift := <-answer:
		return drift, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-k.done:
		return nil, ErrClosed
	}
}

// nextPass is when the next pass is due.
func (k *keeper) nextPass() (due time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.draining || k.o.OnRequest && k.pass == nil && len(k.asked) == 0 {
		return due, false
	}
	sooner := func(t time.Time) {
		if !ok || t.Before(due) {
			due, ok = t, true
		}
	}
	if k.interval > 0 {
		sooner(k.record.Reconciled.Add(k.interval))
	}
	if k.stale {
		sooner(k.missedAt)
	}
	for _, w := range k.diffs {
		sooner(w.shown)
	}
	if earliest := k.ended.Add(rest); ok && due.Before(earliest) {
		due = earliest
	}
	if k.pass != nil || len(k.asked) > 0 {
		sooner(time.Time{})
	}
	return due, ok
}

// beginPass makes the pass that is due, or goes on with the one under way.
func (k *keeper) beginPass() *pass {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pass
	if p == nil {
		p = &pass{began: time.Now(), whole: true, asked: k.asked}
		due := k.interval > 0 && !p.began.Before(k.record.Reconciled.Add(k.interval))
		p.full = k.stale || len(k.asked) > 0 || k.forward || due
		k.asked = nil
		var rest []*write
		for _, w := range k.diffs {
			if w.shown.After(p.began) {
				rest = append(rest, w)
			} else {
				p.writes = append(p.writes, w)
			}
		}
		if k.diffs = rest; len(rest) == 0 {
			k.forward = false
		}
		k.pass = p
	}
	if p.all == nil {
		p.all, p.drift = k.all, make([]Drift, len(k.all))
		if at := k.record.Place; at != nil && !p.whole {
			for i, d := range p.all {
				p.drift[i] = at.Drift[d.route.Name]
			}
		}
	}
	if !p.full && p.stage == 0 {
		p.stage = 1
	}
	return p
}

// runPass runs a pass to its end, with looks at rows between its pages. After an
// error it goes on from its place.
func (k *keeper) runPass(ctx context.Context) error {
	p := k.beginPass()
	c := comparison{scanner: k.can.Scan, collection: k.collection, all: p.all, dropped: k.wasDropped()}
	stages := c.stages()
	for ; p.stage < len(stages); k.advance(p) {
		err := stages[p.stage].run(ctx, p.cursor, func(found page) error { return k.turn(ctx, p, found) })
		if errors.Is(err, errGivenUp) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", stages[p.stage].name, err)
		}
	}
	for k.foundRows() > 0 {
		if looked, err := k.look(ctx); err != nil {
			return err
		} else if !looked {
			k.wait(ctx, time.Now().Add(again))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return k.endPass(ctx, p)
}

// errGivenUp: a route was replaced, so that the pass means nothing, or the next
// process goes on with it.
var errGivenUp = errors.New("the pass was given up")

func (k *keeper) advance(p *pass) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p.stage++
	p.cursor = ""
}

func (k *keeper) foundRows() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.found
}

// turn takes a page of a pass: it has the rows looked at that differ, and gives
// the others their turn until the next page may be read.
func (k *keeper) turn(ctx context.Context, p *pass, found page) error {
	k.mu.Lock()
	if k.pass != p {
		k.mu.Unlock()
		return errGivenUp
	}
	now := time.Now()
	for _, id := range found.ids {
		if r := k.queue.at(id, now); !r.found {
			r.found = true
			k.found++
		}
	}
	for i := range p.drift {
		p.drift[i].add(found.drift[i])
	}
	p.cursor = found.cursor
	k.rowsRead += int64(found.rows)
	save := now.Sub(p.saved) >= saveEvery
	if save {
		p.saved = now
		k.keepPlace()
	}
	if p.next.Before(now) {
		p.next = now
	}
	if k.rate > 0 {
		p.next = p.next.Add(time.Duration(float64(found.rows) / float64(k.rate) * float64(time.Second)))
	}
	kept, draining := k.record, k.draining
	k.mu.Unlock()
	if draining {
		return errGivenUp
	}
	if save {
		k.save(kept)
	}
	return k.serve(ctx, p.next)
}

// serve looks at rows that are due until the time has come and not too many wait
// that a pass found.
func (k *keeper) serve(ctx context.Context, until time.Time) error {
	for ctx.Err() == nil {
		looked, err := k.look(ctx)
		switch {
		case err != nil:
			return err
		case looked:
		case !until.After(time.Now()) && k.foundRows() < maxFound:
			return nil
		default:
			k.wait(ctx, maxTime(until, time.Now().Add(debounce)))
		}
	}
	return ctx.Err()
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// endPass settles what the pass was for.
func (k *keeper) endPass(ctx context.Context, p *pass) error {
	dropped := k.stillDropped(ctx)
	k.mu.Lock()
	if k.pass != p {
		k.mu.Unlock()
		return nil
	}
	now := time.Now()
	k.pass, k.ended = nil, now
	k.dropped = k.dropped && dropped
	for _, w := range p.writes {
		k.settle(w)
	}
	found := p.byRoute()
	if p.full {
		k.reconciles++
		k.record.Reconciled, k.record.Drift = now, p.byRoute()
	}
	if p.full && p.whole {
		k.stale = k.stale && k.missedAt.After(p.began)
		k.unfit = false
		for _, d := range p.drift {
			k.unfit = k.unfit || d.Unfit > 0
		}
	}
	said := k.say(found, len(p.asked) > 0)
	k.keepPlace()
	kept := k.record
	k.mu.Unlock()
	for _, ask := range p.asked {
		ask <- said
	}
	k.save(kept)
	return nil
}

// save writes a record down. Where it cannot be, the next process compares more.
func (k *keeper) save(r record) {
	err := r.write(k.o.Disk, k.recordPath())
	if err != nil && !k.unsaved {
		k.log.Warn("what is known of the collection cannot be written down; it is tried again with the next comparison", "error", err)
	}
	k.unsaved = err != nil
}

// say adds what a pass found to what nobody was told yet, and returns that; the
// caller holds the lock.
func (k *keeper) say(found map[string]Drift, told bool) map[string]Drift {
	for name, d := range found {
		rows := d.Rows // of the last pass only
		d.add(k.unsaid[name])
		d.Rows, d.Unfit = rows, found[name].Unfit
		found[name] = d
	}
	if k.unsaid = found; told {
		k.unsaid = nil
	}
	return found
}

// stillDropped reports whether there is no such collection.
func (k *keeper) stillDropped(ctx context.Context) bool {
	if !k.wasDropped() {
		return false
	}
	there := errors.New("it is there")
	err := k.can.Scan.Scan(ctx, adapters.ScanRequest{Collection: k.collection, Batch: 1}, func(adapters.Rows, string) error { return there })
	return errors.Is(err, adapters.ErrNotFound)
}
