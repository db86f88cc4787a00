// Package adaptertest is the conformance kit that every store adapter passes:
// the embedded store, and the others against their real servers. A case names
// the capability it needs. A store that lacks it must refuse with
// adapters.ErrUnsupported, or not have the interface at all; the outcome of
// every case is recorded, so that the compatibility table leaves nothing out.
package adaptertest

import (
	"encoding/json"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Kit is a store under test and what it claims to do.
type Kit struct {
	// Store and Version name the column of the compatibility table: "Qdrant", "1.17.0".
	Store, Version string
	// Open connects to a running store; the kit closes what it opened.
	Open func(t *testing.T) adapters.Store
	// Load makes a collection and fills it. Nil: the kit uses adapters.Writer.
	// Load registers its own clean-up with t.
	Load func(t *testing.T, s adapters.Store, f Fixture)
	// Lacks are the capabilities the store does not have; it claims all others.
	Lacks []Capability
	// IDs are sets of ids that must come back unchanged, one collection a set.
	IDs []IDSet
	// BadIDs are ids that the store refuses with ErrID, in Write and in Fetch.
	BadIDs []BadID
	// Filters is each predicate in the store's language. With HasID, %s stands for the ids 3 and 7.
	Filters map[Predicate]string
	// BadFilters must be refused with ErrFilter.
	BadFilters []string
	// Calls, if set, returns the number of calls sent to the server so far that
	// read rows, searches and fetches. CallsOfSearch says how many a Search with
	// these probe fields may take; nil is one.
	Calls         func() int64
	CallsOfSearch func(fields []string) int64
	// Fields is the number of vector fields of one collection that the case of
	// derived vectors makes, 4 if 0.
	Fields int
	// TooManyFields is a number of fields that Create refuses with a LimitError; 0: none is.
	TooManyFields int
	// TooDeep is a probe depth that is refused with a LimitError; 0: none is.
	TooDeep int
	// OpenSmall connects with a small message limit, which a fetch of 2,000
	// vectors of 384 numbers exceeds; nil: the store has no messages.
	OpenSmall func(t *testing.T) adapters.Store
	// Large runs the case of 100,000 rows, where the race detector is off.
	Large bool
	// Prefix begins the names of the kit's collections; "kit" if empty.
	Prefix string
}

// Capability is something that a case needs of a store.
type Capability string

// The capabilities.
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
	Range          Capability = "range search"
	Describe       Capability = "describe"
	Write          Capability = "write derived vectors"
	Owners         Capability = "grouped owners"
	Match          Capability = "match"
	Alias          Capability = "aliases"
	NumberIDs      Capability = "number ids"
	TextIDs        Capability = "text ids"
	// Large is not one that a kit can lack; Kit.Large asks for its case.
	Large Capability = "100,000 rows"
)

// IDSet is a set of ids that one collection can hold.
type IDSet struct {
	Name string // "unsigned 64-bit"
	Text bool   // Schema.TextIDs
	IDs  []rerank.ID
}

// BadID is an id that a store cannot hold.
type BadID struct {
	Name string
	Text bool // Schema.TextIDs
	ID   rerank.ID
}

// Predicate is a filter that the kit knows the meaning of. The collection has
// the payload of Fixture.
type Predicate string

// The predicates.
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

// Fixture is a collection that the kit asks for. Where it has payloads, each is
// a JSON object with exactly these fields, so that a store with a schema can
// have scalar fields of these names: "colour" (string), "size" (int64), "big"
// (int64, beyond 2^53), "weight" (double), "label" (string, any Unicode).
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

// ItemOf reads a payload of a Fixture.
func ItemOf(payload json.RawMessage) (Item, error) {
	var it Item
	err := json.Unmarshal(payload, &it)
	return it, err
}
