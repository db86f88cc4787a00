package server

import (
	"context"
	"fmt"

	"github.com/likenessdb/likeness/adapters"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/route"
)

// MaxFeedback is the most events of a batch.
const MaxFeedback = 10_000

// feedback implements FeedbackService.
type feedback struct {
	likenessv1.UnimplementedFeedbackServiceServer
	*services
}

var _ likenessv1.FeedbackServiceServer = feedback{}

func (s feedback) Feedback(ctx context.Context, r *likenessv1.FeedbackRequest) (*likenessv1.FeedbackResponse, error) {
	if err := allow(ctx, r.GetRoute()); err != nil {
		return nil, err
	}
	if n := len(r.GetEvents()); n == 0 || n > MaxFeedback {
		return nil, fieldError("events", "there are %d; give 1 to %d", n, MaxFeedback)
	}
	of, err := s.eventsOf(r.GetRoute())
	if err != nil {
		return nil, err
	}
	rt, err := s.searcher.Route(r.GetRoute())
	if err != nil {
		return nil, err
	}
	all, speller := make([]events.Feedback, len(r.GetEvents())), rt.IDSpeller()
	for i, e := range r.GetEvents() {
		all[i] = toFeedback(e)
		if ids, err := adapters.CanonicalIDs(speller, []rerank.ID{all[i].Item}); err == nil { // as the answer spelled it
			all[i].Item = ids[0]
		}
	}
	receipt, err := of.Feed(ctx, all)
	if err != nil {
		return nil, err
	}
	return fromReceipt(receipt), nil
}

func fromReceipt(receipt events.Receipt) *likenessv1.FeedbackResponse {
	out := &likenessv1.FeedbackResponse{Accepted: int32(receipt.Accepted), Known: int32(receipt.Repeated)}
	for _, f := range receipt.Refused {
		out.Refused = append(out.Refused, &likenessv1.FeedbackRefusal{Index: int32(f.Index), Reason: f.Reason.String(), Message: utf8(f.Err.Error())})
	}
	return out
}

// eventsOf returns the events of a route. It returns route.ErrUnknown or errNoEvents.
func (s *services) eventsOf(name string) (*events.Route, error) {
	if of := s.events.Route(name); of != nil {
		return of, nil
	}
	for _, r := range s.searcher.Routes() {
		if r.Name == name {
			return nil, fmt.Errorf("%w: %q; set events.share above 0", errNoEvents, name)
		}
	}
	return nil, fmt.Errorf("%w: %q", route.ErrUnknown, name)
}

// toFeedback converts an event. If the text of its answer id cannot be parsed, the id is zero, which no
// route accepts.
func toFeedback(e *likenessv1.FeedbackEvent) events.Feedback {
	f := events.Feedback{ID: e.GetEventId(), Kind: e.GetKind(), Weight: 1}
	f.Answer, _ = events.ParseAnswerID(e.GetAnswerId())
	if e.GetItem().GetId() != nil {
		f.Item = toID(e.GetItem())
	}
	if e.Weight != nil {
		f.Weight = e.GetWeight()
	}
	if e.GetTime() != nil {
		f.Time = e.GetTime().AsTime()
	}
	return f
}
