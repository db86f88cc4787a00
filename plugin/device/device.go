// Package device is for writing a device scorer: a process that keeps models and tables
// where scoring is fast, such as on a GPU or another machine, and returns the best rows of
// a table.
//
//	func main() { device.Serve(mine) } // mine implements Device
//
// Package cpu is a Device in main memory. Package devicetest is the conformance kit.
package device

import (
	"context"
	"errors"
	"iter"
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// Sentinel errors of a Device. The wrapping text says what failed, the value against the
// limit, and the remedy. On a connection they are sent as the status codes in parentheses.
var (
	// ErrNotLoaded: the version of a model or table is not loaded (FAILED_PRECONDITION).
	ErrNotLoaded = errors.New("version not loaded")
	// ErrLoaded: the version is already loaded, and versions never change (ALREADY_EXISTS).
	ErrLoaded = errors.New("version is loaded already")
	// ErrRequest: the request contradicts itself, its model or its table
	// (INVALID_ARGUMENT).
	ErrRequest = errors.New("request does not fit the device")
	// ErrMemory: the device has not enough free memory (RESOURCE_EXHAUSTED).
	ErrMemory = errors.New("not enough memory on the device")
	// ErrBusy: too many calls are waiting to be answered in time; the device works
	// (ABORTED).
	ErrBusy = errors.New("device busy")
	// ErrUnavailable: the device cannot be reached (UNAVAILABLE).
	ErrUnavailable = errors.New("device unavailable")
	// ErrFailed: the device failed or gave an invalid answer (any other code).
	ErrFailed = errors.New("device failed")
)

// Version names one version of a model or table. A version never changes.
type Version struct{ Name, Version string }

// Description describes a device to its callers.
type Description struct {
	Name, Version string        // for people: the device with its driver, and the program's version
	Kinds         []rerank.Kind // the kinds that the device can score
	// Memory is the memory for models and tables, Free the unused part of it, in bytes. 0
	// means unknown.
	Memory, Free int64
	MaxK         int // most rows of one answer; 0: no limit
	// Models and Tables lists the loaded versions.
	Models, Tables []Version
}

// TableHead describes a table.
type TableHead struct {
	Table, Model Version
	Rows, Cols   int
}

// Rows iterates once over the feature rows of a table. Each chunk consists of whole rows,
// one after the other. A chunk is read-only and only valid until the next one. If rows are
// missing, the iteration ends with an error.
type Rows = iter.Seq2[[]float32, error]

// Patch changes a table into a new version, which replaces the old one.
type Patch struct {
	From    Version
	Version string
	// Row i of Rows replaces row Numbers[i] of the table. A number equal to the number of
	// rows appends a row. If a number occurs twice, the later row counts.
	Numbers []uint32
	Rows    rerank.Matrix
	// Removed lists rows that Scan no longer returns. Rescore still scores them. Replacing
	// a row makes it visible again, unless the same patch removes it.
	Removed []uint32
}

// Ask is a query for the best K rows of a table, scored by the model for which the table
// was loaded.
type Ask struct {
	Model, Table Version
	Query        rerank.Query
	K            int
}

// Best contains the first rows of a ranking: by score descending, then by number, with
// scores that are not finite last.
type Best struct {
	Rows   []uint32
	Scores []float32 // φ of each row
	// Epsilon bounds the difference between a score and φ in float32 arithmetic.
	Epsilon float32
	// Scored counts the rows that were scored, NotFinite those among them whose score is
	// not finite.
	Scored, NotFinite int
	// Next is the score of the best row outside the answer. It is −Inf if every row is in
	// the answer or that score is not finite.
	Next float32
	// Measured, if not 0, means that no proved bound excludes that a row outside the answer
	// scores more than Next. Instead the answer relies on MeasuredError, an error of
	// rounding that was measured on Measured pairs of a query and a row.
	Measured      int
	MeasuredError float32
}

// Device scores where the tables are stored. Its methods are called concurrently. When the
// context of a call ends, the call ends too and returns the context's error.
type Device interface {
	// Describe must return without delay.
	Describe(ctx context.Context) (Description, error)
	// LoadModel loads a native model file. It may keep the slice. It returns ErrLoaded,
	// ErrMemory, or ErrRequest if the file is invalid, its kind is not supported, or its
	// digest differs from the version.
	LoadModel(ctx context.Context, v Version, file []byte) error
	// LoadTable loads a table. After an error, no part of it is kept. It returns ErrLoaded,
	// ErrMemory, ErrNotLoaded if the model is not loaded, ErrRequest if the rows do not fit
	// the model's features, or the error of rows.
	LoadTable(ctx context.Context, head TableHead, rows Rows) error
	// PatchTable applies a patch completely or not at all. It returns ErrNotLoaded,
	// ErrLoaded, ErrMemory, or ErrRequest for numbers or rows that do not fit.
	PatchTable(ctx context.Context, p Patch) error
	// Unload frees models and tables. Unknown versions are ignored. Running calls finish as
	// if nothing had been unloaded.
	Unload(ctx context.Context, models, tables []Version) error
	// Rescore returns the best of the given rows. It returns ErrNotLoaded, or ErrRequest
	// for a query, a K or a row that does not fit.
	Rescore(ctx context.Context, a Ask, rows []uint32) (Best, error)
	// Scan returns the best of all rows, or, if bitmap is not empty, of the rows whose bit
	// is set (row i is bit i%8 of byte i/8). It returns the same errors as Rescore.
	Scan(ctx context.Context, a Ask, bitmap []byte) (Best, error)
}

// none is the value of Next if the answer contains every row.
var none = float32(math.Inf(-1))

// finite reports whether x is neither NaN nor infinite.
func finite(x float32) bool { return x-x == 0 }
