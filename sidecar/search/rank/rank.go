// Package rank lets a route's heavy ranker order the answer of a search: it scores
// the best candidates in rounds, within a number of calls. Where the model is
// relevance-based, the ranker's scores of the support items make the query's vector.
package rank

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
	"github.com/likenessdb/likeness/sidecar/search/score"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// Ranking reports how a search used its ranker.
type Ranking struct {
	Ranker, Version string
	Calls, Budget   int // how many items the ranker scored, and how many it may score
	Rounds          int
	// Cut counts the items that should have been scored and were not.
	Cut    int
	Reason string // CutDeadline, CutBudget or CutFailed, if Cut is not 0
}

// Reasons why items were not scored by a ranker.
const (
	CutDeadline = "deadline"
	CutBudget   = "budget"
	CutFailed   = "failed"
)

// Spending counts how much a search asks of its route's ranker, and keeps the ranker's scores.
type Spending struct {
	Ranking
	// Time is the time that the ranker and the reads for it took; Fetching is the time of the reads of feature
	// rows.
	Time, Fetching time.Duration

	view      route.View
	log       *slog.Logger
	query     plugin.Query // the query as the client sent it
	wants     plugin.Description
	maxRounds int // the most rounds; 0 if the ranker does not order the answer
	keepRows  bool
	explains  bool // scores of the answer are explained
	// scores holds the ranker's scores. asked holds the items that need not be asked about again: those that the
	// ranker was asked about, scored or not, and those in gone, which the collection no longer has.
	scores map[rerank.ID]float32
	asked  map[rerank.ID]bool
	gone   map[rerank.ID]bool
	// candidates holds the items that any round found. rows holds the feature rows of scored items, if keepRows is
	// set; an item whose rows could not be read has an empty entry.
	candidates *retrieve.IDSet
	rows       map[rerank.ID]rerank.Items
	err        error // why items were not scored
	// planned is the number of candidates that all rounds together should score, known the number of scores before
	// the first round.
	planned, known int
	best           []rerank.ID // the first rows of the answer after the last round
}

// Begin returns what a search may ask of its route's ranker, or nil if the route has none, and the
// request with the query's vector. If that vector consists of the ranker's scores of the support
// items, Begin asks the ranker for them. It returns a *FieldError, ranker.ErrQuery,
// failure.ErrDegraded, or the context's error.
func Begin(ctx context.Context, v route.View, r plan.Request, log *slog.Logger) (*Spending, plan.Request, error) {
	if v.Ranker == nil {
		return nil, r, nil
	}
	s := &Spending{
		view: v, log: log, query: r.Query, scores: map[rerank.ID]float32{}, asked: map[rerank.ID]bool{}, gone: map[rerank.ID]bool{},
		candidates: retrieve.NewIDSet(0), rows: map[rerank.ID]rerank.Items{},
	}
	s.Ranker, s.Budget = v.RankerName, *r.Calls
	supports := v.ModelCan.Supports
	if supports != nil {
		s.query.Vector = nil // the ranker does not understand a vector of its own scores
	}
	fromSupports := supports != nil && len(r.Query.Vector) == 0
	switch {
	case s.Budget > 0:
	case fromSupports:
		s.Budget = v.SupportItems()
	default:
		return s, r, nil
	}
	s.wants, s.err = v.Ranker.Describe(ctx)
	s.Version = s.wants.Version
	if s.err == nil && s.wants.Text && s.query.Text == "" {
		return s, r, plan.BadField("query.text", "ranker %q reads it and it is empty; say in words what is searched for", v.RankerName)
	}
	if fromSupports {
		own := r.Query
		own.Vector = r.StoredVector
		q, err := s.queryFromSupports(ctx, supports, own)
		if err != nil {
			return s, r, err
		}
		r.Query = q
	}
	if *r.Calls > 0 && s.left() > 0 {
		s.maxRounds = r.Rounds
	}
	s.explains, s.keepRows = r.Explain, r.Explain || s.maxRounds > 1
	return s, r, nil
}

// UseView makes later calls use the view v, whose route was checked against its store.
func (s *Spending) UseView(v route.View) {
	if s != nil {
		s.view = v
	}
}

// OrdersAnswer reports whether the ranker orders the answer. It does not on a nil
// Spending.
func (s *Spending) OrdersAnswer() bool { return s != nil && s.maxRounds > 0 }

// KeepsRows reports whether to keep the feature rows of scored candidates, for an explanation or a
// later round.
func (s *Spending) KeepsRows() bool { return s != nil && s.keepRows }

// MadeVector reports whether the query's vector consists of the ranker's scores, so that it cannot
// be compared with stored vectors.
func (s *Spending) MadeVector() bool { return s != nil && len(s.query.Vector) == 0 }

// Candidates returns how many candidates the ranker may score.
func (s *Spending) Candidates() int {
	if !s.OrdersAnswer() {
		return 0
	}
	return s.left() + len(s.scores)
}

