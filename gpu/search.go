package gpu

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
)

// firstKeep is the least K' with which a search begins. K' is a power-of-two multiple of
// firstKeep and at least 2·K.
const firstKeep = 64

// firstList is the least number of rows that a scan keeps with their bounds. If the best K'
// of them do not decide the answer, more of them are scored, which is cheaper than a second
// scan.
const firstList = 512

// search is the state of one query on its way through the steps.
type search struct {
	ctx        context.Context //nolint:containedctx // of the call that waits for it
	deadline   time.Time
	table      *table
	query      rerank.Operands
	k          int
	rows       []uint32        // nil: all rows
	bitmap     []uint32        // nil: all rows that are alive
	count      int             // approximate number of rows to score
	limits     *kernels.Limits // for Bounded; nil if there are no limits
	exactError float64         // ε of the way Exact

	begun   bool // a step has been launched
	stage   stage
	keep    int       // K', the number of rows that are scored in float32 at first
	list    int       // number of rows that bounded or approximate keeps, at least K'
	rough   Survivors // the rows that bounded or approximate kept
	scored  int       // the first rows of rough that are scored in float32
	scoring int       // the first rows of rough that are scored after the next exact step
	exact   Survivors // the best K+1 of the scored rows
	least   float64   // every row of the answer scores at least that; −Inf at first
	sample  sample

	settled atomic.Bool
	done    chan struct{}
	best    device.Best
	err     error
}

// stage is the step that is launched next.
type stage int

const (
	bounded               stage = iota
	approximate                 // used if no bound closes
	exactAfterBounded           // exact, for the rows that bounded kept
	exactAfterApproximate       // exact, for the rows that approximate kept
	exactAll                    // exact, for all rows
	sampleApproximate           // approximate, for sampled rows, to measure the error
	sampleExact                 // exact, for the same rows
)

// begin chooses the first step. All rows are scored in float32 at once if rounding would
// not save anything: a few named rows of an inner product are read once either way.
func (s *search) begin() {
	s.resetKeep()
	s.least = math.Inf(-1)
	switch {
	case !s.table.canApproximate(), s.count <= 2*s.keep, s.keep > s.table.mostKept:
		s.stage = exactAll
	case s.rows != nil && s.table.model.network.InnerProduct():
		s.stage = exactAll
	case s.limits == nil:
		s.skipBounds()
	case s.table.skipBounds.Load() > 0:
		s.table.skipBounds.Add(-1)
		s.skipBounds()
	default:
		s.stage = bounded
	}
}

// resetKeep sets keep and list to the values with which a search begins.
func (s *search) resetKeep() {
	s.keep, s.list = FirstKeep(s.k, s.rows != nil)
	s.list = max(s.keep, min(s.list, s.table.mostKept))
}

// FirstKeep returns how many rows the first step of a search for k rows scores in float32 (K′ of package bound), and how many rows
// it lists with their bounds. named says whether the query names the rows to score.
func FirstKeep(k int, named bool) (keep, list int) {
	keep = firstKeep
	for keep < 2*k {
		keep *= 2
	}
	if named {
		return keep, keep
	}
	return keep, max(keep, firstList)
}

// skipBounds chooses the step for a search whose bound does not close: rely on the measured
// error if it is known, measure it first if enough pairs are missing, or score all rows in
// float32.
func (s *search) skipBounds() {
	s.resetKeep()
	switch {
	case s.table.needsPairs():
		s.stage, s.sample.rows = sampleApproximate, s.table.sampleRows()
	case math.IsInf(s.table.error(), 1):
		s.stage = exactAll
	default:
		s.stage = approximate
	}
}

func (s *search) group() group {
	j := s.job()
	return group{s.table, j.Way, j.Rows != nil}
}

// job returns the job of the next step.
func (s *search) job() Job {
	j := Job{Table: s.table.onMachine, Query: s.query, Rows: s.rows, Bitmap: s.bitmap, Keep: s.list}
	switch s.stage {
	case bounded:
		j.Limits = *s.limits
	case approximate:
		j.Way = Approximate
	case exactAfterBounded, exactAfterApproximate:
		j.Way, j.Rows, j.Bitmap = Exact, s.rough.Rows[s.scored:s.scoring], nil
		j.Keep = min(s.k+1, len(j.Rows))
	case exactAll:
		j.Way, j.Keep = Exact, s.k+1
	case sampleApproximate:
		j.Way, j.Rows, j.Bitmap, j.Keep = Approximate, s.sample.rows, nil, len(s.sample.rows)
	case sampleExact:
		j.Way, j.Rows, j.Bitmap, j.Keep = Exact, s.sample.rows, nil, len(s.sample.rows)
	}
	return j
}

