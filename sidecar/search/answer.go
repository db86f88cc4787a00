package search

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/route"
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
	// Ranked: Score is the ranker's score. Hits that the ranker did not score come after all that
	// it scored.
	Ranked bool
	// Version is the store's version of the row. It is set if the answer HasVersions.
	Version uint64
	// Arm is the version of the route's experiment whose pick the row was.
	Arm experiment.Arm
}

// Degraded says why the answer's scores are not the route's own.
type Degraded struct {
	Reason string // one of the constants of package failure
	Detail string // for people
}

// Timings is the time spent in each step, over all rounds. Embed is the embedder's time. Rank
// includes reading rows for the ranker.
type Timings struct {
	Embed, Encode, Retrieve, Score, Certify, Rank, Total time.Duration
}

// Answer is the answer to a Request.
type Answer struct {
	Hits        []Hit
	Certificate rerank.Certificate
	// Degraded, if not nil, says that the route could not rescore the answer. Hits then have the
	// store's own dot-product order and scores, or with failure.Ranker the similarity's, and the
	// certificate's status is unknown.
	Degraded *Degraded
	Strategy rerank.Strategy
	// Plan says why the strategy was chosen, if the route leaves the choice to measured costs. For
	// a request that explains, it says why the answer is not one rewritten search.
	Plan    string
	Model   string
	Version string
	Timings Timings
	// NotFinite counts candidates whose score was not finite; they rank last.
	NotFinite int
	// NotIndexed counts the candidates that the table lacked; they were scored from their stored
	// vectors.
	NotIndexed int
	// Reembedded is set on a route that embeds its items again.
	Reembedded *Reembedded
	// HasVersions: every hit has the version that the store's own search of the collection showed
	// in this call. The request asked for versions.
	HasVersions bool
	// Narrowed: the hits are not the first of the whole collection, even if the request says so,
	// because a client's rewritten call has a filter, an offset or the like.
	Narrowed bool
	// Ranking is set on a route with a ranker.
	Ranking *rank.Ranking
	// Experiment is set if the route's experiment made the answer. The hits of an interleaved answer
	// are in the order of the draft, each with the score of its own version.
	Experiment experiment.Kind
	// Arm is the arm that the request was assigned to in an experiment that divides requests.
	Arm experiment.Arm
	// ID names the answer in feedback. It is "" unless the route keeps events and the answer is
	// Shown.
	ID string
}

// Reembedded says how far a route has embedded again the items of an answer.
type Reembedded struct {
	// Candidates counts the candidates that were scored. New counts the candidates among them that
	// have a vector of the new model; a bridge scored the others.
	Candidates, New int
	// Bridged holds the hits that a bridge scored.
	Bridged []rerank.ID
}

// Share returns the share of the candidates that have a vector of the new model, from 0 to 1.
func (r Reembedded) Share() float64 {
	if r.Candidates == 0 {
		return 0
	}
	return float64(r.New) / float64(r.Candidates)
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

// Observers is a list of observers, which are called in order.
type Observers []Observer

// Searched implements Observer.
func (all Observers) Searched(ctx context.Context, route string, r Request, a Answer, err error) {
	for _, o := range all {
		o.Searched(ctx, route, r, a, err)
	}
}

// Searcher is the part of an Engine that a server needs.
type Searcher interface {
	// Search answers one request. Before any call to the store it returns route.ErrUnknown, a
	// *plan.FieldError, rerank.ErrQuery or rerank.ErrStrategy. Later it returns failure.ErrDegraded
	// from a fail_closed route, ErrNotExact, or the store's error.
	Search(ctx context.Context, r Request) (Answer, error)
	// Score returns φ of the items of a ScoreRequest, or an error as Search does.
	Score(ctx context.Context, r ScoreRequest) (ScoreAnswer, error)
	// Rewrite turns a request into one search of the route's collection, which the caller sends. It
	// returns ErrNotRewritten, or an error as Search does.
	Rewrite(ctx context.Context, r Request) (*Rewritten, error)
	// Routes lists the routes by name, as they are served now.
	Routes() []*route.Route
	// Route returns the route of that name that is in service, read-only, or route.ErrUnknown.
	Route(name string) (*route.Route, error)
}
