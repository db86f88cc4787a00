package rank

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
	"github.com/likenessdb/likeness/sidecar/search/score"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// Candidates are the items that one search found for the ranker to score.
type Candidates struct {
	Hits []rerank.Scored
	// Rows returns the feature rows of a hit. Round calls it only if Spending.KeepsRows is true.
	Rows func(rerank.Scored) rerank.Items
	// Database lists items in the order of the store. Round spends calls on them before it scores Hits.
	Database []rerank.ID
}

// FirstShare returns the number of calls of the first round.
func (s *Spending) FirstShare() int { return rbe.Shares(s.left(), s.maxRounds)[0] }

// FromDatabase returns the first n items of the store's order that the ranker was not asked about.
func (s *Spending) FromDatabase(hits []rerank.Scored, n int) []rerank.ID {
	return s.unasked(Candidates{Hits: hits}, n)
}

// Asked returns the number of items that the ranker was asked about.
func (s *Spending) Asked() int { return len(s.asked) }

// Shares divides the remaining calls among the rounds. It returns, for each round, the total number of calls that
// the search may have made when the round ends. first are the candidates of the first round.
func (s *Spending) Shares(first Candidates) []int {
	s.planned, s.known = len(s.unasked(first, s.left())), len(s.scores)
	shares := rbe.Shares(s.left(), s.maxRounds)
	total := s.Calls
	for i, n := range shares {
		total += n
		shares[i] = total
	}
	return shares
}

// Round lets the ranker score the best candidates that it was not asked about yet, until it was
// asked calls times in all. It reports whether another round can change the first k rows of the
// answer. Errors are kept for Order.
func (s *Spending) Round(ctx context.Context, c Candidates, calls, k int) (more bool) {
	for _, id := range c.Database {
		s.candidates.Add(id, 0)
	}
	for _, h := range c.Hits {
		s.candidates.Add(h.ID, 0)
	}
	first := s.Rounds == 0
	if s.err == nil {
		s.Rounds++
		s.err = s.scoreBest(ctx, c, calls)
	}
	last := s.best
	s.best = nil
	for _, h := range s.scoredCandidates() {
		if len(s.best) < k {
			s.best = append(s.best, h.ID)
		}
	}
	settled := !first && len(s.best) == k && slices.Equal(s.best, last)
	return s.err == nil && s.left() > 0 && !settled
}

// scoreBest asks the ranker about the best of the candidates until it was asked
// calls times in all.
func (s *Spending) scoreBest(ctx context.Context, c Candidates, calls int) error {
	ctx, sp := span.Step(ctx, "rank", attribute.Int("likeness.ranker.round", s.Rounds))
	defer sp.End()
	began, before := time.Now(), s.Calls
	defer func() {
		s.Time += time.Since(began)
		sp.SetAttributes(attribute.Int("likeness.ranker.calls", s.Calls-before))
	}()
	var err error
	for err == nil {
		next := s.unasked(c, min(calls, s.Budget)-s.Calls)
		if len(next) == 0 {
			break
		}
		err = s.scoreItems(ctx, next)
	}
	if s.keepRows {
		for _, h := range c.Hits {
			if _, ok := s.scores[h.ID]; ok && s.rows[h.ID].Len() == 0 {
				if items := c.Rows(h); items.Len() > 0 {
					s.rows[h.ID] = items
				}
			}
		}
	}
	span.Fail(ctx, sp, err)
	return err
}

// scoreItems asks the ranker about items, leaving out those that the collection
// does not have any more.
func (s *Spending) scoreItems(ctx context.Context, ids []rerank.ID) error {
	items, err := s.readItems(ctx, ids)
	if err != nil {
		return err
	}
	at := 0
	for _, id := range ids {
		if at < len(items) && items[at].ID == id {
			at++
			continue
		}
		s.asked[id], s.gone[id] = true, true
	}
	if len(items) == 0 {
		return nil
	}
	return s.call(ctx, items)
}

// unasked returns the first n of the candidates that the ranker was not asked about.
func (s *Spending) unasked(c Candidates, n int) []rerank.ID {
	next := retrieve.NewIDSet(0)
	add := func(id rerank.ID) {
		if len(next.IDs) < n && !s.asked[id] {
			next.Add(id, 0)
		}
	}
	for _, id := range c.Database {
		add(id)
	}
	for _, h := range c.Hits {
		if len(next.IDs) >= n {
			break
		}
		add(h.ID)
	}
	return next.IDs
}

// CanRefine reports whether there are scores of candidates to fit the query to.
func (s *Spending) CanRefine() bool { return len(s.scoredCandidates()) > 0 }

// WantedInAll returns how many items the next round's search has to find so that the ranker can be
// asked calls times in all.
func (s *Spending) WantedInAll(calls int) int { return len(s.asked) + calls - s.Calls }

