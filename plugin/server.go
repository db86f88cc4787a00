package plugin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	"github.com/likenessdb/likeness/rerank"
)

func newScorerService(d Description, s Scorer, panicked func(cause any, stack []byte)) *server {
	return &server{scorer: s, slots: semaphore.NewWeighted(int64(max(d.Parallel, 1))), panicked: panicked}
}

// validate returns an error if the description is impossible.
func (d Description) validate() error {
	switch {
	case d.Version == "":
		return errors.New("the scorer's Description has no Version; give one that changes with every change of a score")
	case d.MaxItems < 0 || d.MaxItems > math.MaxInt32 || d.MaxBytes < 0 || d.Parallel < 0 || d.Parallel > math.MaxInt32:
		return fmt.Errorf("the scorer's Description has MaxItems %d, MaxBytes %d and Parallel %d; give what fits an int32 and is 0 or more",
			d.MaxItems, d.MaxBytes, d.Parallel)
	case d.Cost < 0 || math.IsNaN(d.Cost) || math.IsInf(d.Cost, 0):
		return fmt.Errorf("the scorer's Description has the Cost %v; give a number that is 0 or more", d.Cost)
	}
	return nil
}

// server implements the ScorerService for a Scorer.
type server struct {
	pluginv1.UnimplementedScorerServiceServer

	scorer   Scorer
	slots    *semaphore.Weighted // Description.Parallel
	panicked func(cause any, stack []byte)
}

func (s *server) DescribeScorer(ctx context.Context, _ *pluginv1.DescribeScorerRequest) (*pluginv1.DescribeScorerResponse, error) {
	d, err := s.describe(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	return &pluginv1.DescribeScorerResponse{
		Name: d.Name, Version: d.Version, MaxItems: int32(d.MaxItems), MaxBytes: int64(d.MaxBytes), Parallel: int32(d.Parallel),
		Cost: d.Cost, Text: d.Text, Payload: d.Payload, PayloadFields: d.PayloadFields, Vectors: d.Vectors,
	}, nil
}

func (s *server) Score(ctx context.Context, r *pluginv1.ScoreRequest) (*pluginv1.ScoreResponse, error) {
	d, err := s.describe(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	if err := d.admit(r); err != nil {
		return nil, statusOf(err)
	}
	items, err := toItems(r)
	if err != nil {
		return nil, statusOf(err)
	}
	if len(items) == 0 {
		return &pluginv1.ScoreResponse{Version: d.Version}, nil
	}
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return nil, statusOf(err)
	}
	defer s.slots.Release(1)
	scores, err := s.score(ctx, toQuery(r), items)
	if err != nil {
		return nil, statusOf(err)
	}
	if len(scores) != len(items) {
		return nil, statusOf(fmt.Errorf("%w: the scorer returned %d scores for %d items", ErrAnswer, len(scores), len(items)))
	}
	return &pluginv1.ScoreResponse{Scores: scores, Version: d.Version}, nil
}

func (s *server) describe(ctx context.Context) (d Description, err error) {
	defer s.recovered(&err)
	return s.scorer.Describe(ctx)
}

func (s *server) score(ctx context.Context, q Query, items []Item) (scores []float32, err error) {
	defer s.recovered(&err)
	return s.scorer.Score(ctx, q, items)
}

// recovered converts a panic of the scorer to an error, so that the next call can be
// served.
func (s *server) recovered(err *error) {
	cause := recover() //nolint:revive // it is deferred itself
	if cause == nil {
		return
	}
	if s.panicked != nil {
		s.panicked(cause, debug.Stack())
	}
	*err = status.Errorf(codes.Internal, "the scorer panicked: %v", cause)
}

// admit returns an error for a request that the scorer does not accept.
func (d Description) admit(r *pluginv1.ScoreRequest) error {
	if n := len(r.GetIds()); d.MaxItems > 0 && n > d.MaxItems {
		return fmt.Errorf("%w: the request has %d items, the scorer takes %d (max_items); send fewer at once", ErrTooLarge, n, d.MaxItems)
	}
	if d.MaxBytes > 0 {
		if n := proto.Size(r); n > d.MaxBytes {
			return fmt.Errorf("%w: the request has %d bytes, the scorer takes %d (max_bytes); send fewer items at once", ErrTooLarge, n, d.MaxBytes)
		}
	}
	if d.Text && r.GetQuery().GetText() == "" {
		return fmt.Errorf("%w: query.text is empty and the scorer reads it; send the query in words", ErrQuery)
	}
	for i, x := range r.GetQuery().GetVector() {
		if x-x != 0 {
			return fmt.Errorf("%w: query.vector[%d] is %v; send finite numbers", ErrQuery, i, x)
		}
	}
	vectors := r.GetQuery().GetVectors()
	for i, v := range vectors {
		if n, dim := len(v.GetValues()), len(vectors[0].GetValues()); n != dim {
			return fmt.Errorf("%w: query.vectors[%d] has %d elements, the first %d; send vectors of one length", ErrQuery, i, n, dim)
		}
		for k, x := range v.GetValues() {
			if x-x != 0 {
				return fmt.Errorf("%w: query.vectors[%d][%d] is %v; send finite numbers", ErrQuery, i, k, x)
			}
		}
	}
	return nil
}

func toQuery(r *pluginv1.ScoreRequest) Query {
	q := r.GetQuery()
	out := Query{Vector: q.GetVector(), UserID: q.GetUserId(), HasUserID: q != nil && q.UserId != nil, Text: q.GetText(), Context: q.GetContext()}
	if vectors := q.GetVectors(); len(vectors) > 0 {
		out.Vectors = rerank.NewMatrix(len(vectors), len(vectors[0].GetValues()))
		for i, v := range vectors {
			copy(out.Vectors.Row(i), v.GetValues())
		}
	}
	return out
}

func toItems(r *pluginv1.ScoreRequest) ([]Item, error) {
	ids, payloads, vectors := r.GetIds(), r.GetPayloads(), r.GetVectors()
	if len(payloads) != 0 && len(payloads) != len(ids) {
		return nil, fmt.Errorf("%w: %d payloads for %d ids; send one an item, or none", ErrQuery, len(payloads), len(ids))
	}
	if len(ids) == 0 || len(vectors)%(4*len(ids)) != 0 {
		if len(vectors) != 0 {
			return nil, fmt.Errorf("%w: vectors of %d bytes for %d ids; send one an item, each of the same number of float32, or none", ErrQuery, len(vectors), len(ids))
		}
		return nil, nil
	}
	all, dim := floats(vectors), len(vectors)/(4*len(ids))
	items := make([]Item, len(ids))
	for i, id := range ids {
		if items[i].ID = toID(id); items[i].ID.IsZero() {
			return nil, fmt.Errorf("%w: ids[%d] is empty; send a number or a text", ErrQuery, i)
		}
		if len(payloads) > 0 && payloads[i] != "" {
			items[i].Payload = bytesOf(payloads[i])
		}
		if dim > 0 {
			items[i].Vector = all[i*dim : (i+1)*dim : (i+1)*dim]
		}
	}
	return items, nil
}
