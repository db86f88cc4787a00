package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// Event reports that a person did something with an item of an answer.
type Event struct {
	// AnswerID is the Answer's, or `answer` of the proxy's likeness-status.
	AnswerID string
	Item     ID
	// Kind is click, add, purchase or any other word.
	Kind string
	// Weight is how much the event counts; nil is 1.
	Weight *float64
	// Time is when it happened; zero is now.
	Time time.Time
	// ID identifies the event, which counts once however often it is sent. If it is empty, answer,
	// item and kind together identify the event.
	ID string
}

// Receipt says what became of a batch of events.
type Receipt struct {
	// Accepted events are durable. Known of them had been sent before.
	Accepted, Known int
	Refused         []Refusal
}

// Refusal is an event that was not kept.
type Refusal struct {
	Index  int    // in the batch
	Reason string // ANSWER_UNKNOWN, ANSWER_NOT_KEPT, ANSWER_EXPIRED or FIELD_INVALID
	// Message explains the refusal to a person.
	Message string
}

// Feedback sends events of a route, at most 10,000. It returns when the sidecar has them on disk;
// after an error it is safe to send them again.
func (c *Client) Feedback(ctx context.Context, route string, batch []Event) (*Receipt, error) {
	request := &likenessv1.FeedbackRequest{Route: route}
	for i := range batch {
		e := &batch[i]
		one := &likenessv1.FeedbackEvent{AnswerId: e.AnswerID, Item: e.Item.proto(), Kind: e.Kind, Weight: e.Weight, EventId: e.ID}
		if !e.Time.IsZero() {
			one.Time = timestamppb.New(e.Time)
		}
		request.Events = append(request.Events, one)
	}
	r, _, err := call(ctx, c, request, c.events.Feedback)
	if err != nil {
		return nil, err
	}
	out := &Receipt{Accepted: int(r.GetAccepted()), Known: int(r.GetKnown())}
	for _, f := range r.GetRefused() {
		out.Refused = append(out.Refused, Refusal{int(f.GetIndex()), f.GetReason(), f.GetMessage()})
	}
	return out, nil
}
