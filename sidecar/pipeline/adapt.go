package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// refined is a similarity whose query can be fitted to true scores.
type refined interface {
	Refine(q rerank.Encoded, rows rerank.Matrix, scores []float32) (rerank.Encoded, error)
}

// again finds candidates, so many that were not asked of, by a query that is fitted
// to the ranker's scores so far; from is the search that found them. Where that fails
// it is the search itself: its candidates are still the best there are.
func (s *search) again(ctx context.Context, fresh int) (found []rerank.Scored, from *search) {
	s.readSupportRows(ctx)
	from, err := s.refit()
	if err == nil {
		from.r.K = max(1, s.within(len(s.spending.asked)+fresh))
		err = from.find(ctx)
		s.answer.Timings.add(from.answer.Timings)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "candidates of a refined query not found", slog.String("route", s.Name), slog.Any("error", withFilter(err, s.r.Filter)))
		}
		return s.hits, s
	}
	return from.hits, from
}

// refit is the search with its query fitted to the ranker's scores so far, and
// nothing found yet.
func (s *search) refit() (*search, error) {
	p := s.spending
	rows, scores := rerank.Matrix{Cols: s.spec.Features}, []float32(nil)
	buf := make([]float32, s.spec.Features)
	for _, h := range p.all() {
		items := p.rows[h.ID]
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
	model, ok := s.Model.Similarity.(refined)
	if !ok || rows.Rows == 0 {
		return nil, fmt.Errorf("%w: no scores that a query could be fitted to", rerank.ErrStrategy)
	}
	enc, err := model.Refine(s.enc, rows, scores)
	if err != nil {
		return nil, err
	}
	o := *s.opened
	o.Device = nil // it encodes the query itself
	t := &search{Pipeline: s.Pipeline, opened: &o, resident: s.resident, lane: s.lane, r: s.r, enc: enc, keeps: s.keeps}
	t.rough = t.roughness()
	return t, nil
}

// readSupportRows reads the features of the support items that no round found, once:
// what the ranker said of them counts in the fit. Without them it is of the candidates.
func (s *search) readSupportRows(ctx context.Context) {
	p := s.spending
	if p.fitted {
		return
	}
	p.fitted = true
	var ids []rerank.ID
	for _, h := range p.all() {
		if p.rows[h.ID].Len() == 0 {
			ids = append(ids, h.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	src := source{opened: s.opened, resident: s.resident, tracer: s.tracer}
	batches, err := src.read(ctx, ids)
	s.answer.Timings.Retrieve += src.fetching
	if err != nil {
		return
	}
	for _, b := range batches {
		for i, id := range b.ids {
			p.rows[id] = b.one(i)
		}
	}
}

// all are the items with a score of the ranker, best first.
func (p *spending) all() []rerank.Scored {
	out := make([]rerank.Scored, 0, len(p.scores))
	for id, score := range p.scores {
		out = append(out, rerank.Scored{ID: id, Score: score})
	}
	slices.SortFunc(out, compare)
	return out
}

// find is the first three steps.
func (s *search) find(ctx context.Context) error {
	if err := s.makeProbes(ctx, s.r); err != nil {
		return err
	}
	if s.r.Strategy == rerank.Scan {
		return s.scan(ctx)
	}
	return s.rounds(ctx)
}
