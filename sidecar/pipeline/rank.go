package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// widen makes the search find as many candidates as the ranker may score and as the
// query's pages may show. A scan is exact at every K, so pages do not widen it.
func (s *search) widen() {
	s.k = s.r.K
	if s.r.Strategy != rerank.Scan {
		s.r.K = max(s.k, s.within(s.r.MaxRank))
	}
	if s.ranks() {
		s.r.K = max(s.r.K, s.within(s.spending.left()+len(s.spending.scores)))
	}
}

// cut drops the hits behind the requested K, which a search finds for other pages.
func (s *search) cut() { s.hits = s.hits[:min(s.k, len(s.hits))] }

// certifiedK returns the number of hits that the certificate speaks of: the requested
// K, or all candidates of a ranker, which chooses among them.
func (s *search) certifiedK() int {
	if s.ranks() {
		return s.r.K
	}
	return s.k
}

// within is a number of candidates, or as many as the first stage may find.
func (s *search) within(candidates int) int {
	if s.r.Strategy == rerank.Scan {
		return candidates
	}
	return min(candidates, s.MaxDepth)
}

// rank has the ranker score the best candidates, in rounds, and puts those that it
// scored first. What came before an error counts.
func (s *search) rank(ctx context.Context) error {
	if !s.ranks() {
		return nil
	}
	p := s.spending
	shares := rbe.Shares(p.left(), p.rounds)
	before, planned := p.Calls, 0
	p.planned, p.known = len(p.unseen(s.hits, p.left())), len(p.scores)
	found, from := s.hits, s
	var top []rerank.ID
	for round, share := range shares {
		planned += share
		if round > 0 && len(p.scored()) > 0 {
			found, from = s.again(ctx, planned-(p.Calls-before))
		}
		p.add(found)
		if p.err == nil {
			p.Rounds++
			p.err = s.rankBest(ctx, from, found, before+planned)
		}
		last := top
		top = p.best(s.k)
		if p.err != nil || p.left() == 0 || round > 0 && len(top) == s.k && slices.Equal(top, last) {
			break
		}
	}
	return s.order(ctx)
}

// rankBest scores the best of what the search from found, until so many calls were
// made in all.
func (s *search) rankBest(ctx context.Context, from *search, found []rerank.Scored, calls int) error {
	p := s.spending
	ctx, span := s.span(ctx, "rank", attribute.Int("likeness.ranker.round", p.Rounds))
	defer span.End()
	began, before := time.Now(), p.Calls
	defer func() {
		s.answer.Timings.Rank += time.Since(began)
		span.SetAttributes(attribute.Int("likeness.ranker.calls", p.Calls-before))
	}()
	var err error
	for err == nil {
		next := p.unseen(found, min(calls, p.Budget)-p.Calls)
		if len(next) == 0 {
			break
		}
		err = s.rankItemsOf(ctx, next)
	}
	if s.keeps {
		for _, h := range found {
			if _, ok := p.scores[h.ID]; ok && p.rows[h.ID].Len() == 0 {
				p.rows[h.ID] = from.itemsOf(h)
			}
		}
	}
	if err != nil {
		fail(span, err)
	}
	return err
}

// rankItemsOf scores items; those that the collection does not have any more are none.
func (s *search) rankItemsOf(ctx context.Context, ids []rerank.ID) error {
	p := s.spending
	items, err := s.rankItems(ctx, ids)
	if err != nil {
		return err
	}
	at := 0
	for _, id := range ids {
		if at < len(items) && items[at].ID == id {
			at++
			continue
		}
		p.asked[id], p.gone[id] = true, true
	}
	if len(items) == 0 {
		return nil
	}
	return s.call(ctx, items)
}

// add counts candidates in.
func (p *spending) add(found []rerank.Scored) {
	for _, h := range found {
		p.found.add(h.ID, 0)
	}
}

