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

// frozen knows when collections were written to last of which something was
// derived that cannot follow: a table that is not live, or whatever there is
// where nothing is remembered, an item is several rows, or a ranker has to be asked
// for it. Such a thing shows no
// write that came after it was begun to be built. A write only sets a time; a
// goroutine makes it last.
type frozen struct {
	disk   disk.Disk
	dir    string // empty: nothing is remembered
	log    *slog.Logger
	doubts func(collection string) *doubts
	wake   chan struct{}
	done   chan struct{} // closed when the goroutine has ended; nil: it was not started

	mu     sync.RWMutex
	clocks map[string]*clock // by collection
	all    map[string]*old   // by route, those that are served
}

// clock is when a collection was written to last.
type clock struct {
	last atomic.Int64 // nanoseconds of Unix time; 0: never, as far as is known
	wake chan struct{}
	path string // empty: nothing is remembered
	// doubts are the writes on their way.
	doubts *doubts

	kept written // what the file has; the goroutine's
}

// old is the Freshness of a route that has something that cannot follow.
type old struct {
	clock      *clock
	collection string
	built      int64           // when that was begun to be built; 0: not known
	followed   route.Freshness // of what can follow beside it; nil: there is nothing
	remedy     string
	since      atomic.Int64 // when it was first seen to be outlived; 0: it was not
}

// Fresh implements route.Freshness.
func (o *old) Fresh() bool {
	fresh, doubt := o.Look()
	return fresh && doubt == nil
}

// Look implements route.Freshness. It looks for doubtful writes first: one that
// turns out to be carried out in between has set the clock by then.
func (o *old) Look() (fresh bool, doubt route.Doubt) {
	fresh, doubt = look(true, o.clock.doubts)
	if !fresh || o.outlived() {
		return false, nil
	}
	if o.followed == nil {
		return true, doubt
	}
	fresh, later := o.followed.Look() // of the same doubts, and later
	if later != nil {
		doubt = later
	}
	return fresh, doubt
}

// outlived: a write was seen since it was built. The time of a table is cut to
// seconds, so that one of that second counts.
func (o *old) outlived() bool {
	last := o.clock.last.Load()
	return last != 0 && last >= o.built
}

func newFrozen(d disk.Disk, dir string, log *slog.Logger, of func(collection string) *doubts) *frozen {
	return &frozen{disk: d, dir: dir, log: log, doubts: of, wake: make(chan struct{}, 1), clocks: map[string]*clock{}, all: map[string]*old{}}
}

// clock is that of a collection; nil: nothing of it is known that cannot follow.
func (f *frozen) clock(collection string) *clock {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.clocks[collection]
}

// written notes a write; a nil clock permits it.
func (c *clock) written() {
	if c == nil {
		return
	}
	c.last.Store(time.Now().UnixNano())
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// of is the Freshness of what a route has that cannot follow, nil if there is no
// such thing. From now on writes to its collection are noted.
func (f *frozen) of(r *route.Route, followed bool) (*old, error) {
	if !Derives(r) || followed && r.Table == nil {
		return nil, nil //nolint:nilnil // all that it has can follow
	}
	c, err := f.open(r.Collection)
	if err != nil {
		return nil, err
	}
	o := &old{clock: c, collection: r.Collection, built: built(r), remedy: "run `likeness index` again"}
	if r.Table != nil && fromRows(r) {
		o.remedy += ", or set table_live and state_dir"
	} else if f.dir == "" && Followed(r) {
		o.remedy += ", and set state_dir"
	}
	return o, nil
}

// built is when a route's table was begun to be built. A companion has no such
// time: where one cannot follow, every write that is known of counts.
func built(r *route.Route) int64 {
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

// open is the clock of a collection, with what is remembered.
func (f *frozen) open(collection string) (*clock, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clocks[collection]; c != nil {
		return c, nil
	}
	c := &clock{wake: f.wake, doubts: f.doubts(collection)}
	if f.dir != "" {
		c.path = filepath.Join(statedir.Collection(f.dir, collection), "written.json")
		var err error
		if c.kept, err = readWritten(c.path); err != nil {
			return nil, err
		}
		c.last.Store(c.kept.nanoseconds())
	}
	f.clocks[collection] = c
	return c, nil
}

// adopt puts what a route has in the place of what it had.
func (f *frozen) adopt(r *route.Route, fresh route.Freshness) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, r.Name)
	if o, ok := fresh.(*old); ok {
		f.all[r.Name] = o
	}
	f.signal()
}

func (f *frozen) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *frozen) start(ctx context.Context) {
	f.done = make(chan struct{})
	go func() {
		defer close(f.done)
		said := false
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
				return
			case <-f.wake:
			}
			f.tell()
			err := f.keep(false)
			if err != nil && !said {
				f.log.Warn("when a collection was written to last is not remembered; it is tried again", "error", err)
			}
			if said = err != nil; said {
				f.signal()
			}
			sleep(ctx, rest)
		}
	}()
}

// tell says once of every route that it was outlived.
func (f *frozen) tell() {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for name, o := range f.all {
		if o.outlived() && o.since.CompareAndSwap(0, o.clock.last.Load()) {
			f.log.Warn("the collection was written to, and what was derived from it cannot follow; no answer from that is exact or calibrated",
				"route", name, "collection", o.collection, "remedy", o.remedy)
		}
	}
}

// keep makes the times last; last says that nothing is kept after it.
func (f *frozen) keep(last bool) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var failed []error
	for _, c := range f.clocks {
		if c.path != "" {
			failed = append(failed, c.keep(f.disk, last))
		}
	}
	return errors.Join(failed...)
}

// keep makes the clock last: the time of the last write, and whether one is on its
// way that the database does not refuse at once; the last call counts every one that
// is on its way. If the process ends before that one does, it counts as a write.
func (c *clock) keep(d disk.Disk, last bool) error {
	var now written
	if at := c.last.Load(); at != 0 {
		now.Last = time.Unix(0, at).UTC()
	}
	if c.doubts.hasLate() || last && !c.doubts.none() {
		if now.OnItsWay = c.kept.OnItsWay; now.OnItsWay.IsZero() {
			now.OnItsWay = time.Now().UTC()
		}
	}
	if now == c.kept {
		return nil
	}
	err := now.write(d, c.path)
	if err == nil {
		c.kept = now
	}
	return err
}

// status adds what cannot follow to the status of what does.
func (f *frozen) status(all []Status) []Status {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for rt, o := range f.all {
		i := slices.IndexFunc(all, func(s Status) bool { return s.Route == rt })
		if i < 0 {
			i, all = len(all), append(all, Status{Route: rt})
		}
		if !o.outlived() {
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

// close ends after the goroutine has.
func (f *frozen) close() error {
	if f.done != nil {
		<-f.done
	}
	return f.keep(true)
}

// written is what is remembered of a collection.
type written struct {
	Last time.Time `json:"last,omitzero"`
	// OnItsWay is since when a write is on its way of which the database has not said
	// what became of it.
	OnItsWay time.Time `json:"on_its_way,omitzero"`
}

// nanoseconds is the time of the last write in nanoseconds of Unix time, 0 if there
// was none.
func (w written) nanoseconds() int64 {
	last := w.Last
	if w.OnItsWay.After(last) {
		last = w.OnItsWay
	}
	if last.IsZero() {
		return 0
	}
	return last.UnixNano()
}

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

// write replaces the file, and removes it where nothing is to be remembered.
func (w written) write(d disk.Disk, path string) error {
	if w == (written{}) {
		if err := d.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteOn(d, path, func(to io.Writer) error { return json.NewEncoder(to).Encode(w) })
}
