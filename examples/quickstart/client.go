package main

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/learn/eval"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
)

const k = 10

// client asks the sidecar.
type client struct {
	likenessv1.SearchServiceClient
	storeName string
}

func newClient(conn *grpc.ClientConn, storeName string) *client {
	return &client{SearchServiceClient: likenessv1.NewSearchServiceClient(conn), storeName: storeName}
}

// answers are the answers to the questions of one task on one route.
type answers struct {
	rows       []int // of the questions
	rankings   []eval.Ranking
	took       []time.Duration // of a call, as the client saw it
	candidates float64         // mean
	proved     float64         // share of answers with the certificate exact or snapshot
	metrics    eval.Metrics
}

// ask sends every nth question of a task as r, one client a core.
func (c *client) ask(ctx context.Context, t *banking77.Task, every int, r *likenessv1.SearchRequest) (*answers, error) {
	pairs := eval.NewPairs(t.Relevant)
	a := &answers{}
	a.rows, _ = pairs.Choose(every)
	a.rankings, a.took = make([]eval.Ranking, len(a.rows)), make([]time.Duration, len(a.rows))
	responses := make([]*likenessv1.SearchResponse, len(a.rows))
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for i := int(next.Add(1)) - 1; i < len(a.rows); i = int(next.Add(1)) - 1 {
				start := time.Now()
				response, err := c.Search(ctx, &likenessv1.SearchRequest{
					Route: r.GetRoute(), K: k, Query: &likenessv1.Query{Vector: t.Vector(a.rows[i])},
					Strategy: r.GetStrategy(), Depth: r.GetDepth(), AverageDepth: r.GetAverageDepth(), Head: r.GetHead(),
				})
				if err != nil {
					return fmt.Errorf("route %s, question %d: %w", r.GetRoute(), a.rows[i], err)
				}
				a.took[i], responses[i] = time.Since(start), response
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	a.read(responses)
	a.metrics = eval.Measure(a.rankings, a.rows, pairs, k)
	return a, nil
}

func (a *answers) read(responses []*likenessv1.SearchResponse) {
	for i, response := range responses {
		for _, hit := range response.GetHits() {
			id := hit.GetId().GetNumber() // items are numbered by row
			a.rankings[i] = append(a.rankings[i], rerank.Scored{ID: rerank.UintID(id), Score: hit.GetScore(), Index: int(id)})
		}
		a.candidates += float64(response.GetCertificate().GetCandidates()) / float64(len(responses))
		switch response.GetCertificate().GetStatus() {
		case likenessv1.CertificateStatus_CERTIFICATE_STATUS_EXACT, likenessv1.CertificateStatus_CERTIFICATE_STATUS_SNAPSHOT:
			a.proved += 1 / float64(len(responses))
		default:
		}
	}
}
