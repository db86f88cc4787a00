package search

import (
	"fmt"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search/failure"
)

// explain adds the terms of each hit's score, computed from the feature rows that were scored.
func (s *search) explain(f *finder, hits []rerank.Scored) error {
	explainer := s.plan.Can.Explain
	if !s.plan.Request.Explain || explainer == nil {
		return nil
	}
	for i, h := range hits {
		items, ok := s.spending.Rows(h.ID)
		switch {
		case !ok && s.spending.Ranked(h.ID):
			continue // the hit's feature rows could not be read, so it has no explanation
		case !ok:
			items = f.itemRows(h)
		}
		e, err := explainer.Explain(items)
		if err == nil && len(e) != 1 {
			err = fmt.Errorf("%d explanations of one item", len(e))
		}
		if err != nil {
			return &failure.Error{Reason: failure.Scoring, Err: fmt.Errorf("explain %s: %w", h.ID, err)}
		}
		if !s.spending.Ranked(h.ID) {
			e[0].Score = h.Score // the score itself may have been computed in float64
		}
		s.answer.Hits[i].Explanation = &e[0]
	}
	return nil
}

// itemRows returns the feature rows of a hit: from the table, in full precision if the table keeps
// it, or from the batch in which the hit was scored.
func (f *finder) itemRows(h rerank.Scored) rerank.Items {
	scanned, at := f.plan.Request.Strategy == rerank.Scan, h.Index
	if f.found.Rounded() || scanned {
		if item, ok := f.view.Table.Find(h.ID); ok {
			number := []int32{int32(item)}
			if full, ok := f.view.Table.FullItems(number, &rerank.Items{}); ok {
				return full
			}
			if scanned {
				return f.view.Table.Items(number, &rerank.Items{})
			}
		}
	}
	if scanned {
		at -= f.found.Scored - f.reader.NotIndexed // the table's items were scored without a batch
	}
	for _, b := range f.found.Kept {
		if at < len(b.IDs) {
			return b.Item(at)
		}
		at -= len(b.IDs)
	}
	return rerank.Items{}
}
