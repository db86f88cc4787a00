package ranker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/likenessdb/likeness/internal/breaker"
	"github.com/likenessdb/likeness/plugin"
)

const (
	// attempts limits how often a batch is sent.
	attempts = 3
	// firstPause is the mean delay before the first retry.
	firstPause = 20 * time.Millisecond
	// tooLargeAlone is how many single items must be refused, without any success, before
	// the query itself counts as too large.
	tooLargeAlone = 3
)

// job is one call of Rank. One goroutine sends the batches, each in its own goroutine, as
// slots become available.
type job struct {
	client      *Client
	query       plugin.Query
	items       []plugin.Item
	description plugin.Description
	querySize   int
	most        int // limit on the number of scored items; 0: no limit
	cancel      context.CancelFunc

	mu      sync.Mutex
	waiting []span // items not sent yet, in order
	flying  int    // batches in progress, including those waiting for a retry
	landed  chan struct{}
	stopped bool
	result  Result
	taken   bool // result has scores, of result.Version
	refused int  // single items that were too large
	absent  int  // items of calls that failed because the scorer was unavailable
	err     error
}

// span is a range of items to send. At most, it is sent as one batch.
type span struct {
	from, to int
	attempt  int
	half     bool // half of a batch that was too large
}

// Rank implements Ranker. It also returns ErrTooLarge, for a query that the scorer does not
// accept with any item. An item that is too large by itself, or has no score, gets NaN
// without an error.
func (c *Client) Rank(ctx context.Context, q plugin.Query, items []plugin.Item) (Result, error) {
	return c.RankWithin(ctx, q, items, 0)
}

// RankWithin is Rank with at most `calls` scored items. Retries count, but calls that
// failed because the scorer was unavailable do not. 0 means no limit. If the limit leaves
// items unscored, the error is ErrUnavailable.
func (c *Client) RankWithin(ctx context.Context, q plugin.Query, items []plugin.Item, calls int) (Result, error) {
	r := Result{Scores: make([]float32, len(items))}
	for i := range r.Scores {
		r.Scores[i] = float32(math.NaN())
	}
	d, err := c.Describe(ctx)
	if err != nil {
		c.options.Observer.RankerNotAsked(c.options.Name, len(items), reasonOf(err))
		return r, err
	}
	r.Version = d.Version
	if d.Text && q.Text == "" {
		return r, fmt.Errorf("ranker %q: %w: it reads the query's text, which is empty; send text", c.options.Name, ErrQuery)
	}
	size := querySize(q)
	if d.MaxBytes > 0 && size >= d.MaxBytes {
		return r, fmt.Errorf("ranker %q: %w: the query alone takes %d bytes, the limit is %d; shorten it", c.options.Name, ErrTooLarge, size, d.MaxBytes)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j := &job{client: c, query: q, items: items, description: d, querySize: size, most: calls, cancel: cancel, landed: make(chan struct{}, 1), result: r}
	if len(items) > 0 {
		j.waiting = append(j.waiting, span{to: len(items), attempt: 1})
	}
	j.run(ctx)
	if calls > 0 {
		j.result.Calls -= j.absent
	}
	return j.result, j.err
}

// run sends batches until all items are scored or the job has stopped.
func (j *job) run(ctx context.Context) {
	var batches sync.WaitGroup
	for j.await(ctx) {
		if j.client.isBroken() {
			j.stop(j.client.broken(), Broken)
			break
		}
		acquired, err := j.client.slots.acquire(ctx)
		if err != nil {
			j.stop(err, reasonOf(err))
			break
		}
		if !acquired {
			continue
		}
		s, b, permit, ok := j.next(ctx)
		if !ok {
			j.client.slots.release()
			continue
		}
		batches.Go(func() { j.send(ctx, s, b, permit) })
	}
	batches.Wait()
}

// await waits until there is something to send, and reports whether there is.
func (j *job) await(ctx context.Context) bool {
	for {
		j.mu.Lock()
		some, over := len(j.waiting) > 0, j.stopped || j.flying == 0
		j.mu.Unlock()
		if some || over {
			return some
		}
		j.awaitLanding(ctx)
	}
}

// awaitLanding waits until a batch has ended. When the context ends, all batches end soon.
func (j *job) awaitLanding(ctx context.Context) {
	select {
	case <-j.landed:
	case <-ctx.Done():
		j.stop(ctx.Err(), reasonOf(ctx.Err()))
	}
}

// next takes a batch that may be sent now, and the breaker's permit.
func (j *job) next(ctx context.Context) (s span, b batch, permit breaker.Call, ok bool) {
	if !j.awaitQuiet(ctx) {
		return s, b, permit, false
	}
	s, b, ok = j.cut(ctx)
	if !ok {
		return s, b, permit, false
	}
	permit, permitted := j.client.breaker.Begin()
	j.mu.Lock()
	if permitted {
		j.result.Calls += len(b.items)
		j.mu.Unlock()
		return s, b, permit, true
	}
	j.waiting = append([]span{s}, j.waiting...)
	j.flying--
	others := j.flying > 0
	j.mu.Unlock()
	if others { // one of them may be the probe that closes the breaker
		j.awaitLanding(ctx)
	} else {
		j.stop(j.client.broken(), Broken)
	}
	return s, b, permit, false
}

// awaitQuiet waits for as long as the scorer wants no calls, if the deadline allows it.
func (j *job) awaitQuiet(ctx context.Context) bool {
	wait := j.client.remainingQuiet()
	if wait <= 0 {
		return true
	}
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) < wait {
		j.stop(fmt.Errorf("ranker %q: %w: it accepts no calls for another %s", j.client.options.Name, ErrUnavailable, wait.Round(time.Millisecond)), Late)
		return false
	}
	if err := sleep(ctx, wait); err != nil {
		j.stop(err, reasonOf(err))
		return false
	}
	return true
}

