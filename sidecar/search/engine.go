package search

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
)

var _ Searcher = (*Engine)(nil)

// Options of an Engine. Every field may be left out.
type Options struct {
	Observer Observer     // Observer is told of every search
	Tracer   trace.Tracer // Tracer makes a span for each step
	// Turns limits how many goroutines keep a processor busy at a time; nil stands for
	// as many as there are processors.
	Turns  *turns.Turns
	Logger *slog.Logger // Logger gets the engine's log
	Events events.Book  // Events keeps what answers show
}

// Engine answers requests on its routes. It is safe for concurrent use.
type Engine struct {
	*route.Set
	observer Observer
	tracer   trace.Tracer
	log      *slog.Logger
	events   events.Book
	trials   map[string]*atomic.Pointer[Trial] // by route
}

// New makes an engine of routes, which the caller does not change afterwards. It
// returns what route.NewSet returns.
func New(routes []*route.Route, o Options) (*Engine, error) {
	set, err := route.NewSet(routes, o.Turns)
	e := &Engine{Set: set, observer: o.Observer, tracer: o.Tracer, log: o.Logger, events: o.Events, trials: map[string]*atomic.Pointer[Trial]{}}
	for _, r := range set.Routes() {
		e.trials[r.Name] = new(atomic.Pointer[Trial])
	}
	if e.tracer == nil {
		e.tracer = noop.NewTracerProvider().Tracer("")
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	return e, err
}

// Search answers one request. In addition to the errors that Searcher lists, it returns
// adapters.ErrUnavailable if the store is down, and the context's error if the caller's own
// deadline passed or the caller went away.
func (e *Engine) Search(ctx context.Context, r Request) (Answer, error) {
	began, text := time.Now(), r.Query.Text
	a, r, err := e.searchRoute(ctx, r)
	err = withFilter(err, r.Filter)
	a.Timings.Total = time.Since(began)
	if err == nil && r.Shown {
		a.ID = e.keepImpression(r, text, &a)
	}
	if e.observer != nil {
		e.observer.Searched(ctx, r.Route, r, a, err)
	}
	return a, err
}

// searchRoute answers a request by the version of its route that is in service, or by the route's
// experiment. It first makes the query's vector if the query is a text or a history of items, and
// returns the request with that vector.
func (e *Engine) searchRoute(ctx context.Context, r Request) (Answer, Request, error) {
	ctx, s := e.tracer.Start(ctx, "likeness.search", trace.WithAttributes(attribute.String("likeness.route", r.Route)))
	defer s.End()
	version, err := e.Find(ctx, r.Route)
	if err != nil {
		failSpan(s, err)
		return Answer{}, r, err
	}
	defer version.Release()
	if len(r.History) > 0 {
		if r.Query, err = historyQuery(ctx, version.Current().ForCollection(r.Collection), r.Query, r.History); err != nil {
			failSpan(s, err)
			return Answer{}, r, err
		}
	}
	var took time.Duration
	if c := version.Current(); c.NeedsEmbedder(r.Query) || len(r.StoredVector) == 0 && c.EmbedsBesideScores(r.Query, mixOf(c, r)) {
		var cancel context.CancelFunc
		ctx, cancel = c.WithTimeout(ctx) // embedding and search share the route's time
		defer cancel()
		if took, err = e.embedRequest(ctx, c, &r); err != nil {
			failSpan(s, err)
			return Answer{}, r, err
		}
	}
	var a Answer
	if t := e.trialFor(r); t != nil {
		a, err = e.searchTrial(ctx, version, t, r)
	} else {
		a, err = e.searchVersion(ctx, version, r)
	}
	a.Timings.Embed = took
	if err != nil {
		failSpan(s, err)
	}
	return a, r, err
}

// historyQuery returns a query with the mean vector of a history.
func historyQuery(ctx context.Context, c *route.Checked, q rerank.Query, items []plan.WeightedID) (rerank.Query, error) {
	if len(q.Vector) > 0 {
		return q, plan.BadField("query.item_ids", "the query has a vector too; give one of them")
	}
	ctx, cancel := c.WithTimeout(ctx)
	defer cancel()
	view := c.View()
	defer view.Release()
	var err error
	q.Vector, err = retrieve.Mean(ctx, view, items)
	return q, err
}

// mixOf returns the share of the ranker's first round that a request takes from the store's order.
func mixOf(c *route.Checked, r Request) float64 {
	switch {
	case r.Calls != nil && *r.Calls == 0:
		return 0
	case r.Mix != nil:
		return *r.Mix
	}
	return c.Mix
}

// embedRequest embeds the query's text: into the query's vector if it has none, otherwise into StoredVector, which
// mixing needs. If the embedder fails to make a StoredVector that the model does not read, embedRequest logs that
// and switches mixing off.
func (e *Engine) embedRequest(ctx context.Context, c *route.Checked, r *Request) (took time.Duration, err error) {
	if c.NeedsEmbedder(r.Query) {
		r.Query, took, err = e.embed(ctx, c, r.Query)
		return took, err
	}
	vectors, took, err := e.embedTexts(ctx, c, []string{r.Query.Text}, nil)
	if err == nil {
		r.StoredVector = vectors[0]
		return took, nil
	}
	if ctx.Err() != nil || c.QueryFeatures() > 0 {
		return took, err
	}
	e.log.LogAttrs(ctx, slog.LevelWarn, "store's order not mixed in, its query was not embedded", slog.String("route", c.Name), slog.Any("error", err))
	r.Mix = new(float64)
	return took, nil
}

// embed returns a query that is only text with its vector. The text stays for the route's ranker, if
// it has one.
func (e *Engine) embed(ctx context.Context, c *route.Checked, q rerank.Query) (rerank.Query, time.Duration, error) {
	vectors, took, err := e.embedTexts(ctx, c, []string{q.Text}, nil)
	if err != nil {
		return q, took, err
	}
	q.Vector = vectors[0]
	if c.Ranker == nil {
		q.Text = ""
	}
	return q, took, nil
}

// embedTexts returns the vectors of queries and then of documents, and the time that the embedder took.
func (e *Engine) embedTexts(ctx context.Context, c *route.Checked, queries, documents []string) ([][]float32, time.Duration, error) {
	ctx, s := e.tracer.Start(ctx, "likeness.embed", trace.WithAttributes(
		attribute.String("likeness.embedder", c.EmbedderName), attribute.Int("likeness.texts", len(queries)+len(documents))))
	defer s.End()
	began := time.Now()
	vectors, err := c.Embed(ctx, queries, documents)
	if err != nil {
		failSpan(s, err)
	}
	return vectors, time.Since(began), err
}
