package search

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
	"github.com/likenessdb/likeness/sidecar/search/score"
	"github.com/likenessdb/likeness/sidecar/search/span"
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
			continue // its rows could not be read
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
	if s.mayHaveGone() || verifies {
		s.answer.Hits = slices.DeleteFunc(s.answer.Hits, func(h Hit) bool { _, there := payloads[h.ID]; return !there })
	}
	return nil
}

// canVerify reports whether the scores can be compared with the stored vectors: the answer is a
// snapshot, and its scores follow from the items' stored vectors alone, without new ones.
func (s *search) canVerify() bool {
	v := s.view
	return s.answer.Certificate.Status == rerank.StatusSnapshot && !v.Spec.GroupedRows && !v.Behavioural && !v.VectorsElsewhere && !v.Reembeds() && s.answer.Ranking == nil
}

// scoresHold reports whether the hits' scores agree with the vectors that the collection holds now,
// in rows, up to the certificate's rounding error. Hits that the collection no longer has do not
// count.
func (s *search) scoresHold(ctx context.Context, rows adapters.Rows) bool {
	s.view.Norms.See(rows.IDs, rows.Vectors[0])
	b, err := retrieve.Encode(ctx, s.view.Checked, rows.IDs, nil, rows.Vectors[0])
	if err != nil {
		return false
	}
	scorer := score.Scorer{Turns: s.view.Turns}
	now, epsilon, err := scorer.Wide(ctx, s.plan.Encoded, b)
	if err != nil {
		return false
	}
	return agree(s.answer.Hits, float64(s.answer.Certificate.Epsilon), now, epsilon)
}

// agree reports whether the scores of hits agree with the exact scores, for every hit that has one.
// A hit's score may be off by hitError and one rounding, an exact score by exactError.
func agree(hits []Hit, hitError float64, exact map[rerank.ID]float64, exactError float64) bool {
	for _, h := range hits {
		have := float64(h.Score)
		want, there := exact[h.ID]
		if there && !(math.Abs(want-have) <= hitError+exactError+math.Abs(have)*0x1p-23) {
			return false
		}
	}
	return true
}

// dropGone removes hits that the collection no longer has: a table or companion that does not show
// every write may still have them. If the store cannot be asked, they stay; the certificate then
// already says that nothing is proved.
func (s *search) dropGone(ctx context.Context) {
	if s.view.StoreCan.Fetch == nil || s.plan.Request.Payload || !s.mayHaveGone() || len(s.answer.Hits) == 0 {
		return
	}
	began := time.Now()
	there, err := retrieve.Existing(ctx, s.view, s.answer.ids())
	s.answer.Timings.Retrieve += time.Since(began)
	if err == nil {
		s.answer.Hits = slices.DeleteFunc(s.answer.Hits, func(h Hit) bool { return !there[h.ID] })
	}
}

// mayHaveGone reports whether the answer may contain rows that the collection no longer has: its
// ids come from a table or companion that does not show every write, and the caller does not look
// the rows up itself.
func (s *search) mayHaveGone() bool {
	p := s.plan
	return s.view.Behind && !p.Request.Confirms && s.view.Owner == "" && s.answer.Degraded == nil &&
		(p.Request.Strategy == rerank.Scan || p.SearchesCompanion())
}

// trace gives the steps of the search spans in the request's trace.
func (s *search) trace(ctx context.Context) context.Context {
	s.scope = s.engine.newScope(s.view.Checked)
	s.scope.Common = []attribute.KeyValue{attribute.String("likeness.route", s.view.Name)}
	return span.With(ctx, s.scope)
}

// newScope returns the settings of the spans of a search on a route.
func (e *Engine) newScope(c *route.Checked) *span.Scope {
	return &span.Scope{Tracer: e.tracer, Store: c.StoreName, System: c.Database.System, Address: c.Database.Address, ErrorType: ErrorType}
}

// failSpan marks a span as failed. The error's text goes to the log, under the same
// trace id.
func failSpan(s trace.Span, err error) {
	if s.IsRecording() {
		s.SetAttributes(attribute.String("error.type", ErrorType(err)))
		s.SetStatus(codes.Error, ErrorType(err))
	}
}
