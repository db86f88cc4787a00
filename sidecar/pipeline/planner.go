package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
)

// planner chooses between the scan of the table and the route's first stage by what
// both took here. It is safe for concurrent use.
type planner struct {
	mu       sync.Mutex
	scan     cost // of one item
	stage    cost // of a search: the store, its features and their scores
	searches int
}

// cost is a running mean of seconds; 0: nothing was measured yet.
type cost struct{ seconds float64 }

// add counts a measurement; the last eight weigh most.
func (c *cost) add(took float64) {
	if c.seconds == 0 {
		c.seconds = took
		return
	}
	c.seconds += (took - c.seconds) / 8
}

// replan is after how many searches the other way is measured again, if it was not
// more than four times as slow.
const replan = 128

// choose returns the way for a search over items, and why.
func (p *planner) choose(items int, stage rerank.Strategy) (rerank.Strategy, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	whole := p.scan.seconds * float64(items)
	if p.stage.seconds == 0 {
		return stage, fmt.Sprintf("%s, to measure the first stage", stage)
	}
	p.searches++
	again := p.searches%replan == 0 && max(whole, p.stage.seconds) < 4*min(whole, p.stage.seconds)
	chosen := stage
	if whole <= p.stage.seconds != again {
		chosen = rerank.Scan
	}
	why := fmt.Sprintf("%s: a scan of %d items takes %.2f ms here, %s %.2f ms", chosen, items, whole*1e3, stage, p.stage.seconds*1e3)
	if again {
		why += "; measured again"
	}
	return chosen, why
}

// scanned and staged count what a search took.
func (p *planner) scanned(took time.Duration, items int) {
	if items > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.scan.add(took.Seconds() / float64(items))
	}
}

func (p *planner) staged(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage.add(took.Seconds())
}

// measured reports whether a scan was.
func (p *planner) measured() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.scan.seconds > 0
}

// plans reports whether the planner may choose for the request.
func (s *search) plans(asked Request) bool {
	return s.ScanIfFaster && asked.Strategy == "" && s.r.Strategy != rerank.Scan && s.Table != nil && s.Table.Len() > 0 &&
		len(s.r.Partitions) == 0 && (s.r.Filter == "" || s.filtersTable())
}

// decide chooses the strategy of a request that leaves it to the route.
func (s *search) decide(ctx context.Context, asked Request) error {
	if !s.plans(asked) {
		return nil
	}
	if err := s.try(ctx); err != nil {
		return err
	}
	s.r.Strategy, s.answer.Plan = s.planner.choose(s.Table.Len(), s.r.Strategy)
	s.answer.Strategy = s.r.Strategy
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("likeness.plan", s.answer.Plan))
	return nil
}

// try measures a scan by this query, if none was: a route that was opened has done
// so at start.
func (s *search) try(ctx context.Context) error {
	if s.planner.measured() {
		return nil
	}
	return s.tryScan(ctx, s.resident, s.enc)
}

// measureScan measures a scan when the route is opened, where its planner needs it.
func (o *opened) measureScan(ctx context.Context) error {
	if o.planner == nil || o.planner.measured() {
		return nil
	}
	e, err := o.trialQuery()
	if err != nil {
		return nil // no query of ones: the first search measures
	}
	seen := o.resident()
	defer seen.release()
	return o.tryScan(ctx, seen, e)
}

// tryScan measures a scan: the second, which finds the table in memory.
func (o *opened) tryScan(ctx context.Context, r resident, e rerank.Encoded) error {
	for i := range 2 {
		began := time.Now()
		found, err := o.scannerOf(r.Table).Scan(ctx, scan.Query{Encoded: e, K: 10}, nil)
		if err != nil {
			return timedOut(ctx, err)
		}
		if i > 0 {
			o.planner.scanned(time.Since(began), found.Items)
		}
	}
	return nil
}

// measure counts what the search took.
func (s *search) measure() {
	t := s.answer.Timings
	switch {
	case s.planner == nil || !s.whole() || s.answer.Certificate.Rounds > 1:
	case s.r.Strategy == rerank.Scan:
		s.planner.scanned(t.Score, s.scored)
	default:
		s.planner.staged(t.Retrieve + t.Score)
	}
}
