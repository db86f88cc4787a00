package client

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"google.golang.org/grpc/codes"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// Strategy is which first-stage searches are sent; empty is the route's.
type Strategy string

// The strategies; docs/concepts.md explains them.
const (
	PerEmbedding Strategy = "per_embedding"
	Average      Strategy = "average"
	Combined     Strategy = "combined"
	Distilled    Strategy = "distilled"
	Scan         Strategy = "scan"
)

// Query is what is searched for.
type Query struct {
	// Vector has the dimension of the route's model; every element is finite.
	Vector []float32
	// UserID is the user, where the model has users; nil is none.
	UserID *int64
	// Context has named features, where the model takes them.
	Context map[string]float32
	// Text is what was asked for, in words, where the route's ranker reads them.
	Text string
}

// Search is one search. What is zero is the route's.
type Search struct {
	Route string
	Query Query
	// K is how many items are wanted, at least 1.
	K int
	// Filter is one in the store's own language: the JSON of a Qdrant filter, an expression of Milvus.
	Filter string
	// Strategy, Depth (rows of each first-stage search) and AverageDepth (of the averaged one of Combined).
	Strategy     Strategy
	Depth        int
	AverageDepth int
	// MaxGap asks for depth until no missing item can exceed the K-th score by more.
	MaxGap *float32
	// Timeout: answer by then with what there is. The context's deadline also counts, and ends the call.
	Timeout time.Duration
	// Explain returns the terms of every score.
	Explain bool
	// Payload returns the items' payloads, of PayloadFields alone where there are any.
	Payload       bool
	PayloadFields []string
	// Head is the learned search of Distilled.
	Head string
	// Calls are the items that the route's ranker may score, in Rounds.
	Calls  *int
	Rounds int
}

// Answer is the answer to a Search.
type Answer struct {
	// Hits, best first; equal scores by id.
	Hits []Hit
	// Certificate says how far the answer can be from the exact one.
	Certificate Certificate
	// Degraded is set if the scores are not the similarity's.
	Degraded *Degraded
	// Model and ModelVersion answered.
	Model, ModelVersion string
	Strategy            Strategy
	// Plan is why that strategy, where the route chooses.
	Plan    string
	Timings Timings
	// NotFinite candidates had no finite score; NotIndexed were scored from their stored vectors.
	NotFinite, NotIndexed int
	// Ranking is set on a route with a ranker.
	Ranking *Ranking
	// RequestID is the call's id in the sidecar's log.
	RequestID string
}

// Hit is one item of an answer.
type Hit struct {
	ID    ID
	Score float32
	// Payload is a JSON object, numbers as the store has them; nil where none was asked for.
	Payload json.RawMessage
	// Terms of the score, if they were asked for.
	Terms []Term
	// Ranked: the score is the ranker's. Those without follow.
	Ranked bool
}

// Term is one weighted inner product of a score: Gate times Logit is its part.
type Term struct {
	QueryComponent, ItemComponent int
	Dot, Logit, Gate              float32
}

// Degraded says why an answer was not rescored.
type Degraded struct{ Reason, Detail string }

// Timings are those of the steps, over all rounds.
type Timings struct{ Encode, Retrieve, Score, Certify, Rank, Total time.Duration }

// Ranking says what a route's ranker was asked.
type Ranking struct {
	Ranker, Version       string
	Calls, Budget, Rounds int
	// Cut items were to be scored and were not, for Reason.
	Cut    int
	Reason string
}

// Search answers one search. Its error is an *Error: ErrInvalid, ErrNotFound,
// ErrOverloaded, ErrUnavailable, ErrDeadline and the others of this package.
func (c *Client) Search(ctx context.Context, s Search) (*Answer, error) {
	r, id, err := call(ctx, c, s.proto(), c.search.Search)
	if err != nil {
		return nil, err
	}
	return fromSearch(r, id), nil
}

