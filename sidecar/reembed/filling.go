package reembed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/time/rate"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/derive"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/route"
)

const (
	// maxTouched bounds the items that answers showed and that wait.
	maxTouched = 4096
	// maxRefused bounds the items that are remembered as refused. Of more items, some are tried in every walk.
	maxRefused = 1 << 16
	// maxBatch is the most items that are embedded together.
	maxBatch = 32
	// pageRows is how many items a walk reads at once, and walkRate how many in a second.
	pageRows = 256
	walkRate = 2000
)

// filling embeds the items of one route again.
type filling struct {
	name    string
	o       Options
	embeds  *rate.Limiter
	reads   *rate.Limiter
	wake    chan struct{} // tells run that an item was touched
	walk    walk          // only run uses it
	waiting backoff.BackOff
	logged  string // the error that was logged last; only run uses it

	mu      sync.Mutex
	touched []rerank.ID
	queued  map[rerank.ID]bool // the ids of touched
	refused map[rerank.ID]refusal
	state   State
}

// refusal says which text of an item cannot be embedded, and until when the same text is not tried again.
type refusal struct {
	source string // digest of the text and the old vector
	until  time.Time
}

// walk is a walk over the items of a companion.
type walk struct {
	companion string
	cursor    string
	ids       []rerank.ID // items of the last page that still have to be embedded
	ended     bool        // no page is left
	resume    time.Time   // when the next walk may begin
	items     int64       // items read so far
	isNew     int64       // items read so far that have a new vector
}

func newFilling(name string, o Options) *filling {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 500*time.Millisecond, time.Minute
	return &filling{
		name: name, o: o, embeds: rate.NewLimiter(1, maxBatch), reads: rate.NewLimiter(walkRate, pageRows),
		wake: make(chan struct{}, 1), waiting: b, queued: map[rerank.ID]bool{}, refused: map[rerank.ID]refusal{}, state: State{Route: name},
	}
}

// touch queues items that an answer showed.
func (f *filling) touch(ids []rerank.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		_, refused := f.refused[id]
		switch {
		case f.queued[id] || refused: // a walk notices when a refused item changes
		case len(f.touched) == maxTouched:
			f.state.Dropped++
		default:
			f.queued[id] = true
			f.touched = append(f.touched, id)
		}
	}
	if len(f.touched) > 0 {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

func (f *filling) current() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state
	s.Waiting = len(f.touched)
	return s
}

// run embeds one batch after the other until ctx is done. After each failure in a row it waits longer.
func (f *filling) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.step(ctx)
		if ctx.Err() != nil {
			return
		}
		f.note(err)
		if err == nil {
			f.waiting.Reset()
			continue
		}
		pause(ctx, f.waiting.NextBackOff(), nil)
	}
}

// note counts and logs the outcome of a step.
func (f *filling) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	f.mu.Lock()
	if f.state.Error = text; err != nil {
		f.state.Failures++
	}
	f.mu.Unlock()
	if text != "" && text != f.logged {
		f.o.Logger.Warn("reembed: items not embedded, will retry", "route", f.name, "error", err)
	}
	if text == "" && f.logged != "" {
		f.o.Logger.Info("reembed: items are embedded again", "route", f.name)
	}
	f.logged = text
}

// pause returns after a time, when ctx is done, or when wake has a value.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-t.C:
	}
}

