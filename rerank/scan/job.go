package scan

import (
	"context"
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
)

// job is a query on its way round the table.
type job struct {
	ctx      context.Context //nolint:containedctx // a job is one call, which others work on too
	q        Query
	screener rerank.Screener // nil: none

	// Under the scanner's lock: chunks that were not handed out, and those that are
	// being worked on. done gets one value when both are none.
	todo, out int
	settled   bool
	done      chan struct{}

	mu     sync.Mutex
	top    rerank.TopK
	floor  float32 // K items are known to score as much
	err    error
	result Result
	costs  costs
}

func (j *job) begin(ctx context.Context, s *Scanner, q Query) {
	j.ctx, j.q, j.screener = ctx, q, nil
	if q.Within == nil {
		j.q.Within = s.alive
	}
	j.todo, j.out, j.settled = 0, 0, false
	j.err, j.result, j.floor = nil, Result{}, float32(math.Inf(-1))
	j.top.Reset(q.K)
	screens := 0
	if sc := rerank.EncodedAbilitiesOf(q.Encoded).Screen; sc != nil && !q.Whole {
		if screens = min(sc.Screens(s.table.All()), maxScreens); screens > 0 {
			j.screener = sc
		}
	}
	j.costs.reset(screens)
}

// over reports whether the job ends early, because it failed or its context did.
func (j *job) over() bool {
	err := j.ctx.Err()
	j.mu.Lock()
	if j.err == nil {
		j.err = err
	}
	failed := j.err != nil
	j.mu.Unlock()
	if failed {
		j.todo = 0
		j.settle()
	}
	return failed
}

// isHandedOut reports whether the job needs no more chunks. A job that is settled is
// somebody else's.
func (j *job) isHandedOut() bool {
	none := j.todo == 0
	j.settle()
	return none
}

// settle tells the one who waits, once, that nothing is to be done any more.
func (j *job) settle() {
	if j.todo == 0 && j.out == 0 && !j.settled {
		j.settled = true
		j.done <- struct{}{}
	}
}

// end moves the answer to r.
func (j *job) end(r *Result) error {
	top := j.top.AppendSorted(r.Top)
	*r = j.result
	r.Top = top
	err := j.err
	j.ctx, j.q, j.screener = nil, Query{}, nil
	return err
}

// plan is what a worker does with the next n of the items of its chunk, of as many
// as are left: the screen to use, −1 for none, and the score that an item must be
// able to reach.
func (j *job) plan(left int) (screen int, threshold float32, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	threshold = max(j.top.Threshold(), j.floor)
	if j.screener == nil || math.IsInf(float64(threshold), -1) {
		return -1, threshold, left
	}
	screen, tried := j.costs.choose()
	if tried {
		left = min(left, trial)
	}
	return screen, threshold, left
}

// fail ends the job with an error.
func (j *job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
}
