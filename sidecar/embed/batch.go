package embed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/likenessdb/likeness/internal/breaker"
	"github.com/likenessdb/likeness/sidecar/gate"
)

// asked is a text that callers wait for.
type asked struct {
	text    string
	from    string          // the first caller
	ctx     context.Context //nolint:containedctx // of the first caller, for its values, such as a trace
	callers int             // callers that still wait
	taken   bool            // a call has taken it, or nobody waited any more
	done    chan struct{}   // closed when vector or err is set
	vector  []float32
	err     error
}

// Embed implements Embedder.
func (c *Client) Embed(ctx context.Context, queries []string, documents ...string) ([][]float32, error) {
	texts := slices.Concat(queries, documents)
	for i, text := range texts {
		prefix := c.options.QueryPrefix
		if i >= len(queries) {
			prefix = c.options.DocumentPrefix
		}
		if text == "" {
			return nil, c.withName(fmt.Errorf("%w: text %d is empty", ErrText, i))
		}
		texts[i] = prefix + text
	}
	if err := ctx.Err(); err != nil {
		return nil, c.withName(err)
	}
	vectors, waits := c.begin(ctx, texts)
	var failed error
	for i, a := range waits {
		switch {
		case a == nil: // found in the cache
		case failed != nil:
			c.leave(a)
		default:
			vectors[i], failed = c.wait(ctx, a)
		}
	}
	if failed != nil {
		return nil, c.withName(failed)
	}
	return vectors, nil
}

