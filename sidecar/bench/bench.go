// Package bench measures how the time of a search is divided among the four steps, the
// store, and the sidecar itself.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// warmUp is the number of searches before the measurement.
const warmUp = 10

// Quantiles are in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// Result summarises the times of one case's searches, which ran one after the other.
type Result struct {
	Case       string          `json:"case"`
	Strategy   rerank.Strategy `json:"strategy"`
	Placement  route.Placement `json:"placement"`
	Searches   int             `json:"searches"`
	Candidates float64         `json:"candidates"` // mean

	Encode   Quantiles `json:"encode"`
	Retrieve Quantiles `json:"retrieve"` // includes the store's time
	Score    Quantiles `json:"score"`
	Certify  Quantiles `json:"certify"`
	Total    Quantiles `json:"total"`
	// Store is the time spent inside an in-process store.
	Store *Quantiles `json:"store,omitempty"`
	// Own is the sidecar's share of the time. With an in-process store it is the total
	// minus the store's time. With a server it is the CPU time of this process, which
	// includes encoding requests and decoding answers.
	Own Quantiles `json:"own"`
	// Events says what events would add; nil unless that was measured.
	Events *EventsCost `json:"events,omitempty"`
}

// clock returns the time spent on something since its previous call.
type clock func() time.Duration

// Run opens a route and searches it for every query once, after some searches that are not measured. inStore
// measures the time inside an in-process store. If it is nil, the store is a server, and the sidecar's share
// is measured as CPU time. Unless turns is 0, Run then compares searches with and without events in as many
// turns. It returns the first error of a search, and an error for a degraded answer, because the time of
// neither is meaningful.
func Run(ctx context.Context, of *route.Route, r search.Request, queries []rerank.Query, inStore clock, turns int) (_ Result, err error) {
	r.Route = of.Name
	options, kept := search.Options{}, (*keptEvents)(nil)
	if turns > 0 {
		if kept, err = openEvents(r.Route); err != nil {
			return Result{}, err
		}
		defer func() { err = errors.Join(err, kept.close()) }()
		options.Events = events.Book{r.Route: kept.route}
	}
	p, err := search.New([]*route.Route{of}, options)
	if err != nil {
		return Result{}, err
	}
	if err := p.Open(ctx); err != nil {
		return Result{}, err
	}
	result, err := runSteps(ctx, p, r, queries, inStore)
	if err == nil && turns > 0 {
		result.Events, err = kept.compare(ctx, p, r, queries, turns)
	}
	if err != nil {
		return Result{}, fmt.Errorf("route %s: %w", r.Route, err)
	}
	result.Case, result.Placement = r.Route, p.Routes()[0].Placement
	return result, nil
}

// runSteps measures the steps of the searches.
func runSteps(ctx context.Context, p *search.Engine, r search.Request, queries []rerank.Query, inStore clock) (Result, error) {
	own := inStore
	if own == nil {
		own = processorTime()
	}
	m := &samples{inStore: inStore != nil}
	for i := range warmUp + len(queries) {
		r.Query = queries[i%len(queries)]
		own()
		answer, err := searchWhole(ctx, p, r)
		spent := own()
		if err != nil {
			return Result{}, err
		}
		if i >= warmUp {
			m.add(answer, spent)
		}
	}
	return m.result(), nil
}

// searchWhole returns an answer, or an error if the answer is degraded.
func searchWhole(ctx context.Context, p *search.Engine, r search.Request) (search.Answer, error) {
	answer, err := p.Search(ctx, r)
	if err == nil && answer.Degraded != nil {
		err = fmt.Errorf("%s: %s", answer.Degraded.Reason, answer.Degraded.Detail)
	}
	return answer, err
}

// samples holds one duration per search.
type samples struct {
	inStore                                        bool
	encode, retrieve, score, certify, total, store []time.Duration
	own                                            []time.Duration
	candidates                                     int
	strategy                                       rerank.Strategy
}

func (m *samples) add(a search.Answer, spent time.Duration) {
	t := a.Timings
	m.encode, m.retrieve = append(m.encode, t.Encode), append(m.retrieve, t.Retrieve)
	m.score, m.certify, m.total = append(m.score, t.Score), append(m.certify, t.Certify), append(m.total, t.Total)
	m.candidates += a.Certificate.Candidates
	m.strategy = a.Strategy
	if !m.inStore {
		m.own = append(m.own, spent)
		return
	}
	m.store = append(m.store, spent)
	m.own = append(m.own, t.Total-spent)
}

func (m *samples) result() Result {
	r := Result{
		Strategy: m.strategy, Searches: len(m.total), Candidates: float64(m.candidates) / float64(len(m.total)),
		Encode: quantiles(m.encode), Retrieve: quantiles(m.retrieve), Score: quantiles(m.score),
		Certify: quantiles(m.certify), Total: quantiles(m.total), Own: quantiles(m.own),
	}
	if m.inStore {
		store := quantiles(m.store)
		r.Store = &store
	}
	return r
}

func quantiles(d []time.Duration) Quantiles {
	return Quantiles{P50: eval.Percentile(d, 0.50), P99: eval.Percentile(d, 0.99)}
}
