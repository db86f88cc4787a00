// Package adaptertest is the conformance kit that every store adapter passes: the
// embedded store, and the other adapters against real servers.
//
// Each case names the capability that it needs. A store that lacks the capability must
// either refuse with adapters.ErrUnsupported or lack the interface. The kit records
// the outcome of every case, so that the compatibility table is complete.
package adaptertest

import (
	"encoding/json"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Kit describes a store under test and its capabilities.
type Kit struct {
	// Store and Version name the column of the compatibility table, such as "Qdrant"
	// and "1.17.0".
	Store, Version string
	// Open connects to a running store. The kit closes the store.
	Open func(t *testing.T) adapters.Store
	// Load creates and fills a collection, and registers its own clean-up with t. If
	// nil, the kit uses adapters.Writer.
	Load func(t *testing.T, s adapters.Store, f Fixture)
	// Lacks lists the capabilities that the store does not have. It must have all
	// others.
	Lacks []Capability
	// IDs holds sets of ids that must come back unchanged. Each set gets its own
	// collection.
	IDs []IDSet
	// BadIDs holds ids that the store must refuse with ErrID, in Write and in Fetch.
	BadIDs []BadID
	// Filters holds each predicate in the store's language. In HasID, %s stands for
	// the ids 3 and 7.
	Filters map[Predicate]string
	// BadFilters holds filters that the store must refuse with ErrFilter.
	BadFilters []string
	// Calls, if set, returns the number of reading calls (searches and fetches) sent
	// to the server so far. CallsOfSearch returns how many calls a Search with these
	// probe fields may take. If nil, it may take one.
	Calls         func() int64
	CallsOfSearch func(fields []string) int64
	// Fields is the number of vector fields in the collection of the derived-vectors
	// case. If 0, it is 4.
	Fields int
	// TooManyFields is a number of fields that Create must refuse with a LimitError.
	// If 0, no number is refused.
	TooManyFields int
	// TooDeep is a probe depth that the store must refuse with a LimitError. If 0, no
	// depth is refused.
	TooDeep int
	// OpenSmall connects with a message limit so small that a fetch of 2,000 vectors
	// of dimension 384 exceeds it. It is nil if the store sends no messages.
	OpenSmall func(t *testing.T) adapters.Store
	// Parallel runs cases at the same time, for a store whose calls wait most of the time.
	Parallel bool
	// Large runs the case of 100,000 rows, unless the race detector is on.
	Large bool
	// Prefix is the start of the names of the kit's collections. If empty, it is
	// "kit".
	Prefix string
}

// Capability is an ability of a store that a case needs.
type Capability string

// Capabilities.
const (
	Search         Capability = "search"
	Exact          Capability = "exact search"
	Filter         Capability = "filter"
	MultipleFields Capability = "several vector fields"
	CosineMetric   Capability = "cosine"
	L2Metric       Capability = "L2"
	Fetch          Capability = "fetch by id"
	Payload        Capability = "payload"
	Scan           Capability = "scan"
	Describe       Capability = "describe"
	Write          Capability = "write derived vectors"
	Owners         Capability = "grouped owners"
	Match          Capability = "match"
	Alias          Capability = "aliases"
	NumberIDs      Capability = "number ids"
	TextIDs        Capability = "text ids"
	// Large cannot be listed in Kit.Lacks; Kit.Large turns its case on.
	Large Capability = "100,000 rows"
)

// IDSet is a set of ids that one collection can hold.
type IDSet struct {
	Name string // such as "unsigned 64-bit"
	Text bool   // Schema.TextIDs
	IDs  []rerank.ID
}

// BadID is an id that a store cannot hold.
type BadID struct {
	Name string
	Text bool // Schema.TextIDs
	ID   rerank.ID
}

// Predicate is a filter whose meaning the kit knows, over the payload of Fixture.
type Predicate string

// Predicates.
const (
	ColourRed      Predicate = `colour is "red"`
	ColourNotRed   Predicate = `colour is not "red"`
	ColourAny      Predicate = `colour is "red" or "green"`
	SizeAtLeast50  Predicate = `size >= 50`
	SizeBetween    Predicate = `20 <= size < 40 and colour is "blue"`
	BigNumber      Predicate = `big is 9007199254740993`
	HasID          Predicate = `id is 3 or 7`
	MatchesNothing Predicate = `size < 0`
)

// Fixture describes a collection that the kit needs. Each payload, if there are any,
// is a JSON object with exactly these fields, so that a store with a schema can
// declare them: "colour" (string), "size" (int64), "big" (int64, beyond 2^53),
// "weight" (double), "label" (string, any Unicode).
type Fixture struct {
	adapters.Schema
	Rows adapters.Rows
}

// Item is the payload of a row.
type Item struct {
	Colour string  `json:"colour"`
	Size   int64   `json:"size"`
	Big    int64   `json:"big"`
	Weight float64 `json:"weight"`
	Label  string  `json:"label"`
}

// itemOf decodes a payload of a Fixture.
func itemOf(payload json.RawMessage) (Item, error) {
	var it Item
	err := json.Unmarshal(payload, &it)
	return it, err
}
