package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
)

// Device scores rows of a route's table elsewhere. It chooses: what it returns is
// scored here again, and an answer is what it had been without a device, to the bit.
// So a device that fails, lags behind the table or is wrong costs time alone. It is
// called concurrently.
type Device interface {
	// Rescore returns the best k of the items of t with those numbers, each named once.
	Rescore(ctx context.Context, t *table.Table, q rerank.Query, items []int32, k int) (Selection, error)
	// Scan returns the best k of the items of t that are alive, and in within where that
	// is not nil.
	Scan(ctx context.Context, t *table.Table, q rerank.Query, within *scan.Bitmap, k int) (Selection, error)
	// Judge is told what became of every answer: nil, it was used; ErrUndecided;
	// ErrContradicted, after which the device is not to be asked again.
	Judge(err error)
}

// What can become of a device's answer, but that it is used.
var (
	// ErrUndecided: what it left out may belong to the answer, as far as its epsilon tells.
	ErrUndecided = errors.New("the device's answer does not decide the order")
	// ErrContradicted: it contradicts the scores of this machine.
	ErrContradicted = errors.New("the device's answer is wrong")
)

// Selection is what a device chose.
type Selection struct {
	Items  []int32 // numbers in the table
	Scores []float32
	// Epsilon: no score is further than this from φ in float32 arithmetic.
	Epsilon float32
	// Next is the best score of the items that are not in the selection, −Inf if there
	// is none.
	Next float32
	// Scored counts the items whose score was computed, NotFinite those of them whose
	// score is not finite.
	Scored, NotFinite int
	// Measured, if not 0: Next rests on MeasuredError, which was seen on so many pairs
	// of a query and an item, and on no bound.
	Measured      int
	MeasuredError float32
}

// samples is how many of the items that a device left out are scored here, to see
// whether it was right to.
const samples = 8

// minOnDevice are the fewest candidates that are worth a call.
const minOnDevice = 256

// chosen is a selection with a sample of what it left out, and their scores here.
type chosen struct {
	Selection
	items  []int32 // the selection's, then the sample
	scores []float32
	// unproved: the answer may rest on a measured error.
	unproved bool
}

// wanted is the number of items to ask a device for, so that n are certain in spite
// of its rounding.
func wanted(n int) int { return n + max(n/2, 16) }

// halfOf leaves half of the time that is left to the device: without its answer this
// machine scores in the other half.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// scoreOnDevice returns the scores of what a device leaves of the batches, or none
// where this machine has to score them all.
func (s *search) scoreOnDevice(ctx context.Context, batches []batch) ([]batch, [][]float32, error) {
	i := slices.IndexFunc(batches, func(b batch) bool { return b.numbers != nil }) // one at most is the table's
	if s.device == nil || i < 0 {
		return nil, nil, nil
	}
	few, c, ok := s.rescoreOnDevice(ctx, batches[i])
	if !ok {
		return nil, nil, nil
	}
	left := len(batches[i].ids) - len(few.ids)
	batches = slices.Clone(batches)
	batches[i] = few
	scores, err := s.scoreHere(ctx, batches)
	if err != nil {
		return nil, nil, err
	}
	if c.scores = scores[i]; !s.decides(ctx, c, s.rough.keep(s.r.K), s.hits, s.rough.spare) {
		return nil, nil, nil
	}
	s.left += left
	s.answer.NotFinite += max(0, c.NotFinite-countNotFinite(c.scores))
	return batches, scores, nil
}

func countNotFinite(scores []float32) (n int) {
	for _, x := range scores {
		if !finite(x) {
			n++
		}
	}
	return n
}

// rescoreOnDevice leaves of a batch what can be among the best, and reports false
// where this machine has to score it all.
func (s *search) rescoreOnDevice(ctx context.Context, b batch) (batch, chosen, bool) {
	k := wanted(s.rough.keep(s.r.K))
	if s.device == nil || len(b.numbers) < max(minOnDevice, 2*k) || s.Table.Grouped() {
		return b, chosen{}, false
	}
	call, cancel := halfOf(ctx)
	defer cancel()
	found, err := s.device.Rescore(call, s.Table, s.r.Query, b.numbers, k)
	if err != nil {
		s.onDevice(ctx, err)
		return b, chosen{}, false
	}
	place := make(map[int32]int, len(b.numbers))
	for i, item := range b.numbers {
		place[item] = i
	}
	c := chosen{Selection: found, items: found.Items}
	for range samples {
		c.sample(b.numbers[rand.IntN(len(b.numbers))])
	}
	few := batch{numbers: c.items}
	for _, item := range c.items {
		at, asked := place[item]
		if !asked {
			s.judge(ctx, fmt.Errorf("%w: it chose item %d, of which it was not asked, or twice", ErrContradicted, item))
			return b, chosen{}, false
		}
		delete(place, item)
		few.ids = append(few.ids, b.ids[at])
	}
	var full bool
	few.items, full = s.Table.FullItems(c.items, &rerank.Items{}) // what a device has
	if !full {
		few.items, few.rounded = s.Table.Items(c.items, &rerank.Items{}), b.rounded
	}
	return few, c, true
}

// sample adds an item that the device left out.
func (c *chosen) sample(item int32) {
	if !slices.Contains(c.items, item) {
		c.items = append(slices.Clip(c.items), item)
	}
}