// step embeds a batch of touched items. If none waits, it embeds a batch of the walk's page, or reads the
// next page. Between two walks it waits.
func (f *filling) step(ctx context.Context) error {
	r, err := f.o.Route(f.name)
	if err != nil {
		return err
	}
	if r.Broken != nil || !r.Reembeds() || f.o.Embedder(r.EmbedderName) == nil {
		return errNotServed
	}
	if r.Companion != f.walk.companion { // another version is in service, or none was before
		f.begin(r.Companion)
	}
	f.embeds.SetLimit(rate.Limit(r.Reembed.Rate))
	batch := min(maxBatch, int(math.Ceil(r.Reembed.Rate)))
	if ids := f.takeTouched(batch); len(ids) > 0 {
		_, err := f.fill(ctx, r, ids)
		if err != nil {
			f.touch(ids)
		}
		return err
	}
	w := &f.walk
	switch {
	case len(w.ids) > 0:
		n := min(batch, len(w.ids))
		have, err := f.fill(ctx, r, w.ids[:n])
		if err == nil {
			w.ids = w.ids[n:]
			w.isNew += int64(have)
			f.publish()
		}
		return err
	case !w.ended:
		return f.readPage(ctx, r)
	case w.resume.IsZero():
		f.endWalk()
		return nil
	case time.Now().Before(w.resume):
		pause(ctx, time.Until(w.resume), f.wake)
		return nil
	}
	f.beginWalk()
	return nil
}

// begin starts over with another companion.
func (f *filling) begin(companion string) {
	f.walk.companion = companion
	f.beginWalk()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Items, f.state.New, f.state.Whole, f.state.Seen = 0, 0, false, time.Time{}
	clear(f.refused) // another version may have another embedder
}

// beginWalk starts a walk at the companion's first item.
func (f *filling) beginWalk() { f.walk = walk{companion: f.walk.companion} }

func (f *filling) takeTouched(n int) []rerank.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = min(n, len(f.touched))
	ids := f.touched[:n:n]
	f.touched = f.touched[n:]
	for _, id := range ids {
		delete(f.queued, id)
	}
	return ids
}

// errPageRead ends a scan after one page.
var errPageRead = errors.New("the page was read")

// readPage reads the next page of the walk, and shuffles its items without a new vector, so that several
// sidecars do not embed the same items at the same time.
func (f *filling) readPage(ctx context.Context, r *route.Route) error {
	if err := f.reads.WaitN(ctx, pageRows); err != nil {
		return err
	}
	scanner, w, read := adapters.AbilitiesOf(r.Store).Scan, &f.walk, false
	request := adapters.ScanRequest{
		Collection: r.Companion, Payload: true, PayloadFields: []string{derive.SourceField}, Batch: pageRows, Cursor: w.cursor,
	}
	err := scanner.Scan(ctx, request, func(rows adapters.Rows, cursor string) error {
		for i, id := range rows.IDs {
			w.items++
			if derive.MarkOf(rows.Payloads[i]) != "" {
				w.isNew++
			} else {
				w.ids = append(w.ids, id)
			}
		}
		read, w.cursor = true, cursor
		return errPageRead
	})
	if err != nil && !errors.Is(err, errPageRead) {
		return fmt.Errorf("companion %q: %w", r.Companion, err)
	}
	w.ended = !read || w.cursor == ""
	rand.Shuffle(len(w.ids), func(i, j int) { w.ids[i], w.ids[j] = w.ids[j], w.ids[i] })
	f.publish()
	return nil
}

// publish shows in the state how far the first walk has come. Later walks are shown when they end.
func (f *filling) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.state.Whole {
		f.state.Items, f.state.New = f.walk.items, f.walk.isNew
	}
}

// endWalk ends a walk, and publishes what it counted.
func (f *filling) endWalk() {
	f.walk.resume = time.Now().Add(f.o.Rest)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.state.Whole {
		f.o.Logger.Info("reembed: all items were read once", "route", f.name, "items", f.walk.items, "new", f.walk.isNew)
	}
	f.state.Items, f.state.New, f.state.Whole, f.state.Seen = f.walk.items, f.walk.isNew, true, time.Now().UTC()
}

// isRefused reports whether the item's text was refused and is not to be tried again yet. It forgets a
// refusal that is over, or that an earlier text of the item met.
func (f *filling) isRefused(it item) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, known := f.refused[it.id]
	if known && r.source == it.source && time.Now().Before(r.until) {
		return true
	}
	delete(f.refused, it.id)
	return false
}