// Refine fits a query to the ranker's scores so far. It returns rerank.ErrStrategy
// if there is nothing to fit to.
func (s *Spending) Refine(ctx context.Context, q rerank.Encoded) (rerank.Encoded, error) {
	s.readMissingRows(ctx)
	features := s.view.Spec.Features
	rows, scores := rerank.Matrix{Cols: features}, []float32(nil)
	buf := make([]float32, features)
	for _, h := range s.scoredItems() {
		items := s.rows[h.ID]
		if items.Len() != 1 {
			continue
		}
		row := 0
		if items.Rows != nil {
			row = int(items.Rows[0])
		}
		rows.Data = append(rows.Data, items.Row(row, buf)...)
		rows.Rows++
		scores = append(scores, h.Score)
	}
	model := s.view.ModelCan.Refine
	if model == nil || rows.Rows == 0 {
		return nil, fmt.Errorf("%w: there are no scores that a query could be fitted to", rerank.ErrStrategy)
	}
	return model.Refine(q, rows, scores)
}

// readMissingRows reads the feature rows of the scored items that no round brought along: of support
// items, and of every item of a rewritten search. If they cannot be read, the query is fitted to the
// other items.
func (s *Spending) readMissingRows(ctx context.Context) {
	var ids []rerank.ID
	for _, h := range s.scoredItems() {
		if _, tried := s.rows[h.ID]; !tried {
			ids = append(ids, h.ID)
			s.rows[h.ID] = rerank.Items{}
		}
	}
	batches, err := s.readRows(ctx, ids)
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "rows of scored items not read, query fitted without them", slog.String("route", s.view.Name), slog.Any("error", err))
		return
	}
	for _, b := range batches {
		for i, id := range b.IDs {
			s.rows[id] = b.Item(i)
		}
	}
}

// readRows reads feature rows. It leaves out items that are gone.
func (s *Spending) readRows(ctx context.Context, ids []rerank.ID) ([]score.Batch, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	r := retrieve.Reader{View: s.view}
	batches, err := r.Read(ctx, ids)
	s.Fetching += r.Fetching
	return batches, err
}

// Order returns the first k rows of the answer: the items that the ranker scored, then the other
// hits by φ. unrestricted says that the request searches the whole collection. Order returns the
// ranker's error if the ranker scored nothing, and the context's error if the caller went away.
func (s *Spending) Order(ctx context.Context, hits []rerank.Scored, k int, unrestricted bool) ([]rerank.Scored, error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	if unrestricted {
		s.addSupportItems(ctx, k)
	}
	if s.explains { // Candidates.Database brings no feature rows
		s.readMissingRows(ctx)
	}
	ranked := s.scoredCandidates()
	if len(ranked) == 0 && len(hits) > 0 && s.err == nil && len(s.gone) < len(hits) {
		s.err = fmt.Errorf("%w: it gave none of %d items a score", ranker.ErrAnswer, len(s.asked))
	}
	s.countCut(ctx)
	if s.err != nil && s.Reason != CutDeadline {
		s.log.LogAttrs(ctx, slog.LevelWarn, "ranker failed", slog.String("route", s.view.Name), slog.String("ranker", s.view.RankerName),
			slog.Int("scored", len(ranked)), slog.Any("error", s.err))
	}
	if len(ranked) == 0 && s.err != nil {
		return nil, s.err
	}
	rest := slices.DeleteFunc(slices.Clone(hits), func(h rerank.Scored) bool {
		_, scored := s.scores[h.ID]
		return scored || s.gone[h.ID]
	})
	rows := slices.Concat(ranked, rest)
	rows = rows[:min(k, len(rows))]
	if unranked := len(rows) - len(ranked); s.Cut == 0 && unranked > 0 {
		s.Cut, s.Reason = unranked, CutBudget
	}
	return rows, nil
}

// addSupportItems adds to the candidates those support items that the ranker puts among the first k
// and no round found, if the store or the table still has them. Under a filter only the store knows
// which of them match.
func (s *Spending) addSupportItems(ctx context.Context, k int) {
	ranked := s.scoredCandidates()
	var ids []rerank.ID
	for id, x := range s.scores {
		if !s.candidates.Has(id) && (len(ranked) < k || x >= ranked[k-1].Score) {
			ids = append(ids, id)
		}
	}
	batches, err := s.readRows(ctx, ids)
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "support items left out of the answer", slog.String("route", s.view.Name), slog.Any("error", err))
		return
	}
	for _, b := range batches {
		for i, id := range b.IDs {
			s.candidates.Add(id, 0)
			s.rows[id] = b.Item(i)
		}
	}
}

// countCut counts the items that should have been scored and were not.
func (s *Spending) countCut(ctx context.Context) {
	for id := range s.asked {
		if _, ok := s.scores[id]; !ok && !s.gone[id] {
			s.Cut++
		}
	}
	if s.err != nil {
		s.Cut = max(s.Cut, s.planned-len(s.gone)-(len(s.scores)-s.known))
	}
	switch {
	case s.Cut == 0:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.Reason = CutDeadline
	default:
		s.Reason = CutFailed
	}
}
