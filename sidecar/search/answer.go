package search

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/rank"
)

// ErrNotExact: the request requires an exact answer, and the answer is not exact.
var ErrNotExact = errors.New("the answer is not exact")

// Request is one search.
type Request = plan.Request

// Hit is one row of an answer.
type Hit struct {
	ID          rerank.ID
	Score       float32
	Payload     json.RawMessage
	Explanation *rerank.Explanation
	// Ranked: Score is the ranker's. Hits that it did not score follow those that it did.
	Ranked bool
	// Version is the store's version of the row, if the answer HasVersions.
	Version uint64
}

// Degraded says why scores are not what the route's should be.
type Degraded struct {
	Reason string // one of the constants of package failure
	Detail string // for people
}

// Timings are the time spent in each step, over all rounds. Rank is the time of the
// ranker and of reading rows for it.
type Timings struct {
	Encode, Retrieve, Score, Certify, Rank, Total time.Duration
}

// Answer is the answer to a Request.
type Answer struct {
	Hits        []Hit
	Certificate rerank.Certificate
	// Degraded, if not nil: Hits are the store's own dot-product order and scores, or
	// with failure.Ranker the similarity's, and the certificate's status is unknown.
	Degraded *Degraded
	Strategy rerank.Strategy
	// Plan says why that strategy was chosen, where the route leaves it to measured costs,
	// and of a request that explains why the answer is not one rewritten search.
	Plan    string
	Model   string
	Version string
	Timings Timings
	// NotFinite counts candidates whose score was not finite; they rank last.
	NotFinite int
	// NotIndexed counts candidates that the table did not have; they were
	// scored from their stored vectors.
	NotIndexed int
	// HasVersions: the request asked for versions, and the store's own search of the
	// collection in this call showed every hit with one.
	HasVersions bool
	// Narrowed: the hits are not the first of the whole collection, whatever the request
	// says: a client's call that was rewritten has a filter, an offset or the like.
	Narrowed bool
	// Ranking is set on a route with a ranker.
	Ranking *rank.Ranking
}

// ids returns the ids of the hits.
func (a *Answer) ids() []rerank.ID {
	ids := make([]rerank.ID, len(a.Hits))
	for i, h := range a.Hits {
		ids[i] = h.ID
	}
	return ids
}

// Observer is told of every search; it must not block and is called concurrently.
// The context is the search's, and may be over.
type Observer interface {
	Searched(ctx context.Context, route string, r Request, a Answer, err error)
}

// Observers are told one after the other.
type Observers []Observer

// Searched implements Observer.
func (all Observers) Searched(ctx context.Context, route string, r Request, a Answer, err error) {
	for _, o := range all {
		o.Searched(ctx, route, r, a, err)
	}
}

// Searcher is the part of an Engine that a server needs.
type Searcher interface {
	// Search answers one request. It returns route.ErrUnknown, a *plan.FieldError,
	// rerank.ErrQuery, rerank.ErrStrategy before any call to the store;
	// failure.ErrDegraded from a fail_closed route; ErrNotExact; otherwise the store's error.
	Search(ctx context.Context, r Request) (Answer, error)
	// Score returns φ of the items of a ScoreRequest, or an error as Search does.
	Score(ctx context.Context, r ScoreRequest) (ScoreAnswer, error)
	// Rewrite returns a request as one search of the route's collection, which the
	// caller sends. It returns ErrNotRewritten, or what Search returns.
	Rewrite(ctx context.Context, r Request) (*Rewritten, error)
	// Routes lists the routes by name, as they are served now.
	Routes() []*route.Route
	// Route returns the route of that name as it is served now, read-only, or
	// route.ErrUnknown.
	Route(name string) (*route.Route, error)
}

// errorTypes are the names of errors in traces; the first that fits counts.
var errorTypes = []struct {
	is   error
	name string
}{
	{context.Canceled, "cancelled"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{route.ErrUnknown, "route_not_found"},
	{ErrNotRewritten, "not_rewritten"},
	{ErrNotExact, "not_exact"},
	{plan.ErrRequest, "request_not_valid"},
	{rerank.ErrQuery, "query_not_valid"},
	{rerank.ErrStrategy, "strategy_not_valid"},
	{adapters.ErrFilter, "filter_not_valid"},
	{adapters.ErrID, "id_not_valid"},
	{adapters.ErrDimension, "dimension_mismatch"},
	{adapters.ErrLimit, "limit_exceeded"},
	{route.ErrSetup, "route_not_servable"},
	{adapters.ErrNotFound, "collection_not_found"},
	{adapters.ErrField, "field_not_found"},
	{adapters.ErrMetric, "metric_not_supported"},
	{adapters.ErrUnsupported, "not_supported"},
	{adapters.ErrRefused, "refused"},
	{adapters.ErrUnavailable, "unavailable"},
	{ranker.ErrUnavailable, "ranker_unavailable"},
	{ranker.ErrQuery, "ranker_query_not_valid"},
	{ranker.ErrAnswer, "ranker_answer_not_valid"},
	{failure.ErrDegraded, "not_rescored"},
	{adapters.ErrStore, "store_error"},
}

// ErrorType names an error by one of few words, for traces and logs: the text of an
// error may repeat a filter or what a row holds. It returns "" for nil.
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	for _, t := range errorTypes {
		if errors.Is(err, t.is) {
			return t.name
		}
	}
	return "_OTHER"
}