// refuse counts and remembers an item without a text that can be embedded.
func (f *filling) refuse(it item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Refused++
	if len(f.refused) < maxRefused {
		f.refused[it.id] = refusal{it.source, time.Now().Add(f.o.RetryRefused)}
	}
}

// item is an item to embed. source is the digest of its text and old vector, its mark once it is embedded.
type item struct {
	id           rerank.ID
	text, source string
}

// fill embeds the items that have no new vector, and writes their new vectors. It returns how many of the
// given items have a new vector now.
func (f *filling) fill(ctx context.Context, r *route.Route, ids []rerank.ID) (have int, err error) {
	items, have, err := f.read(ctx, r, ids)
	if err != nil || len(items) == 0 {
		return have, err
	}
	if err := f.embeds.WaitN(ctx, len(items)); err != nil {
		return have, err
	}
	vectors, err := f.embed(ctx, r, items)
	if err != nil || len(vectors) == 0 {
		return have, err
	}
	written, err := f.o.Write(ctx, r, vectors)
	if err != nil {
		return have, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Embedded += int64(written)
	f.state.Changed += int64(len(vectors) - written)
	return have + written, nil
}

// read reads the texts of the items that have no new vector, and counts the items that have one.
func (f *filling) read(ctx context.Context, r *route.Route, ids []rerank.ID) (items []item, have int, err error) {
	marks, err := marksOf(ctx, r, ids)
	if err != nil {
		return nil, 0, err
	}
	rows, err := adapters.AbilitiesOf(r.Store).Fetch.Fetch(ctx, adapters.FetchRequest{
		Collection: r.Collection, IDs: ids, Vectors: []string{r.Vector}, Payload: true, PayloadFields: []string{r.Reembed.Text}, Consistency: r.Consistency,
	})
	if err != nil {
		return nil, 0, err
	}
	for i, id := range rows.IDs {
		one := item{id: id, text: derive.TextOf(rows.Payloads[i], r.Reembed.Text)}
		one.source = derive.SourceDigest(rows.Vectors[0].Row(i), one.text)
		switch {
		case marks[id] == one.source:
			have++
		case f.isRefused(one):
		case one.text == "":
			f.refuse(one)
		default:
			items = append(items, one)
		}
	}
	return items, have, nil
}

// embed returns the new vectors of items. Items whose text the embedder refuses are left out: it embeds
// each half of the items, down to single ones.
func (f *filling) embed(ctx context.Context, r *route.Route, items []item) ([]follow.NewVector, error) {
	texts := make([]string, len(items))
	for i, one := range items {
		texts[i] = one.text
	}
	vectors, err := f.o.Embedder(r.EmbedderName).Embed(ctx, nil, texts...)
	switch {
	case errors.Is(err, embed.ErrText) && len(items) == 1:
		f.refuse(items[0])
		return nil, nil
	case errors.Is(err, embed.ErrText):
		half := len(items) / 2
		first, err := f.embed(ctx, r, items[:half])
		if err != nil {
			return nil, err
		}
		second, err := f.embed(ctx, r, items[half:])
		return append(first, second...), err
	case err != nil:
		return nil, err
	}
	out := make([]follow.NewVector, 0, len(items))
	for i, v := range vectors {
		if want := r.Model.Similarity.Spec().QueryDim; len(v) != want {
			return nil, fmt.Errorf("%w: embedder %q makes vectors of %d elements, the bridge's new model makes %d; name the embedder of the new model",
				embed.ErrAnswer, r.EmbedderName, len(v), want)
		}
		if rerank.Norm(v) == 0 { // it has no cosine with a query
			f.refuse(items[i])
			continue
		}
		out = append(out, follow.NewVector{ID: items[i].id, Vector: v, Source: items[i].source})
	}
	return out, nil
}