// unseen are the first n of the candidates that the ranker was not asked of.
func (p *spending) unseen(found []rerank.Scored, n int) (ids []rerank.ID) {
	for _, h := range found {
		if len(ids) >= n {
			break
		}
		if !p.asked[h.ID] {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// scored are the candidates with a score of the ranker, best first.
func (p *spending) scored() []rerank.Scored {
	var out []rerank.Scored
	for _, id := range p.found.ids {
		if score, ok := p.scores[id]; ok {
			out = append(out, rerank.Scored{ID: id, Score: score})
		}
	}
	slices.SortFunc(out, compare)
	return out
}

// best are the first k of the scored candidates.
func (p *spending) best(k int) []rerank.ID {
	scored := p.scored()
	ids := make([]rerank.ID, 0, k)
	for _, h := range scored[:min(k, len(scored))] {
		ids = append(ids, h.ID)
	}
	return ids
}

// order puts the candidates that the ranker scored first, the others by φ behind.
func (s *search) order(ctx context.Context) error {
	p := s.spending
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	s.join(ctx)
	ranked := p.scored()
	if len(ranked) == 0 && len(s.hits) > 0 && p.err == nil && len(p.gone) < len(s.hits) {
		p.err = fmt.Errorf("%w: it gave none of %d items a score", ranker.ErrAnswer, len(p.asked))
	}
	p.cut(ctx)
	if p.err != nil && p.Reason != CutDeadline {
		s.log.LogAttrs(ctx, slog.LevelWarn, "the ranker failed", slog.String("route", s.Name), slog.String("ranker", s.RankerName),
			slog.Int("scored", len(ranked)), slog.Any("error", p.err))
	}
	if len(ranked) == 0 && p.err != nil {
		return s.unranked()
	}
	rest := slices.DeleteFunc(slices.Clone(s.hits), func(h rerank.Scored) bool {
		_, scored := p.scores[h.ID]
		return scored || p.gone[h.ID]
	})
	s.hits = slices.Concat(ranked, rest)
	s.cut()
	if unranked := len(s.hits) - len(ranked); p.Cut == 0 && unranked > 0 {
		p.Cut, p.Reason = unranked, CutBudget
	}
	s.uncertain()
	return nil
}

// join adds the support items that the ranker puts among the first K and that no
// round found: what it was asked of them counts. Which items a filter lets through
// only the store knows.
func (s *search) join(ctx context.Context) {
	p := s.spending
	if !s.whole() {
		return
	}
	ranked := p.scored()
	var ids []rerank.ID
	for id, score := range p.scores {
		if !p.found.has(id) && (len(ranked) < s.k || score >= ranked[s.k-1].Score) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	src := source{opened: s.opened, resident: s.resident, tracer: s.tracer}
	batches, err := src.read(ctx, ids) // only those that are there
	s.answer.Timings.Retrieve += src.fetching
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "support items left out", slog.String("route", s.Name), slog.Any("error", err))
		return
	}
	for _, b := range batches {
		for i, id := range b.ids {
			p.found.add(id, 0)
			p.rows[id] = b.one(i)
		}
	}
}

// cut counts the items that were to be scored and were not.
func (p *spending) cut(ctx context.Context) {
	for id := range p.asked {
		if _, ok := p.scores[id]; !ok && !p.gone[id] {
			p.Cut++
		}
	}
	if p.err != nil {
		p.Cut = max(p.Cut, p.planned-len(p.gone)-(len(p.scores)-p.known))
	}
	switch {
	case p.Cut == 0:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		p.Reason = CutDeadline
	default:
		p.Reason = CutFailed
	}
}

// unranked answers in the order of φ where the ranker scored nothing, as the route's
// policy says.
func (s *search) unranked() error {
	err := s.spending.err
	switch {
	case errors.Is(err, ranker.ErrQuery):
		return err
	case s.Failure == FailClosed || s.r.NoFallback:
		return fmt.Errorf("%w: route %q: ranker %q: %w", ErrDegraded, s.Name, s.RankerName, err)
	}
	s.cut()
	s.answer.Degraded = &Degraded{Reason: ReasonRanker, Detail: err.Error()}
	s.uncertain()
	return nil
}

// uncertain takes back what a certificate says of φ: of a ranker's order nothing is
// proved.
func (s *search) uncertain() { s.answer.Certificate = unproved(s.answer.Certificate) }

// unproved returns a certificate that claims nothing, and still says what was done.
func unproved(c rerank.Certificate) rerank.Certificate {
	inf := float32(math.Inf(1))
	return rerank.Certificate{
		Status: rerank.StatusUnknown, Gap: inf, Max: inf, KthScore: -inf,
		Stop: c.Stop, Depth: c.Depth, Rounds: c.Rounds, Candidates: c.Candidates,
	}
}
