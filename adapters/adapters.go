// Package adapters defines what likeness asks of a vector store. Each store is
// a subpackage (qdrant, milvus, embedded); all of them pass the conformance kit
// in adaptertest.
//
// A Store searches, answers pings and closes. Everything else a store can do is
// an optional interface, found by type assertion: Fetcher, Scanner,
// RangeSearcher, Describer, Counter, Writer, Deleter, Matcher, Aliaser, Identifier. An adapter
// that implements an optional interface but whose server lacks the operation
// returns ErrUnsupported.
package adapters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/likenessdb/likeness/rerank"
)

// Sentinel errors. Every error of an adapter wraps exactly one of them, or a
// context error, and says what, where, value against limit, and the remedy.
var (
	// ErrNotFound: the collection does not exist.
	ErrNotFound = errors.New("collection not found")
	// ErrField: the collection has no such vector, owner or payload field.
	ErrField = errors.New("field not found")
	// ErrDimension: a vector's length is not the field's.
	ErrDimension = errors.New("dimension mismatch")
	// ErrMetric: inner products cannot be recovered from the field's metric.
	ErrMetric = errors.New("metric not supported")
	// ErrFilter: the store does not understand the filter.
	ErrFilter = errors.New("filter not valid")
	// ErrID: the store cannot hold an id of this type.
	ErrID = errors.New("id not valid for the store")
	// ErrLimit: the request exceeds a limit; the error is a *LimitError.
	ErrLimit = errors.New("limit exceeded")
	// ErrUnsupported: the store, in this version, has no such operation.
	ErrUnsupported = errors.New("not supported by the store")
	// ErrUnavailable: the store cannot be reached or is not ready; retrying may help.
	ErrUnavailable = errors.New("store unavailable")
	// ErrRefused: the credentials are missing, wrong, or lack the permission.
	ErrRefused = errors.New("access refused by the store")
	// ErrStore: the store failed in another way.
	ErrStore = errors.New("store error")
)

// LimitError names a limit of a store, or of its configuration, that a request
// exceeds. errors.Is(err, ErrLimit) holds.
type LimitError struct {
	Limit  string // the setting or limit, as documented: "max_depth", "max_message_bytes"
	Value  int64
	Max    int64
	Remedy string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %s is %d, at most %d; %s", ErrLimit, e.Limit, e.Value, e.Max, e.Remedy)
}

// Unwrap makes errors.Is(err, ErrLimit) true.
func (e *LimitError) Unwrap() error { return ErrLimit }

// Metric is how a store compares vectors of a field.
type Metric string

// The metrics a field can have.
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
	// Search answers all probes of a request, lists[i] answering Probes[i], in
	// as few calls as the store's protocol allows, all in flight at once. Rows
	// are sorted by inner product descending, then by id, and have no duplicates.
	// It returns ErrNotFound, ErrField, ErrDimension, ErrMetric, ErrFilter,
	// *LimitError, ErrUnavailable, ErrRefused, ErrStore, or the context's error.
	Search(ctx context.Context, r SearchRequest) ([]rerank.List, error)
}

// Store is a connection to a vector store. It is safe for concurrent use.
type Store interface {
	Searcher
	// Ping returns nil if the store answers, ErrUnavailable or ErrRefused if not.
	Ping(ctx context.Context) error
	// Close frees the connection; searches in flight may fail.
	Close() error
}

// SearchRequest is one query's first stage.
type SearchRequest struct {
	Collection string
	// Vector is the field of the probes whose Field is empty; empty itself, it
	// is the collection's only or unnamed vector.
	Vector string
	Probes []rerank.Probe
	// Filter is in the store's own language (Qdrant: the JSON of a Filter;
	// Milvus: a boolean expression; embedded: Qdrant's JSON); empty is none.
	Filter string
	// Exact asks the store to search exhaustively and without quantization,
	// where it can be asked. List.Exact says whether it did.
	Exact bool
	// UnitVectors vouches that every stored vector has norm 1, which lets inner
	// products be recovered from cosine and L2 scores. Without it a cosine
	// field gives the inner product with the normalised vector.
	UnitVectors bool
	// Owner names the payload or scalar field that holds the item a row belongs
	// to; it fills List.Owners.
	Owner string
	// WithVectors asks for the rows' stored vectors; only with a single probe.
	WithVectors bool
	// Payload asks for the rows' payload: all of it, or PayloadFields of it; only with
	// a single probe. It fills List.Payloads as Fetch fills Rows.Payloads.
	Payload       bool
	PayloadFields []string
	// Rescore asks for the scores of the vectors themselves where the field's
	// quantization has rounded ones (VectorField.Rescores).
	Rescore bool
	// Consistency and Partitions are passed to a store that knows them.
	Consistency string
	Partitions  []string
}

// Rows are stored rows, as fetched or scanned, or as written.
type Rows struct {
	IDs []rerank.ID
	// Vectors[f] holds the vectors of the f-th requested field.
	Vectors []rerank.Matrix
	// Owners are filled where a request named an owner field.
	Owners []rerank.ID
	// Payloads are JSON objects, every number as the store has it; nil where not asked.
	Payloads []json.RawMessage
}

// Fetcher reads rows by id. Ids the store does not have are absent from the
// answer; the others come in the order asked, once each.
type Fetcher interface {
	Fetch(ctx context.Context, r FetchRequest) (Rows, error)
}

