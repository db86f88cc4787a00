package score

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
)

// Device scores rows of a route's table on another processor, such as a GPU. It only chooses rows:
// this machine scores the chosen rows again, so that a device changes no bit of an answer. A device
// that fails, lags behind the table or is wrong costs only time. It is called concurrently.
type Device interface {
	// Rescore returns the best k of the items of t with the given numbers, each named once.
	Rescore(ctx context.Context, t *table.Table, q rerank.Query, items []int32, k int) (Selection, error)
	// Scan returns the best k of the live items of t, or only of the items within if it is not nil.
	Scan(ctx context.Context, t *table.Table, q rerank.Query, within *scan.Bitmap, k int) (Selection, error)
	// Judge is told what became of every Selection: nil if it was used, ErrUndecided, or
	// ErrContradicted, after which the device must not be asked again.
	Judge(err error)
}

// Verdicts on a Selection that was not used.
var (
	// ErrUndecided: given the selection's Epsilon, an item that it left out may belong to the
	// answer.
	ErrUndecided = errors.New("the device's answer does not decide the order")
	// ErrContradicted: the selection contradicts this machine's scores.
	ErrContradicted = errors.New("the device's answer is wrong")
)

// Selection is a device's choice of rows.
type Selection struct {
	Items  []int32 // numbers in the table
	Scores []float32
	// Epsilon bounds how far a score of the device is from φ.
	Epsilon float32
	// Next is the best score of the items outside the selection; −Inf if there are none.
	Next float32
	// Scored counts the items whose score was computed. NotFinite counts those among them whose
	// score is not finite.
	Scored, NotFinite int
	// Measured, if not 0, is the number of (query, item) pairs on which MeasuredError was seen.
	// Next then rests on that measured error instead of a bound.
	Measured      int
	MeasuredError float32
}

// samples is the number of left-out items that this machine scores to check the device.
const samples = 8

// minOnDevice is the smallest number of candidates for which the device is asked.
const minOnDevice = 256

// checked is a selection together with a sample of the items that it left out, all scored on this
// machine.
type checked struct {
	Selection
	items  []int32 // the selection's items, then the sample
	scores []float32
	// unproved: the answer may rest on a measured error.
	unproved bool
}

// withSpare returns how many items to ask a device for: n, and half of n but at least 16 more, so that its rounding
// rarely leaves the first n undecided.
func withSpare(n int) int { return n + max(n/2, 16) }

// onDevice lets a device choose among the candidates from the table, and scores its choice on this
// machine. It returns the batches that are left and their scores, or no scores if this machine has
// to score everything.
func (s *Scorer) onDevice(ctx context.Context, q Query, batches []Batch, f *Found) ([]Batch, [][]float32, error) {
	i := slices.IndexFunc(batches, func(b Batch) bool { return b.Numbers != nil }) // at most one batch comes from the table
	if s.Device == nil || i < 0 {
		return nil, nil, nil
	}
	few, c, ok := s.rescoreOnDevice(ctx, q, batches[i], f)
	if !ok {
		return nil, nil, nil
	}
	spared := len(batches[i].IDs) - len(few.IDs)
	batches = slices.Clone(batches)
	batches[i] = few
	scores, err := s.scoreHere(ctx, q.Encoded, batches)
	if err != nil {
		return nil, nil, err
	}
	if c.scores = scores[i]; !s.decides(ctx, q, c, f.rounding.keep(q.K), f.Hits, f.rounding.spare) {
		return nil, nil, nil
	}
	f.Spared += spared
	f.NotFinite += max(0, c.NotFinite-countNotFinite(c.scores))
	return batches, scores, nil
}

func countNotFinite(scores []float32) (n int) {
	for _, x := range scores {
		if !rerank.IsFinite(x) {
			n++
		}
	}
	return n
}

// rescoreOnDevice returns the candidates of a batch that a device chose, and a sample of the
// others. ok is false if this machine has to score the whole batch.
func (s *Scorer) rescoreOnDevice(ctx context.Context, q Query, b Batch, f *Found) (Batch, checked, bool) {
	k := withSpare(f.rounding.keep(q.K))
	if len(b.Numbers) < max(minOnDevice, 2*k) || s.Table.Grouped() {
		return b, checked{}, false
	}
	call, cancel := halfOf(ctx)
	defer cancel()
	selection, err := s.Device.Rescore(call, s.Table, q.Query, b.Numbers, k)
	if err != nil {
		traceVerdict(ctx, err)
		return b, checked{}, false
	}
	place := make(map[int32]int, len(b.Numbers))
	for i, item := range b.Numbers {
		place[item] = i
	}
	c := checked{Selection: selection, items: selection.Items}
	for range samples {
		c.addSample(b.Numbers[rand.IntN(len(b.Numbers))])
	}
	var few Batch
	for _, item := range c.items {
		at, asked := place[item]
		if !asked {
			s.judge(ctx, fmt.Errorf("%w: it chose item %d, which it was not asked about, or chose it twice", ErrContradicted, item))
			return b, checked{}, false
		}
		delete(place, item)
		few.IDs = append(few.IDs, b.IDs[at])
	}
	var full bool
	few.Items, full = s.Table.FullItems(c.items, &rerank.Items{}) // a device holds these rows too
	if !full {
		few.Items, few.Rounded = s.Table.Items(c.items, &rerank.Items{}), b.Rounded
	}
	return few, c, true
}

// addSample adds an item unless it is already there.
func (c *checked) addSample(item int32) {
	if !slices.Contains(c.items, item) {
		c.items = append(slices.Clip(c.items), item)
	}
}

