package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Search answers one request. Beside what Searcher says, it returns
// adapters.ErrUnavailable if the store is down, and the context's error if the
// caller's own deadline passed or it went away.
func (p *Pipeline) Search(ctx context.Context, r Request) (Answer, error) {
	began := time.Now()
	a, err := p.search(ctx, r)
	err = withFilter(err, r.Filter)
	a.Timings.Total = time.Since(began)
	if p.observer != nil {
		p.observer.Searched(ctx, r.Route, r, a, err)
	}
	return a, err
}

func (p *Pipeline) search(ctx context.Context, r Request) (Answer, error) {
	ctx, span := p.tracer.Start(ctx, "likeness.search")
	defer span.End()
	l, err := p.find(ctx, r.Route)
	if err != nil {
		fail(span, err)
		return Answer{}, err
	}
	defer l.release()
	if span.IsRecording() {
		span.SetAttributes(attribute.String("likeness.route", r.Route))
	}
	a, err := p.searchOn(ctx, l, r)
	if err != nil {
		fail(span, err)
	}
	return a, err
}

// searchOn answers a request on a lane that the caller holds.
func (p *Pipeline) searchOn(ctx context.Context, l *lane, r Request) (Answer, error) {
	if o := l.current(); r.Collection == "" && o.aliased() {
		return p.searchAlias(ctx, l, o, r)
	}
	return p.searchCollection(ctx, l, r)
}

// searchCollection answers a request from one collection: the one that it names, or the
// route's.
func (p *Pipeline) searchCollection(ctx context.Context, l *lane, r Request) (Answer, error) {
	o := l.current().on(r.Collection)
	seen := o.resident()
	defer seen.release()
	ctx, cancel := o.withTimeout(ctx)
	defer cancel()
	s, err := p.begin(ctx, l, o, seen, r)
	if err == nil {
		err = s.answerTo(ctx)
	}
	if err != nil {
		return Answer{}, err
	}
	return s.answer, nil
}

// search is one request on its way through the four steps.
type search struct {
	*Pipeline
	*opened
	resident // hides the route's own table
	lane     *lane
	r        Request // with the route's defaults
	device   Device  // that takes the request's query; nil: none
	enc      rerank.Encoded

	probes []rerank.Probe
	lists  []rerank.List
	seen   *idSet
	hits   []rerank.Scored // the best so far, sorted; Index counts scored candidates
	scored int             // here
	left   int             // on a device, and not here
	// measured is what a scan on a device rests on; nil: a bound.
	measured *rerank.Measured
	rough    rough
	keeps    bool    // what was scored is looked at again
	kept     []batch // what was scored
	answer   Answer

	// k is the K of the request; r.K is greater where a ranker or another page needs
	// more candidates.
	k        int
	spending *spending // nil: the route has no ranker
}

// begin checks a request: first what needs no call, then, if the route was
// never checked against its store, that.
func (p *Pipeline) begin(ctx context.Context, l *lane, o *opened, seen resident, r Request) (s *search, err error) {
	s = &search{Pipeline: p, lane: l, opened: o, resident: seen}
	if s.r, err = o.resolve(r); err != nil {
		return nil, err
	}
	if err := s.ask(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if s.enc, err = o.Model.Encode(s.r.Query); err != nil {
		return nil, err
	}
	s.answer.Timings.Encode = time.Since(began)
	s.device = o.Device
	s.answer.Strategy, s.answer.Model, s.answer.Version = s.r.Strategy, o.Model.Name, o.Model.Version
	if err := s.decide(ctx, r); err != nil {
		return nil, err
	}
	chosen := s.r.Strategy
	s.widen()
	s.keeps = s.r.Explain || s.ranks() && s.spending.rounds > 1
	s.rough = s.roughness()
	if err := s.makeProbes(ctx, s.r); err != nil || o.agreed || !needsStore(s.r) {
		return s, err
	}
	if s.opened, err = l.open(ctx); err != nil {
		return nil, err
	}
	s.opened = s.opened.on(cmp.Or(r.Collection, s.opened.target)) // the name may be an alias
	r.Strategy, r.Query = chosen, s.r.Query
	if s.r, err = s.opened.resolve(r); err != nil {
		return nil, err
	}
	s.widen()
	return s, s.makeProbes(ctx, s.r)
}

// makeProbes makes the probes of a round.
func (s *search) makeProbes(ctx context.Context, r Request) (err error) {
	if r.Strategy == rerank.Scan {
		return nil
	}
	_, span := s.span(ctx, "probes")
	defer span.End()
	began := time.Now()
	s.probes, err = s.enc.Probes(s.plan(s.deepen(r)))
	s.answer.Timings.Encode += time.Since(began)
	switch {
	case err != nil:
		return err
	case len(s.probes) == 0:
		return fmt.Errorf("%w: %s makes no probes for this query", rerank.ErrStrategy, r.Strategy)
	}
	if err := s.checkProbes(s.probes); err != nil {
		return badField("strategy", "%v", err)
	}
	return nil
}

func (o *opened) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.Timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, o.Timeout)
}