// Ranked reports whether the ranker scored an item.
func (s *Spending) Ranked(id rerank.ID) bool {
	if !s.OrdersAnswer() {
		return false
	}
	_, ok := s.scores[id]
	return ok
}

// Rows returns the feature rows of an item that the ranker scored.
func (s *Spending) Rows(id rerank.ID) (rerank.Items, bool) {
	if s == nil {
		return rerank.Items{}, false
	}
	items := s.rows[id]
	return items, items.Len() > 0
}

// GiveUp counts the remaining calls as cut, because the search failed.
func (s *Spending) GiveUp(reason string) { s.Cut, s.Reason = s.left(), reason }

// left returns the number of calls that may still be made.
func (s *Spending) left() int { return max(0, s.Budget-s.Calls) }

// queryFromSupports makes the query's vector from the ranker's scores of the support items.
func (s *Spending) queryFromSupports(ctx context.Context, model rerank.SupportAsker, q rerank.Query) (rerank.Query, error) {
	v := s.view
	ctx, sp := span.Step(ctx, "supports")
	defer sp.End()
	began := time.Now()
	defer func() { s.Time += time.Since(began) }()
	err := s.err
	if err == nil {
		q, err = model.Ask(ctx, s.scoreSupports, q)
	}
	sp.SetAttributes(attribute.Int("likeness.ranker.calls", s.Calls))
	switch {
	case err == nil:
		return q, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return q, ctx.Err()
	}
	span.Fail(ctx, sp, err)
	if errors.Is(err, ranker.ErrQuery) {
		return q, err
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "ranker failed: support items not scored", slog.String("route", v.Name), slog.String("ranker", v.RankerName), slog.Any("error", err))
	return q, fmt.Errorf("%w: route %q: the query has no vector, since ranker %q failed: %w", failure.ErrDegraded, v.Name, v.RankerName, err)
}

// scoreSupports implements rerank.Relevance for a search.
func (s *Spending) scoreSupports(ctx context.Context, ids []rerank.ID, _ rerank.Query) ([]float32, error) {
	items, err := s.supportItems(ctx, ids)
	if err != nil {
		return nil, err
	}
	if err := s.call(ctx, items); err != nil {
		return nil, err
	}
	scores := make([]float32, len(ids))
	for i, id := range ids {
		score, ok := s.scores[id]
		if !ok {
			return nil, fmt.Errorf("%w: it gave support item %s no score", ranker.ErrAnswer, id)
		}
		scores[i] = score
	}
	return scores, nil
}

// supportItems returns the support items as the ranker reads them, from the route's cache if it has
// them.
func (s *Spending) supportItems(ctx context.Context, ids []rerank.ID) ([]plugin.Item, error) {
	v := s.view
	if items, ok := v.SupportItemRows.Get(s.wants); ok {
		return items, nil
	}
	items, err := s.readItems(ctx, ids)
	if err != nil {
		return nil, err
	}
	if len(items) != len(ids) {
		return nil, fmt.Errorf("%w: %d of the %d support items of model %q are not in collection %q; fit the model again", adapters.ErrStore,
			len(ids)-len(items), len(ids), v.Model.Name, v.Collection)
	}
	v.SupportItemRows.Put(items, s.wants)
	return items, nil
}

// call asks the ranker about items once and keeps its scores. After an error it keeps the scores
// that came before.
func (s *Spending) call(ctx context.Context, items []plugin.Item) error {
	for _, it := range items {
		s.asked[it.ID] = true
	}
	got, err := s.view.RankWithin(ctx, s.query, items, max(1, s.left()))
	s.Calls += got.Calls
	switch {
	case len(got.Scores) != len(items) && (err == nil || len(got.Scores) > 0):
		return errors.Join(err, fmt.Errorf("%w: %d scores of %d items", ranker.ErrAnswer, len(got.Scores), len(items)))
	case len(s.scores) > 0 && got.Version != s.Version:
		return errors.Join(err, fmt.Errorf("%w: its version was %q and then %q, and their scores cannot be compared", ranker.ErrAnswer, s.Version, got.Version))
	}
	for i, x := range got.Scores {
		if rerank.IsFinite(x) {
			s.scores[items[i].ID] = x
			s.Version = got.Version
		}
	}
	return err
}

// scoredItems returns every item with a score of the ranker, best first.
func (s *Spending) scoredItems() []rerank.Scored {
	out := make([]rerank.Scored, 0, len(s.scores))
	for id, x := range s.scores {
		out = append(out, rerank.Scored{ID: id, Score: x})
	}
	slices.SortFunc(out, score.Compare)
	return out
}

// scoredCandidates returns the candidates with a score of the ranker, best first.
func (s *Spending) scoredCandidates() []rerank.Scored {
	var out []rerank.Scored
	for _, id := range s.candidates.IDs {
		if x, ok := s.scores[id]; ok {
			out = append(out, rerank.Scored{ID: id, Score: x})
		}
	}
	slices.SortFunc(out, score.Compare)
	return out
}
