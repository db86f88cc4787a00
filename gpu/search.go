package gpu

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
)

// firstKeep is the least K' with which a search begins. K' is a power-of-two multiple of
// firstKeep and at least 2·K.
const firstKeep = 64

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

	begun  bool // a step has been launched
	stage  stage
	keep   int // K'
	rough  Survivors
	sample sample

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
	s.keep = s.initialKeep()
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

// initialKeep returns the K' with which the search begins.
func (s *search) initialKeep() int {
	keep := firstKeep
	for keep < 2*s.k {
		keep *= 2
	}
	return keep
}

// skipBounds chooses the step for a search whose bound does not close: rely on the measured
// error if it is known, measure it first if enough pairs are missing, or score all rows in
// float32.
func (s *search) skipBounds() {
	s.keep = s.initialKeep()
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
	j := Job{Table: s.table.onMachine, Query: s.query, Rows: s.rows, Bitmap: s.bitmap, Keep: s.keep}
	switch s.stage {
	case bounded:
		j.Limits = *s.limits
	case approximate:
		j.Way = Approximate
	case exactAfterBounded, exactAfterApproximate:
		j.Way, j.Rows, j.Bitmap, j.Keep = Exact, s.rough.Rows, nil, min(s.k+1, len(s.rough.Rows))
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
	if err := found.check(s.job().Keep); err != nil {
		s.finish(device.Best{}, err)
		return false
	}
	switch s.stage {
	case bounded, approximate:
		s.rough = found
		if len(found.Rows) == 0 {
			return s.answer(found, found, 0)
		}
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

// certify checks that no row outside the kept ones can belong to the answer: the last exact
// score (of the row behind the answer, if there is one) must exceed the best bound of the
// other rows. Otherwise it chooses the next step.
func (s *search) certify(found Survivors) bool {
	least, out := s.lastScore(found)-s.exactError, float64(s.rough.Next)
	if s.rough.Next == none32 || least > out {
		return s.answer(found, s.rough, 0)
	}
	if s.keepMore(out - least) {
		s.stage = bounded
		return true
	}
	s.table.skipBounds.Store(looseFor)
	s.skipBounds()
	return true
}

// trust is certify with the measured error in place of a bound.
func (s *search) trust(found Survivors) bool {
	least, out := s.lastScore(found)-s.exactError, float64(s.rough.Next)+s.table.error()
	switch {
	case s.rough.Next == none32:
		return s.answer(found, s.rough, 0)
	case least > out:
		return s.answer(found, s.rough, s.table.pairs())
	case s.keepMore(out - least):
		s.stage = approximate
	default:
		s.stage = exactAll
	}
	return true
}

// keepMore raises K' enough to lower the best bound outside by about `by`. It assumes that
// each doubling lowers the bound as much as the last one did. It reports false if scoring
// all rows is cheaper.
func (s *search) keepMore(by float64) bool {
	n := len(s.rough.Scores)
	lastGain := float64(s.rough.Scores[n/2]) - float64(s.rough.Next)
	for doublings := by / lastGain; 2*s.keep <= s.table.mostKept && 4*s.keep <= s.count; {
		s.keep *= 2
		if doublings--; doublings <= 0 {
			return true
		}
	}
	return false
}

// looseFor is how many further searches of a table skip the bounds after a bound did not
// close.
const looseFor = 31

// lastScore returns the score that every row outside must stay below: the score of row K+1,
// if it is finite.
func (s *search) lastScore(found Survivors) float64 {
	if n := len(found.Scores); n == s.k+1 && finite(found.Scores[n-1]) {
		return float64(found.Scores[n-1])
	}
	return math.Inf(-1)
}

// answer ends the search with the first K rows of the exact scores.
func (s *search) answer(found, counted Survivors, pairs int) bool {
	b := device.Best{
		Rows: found.Rows, Scores: found.Scores, Next: none32, Epsilon: roundUp(s.exactError),
		Scored: counted.Scored, NotFinite: counted.NotFinite,
	}
	if pairs > 0 {
		b.Measured, b.MeasuredError = pairs, roundUp(s.table.error())
	}
	if len(b.Rows) > s.k {
		if next := b.Scores[s.k]; finite(next) {
			b.Next = next
		}
		b.Rows, b.Scores = b.Rows[:s.k], b.Scores[:s.k]
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

// check verifies an answer of the machine: at most keep rows, each once, in order, with
// valid numbers.
func (f *Survivors) check(keep int) error {
	b := device.Best{Rows: f.Rows, Scores: f.Scores, Next: f.Next, Scored: f.Scored, NotFinite: f.NotFinite}
	if err := b.Check(keep); err != nil {
		return fmt.Errorf("the kernels' answer: %w", err)
	}
	seen := slices.Clone(f.Rows)
	slices.Sort(seen)
	for i := 1; i < len(seen); i++ {
		if seen[i] == seen[i-1] {
			return fmt.Errorf("%w: the kernels kept row %d twice", device.ErrFailed, seen[i])
		}
	}
	return nil
}

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
		return s.best, s.err
	case <-ctx.Done(): // the queue drops it before its next step
		return device.Best{}, ctx.Err()
	}
}