// Result is the answer to one search of a batch, or its error, an *Error.
type Result struct {
	Answer *Answer
	Err    error
}

// SearchBatch answers several searches in one call, in order. The error is that of
// the call; each search has its own.
func (c *Client) SearchBatch(ctx context.Context, searches []Search) ([]Result, error) {
	request := &likenessv1.SearchBatchRequest{}
	for i := range searches {
		request.Searches = append(request.Searches, searches[i].proto())
	}
	r, id, err := call(ctx, c, request, c.search.SearchBatch)
	if err != nil {
		return nil, err
	}
	out := make([]Result, len(r.GetResults()))
	for i, one := range r.GetResults() {
		if e := one.GetError(); e != nil {
			out[i].Err = &Error{Message: e.GetMessage(), RequestID: id, is: sentinels(codes.Code(e.GetCode()), "batch")}
			continue
		}
		out[i].Answer = fromSearch(one.GetResponse(), id)
	}
	return out, nil
}

// Each answers searches as they come, in calls of so many at a time (at most the
// sidecar's limits.max_batch, 256 by default), and yields their results in order.
// It reads ahead no further than one call; a call that fails is the error of each
// of its searches, and the rest goes on.
func (c *Client) Each(ctx context.Context, searches iter.Seq[Search], batch int) iter.Seq2[int, Result] {
	return func(yield func(int, Result) bool) {
		n := 0
		send := func(some []Search) bool {
			results, err := c.SearchBatch(ctx, some)
			for i := range some {
				one := Result{Err: err}
				if err == nil {
					one = results[i]
				}
				if !yield(n, one) {
					return false
				}
				n++
			}
			return true
		}
		var some []Search
		for s := range searches {
			if some = append(some, s); len(some) >= max(batch, 1) {
				if !send(some) {
					return
				}
				some = some[:0]
			}
		}
		if len(some) > 0 {
			send(some)
		}
	}
}

// Items are those whose score is asked for: by their ids, or by vectors of their own.
type Items struct {
	IDs     []ID
	Vectors [][]float32
}

// Scores are the scores of items.
type Scores struct {
	// Scores, one an item, in order; NaN for an id that the store does not have.
	Scores              []float32
	Missing             []ID
	Model, ModelVersion string
}

// Score returns the similarity of a query and items.
func (c *Client) Score(ctx context.Context, route string, q Query, items Items) (*Scores, error) {
	request := &likenessv1.ScoreRequest{Route: route, Query: q.proto()}
	if items.Vectors != nil {
		request.Items = &likenessv1.ScoreRequest_Vectors{Vectors: items.vectors()}
	} else {
		request.Items = &likenessv1.ScoreRequest_Ids{Ids: items.ids()}
	}
	r, _, err := call(ctx, c, request, c.search.Score)
	if err != nil {
		return nil, err
	}
	return &Scores{
		Scores: r.GetScores(), Missing: fromIDs(r.GetMissing()), Model: r.GetModel().GetName(), ModelVersion: r.GetModel().GetVersion(),
	}, nil
}

// Explanation is an item's score and the terms that add up to it.
type Explanation struct {
	Score float32
	Terms []Term
}

// Explain takes the scores of items apart, in order; the ids that the store does
// not have are missing.
func (c *Client) Explain(ctx context.Context, route string, q Query, items Items) (explanations []Explanation, missing []ID, err error) {
	request := &likenessv1.ExplainRequest{Route: route, Query: q.proto()}
	if items.Vectors != nil {
		request.Items = &likenessv1.ExplainRequest_Vectors{Vectors: items.vectors()}
	} else {
		request.Items = &likenessv1.ExplainRequest_Ids{Ids: items.ids()}
	}
	r, _, err := call(ctx, c, request, c.search.Explain)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range r.GetExplanations() {
		explanations = append(explanations, Explanation{Score: e.GetScore(), Terms: fromTerms(e)})
	}
	return explanations, fromIDs(r.GetMissing()), nil
}