// step processes the answer to a job and reports whether another step follows.
func (s *search) step(found Survivors) bool {
	s.begun = true
	if err := found.check(s.job().Keep, s.table.rows, &s.table.seen); err != nil {
		s.finish(device.Best{}, err)
		return false
	}
	switch s.stage {
	case bounded, approximate:
		if len(found.Rows) == 0 {
			return s.answer(found, found, 0)
		}
		s.rough, s.exact, s.scored = found, Survivors{Next: none32}, 0
		s.scoring = s.bestOfList()
		s.stage += exactAfterBounded - bounded
		return true
	case exactAfterBounded:
		return s.certify(found)
	case exactAfterApproximate:
		return s.trust(found)
	case sampleApproximate:
		s.sample.rough, s.stage = found, sampleExact
		return true
	case sampleExact:
		s.table.addPairs(s.sample.rough, found)
		s.stage = exactAll
		if s.table.error() < math.Inf(1) {
			s.stage = approximate
		}
		return true
	case exactAll:
	}
	return s.answer(found, found, 0)
}

// bestOfList moves the rows to score first to the front of the list, and returns how many
// they are: the K' best or, after an earlier list, all that can belong to the answer.
func (s *search) bestOfList() int {
	n := min(s.keep, len(s.rough.Rows))
	if !math.IsInf(s.least, -1) {
		least := s.least
		if s.stage == approximate {
			least -= s.table.error()
		}
		if more := s.rough.atLeast(0, least); more > n {
			return more
		}
	}
	s.rough.BestFirst(n)
	return n
}

// certify checks that no row outside the scored ones can belong to the answer: the last
// exact score (of the row behind the answer, if there is one) must exceed the best bound of
// the other rows. Otherwise it chooses the next step.
func (s *search) certify(found Survivors) bool {
	s.merge(found)
	out := s.bestOutside()
	switch {
	case math.IsInf(out, -1) || s.least > out:
		return s.answer(s.exact, s.rough, 0)
	case s.moreOfList(s.least):
	case s.keepMore(out - s.least):
		s.stage = bounded
	default:
		s.table.skipBounds.Store(looseFor)
		s.skipBounds()
	}
	return true
}

// trust is certify with the measured error in place of a bound.
func (s *search) trust(found Survivors) bool {
	s.merge(found)
	out, off := s.bestOutside(), s.table.error()
	switch {
	case math.IsInf(out, -1):
		return s.answer(s.exact, s.rough, 0)
	case s.least > out+off:
		return s.answer(s.exact, s.rough, s.table.pairs())
	case s.moreOfList(s.least - off):
	case s.keepMore(out + off - s.least):
		s.stage = approximate
	default:
		s.stage = exactAll
	}
	return true
}

// merge adds the exact scores of some rows of the list.
func (s *search) merge(found Survivors) {
	if s.scored == 0 {
		s.exact = found
	} else {
		s.exact.add(found)
		s.exact.Cut(s.k + 1)
	}
	s.scored = s.scoring
	if len(s.exact.Scores) == s.k+1 {
		s.least = max(s.least, float64(s.exact.lowest())-s.exactError)
	}
}

// bestOutside returns the best bound, or approximate score, of all rows that are not scored
// in float32, or −Inf.
func (s *search) bestOutside() float64 {
	return float64(max(s.rough.Next, s.rough.highest(s.scored)))
}

// moreOfList chooses the rows of the list that are not scored yet and whose bound is at
// least `least`. It reports false if there are none.
func (s *search) moreOfList(least float64) bool {
	n := s.rough.atLeast(s.scored, least)
	s.scoring = s.scored + n
	return n > 0
}

// keepMore makes the list long enough to lower the best bound outside by about `by`. It
// assumes that each doubling lowers the bound as much as the last one did. It reports false
// if scoring all rows is cheaper.
func (s *search) keepMore(by float64) bool {
	bounds := slices.Sorted(slices.Values(s.rough.Scores))
	lastGain := float64(bounds[(len(bounds)-1)/2]) - float64(s.rough.Next)
	for doublings := by / lastGain; 2*s.list <= s.table.mostKept && 4*s.list <= s.count; {
		s.list *= 2
		if doublings--; doublings <= 0 {
			return true
		}
	}
	return false
}

