package search

import (
	"context"
	"slices"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
)

// addPayload adds the hits' payload if the request asks for it. The same read verifies the scores
// of a snapshot.
func (s *search) addPayload(ctx context.Context) error {
	r := s.plan.Request
	if !r.Payload || len(s.answer.Hits) == 0 || s.payloadIsThere {
		return nil
	}
	began := time.Now()
	verifies := s.canVerify()
	payloads, rows, err := retrieve.Payloads(ctx, s.view, s.answer.ids(), r.PayloadFields, verifies)
	s.answer.Timings.Retrieve += time.Since(began)
	if err != nil {
		return err
	}
	for i, h := range s.answer.Hits {
		s.answer.Hits[i].Payload = payloads[h.ID]
	}
	if verifies {
		s.answer.Certificate.RowsVerified = s.scoresHold(ctx, rows)
	}
	if s.mayListDeleted() || verifies {
		s.answer.Hits = slices.DeleteFunc(s.answer.Hits, func(h Hit) bool { _, there := payloads[h.ID]; return !there })
	}
	return nil
}

// dropDeleted removes hits that the collection no longer has: a table or companion that does not show
// every write may still have them. If the store cannot be asked, they stay; the certificate then
// already says that nothing is proved.
func (s *search) dropDeleted(ctx context.Context) {
	if s.view.StoreCan.Fetch == nil || s.plan.Request.Payload || !s.mayListDeleted() || len(s.answer.Hits) == 0 {
		return
	}
	began := time.Now()
	there, err := retrieve.Existing(ctx, s.view, s.answer.ids())
	s.answer.Timings.Retrieve += time.Since(began)
	if err == nil {
		s.answer.Hits = slices.DeleteFunc(s.answer.Hits, func(h Hit) bool { return !there[h.ID] })
	}
}

// mayListDeleted reports whether the answer may contain rows that the collection no longer has: its
// ids come from a table or companion that does not show every write, and the caller does not look
// the rows up itself.
func (s *search) mayListDeleted() bool {
	p := s.plan
	return s.view.Behind && !p.Request.Confirms && s.view.Owner == "" && s.answer.Degraded == nil &&
		(p.Request.Strategy == rerank.Scan || p.SearchesCompanion())
}
