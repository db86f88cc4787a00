// Package plugin is what a scorer is written with: a heavy ranker R(x, q) in a
// process of its own, which likeness starts, watches and asks.
//
//	func main() {
//		plugin.Serve(plugin.Description{Name: "shortest first", Version: "1", PayloadFields: []string{"title"}}, score)
//	}
//
// The process is a plugin of github.com/hashicorp/go-plugin; Serve speaks its
// protocol, with mutual TLS between the two processes.
package plugin

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// Query is what was asked.
type Query = rerank.Query

// Item is one item to score.
type Item struct {
	ID rerank.ID
	// Payload is a JSON object with the fields that the Description asks for; nil
	// for an item without. It is read-only.
	Payload json.RawMessage
	// Vector is the stored vector, where the Description asks for it. It is read-only.
	Vector []float32
}

// Description is what likeness must know of a scorer.
type Description struct {
	Name string // for people
	// Version changes with every change of a score: scores that were kept of another
	// version are not used.
	Version string
	// MaxItems are the items of one call, MaxBytes the bytes of one request; 0 is no
	// limit but the connection's.
	MaxItems int
	MaxBytes int
	// Parallel are the calls at the same time; 0 is one.
	Parallel int
	// Cost is what scoring one item costs, in a unit of the operator's.
	Cost float64
	// Text: the scorer reads Query.Text, and a query without is refused.
	Text bool
	// Payload asks for all of the items' payload, PayloadFields for some fields of it.
	Payload       bool
	PayloadFields []string
	// Vectors asks for the items' stored vectors.
	Vectors bool
}

// SameItems reports whether two scorers read the same of an item.
func (d Description) SameItems(other Description) bool {
	return d.Payload == other.Payload && d.Vectors == other.Vectors && slices.Equal(d.PayloadFields, other.PayloadFields)
}

// Scorer is a heavy ranker. It is called concurrently, Description.Parallel times
// at most.
type Scorer interface {
	// Describe answers at once.
	Describe(ctx context.Context) (Description, error)
	// Score returns R(x, q) of each item, in order; NaN for an item that it cannot
	// score. It ends when ctx does.
	Score(ctx context.Context, q Query, items []Item) ([]float32, error)
}