// looseFor is how many further searches of a table skip the bounds after a bound did not
// close.
const looseFor = 31

// answer ends the search with the K best rows of the exact scores, in no order.
func (s *search) answer(found, counted Survivors, pairs int) bool {
	found.Next = none32 // the answer tells the score of row K+1 or nothing
	found.Cut(s.k)
	b := device.Best{
		Rows: found.Rows, Scores: found.Scores, Next: found.Next, Epsilon: roundUp(s.exactError),
		Scored: counted.Scored, NotFinite: counted.NotFinite,
	}
	if pairs > 0 {
		b.Measured, b.MeasuredError = pairs, roundUp(s.table.error())
	}
	s.finish(b, nil)
	return false
}

// roundUp returns a float32 that is not below x. If x is too large or NaN, it returns the
// greatest float32.
func roundUp(x float64) float32 {
	f := float32(x)
	if !(x < math.MaxFloat32) {
		return math.MaxFloat32
	}
	if float64(f) < x {
		return math.Nextafter32(f, math.MaxFloat32)
	}
	return f
}

// finish ends the search. Only the first call has an effect.
func (s *search) finish(b device.Best, err error) {
	if s.settled.CompareAndSwap(false, true) {
		s.best, s.err = b, err
		close(s.done)
	}
}

var none32 = float32(math.Inf(-1))

func finite(x float32) bool { return x-x == 0 }

// Rescore implements device.Device.
func (d *Device) Rescore(ctx context.Context, a device.Ask, rows []uint32) (device.Best, error) {
	s, err := d.newSearch(ctx, a)
	if err != nil {
		return device.Best{}, err
	}
	defer s.table.leave()
	if err := s.table.checkRows(rows); err != nil {
		return device.Best{}, err
	}
	s.rows, s.count = rows, len(rows)
	return d.wait(ctx, s)
}

// Scan implements device.Device.
func (d *Device) Scan(ctx context.Context, a device.Ask, bitmap []byte) (device.Best, error) {
	s, err := d.newSearch(ctx, a)
	if err != nil {
		return device.Best{}, err
	}
	defer s.table.leave()
	if s.bitmap, s.count, err = s.table.scanRows(bitmap); err != nil {
		return device.Best{}, err
	}
	return d.wait(ctx, s)
}

// newSearch checks the parts of an Ask and encodes its query. The caller must call leave on
// the search's table.
func (d *Device) newSearch(ctx context.Context, a device.Ask) (*search, error) {
	m, t, err := d.enter(a)
	if err != nil {
		return nil, err
	}
	enc, err := m.Encode(a.Query)
	if err != nil {
		t.leave()
		return nil, fmt.Errorf("%w: %w", device.ErrRequest, err)
	}
	o := rerank.EncodedAbilitiesOf(enc).Operate
	if o == nil {
		t.leave()
		return nil, fmt.Errorf("%w: model %s encodes queries that no device can score", device.ErrRequest, a.Model)
	}
	s := &search{ctx: ctx, table: t, query: o.Operands(), k: a.K, done: make(chan struct{})}
	s.deadline, _ = ctx.Deadline()
	s.exactError = m.bound.Exact(&s.query, &t.loss)
	if t.canApproximate() {
		if limits, ok := m.bound.Limits(&s.query, &t.loss); ok {
			s.limits = &limits
		}
	}
	return s, nil
}

// wait enqueues a search and returns its answer, or the error of its context. In that case
// a launched step continues in the background.
func (d *Device) wait(ctx context.Context, s *search) (device.Best, error) {
	if s.count == 0 {
		return device.Best{Next: none32, Epsilon: roundUp(s.exactError)}, ctx.Err()
	}
	s.begin()
	if err := d.queue.add(s); err != nil {
		return device.Best{}, err
	}
	select {
	case <-s.done:
		sort.Sort(&Survivors{Rows: s.best.Rows, Scores: s.best.Scores}) // here, and not on the owner's thread, which others wait for
		return s.best, s.err
	case <-ctx.Done(): // the queue drops it before its next step
		return device.Best{}, ctx.Err()
	}
}