// answerTo fills the answer in, or falls back as the route's policy says.
func (s *search) answerTo(ctx context.Context) error {
	err := s.rescored(ctx)
	var f *failure
	if errors.As(err, &f) {
		err = s.degrade(ctx, f)
	}
	if err != nil {
		s.lane.forget(err)
		return err
	}
	if err := s.addPayload(ctx); err != nil {
		return err
	}
	s.confirm(ctx)
	return nil
}

// rescored is the four steps, with time kept back for the answer of degrade.
func (s *search) rescored(ctx context.Context) error {
	ctx, cancel := s.reserve(ctx)
	defer cancel()
	var err error
	if s.r.Strategy == rerank.Scan {
		err = s.scan(ctx)
	} else {
		err = s.rounds(ctx)
	}
	if err != nil {
		return err
	}
	s.measure()
	if err := s.rank(ctx); err != nil {
		return err
	}
	s.cut()
	for _, h := range s.hits {
		s.answer.Hits = append(s.answer.Hits, Hit{ID: h.ID, Score: h.Score, Ranked: s.ranked(h.ID)})
	}
	return s.explain()
}

// rounds searches, scores and certifies, deeper every time, until stop.
func (s *search) rounds(ctx context.Context) error {
	r := s.deepen(s.r)
	var last rerank.Certificate
	for round := 1; ; round++ {
		began := time.Now()
		if err := s.round(ctx, round); err != nil {
			if stop := s.cutShort(ctx, round, err); stop != "" {
				s.answer.Certificate.Stop = stop
				return nil
			}
			return err
		}
		s.certify(ctx, r, round)
		lists := s.listCertificate(round)
		if stop := s.stop(ctx, r, lists, last, time.Since(began)); stop != "" {
			s.answer.Certificate.Stop = stop
			return nil
		}
		last = lists
		r.Depth, r.AverageDepth = min(2*r.Depth, s.MaxDepth), min(2*r.AverageDepth, s.MaxDepth)
		if err := s.makeProbes(ctx, r); err != nil {
			return err
		}
	}
}

// cutShort says why a later round ended early: what was found before it still holds.
func (s *search) cutShort(ctx context.Context, round int, err error) rerank.Stop {
	switch {
	case round == 1:
		return ""
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return rerank.StopDeadline
	case errors.Is(err, adapters.ErrLimit):
		return rerank.StopLimit
	default:
		return ""
	}
}

// round retrieves lists of the depth and scores the candidates that are new.
func (s *search) round(ctx context.Context, round int) error {
	lists, err := s.retrieve(ctx, round)
	if err != nil {
		return err
	}
	fresh, err := s.union(lists, round)
	if err != nil {
		return err
	}
	batches, err := s.features(ctx, fresh, lists, round)
	if err != nil {
		return err
	}
	err = s.score(ctx, batches)
	for i := range batches {
		if !s.keeps {
			batches[i].free()
		}
	}
	if err != nil {
		return err
	}
	s.lists = lists
	return nil
}
