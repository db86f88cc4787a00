package client

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"google.golang.org/grpc/codes"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// Strategy names the first-stage searches to send. If empty, the route decides.
type Strategy string

// Strategies, as docs/concepts.md explains them.
const (
	PerEmbedding Strategy = "per_embedding"
	Average      Strategy = "average"
	Combined     Strategy = "combined"
	Distilled    Strategy = "distilled"
	Companion    Strategy = "companion"
	Scan         Strategy = "scan"
)

// Query is the query of a search.
type Query struct {
	// Vector has the dimension of the route's model. Every element must be finite.
	Vector []float32
	// Vectors takes the place of Vector on a route with a model of kind late: at most 512
	// vectors, all of one length.
	Vectors [][]float32
	// UserID is the user, for a model with users; nil without a user.
	UserID *int64
	// Context holds named features, for a model that takes them.
	Context map[string]float32
	// Text is the query in words, for a route whose embedder makes the vector of it, or whose
	// ranker reads it.
	Text string
	// Items holds items whose vectors' weighted mean is the query's vector, in its place, at
	// most 1,000. A search leaves them out of its answer.
	Items []WeightedItem
}

// WeightedItem is an item of a query, with its weight in the mean.
type WeightedItem struct {
	ID     ID
	Weight float32
}

// Search describes one search. The route decides for every zero field.
type Search struct {
	Route string
	Query Query
	// K is the number of items to return, at least 1.
	K int
	// Filter is a filter in the store's own language: the JSON of a Qdrant filter, or
	// an expression of Milvus.
	Filter string
	// ExcludeIDs holds the ids of items that the answer must not have, such as those that a
	// person has seen, at most 10,000.
	ExcludeIDs []ID
	// IncludeItems lets the answer have the items of Query.Items.
	IncludeItems bool
	// User is who asks, for the events of a route that keeps them; nothing else uses it.
	User string
	// Depth is the number of rows of each first-stage search, AverageDepth that number
	// for the averaged search of Combined.
	Strategy     Strategy
	Depth        int
	AverageDepth int
	// MaxGap asks the sidecar to search deeper until no missing item can exceed the
	// K-th score by more than MaxGap.
	MaxGap *float32
	// RequireExact makes an answer that is not exact the error ErrNotServable, with the
	// reason NOT_EXACT.
	RequireExact bool
	// Timeout is the time after which the sidecar answers with the candidates found so
	// far. The context's deadline applies too, and fails the call.
	Timeout time.Duration
	// Explain requests the terms of every score.
	Explain bool
	// Payload requests the items' payloads, limited to PayloadFields if that is not
	// empty.
	Payload       bool
	PayloadFields []string
	// Head names the learned probe of Distilled.
	Head string
	// Calls is the number of items that the route's ranker may score, in at most
	// Rounds rounds.
	Calls  *int
	Rounds int
	// Mix is the share of the first round that is taken from the database's own order; nil is
	// the route's. StoredVector is the query as the collection's own vectors were made, if
	// Query.Vector is not.
	Mix          *float32
	StoredVector []float32
}

// Answer is the answer to a Search.
type Answer struct {
	// Hits are sorted by score, the best first, and then by id.
	Hits []Hit
	// Certificate says how far the answer can be from the exact one.
	Certificate Certificate
	// Degraded is set if the scores are not scores of the similarity.
	Degraded *Degraded
	// Model and ModelVersion name the model that answered.
	Model, ModelVersion string
	Strategy            Strategy
	// Plan says why the sidecar chose the strategy, on a route that leaves it the
	// choice. With Explain it also says why one search of the store was not the answer.
	Plan    string
	Timings Timings
	// NotFinite counts candidates without a finite score. NotIndexed counts candidates
	// that were scored from their stored vectors, because the table lacks
	// them.
	NotFinite, NotIndexed int
	// Reembedded is set on a route that embeds its items again: the share of the candidates, from 0 to
	// 1, that were scored by their own vector of the new model.
	Reembedded *float32
	// Ranking is set on a route with a ranker.
	Ranking *Ranking
	// RequestID is the call's id in the sidecar's log.
	RequestID string
	// AnswerID names the answer in Feedback, on a route that keeps events.
	AnswerID string
}

// Hit is one item of an answer.
type Hit struct {
	ID    ID
	Score float32
	// Payload is a JSON object with numbers exactly as the store has them. It is nil
	// if none was requested.
	Payload json.RawMessage
	// Terms holds the terms of the score, if requested.
	Terms []Term
	// Ranked means that the score is the ranker's. Items that the ranker did not score
	// come last.
	Ranked bool
}

// Term is one weighted inner product of a score, to which it contributes Gate times
// Logit.
type Term struct {
	QueryComponent, ItemComponent int
	Dot, Logit, Gate              float32
}

// Degraded says why the sidecar did not rescore an answer.
type Degraded struct{ Reason, Detail string }

// Timings holds the time of each step, summed over all rounds.
type Timings struct{ Embed, Encode, Retrieve, Score, Certify, Rank, Total time.Duration }

// Ranking says how a route's ranker was used.
type Ranking struct {
	Ranker, Version       string
	Calls, Budget, Rounds int
	// Cut counts the items that the ranker should have scored but did not, for Reason.
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

// SearchBatch answers several searches in one call, in order. err means that the whole
// call failed; a Result holds the error of its own search.
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

// Each answers a stream of searches, with up to batch searches in a call (at most the
// sidecar's limits.max_batch, by default 256), and yields the results in order. It
// reads ahead at most one call. If a call fails, each of its searches gets the error,
// and Each continues.
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

// Items names items to score, by their ids or by their own vectors.
type Items struct {
	IDs     []ID
	Vectors [][]float32
}

// Scores holds the scores of items.
type Scores struct {
	// Scores has one score for each item, in order, NaN for an id that the store
	// lacks.
	Scores              []float32
	Missing             []ID
	Model, ModelVersion string
}

// Score returns the similarity of a query and each item.
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

// Explanation is an item's score with the terms that add up to it.
type Explanation struct {
	Score float32
	Terms []Term
}

// Explain returns the terms of the items' scores, in order. It leaves out ids that the
// store lacks.
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
