package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// explain takes the scores of the hits apart, from the features they were scored with.
func (s *search) explain() error {
	explainer, ok := s.enc.(rerank.Explainer)
	if !s.r.Explain || !ok {
		return nil
	}
	for i, h := range s.hits {
		e, err := explainer.Explain(s.itemsOf(h))
		if err == nil && len(e) != 1 {
			err = fmt.Errorf("%d explanations of one item", len(e))
		}
		if err != nil {
			return &failure{ReasonScoring, fmt.Errorf("explain %s: %w", h.ID, err)}
		}
		s.answer.Hits[i].Explanation = &e[0]
	}
	return nil
}

// itemsOf finds the features of a hit: by its number in the table after a scan,
// by its place among the scored candidates otherwise.
func (s *search) itemsOf(h rerank.Scored) rerank.Items {
	if s.spending != nil {
		if items, ok := s.spending.rows[h.ID]; ok {
			return items
		}
	}
	at := h.Index
	if s.rough.by > 0 || s.r.Strategy == rerank.Scan {
		if item, ok := s.Table.Find(h.ID); ok {
			one := []int32{int32(item)}
			if full, ok := s.Table.FullItems(one, &rerank.Items{}); ok {
				return full
			}
			if s.r.Strategy == rerank.Scan {
				return s.Table.Items(one, &rerank.Items{})
			}
		}
	}
	if s.r.Strategy == rerank.Scan {
		at -= s.scored - s.answer.NotIndexed
	}
	for _, b := range s.kept {
		if at < len(b.ids) {
			return b.one(at)
		}
		at -= len(b.ids)
	}
	return rerank.Items{}
}

// addPayload fetches the payload of the hits where it was asked.
func (s *search) addPayload(ctx context.Context) error {
	if !s.r.Payload || len(s.answer.Hits) == 0 {
		return nil
	}
	ctx, span := s.span(ctx, "payload")
	defer span.End()
	began := time.Now()
	defer func() { s.answer.Timings.Retrieve += time.Since(began) }()
	ids := make([]rerank.ID, len(s.answer.Hits))
	for i, h := range s.answer.Hits {
		ids[i] = h.ID
	}
	rows, err := s.Store.(adapters.Fetcher).Fetch(ctx, adapters.FetchRequest{
		Collection: s.Collection, IDs: ids, Owner: s.ownerIn(s.Collection), Payload: true, PayloadFields: s.r.PayloadFields, Consistency: s.Consistency,
	})
	if err != nil {
		fail(span, err)
		return fmt.Errorf("payload: %w", err)
	}
	return s.attach(rows)
}

// attach gives each hit its payload; an item of several rows has its first row's.
func (s *search) attach(rows adapters.Rows) error {
	keys := rows.IDs
	if s.ownerIn(s.Collection) != "" {
		keys = rows.Owners
	}
	if len(rows.Payloads) != len(keys) {
		return s.broken("%d payloads of %d rows", len(rows.Payloads), len(keys))
	}
	payloads := make(map[rerank.ID]json.RawMessage, len(keys))
	for i, id := range keys {
		if _, first := payloads[id]; !first {
			payloads[id] = rows.Payloads[i]
		}
	}
	for i, h := range s.answer.Hits {
		s.answer.Hits[i].Payload = payloads[h.ID]
	}
	if s.mayBeGone() {
		s.keepHits(keys)
	}
	return nil
}

// confirm leaves out the rows that the collection does not have any more, where
// something derived that lags behind may still have them. If the store cannot be
// asked, they stay: the certificate says already that nothing is proved.
func (s *search) confirm(ctx context.Context) {
	fetcher, ok := s.Store.(adapters.Fetcher)
	if !ok || s.r.Payload || !s.mayBeGone() || len(s.answer.Hits) == 0 {
		return
	}
	ctx, span := s.span(ctx, "confirm")
	defer span.End()
	began := time.Now()
	ids := make([]rerank.ID, len(s.answer.Hits))
	for i, h := range s.answer.Hits {
		ids[i] = h.ID
	}
	rows, err := fetcher.Fetch(ctx, adapters.FetchRequest{Collection: s.Collection, IDs: ids, Consistency: s.Consistency})
	s.answer.Timings.Retrieve += time.Since(began)
	if err != nil {
		fail(span, err)
		return
	}
	s.keepHits(rows.IDs)
}

// mayBeGone: the ids of the answer come from the table or the companion, which
// lags behind, and nobody else looks.
func (s *search) mayBeGone() bool {
	return s.behind && !s.r.Confirms && s.Owner == "" && s.answer.Degraded == nil && (s.r.Strategy == rerank.Scan || s.derivedProbes())
}

// keepHits leaves out hits with other ids.
func (s *search) keepHits(ids []rerank.ID) {
	there := make(map[rerank.ID]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	s.answer.Hits = slices.DeleteFunc(s.answer.Hits, func(h Hit) bool { return !there[h.ID] })
}
