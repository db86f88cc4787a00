// Package adapters defines the interface between likeness and a vector store. Each
// store is a subpackage (qdrant, milvus, embedded), and all of them pass the
// conformance kit in adaptertest.
//
// A Store searches, answers pings and closes. All other operations are optional
// interfaces, which AbilitiesOf finds: Fetcher, Scanner, Describer, Counter,
// Writer, Deleter, Matcher, Excluder, Aliaser, Identifier, Inspector. An adapter returns
// ErrUnsupported if it implements an optional interface but its server lacks the
// operation.
package adapters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/likenessdb/likeness/rerank"
)

// Sentinel errors. Every error of an adapter wraps exactly one of them, or a
// context error, and says what, where, value against limit, and the remedy.
var (
	// ErrNotFound means that the collection does not exist.
	ErrNotFound = errors.New("collection not found")
	// ErrField means that the collection lacks the vector, owner or payload field.
	ErrField = errors.New("field not found")
	// ErrDimension means that a vector's length differs from the field's dimension.
	ErrDimension = errors.New("dimension mismatch")
	// ErrMetric means that inner products cannot be recovered from the field's metric.
	ErrMetric = errors.New("metric not supported")
	// ErrFilter means that the store does not understand the filter.
	ErrFilter = errors.New("filter not valid")
	// ErrID means that the store cannot hold ids of this type.
	ErrID = errors.New("id not valid for the store")
	// ErrLimit means that the request exceeds a limit. The error is a *LimitError.
	ErrLimit = errors.New("limit exceeded")
	// ErrUnsupported means that the store, in its version, lacks the operation.
	ErrUnsupported = errors.New("not supported by the store")
	// ErrUnavailable means that the store cannot be reached or is not ready. A retry
	// may help.
	ErrUnavailable = errors.New("store unavailable")
	// ErrRefused means that the credentials are missing, wrong, or lack the
	// permission.
	ErrRefused = errors.New("access refused by the store")
	// ErrStore means any other failure of the store.
	ErrStore = errors.New("store error")
)

// LimitError says which limit of a store, or of its configuration, a request exceeds.
// errors.Is(err, ErrLimit) holds.
type LimitError struct {
	Limit  string // the documented name of the setting or limit: "max_depth", "max_message_bytes"
	Value  int64
	Max    int64
	Remedy string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %s is %d, at most %d; %s", ErrLimit, e.Limit, e.Value, e.Max, e.Remedy)
}

// Unwrap makes errors.Is(err, ErrLimit) true.
func (e *LimitError) Unwrap() error { return ErrLimit }

// Metric says how a store compares the vectors of a field.
type Metric string

// Metrics of a field.
const (
	InnerProduct Metric = "inner_product"
	Cosine       Metric = "cosine"
	L2           Metric = "l2"
)

// Datatype is how a store keeps the elements of a field's vectors.
type Datatype string

// The datatypes that adapters tell apart. A store rounds a query to any of them but
// Float32 before it compares.
const (
	Float32 Datatype = "float32"
	Float16 Datatype = "float16"
	UInt8   Datatype = "uint8"
)

// Searcher sends first-stage searches. It is safe for concurrent use.
type Searcher interface {
	// Search answers all probes of a request in as few calls as the store's protocol
	// allows, sent concurrently. lists[i] answers Probes[i]. Its rows are sorted by
	// inner product descending, then by id, and have no duplicates. Search returns
	// ErrNotFound, ErrField, ErrDimension, ErrMetric, ErrFilter, ErrID, *LimitError,
	// ErrUnavailable, ErrRefused, ErrStore, or the context's error.
	Search(ctx context.Context, r SearchRequest) ([]rerank.List, error)
}

// Store is a connection to a vector store. It is safe for concurrent use.
type Store interface {
	Searcher
	// Ping returns nil if the store answers, otherwise ErrUnavailable or ErrRefused.
	Ping(ctx context.Context) error
	// Close closes the connection. Searches in flight may fail.
	Close() error
}