// cut takes the next batch. Its size follows from the limits, the deadline, and an even
// division of the waiting items.
func (j *job) cut(ctx context.Context) (s span, b batch, ok bool) {
	most, bytes := j.client.limits.within(j.description)
	twice := j.client.options.Twice
	if twice && most > 1 {
		most--
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped || len(j.waiting) == 0 {
		return s, b, false
	}
	s = j.waiting[0]
	n := s.to - s.from
	if most > 0 {
		n = evenSize(n, most)
	}
	n, b.bytes = j.fill(s.from, n, bytes)
	if n == 0 { // the item alone exceeds the declared limit
		j.skip(1, TooLarge)
		return s, b, false
	}
	var fitting int
	if fitting, b.known = j.fit(ctx, n); fitting == 0 {
		deadline, _ := ctx.Deadline()
		j.halt(fmt.Errorf("ranker %q: %w: no answer can arrive in the remaining %s",
			j.client.options.Name, context.DeadlineExceeded, time.Until(deadline).Round(time.Microsecond)), Late)
		return s, b, false
	} else if fitting < n {
		n, b.bytes = j.fill(s.from, fitting, bytes)
	}
	if s.from+n == s.to {
		j.waiting = j.waiting[1:]
	} else {
		j.waiting[0].from += n
		s.to = s.from + n
	}
	if j.most > 0 && j.result.Calls-j.absent+n > j.most {
		j.note(fmt.Errorf("ranker %q: %w: the limit is %d calls, %d were made, and %d items still have to be scored again",
			j.client.options.Name, ErrUnavailable, j.most, j.result.Calls-j.absent, n))
		j.client.options.Observer.RankerNotAsked(j.client.options.Name, n, Given)
		return s, b, false
	}
	b.items, b.half = j.items[s.from:s.to], s.half
	if at := repeatedItem(n); twice && at > 0 {
		if more := itemSize(&b.items[at]); bytes == 0 || b.bytes+more <= bytes {
			b.repeated, b.bytes = at, b.bytes+more
		}
	}
	j.flying++
	return s, b, true
}

// evenSize returns the size of the first batch if n items are divided into as few batches
// as possible, of similar size.
func evenSize(n, most int) int {
	batches := (n + most - 1) / most
	return (n + batches - 1) / batches
}

// fill returns how many of n items fit a request of `most` bytes, and the size of that
// request. A single item is tried even if it exceeds a learned limit, but not if it exceeds
// a declared one.
func (j *job) fill(from, n, most int) (int, int) {
	size := j.querySize
	for i := range n {
		next := size + itemSize(&j.items[from+i])
		if most > 0 && next > most && (i > 0 || j.description.MaxBytes > 0 && next > j.description.MaxBytes) {
			return i, size
		}
		size = next
	}
	return n, size
}

func (j *job) fit(ctx context.Context, n int) (int, bool) {
	left := j.client.options.Timeout
	if deadline, has := ctx.Deadline(); has {
		left = min(left, time.Until(deadline))
	}
	fitting, known := j.client.pace.fit(n, left, j.client.options.BreakFor)
	if left == j.client.options.Timeout {
		fitting = max(fitting, 1) // the caller can wait, and one item is the smallest batch
	}
	return fitting, known
}

// send sends a batch and handles the outcome.
func (j *job) send(ctx context.Context, s span, b batch, permit breaker.Call) {
	defer j.land()
	if s.attempt == 1 {
		j.client.retries.Called()
	}
	scores, version, outcome, err := j.client.call(ctx, j.query, b, permit, j.description.Version)
	if outcome == OK {
		j.take(ctx, s, scores, version)
	}
	j.client.slots.release()
	switch outcome {
	case OK:
	case TooLarge:
		j.halve(s, err)
	case Query:
		j.stop(err, Given)
		j.cancel()
	case Unavailable, Timeout:
		if outcome == Unavailable {
			j.mu.Lock()
			j.absent += len(b.items)
			j.mu.Unlock()
		}
		if !j.retry(ctx, s, err) {
			j.fail(err)
		}
	default:
		j.fail(err)
	}
}

// take stores the scores of a batch, unless the ranker's version has changed since earlier
// scores.
func (j *job) take(ctx context.Context, s span, scores []float32, version string) {
	if version != j.description.Version {
		if err := j.checkVersion(ctx, version); err != nil {
			j.fail(err)
			return
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.taken && j.result.Version != version {
		j.note(fmt.Errorf("ranker %q: %w: it changed from version %q to %q during the call",
			j.client.options.Name, ErrAnswer, j.result.Version, version))
		return
	}
	j.taken, j.result.Version = true, version
	copy(j.result.Scores[s.from:s.to], scores)
}

// checkVersion checks whether an answer's version is the scorer's new version, and whether
// that version reads the same data as the described one.
func (j *job) checkVersion(ctx context.Context, version string) error {
	if d, ok := j.client.lastDescription(true); ok && d.Version != version {
		j.client.markStale()
	}
	d, err := j.client.Describe(ctx)
	if err != nil {
		return err
	}
	if d.Version != version || d.Text != j.description.Text || !d.SameItems(j.description) {
		return fmt.Errorf("ranker %q: %w: it answered with version %q and described %q", j.client.options.Name, ErrAnswer, version, j.description.Version)
	}
	return nil
}

// halve divides a batch that was too large.
func (j *job) halve(s span, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := s.to - s.from; n > 1 {
		mid := s.from + (n+1)/2
		if !j.stopped {
			j.waiting = append([]span{{s.from, mid, s.attempt, true}, {mid, s.to, s.attempt, true}}, j.waiting...)
		}
		return
	}
	j.client.options.Observer.RankerNotAsked(j.client.options.Name, 1, TooLarge)
	if j.refused++; j.refused >= tooLargeAlone && !j.taken {
		j.halt(fmt.Errorf("%w; %d items were refused one by one too: shorten the query", err, j.refused), Given)
	}
}

// retry schedules a call again after a failure that may be temporary, if the retry budget
// and the deadline allow it. It waits first, without holding a slot.
func (j *job) retry(ctx context.Context, s span, err error) bool {
	wait, told := j.client.deferCalls(err)
	if !told {
		wait = time.Duration((0.5 + rand.Float64()) * float64(firstPause<<(s.attempt-1)))
	}
	deadline, has := ctx.Deadline()
	if wait < 0 || s.attempt >= attempts || ctx.Err() != nil || has && time.Until(deadline) < wait || !j.client.retries.Spend() {
		return false
	}
	if sleep(ctx, wait) != nil {
		return false
	}
	j.client.options.Observer.RankerRetried(j.client.options.Name)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped {
		return false
	}
	s.attempt++
	j.waiting = append([]span{s}, j.waiting...)
	return true
}

// fail records why a batch has no scores. Other batches continue; if they fail too, the
// breaker ends the job.
func (j *job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note(err)
}

func (j *job) note(err error) {
	if j.err == nil || errors.Is(err, ErrQuery) && !errors.Is(j.err, ErrQuery) {
		j.err = err
	}
}

// stop ends the job. Items that were not sent yet are skipped.
func (j *job) stop(err error, reason string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.halt(err, reason)
}

// halt is stop for callers that hold the lock.
func (j *job) halt(err error, reason string) {
	j.note(err)
	j.stopped = true
	for len(j.waiting) > 0 {
		j.skip(j.waiting[0].to-j.waiting[0].from, reason)
	}
}

// skip drops the next n items, which belong to one span, without a call.
func (j *job) skip(n int, reason string) {
	j.client.options.Observer.RankerNotAsked(j.client.options.Name, n, reason)
	if j.waiting[0].from += n; j.waiting[0].from == j.waiting[0].to {
		j.waiting = j.waiting[1:]
	}
}

func (j *job) land() {
	j.mu.Lock()
	j.flying--
	j.mu.Unlock()
	select {
	case j.landed <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return Cancelled
	case errors.Is(err, context.DeadlineExceeded):
		return Late
	default:
		return Broken
	}
}