// begin looks the texts up and starts calls for those that are not in the cache. Entries of waits
// are nil for texts that were found.
func (c *Client) begin(ctx context.Context, texts []string) (vectors [][]float32, waits []*asked) {
	vectors, waits = make([][]float32, len(texts)), make([]*asked, len(texts))
	c.mu.Lock()
	defer c.mu.Unlock()
	missed := 0
	for i, text := range texts {
		if vectors[i] = c.cache.get(text); vectors[i] != nil {
			continue
		}
		missed++
		a := c.asked[text]
		if a == nil {
			a = &asked{text: text, from: gate.CallerOf(ctx), ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
			c.asked[text] = a
		}
		if !a.taken { // another caller's turn may come earlier
			c.waiting.add(gate.CallerOf(ctx), a)
		}
		a.callers++
		waits[i] = a
	}
	c.tally.found += int64(len(texts) - missed)
	c.tally.missed += int64(missed)
	c.options.Observer.EmbedderCached(c.options.Name, len(texts)-missed, missed)
	c.startCalls()
	return vectors, waits
}

// wait waits until a text is embedded, or for the end of the context.
func (c *Client) wait(ctx context.Context, a *asked) ([]float32, error) {
	select {
	case <-a.done:
		return a.vector, a.err
	case <-ctx.Done():
		c.leave(a)
		return nil, fmt.Errorf("no answer in time: %w", ctx.Err())
	}
}

// leave counts a caller out. A text without callers is not sent any more, and only its place in the queue is kept.
func (c *Client) leave(a *asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.callers--; a.callers == 0 && !a.taken {
		delete(c.asked, a.text)
		a.taken, a.text, a.ctx = true, "", nil
	}
}

// startCalls starts a call for each batch of waiting texts, as far as parallel calls are allowed.
// The caller holds c.mu.
func (c *Client) startCalls() {
	for c.flying < c.options.Parallel {
		caller, ok := c.waiting.turn(c.mayCall)
		if !ok {
			return
		}
		batch := c.takeBatch()
		if len(batch) == 0 {
			return
		}
		c.flying++
		c.held[caller]++
		c.calls.Go(func() { c.embed(caller, batch) })
	}
}

// mayCall reports whether a call may begin with a caller's text. One of the parallel calls is left to
// others, because a long text can take as long as Options.Timeout. The process itself, which has no
// name as a caller, may have all. The caller holds c.mu.
func (c *Client) mayCall(caller string) bool {
	return caller == "" || c.held[caller] < max(1, c.options.Parallel-1)
}

// batchBytes limits the bytes of a call with several texts, which would otherwise all wait for the longest.
const batchBytes = 256 << 10

// takeBatch takes the texts of the next call. The caller holds c.mu.
func (c *Client) takeBatch() (batch []*asked) {
	bytes := 0
	for a := c.waiting.first(); a != nil && len(batch) < c.mostTexts(); a = c.waiting.first() {
		switch {
		case a.taken: // with another caller's texts, or nobody waits any more
		case len(batch) > 0 && bytes+len(a.text) > batchBytes:
			return batch
		default:
			a.taken = true
			batch, bytes = append(batch, a), bytes+len(a.text)
			c.waiting.pop(true)
			continue
		}
		c.waiting.pop(false)
	}
	return batch
}

// embed embeds a batch, in a call of the given caller, and tells those who wait. Then it starts the
// calls of texts that came meanwhile.
func (c *Client) embed(caller string, batch []*asked) {
	c.split(batch)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flying--
	if c.held[caller]--; c.held[caller] == 0 {
		delete(c.held, caller)
	}
	c.startCalls()
}

// split sends a batch. If the service refuses a batch of several texts, or fails for those of several callers, split sends each
// half, so that only a text that fails alone has an error. If the service takes every half, it is the number of texts that
// was refused, and split learns the limit: one long text must not make the calls of all callers short.
// split reports whether no text was refused.
func (c *Client) split(batch []*asked) (takes bool) {
	vectors, err := c.call(batch)
	refused := errors.Is(err, errTooLarge) || errors.Is(err, ErrText)
	if half := len(batch) / 2; half > 0 && (refused || isOfSeveral(batch) && c.mayBeOneText(err)) {
		first, second := c.split(batch[:half]), c.split(batch[half:])
		if takes = first && second; takes && errors.Is(err, errTooLarge) {
			c.learnMost(half)
		}
		return takes
	}
	if errors.Is(err, errTooLarge) { // one text alone
		err = fmt.Errorf("%w: %w", ErrText, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, a := range batch {
		if a.err = err; err == nil {
			a.vector = vectors[i]
			c.cache.put(a.text, a.vector)
		}
		delete(c.asked, a.text)
		close(a.done)
	}
	return !refused
}

// isOfSeveral reports whether a batch has texts of several callers.
func isOfSeveral(batch []*asked) bool {
	return slices.ContainsFunc(batch, func(a *asked) bool { return a.from != batch[0].from })
}

// mayBeOneText reports whether one text of a call may be why it failed, and the other texts are worth another call. After a call that was
// not answered in time they are not: every half that has the slow text would take as long again.
func (c *Client) mayBeOneText(err error) bool {
	failed := errors.Is(err, ErrUnavailable) && !errors.Is(err, errSlow) && !isFinal(err)
	return errors.Is(err, ErrAnswer) || failed && c.breaker.State() == breaker.Closed
}

// learnedFor is how long a limit counts that the service was seen to have.
const learnedFor = time.Minute

// learnMost remembers for a while that the service takes only so many texts in a call.
func (c *Client) learnMost(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most, c.learned = min(c.mostTexts(), n), time.Now()
}

// mostTexts returns how many texts a call may have. The caller holds c.mu.
func (c *Client) mostTexts() int {
	if time.Since(c.learned) < learnedFor {
		return c.most
	}
	return c.options.Batch
}

// call sends a batch, once again if that failed for a moment and the budget allows it.
func (c *Client) call(batch []*asked) (vectors [][]float32, err error) {
	texts := make([]string, len(batch))
	for i, a := range batch {
		texts[i] = a.text
	}
	ctx, cancel := context.WithTimeout(batch[0].ctx, c.options.Timeout)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	c.retries.Called()
	vectors, err = c.callOnce(ctx, texts)
	if errors.Is(err, ErrUnavailable) && ctx.Err() == nil && !isFinal(err) && c.breaker.State() == breaker.Closed && c.retries.Spend() {
		vectors, err = c.callOnce(ctx, texts)
	}
	return vectors, err
}

// isFinal reports whether the service asked not to be called again at once.
func isFinal(err error) bool {
	var wait interface{ RetryAfter() time.Duration }
	return errors.As(err, &wait)
}

// callOnce sends the texts, unless the breaker is open, and checks the answer.
func (c *Client) callOnce(ctx context.Context, texts []string) ([][]float32, error) {
	ended := c.options.Observer.EmbedderCalled(ctx, c.options.Name, len(texts))
	call, ok := c.breaker.Begin()
	if !ok {
		ended(Broken)
		return nil, fmt.Errorf("%w: it failed %d times in a row and is asked again in %s",
			ErrUnavailable, c.options.BreakAfter, c.breaker.Pause().Round(time.Millisecond))
	}
	vectors, outcome, err := c.sendCounted(ctx, texts)
	ended(outcome)
	call.End(verdictOf(outcome), c.embedsOwnText)
	switch { // the context is the call's own: no caller's deadline has passed
	case outcome == Timeout:
		err = fmt.Errorf("%w: %w %s", ErrUnavailable, errSlow, c.options.Timeout)
	case errors.Is(err, context.Canceled):
		err = fmt.Errorf("%w: it was closed", ErrUnavailable)
	}
	return vectors, err
}

// verdictOf says what a call's outcome tells about the service.
func verdictOf(outcome string) breaker.Verdict {
	switch outcome {
	case OK, TooLarge, Text:
		return breaker.Works
	default:
		return breaker.Fails
	}
}

// ownText is a short text that every service for texts can embed.
const ownText = "likeness"

// embedsOwnText reports whether the service embeds a text that no caller chose.
func (c *Client) embedsOwnText() bool {
	ctx, cancel := context.WithTimeout(c.life, c.options.Timeout)
	defer cancel()
	ended := c.options.Observer.EmbedderCalled(ctx, c.options.Name, 1)
	_, outcome, _ := c.sendCounted(ctx, []string{ownText})
	ended(outcome)
	return outcome == OK
}

// sendCounted is send, and counts the call in the State.
func (c *Client) sendCounted(ctx context.Context, texts []string) (vectors [][]float32, outcome string, err error) {
	began := time.Now()
	vectors, err = c.send(ctx, texts)
	outcome = c.outcome(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.add(outcome, time.Since(began))
	return vectors, outcome, err
}

func (c *Client) send(ctx context.Context, texts []string) ([][]float32, error) {
	answer, err := c.service.Post(ctx, c.form.request(c.options, texts), len(texts), func(int) int { return c.answerBytes(len(texts)) })
	if err != nil {
		return nil, err
	}
	vectors, err := c.form.vectors(answer, len(texts))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return vectors, c.checkDimension(vectors)
}

// checkDimension requires vectors of the one length.
func (c *Client) checkDimension(vectors [][]float32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	dim := c.dim
	for i, v := range vectors {
		switch {
		case dim == 0:
			dim = len(v)
		case len(v) != dim:
			return fmt.Errorf("%w: the vector of text %d has %d elements, want %d", ErrAnswer, i, len(v), dim)
		}
	}
	c.dim = dim
	return nil
}

// outcome classifies the result of a call.
func (c *Client) outcome(err error) string {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, errTooLarge):
		return TooLarge
	case errors.Is(err, ErrText):
		return Text
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled):
		return Unavailable
	default:
		return Answer
	}
}