// decides reports whether the best n of all items are certainly among the device's choice c and the candidates in
// others, by this machine's scores. It tells Judge the verdict: nil, ErrUndecided or ErrContradicted.
func (s *Scorer) decides(ctx context.Context, q Query, c checked, n int, others ...[]rerank.Scored) bool {
	own := q.Encoded.Bound(nil, nil).Epsilon
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
		if least, out := top.Threshold(), c.maxLeftOut(own); !(least > out) {
			err = fmt.Errorf("%w: the last of %d rows scores %v, rows that were left out up to %v", ErrUndecided, n, least, out)
		}
	}
	s.judge(ctx, err)
	return err == nil
}

// maxLeftOut returns the highest score that a left-out item can have on this machine. own is the
// kernel's error bound for the rows that were scored; for longer rows the device's bound holds.
func (c *checked) maxLeftOut(own float32) float32 { return c.Next + c.Epsilon + max(own, c.Epsilon) }

// contradicted compares the device's scores with this machine's. It returns ErrContradicted if they
// differ by more than the two error bounds together, or if an item was left out that belongs to the
// selection. It returns ErrUndecided if the scores have no error bound.
func (c *checked) contradicted(own float32) error {
	off := c.Epsilon + max(own, c.Epsilon)
	if !rerank.IsFinite(off) {
		return fmt.Errorf("%w: its scores can be off by %v, those of this machine by %v", ErrUndecided, c.Epsilon, own)
	}
	if c.Measured > 0 && !c.unproved {
		return fmt.Errorf("%w: it rests on an error of %v, which was measured on %d pairs and is no bound", ErrUndecided, c.MeasuredError, c.Measured)
	}
	for i, score := range c.scores {
		switch {
		case i < len(c.Items):
			if d := c.Scores[i] - score; rerank.IsFinite(score) != rerank.IsFinite(c.Scores[i]) || rerank.IsFinite(score) && !(d <= off && -d <= off) {
				return fmt.Errorf("%w: item %d scores %v on it and %v here, which may differ by %v", ErrContradicted, c.items[i], c.Scores[i], score, off)
			}
		case rerank.IsFinite(score) && score > c.maxLeftOut(own) && c.Measured > 0: // rounding moved a score by more than was measured before
			return fmt.Errorf("%w: item %d scores %v here, which the error of %v that it measured rules out", ErrUndecided, c.items[i], score, c.MeasuredError)
		case rerank.IsFinite(score) && score > c.maxLeftOut(own):
			return fmt.Errorf("%w: it left item %d out, which scores %v here, and says that none scores above %v", ErrContradicted, c.items[i], score, c.Next)
		}
	}
	return nil
}

// judge tells the device and the trace what became of its selection.
func (s *Scorer) judge(ctx context.Context, err error) {
	s.Device.Judge(err)
	traceVerdict(ctx, err)
}

func traceVerdict(ctx context.Context, err error) {
	verdict := "used"
	if err != nil {
		verdict = err.Error()
	}
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("likeness.device", verdict))
}

// scanOnDevice lets a device answer a scan. ok is false if this machine has to. The answer may rest
// on a measured error, unless the search asks for a proof.
func (s *Scorer) scanOnDevice(ctx context.Context, q Query, request scan.Query, f *Found) (scan.Result, bool) {
	if s.Device == nil || s.Table.Grouped() || s.Table.Count() < minOnDevice {
		return scan.Result{}, false
	}
	call, cancel := halfOf(ctx)
	defer cancel()
	selection, err := s.Device.Scan(call, s.Table, q.Query, request.Within, withSpare(request.K))
	if err != nil {
		traceVerdict(ctx, err)
		return scan.Result{}, false
	}
	c := checked{Selection: selection, items: selection.Items, unproved: !q.Proof}
	for range samples {
		if item := rand.IntN(s.Table.Len()); s.isScanned(item, request.Within) {
			c.addSample(int32(item))
		}
	}
	if err := s.scoreChecked(&c, q, request.Within); err != nil {
		s.judge(ctx, err)
		return scan.Result{}, false
	}
	if !s.decides(ctx, q, c, request.K) {
		return scan.Result{}, false
	}
	top := rerank.NewTopK(request.K)
	for i, item := range c.items {
		top.Push(rerank.Scored{ID: s.Table.ID(int(item)), Score: c.scores[i], Index: int(item)})
	}
	r := scan.Result{Top: top.Sorted(), Items: s.Table.Count(), Scored: selection.Scored, NotFinite: selection.NotFinite}
	if request.Within != nil {
		r.Items = request.Within.Len()
	}
	if selection.Measured > 0 {
		f.Measured = &rerank.Measured{Pairs: selection.Measured, Error: selection.MeasuredError}
	}
	return r, true
}

// isScanned reports whether a scan reads the item.
func (s *Scorer) isScanned(item int, within *scan.Bitmap) bool {
	return s.Table.Alive(item) && (within == nil || within.Has(item))
}

// scoreChecked scores the items on this machine, as a scan would. It returns ErrContradicted if one
// of them is an item that a scan would not have found.
func (s *Scorer) scoreChecked(c *checked, q Query, within *scan.Bitmap) error {
	seen := make(map[int32]bool, len(c.items))
	for _, item := range c.items {
		if item < 0 || int(item) >= s.Table.Len() || seen[item] || !s.isScanned(int(item), within) {
			return fmt.Errorf("%w: it chose item %d, which is not there, or was not asked for, or came twice", ErrContradicted, item)
		}
		seen[item] = true
	}
	items, ok := s.Table.FullItems(c.items, &rerank.Items{})
	if !ok {
		items = s.Table.Items(c.items, &rerank.Items{})
	}
	c.scores = make([]float32, len(c.items))
	if err := q.Encoded.Score(c.scores, items); err != nil {
		return fmt.Errorf("%w: its items cannot be scored: %w", ErrUndecided, err)
	}
	return nil
}