// FetchRequest asks for rows.
type FetchRequest struct {
	Collection string
	IDs        []rerank.ID
	// Vectors are the vector fields wanted; "" is the only or unnamed one.
	Vectors []string
	// Owner, if set, makes IDs the ids of owners: all rows of each of them are
	// returned, ordered by owner as asked and then by id.
	Owner string
	// Payload asks for the payload: all of it, or PayloadFields of it.
	Payload       bool
	PayloadFields []string
	Consistency   string
}

// Scanner reads all rows of a collection.
type Scanner interface {
	// Scan calls yield with batches of rows in a fixed order. cursor resumes a
	// later Scan behind the batch. It ends with the error of yield, if any.
	Scan(ctx context.Context, r ScanRequest, yield func(rows Rows, cursor string) error) error
}

// ScanRequest asks for all rows.
type ScanRequest struct {
	Collection    string
	Vectors       []string
	Filter        string
	Owner         string
	Payload       bool
	PayloadFields []string
	Batch         int    // rows a batch; 0 is the adapter's choice
	Cursor        string // of an earlier Scan; empty is the beginning
	// Until, of a Partitioner, is the cursor before whose row the scan ends; empty is
	// the end.
	Until string
}

// Partitioner cuts a collection into parts that can be scanned side by side.
type Partitioner interface {
	// Cut returns the cursors at which the second and later of so many parts begin,
	// the same as long as the collection's first and last rows are. It returns
	// ErrNotFound, ErrUnsupported where its ids cannot be cut, or the store's error.
	Cut(ctx context.Context, collection string, parts int) ([]string, error)
}

// RangeSearcher finds everything above a score.
type RangeSearcher interface {
	// SearchRange is Search with every list cut at above: rows with an inner
	// product greater than it, at most Probe.Depth of them. List.Exhausted says
	// that no such row is missing.
	SearchRange(ctx context.Context, r SearchRequest, above float32) ([]rerank.List, error)
}

// Describer tells what a collection is.
type Describer interface {
	// Describe returns ErrNotFound if there is no such collection.
	Describe(ctx context.Context, collection string) (Description, error)
}

// Counter counts the rows of a collection one by one, where Describe may estimate.
type Counter interface {
	// Count returns ErrNotFound if there is no such collection, and ErrUnavailable
	// for one that the server does not have in memory and so cannot count.
	Count(ctx context.Context, collection string) (int64, error)
}

// Description is what a store says of a collection, and the limits that hold for it.
type Description struct {
	// Rows is the number of rows; −1 if the store does not tell.
	Rows   int64
	Fields []VectorField
	// TextIDs: ids are strings rather than numbers; a store that takes both says false.
	TextIDs bool
	Limits  Limits
	// Settings are the index settings as the store words them, for the record
	// of a calibration.
	Settings map[string]string
}

// VectorField is a vector field of a collection.
type VectorField struct {
	Name   string // "" is an unnamed one
	Dim    int
	Metric Metric
	// FullPrecision: the store keeps float32 vectors.
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
	// Unsearched asks Create to leave out the index: no probe searches the field.
	Unsearched bool
}

// Limits are a store's limits, from configuration narrowed by what the server tells.
type Limits struct {
	MaxDepth        int // rows of one list
	MaxProbes       int // probes of one request
	MaxVectorFields int // of one collection
	MaxMessageBytes int
}

// Writer makes companion collections. It is never used on a user's own collection.
type Writer interface {
	// Create makes an empty collection. It returns ErrStore if it exists and
	// *LimitError if the store takes fewer fields.
	Create(ctx context.Context, s Schema) error
	// Write inserts or replaces rows; Rows.Vectors is in the order of the
	// schema's fields. Rows are visible to searches when it returns.
	Write(ctx context.Context, collection string, s Schema, rows Rows) error
	// Drop removes a collection; one that does not exist is no error.
	Drop(ctx context.Context, collection string) error
}

// Deleter removes rows of companion collections. Like Writer, it is never used on
// a user's own collection.
type Deleter interface {
	// Delete removes rows by id; an id that the collection does not have is no
	// error. The rows are in no search that begins after it returns.
	Delete(ctx context.Context, collection string, ids []rerank.ID) error
}

// Schema describes a collection to create.
type Schema struct {
	Collection string
	Fields     []VectorField
	TextIDs    bool
	// Owner, if set, is the field that holds each row's item.
	Owner string
	// TextOwners: the items' ids are strings rather than numbers.
	TextOwners bool
}

// Aliaser switches an alias to a collection in one step.
type Aliaser interface {
	SwitchAlias(ctx context.Context, alias, collection string) error
}

// Identifier tells how clients name a collection and its rows, which is what
// recognising their writes takes. It caches nothing.
type Identifier interface {
	// Identify takes a collection's own name or an alias. Where there is no such
	// collection it returns ErrNotFound, or the name as it is.
	Identify(ctx context.Context, name string) (Identity, error)
}

// Identity is how clients name a collection and its rows.
type Identity struct {
	Collection string   // its own name
	Aliases    []string // in any order
	Key        string   // the field that holds a row's id, where ids are a field
	AutoKey    bool     // the store chooses ids
}

// Matcher lists the ids that a filter lets through; a scan of a resident table
// under a filter needs it.
type Matcher interface {
	Match(ctx context.Context, collection, filter string) ([]rerank.ID, error)
}
