// Package search answers a query in four steps: plan, retrieve, score, certify,
// deeper each round while that pays; then a heavy ranker may order the answer. Each
// step is a package of its own; this one alone knows all of them. Where φ is one inner
// product with the stored vector, one search of the store is all four (searchRewritten).
package search

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/internal/caught"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/certify"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/rank"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// searchVersion answers a request on a version of a route. The caller holds the version.
func (e *Engine) searchVersion(ctx context.Context, version *route.Version, r Request) (Answer, error) {
	find := e.searchCollection
	if r.Collection == "" && version.Current().NamesAlias() {
		find = e.searchAlias
	}
	a, err := find(ctx, version, r)
	if err != nil {
		return a, err
	}
	if r.Collection == "" && version.Current().NameHidden {
		a.Certificate = certify.Unproved(a.Certificate)
	}
	if r.RequireExact && a.Certificate.Status != rerank.StatusExact {
		return Answer{}, fmt.Errorf("%w: %s", ErrNotExact, whyNotExact(a.Certificate))
	}
	return a, nil
}

// whyNotExact returns why an answer is not exact, and what would make it exact.
func whyNotExact(c rerank.Certificate) string {
	if c.Status == rerank.StatusSnapshot {
		return fmt.Sprintf("it is proved of a table or companion as of %s, and later writes may have bypassed this sidecar; "+
			"search the database itself, or declare writes: proxy if it is so", c.AsOf.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("its certificate is %s, and the search stopped because of %s; search a route with exact_search, or leave require_exact out", c.Status, c.Stop)
}

// searchCollection answers a request from one collection: the collection that it names, or the
// route's.
func (e *Engine) searchCollection(ctx context.Context, version *route.Version, r Request) (Answer, error) {
	ctx, cancel := version.Current().WithTimeout(ctx)
	defer cancel()
	if !isScan(version.Current(), r) || version.Current().Writes == route.WritesProxy {
		version.ConfirmField(ctx, r.Collection)
	}
	view := version.Current().ForCollection(r.Collection).View()
	defer view.Release()
	s := &search{engine: e, view: view}
	ctx = s.trace(ctx)
	if err := s.begin(ctx, version, r); err != nil {
		return Answer{}, err
	}
	err := caught.Call(func() error { return s.rescore(ctx) })
	if errors.Is(err, caught.ErrPanic) {
		err = &failure.Error{Reason: failure.Scoring, Err: err}
	}
	var f *failure.Error
	if errors.As(err, &f) {
		err = s.fallBack(ctx, f)
	}
	if err != nil {
		version.Forget(err)
		return Answer{}, err
	}
	e.logWrongNorm(ctx, s.view.Checked)
	if err := s.addPayload(ctx); err != nil {
		return Answer{}, err
	}
	s.dropDeleted(ctx)
	s.addTimings()
	return s.answer, nil
}

// isScan reports whether a request, or else its route, asks for a scan, which reads a table alone.
func isScan(c *route.Checked, r Request) bool { return cmp.Or(r.Strategy, c.Strategy) == rerank.Scan }

// logWrongNorm logs the first row seen that contradicts the route's unit_vectors.
func (e *Engine) logWrongNorm(ctx context.Context, c *route.Checked) {
	if w := c.Norms.WrongOnce(); w != nil {
		e.log.WarnContext(ctx, "vector without norm 1 found on a route with unit_vectors, answers from first-stage lists are not certified until the route is opened again",
			"route", c.Name, "id", w.ID.String(), "norm", w.Norm, "remedy", "normalise the vectors, or remove unit_vectors")
	}
}

// search is one request on its way through the four steps.
type search struct {
	engine   *Engine
	view     route.View
	scope    *span.Scope
	plan     *plan.Plan
	spending *rank.Spending // nil: the route has no ranker
	answer   Answer
	// payloadIsThere: the list brought the hits' payload along.
	payloadIsThere bool
}

// rescore runs the steps after the plan, and the ranker. It ends early enough to leave time
// for fallBack.
func (s *search) rescore(ctx context.Context) error {
	ctx, cancel := s.keepTimeBack(ctx)
	defer cancel()
	f := s.newFinder(s.plan)
	f.scorer.Device = s.view.Device
	err := f.find(ctx)
	s.view = f.view // find may have settled the view's doubt
	s.answer.Timings.add(f.timings)
	s.answer.NotFinite, s.answer.NotIndexed, s.answer.Certificate = f.found.NotFinite, f.reader.NotIndexed, f.certificate
	if err != nil {
		return err
	}
	s.countCosts(f)
	hits := f.found.Hits
	if s.spending.OrdersAnswer() {
		if hits, err = s.rank(ctx, f); err != nil {
			return err
		}
	}
	hits = hits[:min(s.plan.AnswerRows, len(hits))] // the other hits are for other pages
	for _, h := range hits {
		s.answer.Hits = append(s.answer.Hits, Hit{ID: h.ID, Score: h.Score, Ranked: s.spending.Ranked(h.ID)})
	}
	s.takePayload(f, hits)
	s.takeVersions(f)
	s.countReembedded(f)
	return s.explain(f, hits)
}

// countReembedded says how many candidates have a vector of the new model, on a route that embeds its
// items again.
func (s *search) countReembedded(f *finder) {
	if !s.view.Reembeds() {
		return
	}
	r := &Reembedded{Candidates: f.found.Scored, New: len(f.reader.New)}
	for _, h := range s.answer.Hits {
		if !f.reader.New[h.ID] {
			r.Bridged = append(r.Bridged, h.ID)
		}
	}
	s.answer.Reembedded = r
}

// takePayload adds the payload that came with the list of a rewritten search.
func (s *search) takePayload(f *finder, hits []rerank.Scored) {
	if s.payloadIsThere = retrieve.WithPayload(f.plan); !s.payloadIsThere {
		return
	}
	payloads := make(map[rerank.ID]json.RawMessage, len(hits))
	for i, id := range f.lists[0].IDs {
		payloads[id] = f.lists[0].Payloads[i]
	}
	for i, h := range hits {
		s.answer.Hits[i].Payload = payloads[h.ID]
	}
}

// takeVersions adds the versions that came with the last lists, if the lists have all hits.
func (s *search) takeVersions(f *finder) {
	if !s.plan.Request.Versions || f.plan.Request.Strategy == rerank.Scan {
		return
	}
	left := make(map[rerank.ID]*Hit, len(s.answer.Hits))
	for i := range s.answer.Hits {
		left[s.answer.Hits[i].ID] = &s.answer.Hits[i]
	}
	for _, l := range f.lists {
		for i, version := range l.Versions {
			if h := left[l.IDs[i]]; h != nil {
				h.Version = version
				delete(left, l.IDs[i])
			}
		}
	}
	s.answer.HasVersions = len(left) == 0
}

// countCosts records how long the search took; later searches use it to choose between a scan and
// the first stage.
func (s *search) countCosts(f *finder) {
	switch {
	case s.view.Costs == nil || !s.plan.Request.IsUnrestricted() || f.certificate.Rounds > 1:
	case s.plan.Request.Strategy == rerank.Scan:
		s.view.Costs.AddScan(f.timings.Score, f.found.Scored)
	default:
		s.view.Costs.AddFirstStage(f.timings.Retrieve + f.timings.Score)
	}
}

// addTimings adds the time for encoding and for the ranker to the answer.
func (s *search) addTimings() {
	s.answer.Timings.Encode += s.plan.Encoding
	if s.spending != nil {
		s.answer.Timings.Rank, s.answer.Timings.Retrieve = s.spending.Time, s.answer.Timings.Retrieve+s.spending.Fetching
	}
}

func (t *Timings) add(more Timings) {
	t.Encode += more.Encode
	t.Retrieve += more.Retrieve
	t.Score += more.Score
	t.Certify += more.Certify
}
