package scan

import (
	"context"
	"math"
	"sync"

	"github.com/likenessdb/likeness/rerank"
)

// job is a query in progress. It needs every chunk of the table once.
type job struct {
	ctx      context.Context //nolint:containedctx // a job is one call, which others work on too
	q        Query
	screener rerank.Screener // nil if the query cannot be screened
	batch    rerank.Batch    // nil if the query cannot be scored together with others
	// refining is the screen of full-precision rows for items that a screen of rounded rows
	// leaves; 0 means none.
	refining int

	// Guarded by the scanner's lock: the number of chunks not yet handed out (todo) and of
	// chunks being worked on (out). When both are 0, done receives one value.
	todo, out int
	settled   bool
	done      chan struct{}

	mu     sync.Mutex
	top    rerank.TopK
	err    error
	result Result
	costs  costs
}

func (j *job) begin(ctx context.Context, s *Scanner, q Query) {
	j.ctx, j.q, j.screener, j.batch, j.refining = ctx, q, nil, nil, 0
	if q.Within == nil {
		j.q.Within = s.alive
	}
	j.todo, j.out, j.settled = 0, 0, false
	j.err, j.result = nil, Result{}
	j.top.Reset(q.K)
	screens := 0
	can := rerank.EncodedAbilitiesOf(q.Encoded)
	if can.Batch != nil {
		j.batch = can.Batch.Batch()
	}
	if sc := can.Screen; sc != nil && !q.Whole {
		if screens = min(sc.Screens(s.table.All()), maxScreens); screens > 0 {
			j.screener = sc
			if full, ok := s.table.Full(); ok && s.table.Rounded() {
				j.refining = max(0, sc.Screens(rerank.Items{Features: full})-1)
			}
		}
	}
	j.costs.reset(screens)
}

// over reports whether the job ends early, because it failed or its context was cancelled.
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

// isHandedOut reports whether all of the job's chunks have been handed out. A settled job
// must not be touched again: its memory may serve another query.
func (j *job) isHandedOut() bool {
	none := j.todo == 0
	j.settle()
	return none
}

// settle wakes the waiting caller, once, when no chunk is left or in progress.
func (j *job) settle() {
	if j.todo == 0 && j.out == 0 && !j.settled {
		j.settled = true
		j.done <- struct{}{}
	}
}

// end moves the answer to r and clears the job for reuse.
func (j *job) end(r *Result) error {
	top := j.top.AppendSorted(r.Top)
	*r = j.result
	r.Top = top
	err := j.err
	j.ctx, j.q, j.screener, j.batch = nil, Query{}, nil, nil
	return err
}

// plan decides how a worker processes the next items of its chunk: the screen to use (−1
// for none), the score that an item must be able to reach, and the number of items n. left
// is the number of items that remain.
func (j *job) plan(left int) (screen int, threshold float32, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	threshold = j.top.Threshold()
	if j.screener == nil || math.IsInf(float64(threshold), -1) {
		return -1, threshold, left
	}
	screen, tried := j.costs.choose()
	if tried {
		left = min(left, trial)
	}
	return screen, threshold, left
}

// fail records the first error of the job, which ends it.
func (j *job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
}
