// Package events keeps what the answers of a route showed and what people chose from them, in
// files that `likeness events export` reads. Keeping an impression never delays a search: if the
// disk cannot keep up, impressions are dropped and counted. Feedback is acknowledged after it is
// durable.
package events

import (
	"errors"
	"slices"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/experiment"
)

// The errors of feedback. A Refusal has one of the first four, and Route.Feed returns the others.
var (
	// ErrUnknownAnswer: no answer of the route has that id.
	ErrUnknownAnswer = errors.New("no answer of this route has that id")
	// ErrNotKept: the route does not keep what the answer showed.
	ErrNotKept = errors.New("what the answer showed was not kept")
	// ErrExpired: what the answer showed has been deleted.
	ErrExpired = errors.New("what the answer showed is no longer kept")
	// ErrFeedback: a field of the feedback is not valid.
	ErrFeedback = errors.New("feedback is not valid")
	// ErrDisk: the disk failed. Later feedback succeeds when the disk works again.
	ErrDisk = errors.New("events cannot be written")
	// ErrFull: too much feedback waits for the disk.
	ErrFull = errors.New("too much feedback waits for the disk")
	// ErrClosed: the sidecar is ending.
	ErrClosed = errors.New("events are closed")
)

// Item is one item of an answer.
type Item struct {
	ID    rerank.ID
	Score float32
	// Arm is the version of an experiment that picked the item; Neither without an experiment.
	Arm experiment.Arm
}

// Impression is an answer as it was shown.
type Impression struct {
	Time   time.Time
	Answer AnswerID
	// Vector and Text are the query. Files hold the vector as float16. Empty if not kept.
	Vector []float32
	Text   string
	// User names who asked, or is a keyed hash of the name. It is empty if not given or not kept.
	User string
	// Version is the digest of the model file.
	Version string
	// Status is the status of the answer's certificate.
	Status rerank.Status
	// Gap bounds how much a missing item's score could exceed the last one shown. NaN if unknown.
	Gap float32
	// Degraded reports that the items are in the store's order, not the model's.
	Degraded bool
	// Filter is a hash of the request's filter; 0 if it had none, or if the filter is not kept.
	Filter uint64
	// Narrowed reports that the request restricted the answer in a way that Filter may not show.
	Narrowed bool
	// Arm is the arm that the request was assigned to, in an experiment that divides requests.
	Arm experiment.Arm
	// First is the position of the first item, counted from 1. It is above 1 on a later page.
	First int
	// Items are in the order in which they were shown.
	Items []Item
}

// Shows reports whether the answer has the item.
func (m *Impression) Shows(id rerank.ID) bool {
	return slices.ContainsFunc(m.Items, func(i Item) bool { return i.ID == id })
}

// Feedback reports that a person did something with an item of an answer.
type Feedback struct {
	// ID identifies the event among those on its answer, so that repeated reports count once. If it
	// is empty, item and kind identify it there.
	ID     string
	Answer AnswerID
	Item   rerank.ID
	// Kind is click, add, purchase or any other word.
	Kind   string
	Weight float64
	Time   time.Time
}

// Limits of a Feedback.
const (
	MaxEventID = 128 // bytes
	MaxKind    = 64  // bytes
	maxUser    = 256 // bytes of an impression's user; longer ones are cut
)
