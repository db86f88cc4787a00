// Package plugin is for writing a scorer: a heavy ranker R(x, q) in its own process, which
// likeness starts, monitors and calls.
//
//	func main() {
//		plugin.Serve(plugin.Description{Name: "shortest first", Version: "1", PayloadFields: []string{"title"}}, score)
//	}
//
// The process is a plugin of github.com/hashicorp/go-plugin. Serve speaks its protocol,
// with mutual TLS between the two processes.
package plugin

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/likenessdb/likeness/rerank"
)

// Query is the query to score for.
type Query = rerank.Query

// Item is one item to score.
type Item struct {
	ID rerank.ID
	// Payload is a JSON object with the fields that the Description requests, or nil if the
	// item has none. It is read-only.
	Payload json.RawMessage
	// Vector is the stored vector, if the Description requests it. It is read-only.
	Vector []float32
}

// Description describes a scorer to likeness.
type Description struct {
	Name string // for people
	// Version must change whenever any score changes. likeness does not use stored scores
	// of another version.
	Version string
	// MaxItems limits the items of a call, MaxBytes the bytes of a request. 0 means no
	// limit except the connection's.
	MaxItems int
	MaxBytes int
	// Parallel limits the number of concurrent calls. 0 means one.
	Parallel int
	// Cost is the cost of scoring one item, in a unit that the operator chooses.
	Cost float64
	// Text: the scorer reads Query.Text, and queries without text are refused.
	Text bool
	// Payload requests the complete payload of items, PayloadFields only some of its
	// fields.
	Payload       bool
	PayloadFields []string
	// Vectors requests the stored vectors of items.
	Vectors bool
}

// SameItems reports whether two scorers request the same data of an item.
func (d Description) SameItems(other Description) bool {
	return d.Payload == other.Payload && d.Vectors == other.Vectors && slices.Equal(d.PayloadFields, other.PayloadFields)
}

// Scorer is a heavy ranker. At most Description.Parallel calls run concurrently.
type Scorer interface {
	// Describe must return without delay.
	Describe(ctx context.Context) (Description, error)
	// Score returns R(x, q) of each item in order, or NaN for an item that it cannot score.
	// It must return when ctx ends.
	Score(ctx context.Context, q Query, items []Item) ([]float32, error)
}