// SearchRequest describes the first stage of one query.
type SearchRequest struct {
	Collection string
	// Vector is the vector field for probes whose Field is empty. If Vector is empty
	// too, it is the collection's only or unnamed vector.
	Vector string
	Probes []rerank.Probe
	// Filter is a filter in the store's own language: for Qdrant the JSON of a Filter,
	// for Milvus a boolean expression, for the embedded store Qdrant's JSON. If empty,
	// there is no filter.
	Filter string
	// Exclude holds the ids of rows that no list may have or, with Owner, the ids of items
	// whose rows no list may have. Search returns ErrID for an id that the collection
	// cannot hold.
	Exclude []rerank.ID
	// Exact asks the store to search exhaustively and without quantization, if it can.
	// List.Exact says whether it did.
	Exact bool
	// UnitVectors asserts that every stored vector has norm 1, so that inner products
	// can be recovered from cosine and L2 scores. Without it a cosine field gives the
	// inner product with the normalised vector.
	UnitVectors bool
	// Owner names the payload or scalar field that holds each row's item, from which
	// List.Owners is filled.
	Owner string
	// WithVectors requests the rows' stored vectors. It is only allowed with a single
	// probe.
	WithVectors bool
	// Payload asks for the rows' payload: all of it, or PayloadFields of it; only with
	// a single probe. It fills List.Payloads as Fetch fills Rows.Payloads.
	Payload       bool
	PayloadFields []string
	// Versions asks for List.Versions, from a store that has them.
	Versions bool
	// Rescore asks for the scores of the vectors themselves where the field's
	// quantization has rounded ones (VectorField.Rescores).
	Rescore bool
	// EF is how many rows an HNSW index keeps in view, in a search for fewer; 0: the store's
	// own choice. A store without such an index ignores it.
	EF int
	// Consistency and Partitions are passed to a store that knows them.
	Consistency string
	Partitions  []string
}

// Rows holds rows of a collection, whether fetched, scanned or to be written.
type Rows struct {
	IDs []rerank.ID
	// Vectors[f] holds the rows' vectors of the f-th requested field.
	Vectors []rerank.Matrix
	// Starts is set if the one requested field has several vectors a row: row i then has the
	// vectors Starts[i]:Starts[i+1], or none if the store lacks them.
	Starts []int32
	// Owners holds each row's item, if the request named an owner field.
	Owners []rerank.ID
	// Payloads holds JSON objects with numbers exactly as the store has them. It is
	// nil if the request asked for no payload.
	Payloads []json.RawMessage
}

// Fetcher reads rows by id. The answer holds the rows in the order requested, each
// once and with its id as the store spells it, without the ids that the store lacks.
type Fetcher interface {
	Fetch(ctx context.Context, r FetchRequest) (Rows, error)
}

// FetchRequest names the rows and the fields to read.
type FetchRequest struct {
	Collection string
	IDs        []rerank.ID
	// Vectors lists the vector fields to read; "" is the only or unnamed field. A field of
	// Description.MaxSim is read alone and without Owner.
	Vectors []string
	// Owner, if set, makes IDs the ids of owners. The answer then holds all rows of
	// each owner, ordered by owner as requested and then by id.
	Owner string
	// Payload requests the payload: the fields in PayloadFields, or the whole payload
	// if that is empty.
	Payload       bool
	PayloadFields []string
	Consistency   string
}

// Scanner reads all rows of a collection.
type Scanner interface {
	// Scan calls yield with batches of rows in a fixed order. A later Scan that starts
	// at cursor continues after the batch. Scan stops at the first error of yield and
	// returns it.
	Scan(ctx context.Context, r ScanRequest, yield func(rows Rows, cursor string) error) error
}

// ScanRequest says which rows and fields to read.
type ScanRequest struct {
	Collection    string
	Vectors       []string
	Filter        string
	Owner         string
	Payload       bool
	PayloadFields []string
	Batch         int    // rows in a batch; 0: the adapter chooses
	Cursor        string // cursor of an earlier Scan; empty: the beginning
	// Until is a cursor from a Partitioner. The scan ends before the row to which it
	// points, or at the last row if it is empty.
	Until string
}