// decides reports whether the best n of what the device chose, and of others, are
// those of all items, and tells it. The scores of this machine count.
func (s *search) decides(ctx context.Context, c chosen, n int, others ...[]rerank.Scored) bool {
	own := s.enc.Bound(nil, nil).Epsilon
	err := c.contradicted(own)
	if err == nil {
		top := rerank.NewTopK(n)
		for _, rows := range others {
			for _, h := range rows {
				top.Push(h)
			}
		}
		for i, score := range c.scores {
			top.Push(rerank.Scored{ID: rerank.UintID(uint64(c.items[i])), Score: score})
		}
		if least, out := top.Threshold(), c.leftOut(own); !(least > out) {
			err = fmt.Errorf("%w: the last of %d rows scores %v, what was left out up to %v", ErrUndecided, n, least, out)
		}
	}
	s.judge(ctx, err)
	return err == nil
}

// leftOut is the most that an item that was left out can score here. own is the
// kernel's error for the rows that were scored; that of longer rows is the device's.
func (c *chosen) leftOut(own float32) float32 { return c.Next + c.Epsilon + max(own, c.Epsilon) }

// contradicted compares the device's scores with this machine's: it returns
// ErrContradicted where they differ by more than both can be off by, or where an
// item was left out that should not have been, and ErrUndecided where any could be.
func (c *chosen) contradicted(own float32) error {
	off := c.Epsilon + max(own, c.Epsilon)
	if !finite(off) {
		return fmt.Errorf("%w: its scores can be off by %v, those of this machine by %v", ErrUndecided, c.Epsilon, own)
	}
	if c.Measured > 0 && !c.unproved {
		return fmt.Errorf("%w: it rests on an error of %v, which was measured on %d pairs and is no bound", ErrUndecided, c.MeasuredError, c.Measured)
	}
	for i, score := range c.scores {
		switch {
		case i < len(c.Items):
			if d := c.Scores[i] - score; finite(score) != finite(c.Scores[i]) || finite(score) && !(d <= off && -d <= off) {
				return fmt.Errorf("%w: item %d scores %v on it and %v here, which may differ by %v", ErrContradicted, c.items[i], c.Scores[i], score, off)
			}
		case finite(score) && score > c.leftOut(own) && c.Measured > 0: // rounding took more than was seen before
			return fmt.Errorf("%w: item %d scores %v here, which the error of %v that it measured rules out", ErrUndecided, c.items[i], score, c.MeasuredError)
		case finite(score) && score > c.leftOut(own):
			return fmt.Errorf("%w: it left item %d out, which scores %v here, and says that none scores above %v", ErrContradicted, c.items[i], score, c.Next)
		}
	}
	return nil
}

// judge tells the device, and whoever traces, what became of its answer.
func (s *search) judge(ctx context.Context, err error) {
	s.device.Judge(err)
	s.onDevice(ctx, err)
}

func (s *search) onDevice(ctx context.Context, err error) {
	said := "used"
	if err != nil {
		said = err.Error()
	}
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("likeness.device", said))
}

// scanOnDevice answers a scan, and reports false where this machine has to. An answer
// that rests on a measured error is one unless a gap was asked for.
func (s *search) scanOnDevice(ctx context.Context, q scan.Query) (scan.Result, bool) {
	if s.device == nil || s.Table.Grouped() || s.Table.Count() < minOnDevice {
		return scan.Result{}, false
	}
	call, cancel := halfOf(ctx)
	defer cancel()
	found, err := s.device.Scan(call, s.Table, s.r.Query, q.Within, wanted(q.K))
	if err != nil {
		s.onDevice(ctx, err)
		return scan.Result{}, false
	}
	c := chosen{Selection: found, items: found.Items, unproved: s.r.MaxGap == nil}
	for range samples {
		if item := rand.IntN(s.Table.Len()); s.passes(item, q.Within) {
			c.sample(int32(item))
		}
	}
	if err := s.scoreChosen(&c, q.Within); err != nil {
		s.judge(ctx, err)
		return scan.Result{}, false
	}
	if !s.decides(ctx, c, q.K) {
		return scan.Result{}, false
	}
	top := rerank.NewTopK(q.K)
	for i, item := range c.items {
		top.Push(rerank.Scored{ID: s.Table.ID(int(item)), Score: c.scores[i], Index: int(item)})
	}
	r := scan.Result{Top: top.Sorted(), Items: s.Table.Count(), Scored: found.Scored, NotFinite: found.NotFinite}
	if q.Within != nil {
		r.Items = q.Within.Len()
	}
	if found.Measured > 0 {
		s.measured = &rerank.Measured{Pairs: found.Measured, Error: found.MeasuredError}
	}
	return r, true
}

func (s *search) passes(item int, within *scan.Bitmap) bool {
	return s.Table.Alive(item) && (within == nil || within.Has(item))
}

// scoreChosen scores what was chosen here, as a scan would. It returns
// ErrContradicted for items that a scan would not have found.
func (s *search) scoreChosen(c *chosen, within *scan.Bitmap) error {
	seen := make(map[int32]bool, len(c.items))
	for _, item := range c.items {
		if item < 0 || int(item) >= s.Table.Len() || seen[item] || !s.passes(int(item), within) {
			return fmt.Errorf("%w: it chose item %d, which is not there, not asked, or twice", ErrContradicted, item)
		}
		seen[item] = true
	}
	items, ok := s.Table.FullItems(c.items, &rerank.Items{})
	if !ok {
		items = s.Table.Items(c.items, &rerank.Items{})
	}
	c.scores = make([]float32, len(c.items))
	if err := s.enc.Score(c.scores, items); err != nil {
		return fmt.Errorf("%w: its items cannot be scored: %w", ErrUndecided, err)
	}
	return nil
}
