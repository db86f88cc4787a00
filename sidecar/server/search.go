package server

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// StatusTrailer is the trailer of a degraded answer: "degraded; reason=…".
const StatusTrailer = "likeness-status"

// searchService implements SearchService. Each method decodes the message, calls the searcher and
// encodes the answer.
type searchService struct {
	likenessv1.UnimplementedSearchServiceServer
	*services
}

var _ likenessv1.SearchServiceServer = searchService{}

func (s searchService) Search(ctx context.Context, r *likenessv1.SearchRequest) (*likenessv1.SearchResponse, error) {
	if err := s.reserve(ctx, r); err != nil {
		return nil, err
	}
	answer, err := s.answer(ctx, r)
	if err != nil {
		return nil, err
	}
	if d := answer.GetDegraded(); d != nil {
		if err := grpc.SetTrailer(ctx, metadata.Pairs(StatusTrailer, "degraded; reason="+d.GetReason())); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

func (s searchService) answer(ctx context.Context, r *likenessv1.SearchRequest) (*likenessv1.SearchResponse, error) {
	if err := allow(ctx, r.GetRoute()); err != nil {
		return nil, err
	}
	request, err := toRequest(r)
	if err != nil {
		return nil, err
	}
	if t := r.GetTimeout(); t != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.AsDuration())
		defer cancel()
	}
	answer, err := s.searcher.Search(ctx, request)
	if err != nil {
		return nil, err
	}
	return fromAnswer(answer), nil
}

func (s searchService) SearchBatch(ctx context.Context, r *likenessv1.SearchBatchRequest) (*likenessv1.SearchBatchResponse, error) {
	searches := r.GetSearches()
	if len(searches) == 0 {
		return nil, fieldError("searches", "the batch is empty; give at least one search")
	}
	limits := s.limits.Load()
	if len(searches) > limits.MaxBatch {
		return nil, fmt.Errorf("%w: %d, limits.max_batch is %d; split the batch, or raise it", errBatch, len(searches), limits.MaxBatch)
	}
	if err := s.reserve(ctx, searches...); err != nil {
		return nil, err
	}
	ctx, release := route.Pin(ctx) // the same versions answer all searches
	defer release()
	results := make([]*likenessv1.SearchResult, len(searches))
	atMost(limits.BatchParallelism, len(searches), func(i int) { results[i] = s.result(ctx, searches[i]) })
	return &likenessv1.SearchBatchResponse{Results: results}, nil
}

// atMost calls do for every number below n, at most so many at a time.
func atMost(parallel, n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(parallel)
	for i := range n {
		group.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = group.Wait() // no call returns an error
}

// result runs one search of a batch and returns its answer or its error. It catches panics, because
// it runs in a goroutine that no interceptor sees.
func (s searchService) result(ctx context.Context, r *likenessv1.SearchRequest) *likenessv1.SearchResult {
	var answer *likenessv1.SearchResponse
	err := s.recovered(ctx, func() (err error) {
		if err = s.validate(r); err == nil {
			answer, err = s.answer(ctx, r)
		}
		return err
	})
	if err == nil {
		return &likenessv1.SearchResult{Result: &likenessv1.SearchResult_Response{Response: answer}}
	}
	st := statusOf(err)
	s.failures.log(ctx, st.Code(), err)
	return &likenessv1.SearchResult{Result: &likenessv1.SearchResult_Error{
		Error: &likenessv1.Error{Code: int32(st.Code()), Message: st.Message()},
	}}
}

func (s searchService) Score(ctx context.Context, r *likenessv1.ScoreRequest) (*likenessv1.ScoreResponse, error) {
	a, err := s.score(ctx, r, false)
	if err != nil {
		return nil, err
	}
	return fromScores(a), nil
}

func fromScores(a search.ScoreAnswer) *likenessv1.ScoreResponse {
	return &likenessv1.ScoreResponse{
		Scores: a.Scores, Missing: fromIDs(a.Missing), Model: &likenessv1.ModelRef{Name: a.Model, Version: a.Version},
		Certificate: fromCertificate(a.Certificate), Timings: &likenessv1.Timings{Embed: durationpb.New(a.Embed), Total: durationpb.New(a.Total)},
	}
}

func (s searchService) Explain(ctx context.Context, r *likenessv1.ExplainRequest) (*likenessv1.ExplainResponse, error) {
	a, err := s.score(ctx, r, true)
	if err != nil {
		return nil, err
	}
	return fromExplanations(a), nil
}

func fromExplanations(a search.ScoreAnswer) *likenessv1.ExplainResponse {
	out := &likenessv1.ExplainResponse{
		Explanations: make([]*likenessv1.Explanation, len(a.Explanations)),
		Missing:      fromIDs(a.Missing),
		Model:        &likenessv1.ModelRef{Name: a.Model, Version: a.Version},
	}
	for i := range a.Explanations {
		out.Explanations[i] = fromExplanation(&a.Explanations[i])
	}
	return out
}

func (s searchService) score(ctx context.Context, r scoring, explain bool) (search.ScoreAnswer, error) {
	request, err := toScoreRequest(r, explain)
	if err != nil {
		return search.ScoreAnswer{}, err
	}
	return s.scoreItems(ctx, request)
}

// scoreItems scores items of a route that the caller may use.
func (s *services) scoreItems(ctx context.Context, r search.ScoreRequest) (search.ScoreAnswer, error) {
	if err := allow(ctx, r.Route); err != nil {
		return search.ScoreAnswer{}, err
	}
	if err := checkDocuments(r.Documents); err != nil {
		return search.ScoreAnswer{}, err
	}
	if err := s.reserveScores(ctx, r); err != nil {
		return search.ScoreAnswer{}, err
	}
	return s.searcher.Score(ctx, r)
}