// Partitioner divides a collection into parts that can be scanned in parallel.
type Partitioner interface {
	// Cut returns the cursors at which the second and later parts begin. They stay the
	// same as long as the collection's first and last rows do. It returns ErrNotFound,
	// ErrUnsupported if the ids cannot be divided, or the store's error.
	Cut(ctx context.Context, collection string, parts int) ([]string, error)
}

// Describer describes collections.
type Describer interface {
	// Describe returns ErrNotFound if the collection does not exist.
	Describe(ctx context.Context, collection string) (Description, error)
}

// Counter counts the rows of a collection exactly. Describe may estimate.
type Counter interface {
	// Count returns ErrNotFound if the collection does not exist, and ErrUnavailable
	// if the server cannot count it because it is not loaded.
	Count(ctx context.Context, collection string) (int64, error)
}

// ParseID parses an id of a log: a number, unless textIDs says that the store's ids are texts
// (Description.TextIDs), otherwise a text.
func ParseID(text string, textIDs bool) rerank.ID {
	if textIDs {
		return rerank.TextID(text)
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return rerank.UintID(n)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return rerank.IntID(n)
	}
	return rerank.TextID(text)
}

// Description holds a collection's properties and limits, as the store tells them.
type Description struct {
	// Rows is the number of rows, or −1 if the store does not tell it.
	Rows   int64
	Fields []VectorField
	// MaxSim lists the fields with several vectors a row. The score of a row is the score of its
	// best vector. These fields are searched and, one field a request, read. They are not written.
	MaxSim []VectorField
	// Others lists the vector fields that no probe can search, such as sparse ones, with
	// their types in the store's words.
	Others map[string]string
	// TextIDs means that ids must be strings, not numbers. It is false for a store
	// that accepts both.
	TextIDs bool
	Limits  Limits
	// Expires: the store removes rows by itself, after a time to live.
	Expires bool
	// Settings holds the index settings in the store's own words, for the record of a
	// calibration.
	Settings map[string]string
	// Indexing says, in the store's words, that it still builds an index; "" if it does not, or does not tell.
	// Searches then compare rows that the index will miss.
	Indexing string
}

// VectorField describes a vector field of a collection.
type VectorField struct {
	Name   string // "" for an unnamed field
	Dim    int
	Metric Metric
	// FullPrecision means that the store keeps float32 vectors.
	FullPrecision bool
	// Datatype is how it keeps them.
	Datatype Datatype
	// Quantized names, in the store's words, an index or a quantization by which it
	// compares rounded vectors; "" if it has none. Rescores: SearchRequest.Rescore makes
	// it state the scores of the vectors themselves.
	Quantized string
	Rescores  bool
	// Exact: the store can be asked for an exhaustive search of it. AlwaysExact: every
	// search of it is exhaustive.
	Exact, AlwaysExact bool
	// Chain is the length of the longest run of dependent additions when the store sums an inner product, which
	// bounds its rounding error; 0 means one addition for each dimension.
	Chain int
	// MaxSim: the field is listed in Description.MaxSim.
	MaxSim bool
	// Unsearched asks Create to leave out the index: no probe searches the field.
	Unsearched bool
}

// Roundings returns how often an inner product of the field's vectors is rounded.
func (f VectorField) Roundings() int {
	if f.Chain > 0 {
		return min(f.Chain, f.Dim)
	}
	return f.Dim
}

// CanCompare reports whether the store can compare the field with a query. Elements of a
// float16 field are at most 65,504, and so is a query that is not normalised: a larger one
// becomes infinite, and a vector without an element above 2⁻²⁵ becomes zero.
func (f VectorField) CanCompare(query []float32) bool {
	if f.Datatype != Float16 || f.Metric == Cosine {
		return true
	}
	largest := 0.0
	for _, q := range query {
		largest = max(largest, math.Abs(float64(q)))
	}
	return largest > tinyFloat16 && largest < 65520 // which is rounded to infinity
}

