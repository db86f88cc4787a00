package plugin

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
)

// Client calls a scorer in another process. It is safe for concurrent use.
type Client struct{ service pluginv1.ScorerServiceClient }

var _ Scorer = (*Client)(nil)

// NewClient returns a client of the ScorerService on a connection.
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{pluginv1.NewScorerServiceClient(conn)}
}

// Describe implements Scorer. It returns ErrUnavailable, ErrAnswer or the context's error.
func (c *Client) Describe(ctx context.Context) (Description, error) {
	r, err := c.service.DescribeScorer(ctx, &pluginv1.DescribeScorerRequest{})
	if err != nil {
		return Description{}, errorOf(ctx, err)
	}
	return Description{
		Name: r.GetName(), Version: r.GetVersion(), MaxItems: int(r.GetMaxItems()), MaxBytes: int(r.GetMaxBytes()),
		Parallel: int(r.GetParallel()), Cost: r.GetCost(), Text: r.GetText(),
		Payload: r.GetPayload(), PayloadFields: r.GetPayloadFields(), Vectors: r.GetVectors(),
	}, nil
}

// Score returns one score per item. It returns ErrUnavailable, ErrTooLarge, ErrQuery,
// ErrAnswer or the context's error. Either all items have vectors of the same length, or
// none has a vector.
func (c *Client) Score(ctx context.Context, q Query, items []Item) ([]float32, error) {
	scores, _, err := c.ScoreVersion(ctx, q, items)
	return scores, err
}

// ScoreVersion is Score and also returns the version of the scorer that answered.
func (c *Client) ScoreVersion(ctx context.Context, q Query, items []Item) (scores []float32, version string, err error) {
	request, err := toScoreRequest(q, items)
	if err != nil {
		return nil, "", err
	}
	r, err := c.service.Score(ctx, request)
	if err != nil {
		return nil, "", errorOf(ctx, err)
	}
	if len(r.GetScores()) != len(items) {
		return nil, "", fmt.Errorf("%w: %d scores for %d items", ErrAnswer, len(r.GetScores()), len(items))
	}
	return r.GetScores(), r.GetVersion(), nil
}

func toScoreRequest(q Query, items []Item) (*pluginv1.ScoreRequest, error) {
	r := &pluginv1.ScoreRequest{
		Query: &likenessv1.Query{Vector: q.Vector, Text: q.Text, Context: q.Context},
		Ids:   make([]*likenessv1.ItemId, len(items)),
	}
	if q.HasUserID {
		r.Query.UserId = &q.UserID
	}
	for i := range q.Vectors.Rows {
		r.Query.Vectors = append(r.GetQuery().GetVectors(), &likenessv1.Vector{Values: q.Vectors.Row(i)})
	}
	payloads, dim := false, 0
	slab, numbers := make([]likenessv1.ItemId, len(items)), make([]likenessv1.ItemId_Number, len(items))
	for i := range items {
		setID(&slab[i], &numbers[i], items[i].ID)
		r.Ids[i] = &slab[i]
		payloads = payloads || len(items[i].Payload) > 0
		dim = max(dim, len(items[i].Vector))
	}
	if payloads {
		r.Payloads = make([]string, len(items))
		for i, item := range items {
			// The message is encoded before the call returns, and payloads are never
			// modified.
			r.Payloads[i] = stringOf(item.Payload)
		}
	}
	if dim > 0 {
		r.Vectors = make([]byte, 0, 4*dim*len(items))
		for i, item := range items {
			if len(item.Vector) != dim {
				return nil, fmt.Errorf("%w: the vector of item %d (%s) has %d elements, others have %d; send vectors of one length",
					ErrQuery, i, item.ID, len(item.Vector), dim)
			}
			r.Vectors = appendVector(r.GetVectors(), item.Vector)
		}
	}
	return r, nil
}

// setID fills in an id's message, using the given memory.
func setID(to *likenessv1.ItemId, number *likenessv1.ItemId_Number, id rerank.ID) {
	if n, ok := id.Uint64(); ok {
		number.Number = n
		to.Id = number
	} else if n, ok := id.Int64(); ok {
		to.Id = &likenessv1.ItemId_Negative{Negative: n}
	} else if text, ok := id.Text(); ok {
		to.Id = &likenessv1.ItemId_Text{Text: text}
	}
}

func toID(id *likenessv1.ItemId) rerank.ID {
	switch v := id.GetId().(type) {
	case *likenessv1.ItemId_Number:
		return rerank.UintID(v.Number)
	case *likenessv1.ItemId_Negative:
		return rerank.IntID(v.Negative)
	case *likenessv1.ItemId_Text:
		return rerank.TextID(v.Text)
	default:
		return rerank.ID{}
	}
}