// Limits holds the limits of a store: the configured limits, lowered to the server's
// own where those are known.
type Limits struct {
	MaxDepth        int // rows in one list
	MaxProbes       int // probes in one request
	MaxVectorFields int // vector fields in one collection
	MaxMessageBytes int
}

// Writer writes companion collections. It is never used on a user's own collection.
type Writer interface {
	// Create creates an empty collection. It returns ErrStore if the collection
	// exists, and *LimitError if the store allows fewer fields.
	Create(ctx context.Context, s Schema) error
	// Write inserts or replaces rows. Rows.Vectors has the order of the schema's
	// fields. When Write returns, searches see the rows.
	Write(ctx context.Context, collection string, s Schema, rows Rows) error
	// Drop removes a collection. It succeeds if the collection does not exist.
	Drop(ctx context.Context, collection string) error
}

// Deleter removes rows of companion collections. It is never used on a user's own
// collection.
type Deleter interface {
	// Delete removes rows by id and ignores unknown ids. Searches that begin after it
	// returns do not see the rows.
	Delete(ctx context.Context, collection string, ids []rerank.ID) error
}

// Schema describes a collection to create.
type Schema struct {
	Collection string
	Fields     []VectorField
	TextIDs    bool
	// Owner, if set, names the field that holds each row's item.
	Owner string
	// TextOwners means that the items' ids are strings, not numbers.
	TextOwners bool
}

// Aliaser atomically switches an alias to a collection.
type Aliaser interface {
	SwitchAlias(ctx context.Context, alias, collection string) error
}

// WriteChecker tells whether the caller of AsCaller may write.
type WriteChecker interface {
	// CheckWrite returns ErrRefused if the store does not let the caller write in this way to
	// the collection. It changes nothing.
	CheckWrite(ctx context.Context, collection string, way WriteWay) error
}

// WriteWay is a way to write. Some stores, such as Milvus, have a right for each.
type WriteWay int

const (
	WriteAny WriteWay = iota // any change, to rows or names
	WriteInsert
	WriteUpsert
	WriteDelete
)

// Identifier resolves the name of a collection, so that writes of clients to it can be
// recognised. It caches nothing.
type Identifier interface {
	// Identify accepts a collection's own name or an alias, and returns ErrNotFound for
	// another name. It returns ErrRefused if the store does not tell the caller whether the
	// name is an alias.
	Identify(ctx context.Context, name string) (Identity, error)
}

// Inspector says what a server is and which collections it has.
type Inspector interface {
	// Version returns the server's version. It returns ErrRefused if the server wants other
	// credentials, and another error if it is no server of the adapter's kind.
	Version(ctx context.Context) (string, error)
	// Collections lists the names of the collections that the caller may see, sorted.
	Collections(ctx context.Context) ([]string, error)
}

// Identity says under which names clients know a collection, and how they name its
// rows.
type Identity struct {
	Collection string   // the collection's own name
	Aliases    []string // in any order
	Key        string   // the field that holds a row's id, if the store keeps ids in a field
	AutoKey    bool     // the store assigns ids
}

// Matcher lists the ids of the rows that match a filter. A scan of a resident table
// with a filter needs it.
type Matcher interface {
	Match(ctx context.Context, collection, filter string) ([]rerank.ID, error)
}

// Excluder finds the ids that a search excludes, so that a table is searched without them and
// the store is not asked which rows are left.
type Excluder interface {
	// Excluded returns ids, and after them the ids that a filter excludes whatever its other
	// conditions are, all as the store spells ids. rest is a filter of the other conditions, or
	// "" without any. Excluded returns ErrID, or ErrFilter.
	Excluded(ids []rerank.ID, filter string) (all []rerank.ID, rest string, err error)
}

// CanonicalIDs returns ids as a store spells them, so that two spellings of a UUID become one id. store is
// nil for a store that spells ids as they are. CanonicalIDs returns ErrID for an id that the store cannot have.
func CanonicalIDs(store Excluder, ids []rerank.ID) ([]rerank.ID, error) {
	if store == nil || len(ids) == 0 {
		return ids, nil
	}
	canonical, _, err := store.Excluded(ids, "")
	return canonical, err
}
