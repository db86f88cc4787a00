// Package device is what a device scorer is written with: a process that keeps
// models and tables where scoring is fast, on a GPU or another machine, and returns
// the best rows of a table.
//
//	func main() { device.Serve(mine) } // mine implements Device
//
// Package cpu is a Device in plain memory, package devicetest the conformance kit.
package device

import (
	"context"
	"errors"
	"iter"
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// Sentinel errors of a Device, wrapped with what, value against limit, and remedy;
// they cross a connection as the status codes in parentheses.
var (
	// ErrNotLoaded: a version of a model or table that is not loaded (FAILED_PRECONDITION).
	ErrNotLoaded = errors.New("version not loaded")
	// ErrLoaded: a version that is loaded; versions never change (ALREADY_EXISTS).
	ErrLoaded = errors.New("version is loaded already")
	// ErrRequest: what is asked or loaded contradicts itself, its model or its table
	// (INVALID_ARGUMENT).
	ErrRequest = errors.New("request does not fit the device")
	// ErrMemory: there is no room for it (RESOURCE_EXHAUSTED).
	ErrMemory = errors.New("not enough memory on the device")
	// ErrBusy: more calls wait than can be answered in time; nothing is wrong with the
	// device (ABORTED).
	ErrBusy = errors.New("device busy")
	// ErrUnavailable: the device is not to be reached (UNAVAILABLE).
	ErrUnavailable = errors.New("device unavailable")
	// ErrFailed: it failed, or its answer says what no device can (any other code).
	ErrFailed = errors.New("device failed")
)

// Version names a version of a model or table, which never changes.
type Version struct{ Name, Version string }

// Description is what a caller must know of a device.
type Description struct {
	Name, Version string        // for people: the device and its driver; the program
	Kinds         []rerank.Kind // that it scores
	// Memory is for models and tables, Free what is left of it, in bytes; 0: not known.
	Memory, Free int64
	MaxK         int // rows of one answer; 0: no limit
	// Models and Tables are loaded.
	Models, Tables []Version
}

// TableHead is what a table is.
type TableHead struct {
	Table, Model Version
	Rows, Cols   int
}

// Rows are the feature rows of a table, some at a time, each chunk whole rows one
// after the other; it is read-only and only valid until the next. They end with an
// error where not all came. They are iterated over once.
type Rows = iter.Seq2[[]float32, error]

// Patch makes a version of a table of another, which is gone then.
type Patch struct {
	From    Version
	Version string
	// Numbers are of the rows to replace; one behind the last adds a row. Row i is
	// that of Numbers[i]; a number that comes twice has the later one.
	Numbers []uint32
	Rows    rerank.Matrix
	// Removed are of rows that no Scan returns any more; Rescore still does.
	// Replacing a row brings it back, unless the same patch removes it.
	Removed []uint32
}

// Ask is a query for the best K rows by a model of a table that was loaded for it.
type Ask struct {
	Model, Table Version
	Query        rerank.Query
	K            int
}

// Best are the first rows of a ranking: by score descending, then by number; rows
// whose score is not finite come last.
type Best struct {
	Rows   []uint32
	Scores []float32 // φ of each
	// Epsilon: no score is further than this from φ in float32 arithmetic.
	Epsilon float32
	// Scored counts the rows whose score was computed, NotFinite those of them whose
	// score is not finite.
	Scored, NotFinite int
	// Next is the score of the best row that is not in the answer, −Inf where there is
	// none or it is not finite.
	Next float32
	// Measured, if not 0: no bound rules out that a row that is not in the answer scores
	// more than Next; MeasuredError does, the error of rounding that was seen on so many
	// pairs of a query and a row.
	Measured      int
	MeasuredError float32
}

// Device scores where the tables lie. It is called concurrently. An ended context
// ends its calls, and its error is then theirs.
type Device interface {
	// Describe answers at once.
	Describe(ctx context.Context) (Description, error)
	// LoadModel loads a native model file, which it may keep. It returns ErrLoaded,
	// ErrMemory, or ErrRequest for a file that is not valid, of a kind that it does not
	// score, or of a model whose digest is not the version.
	LoadModel(ctx context.Context, v Version, file []byte) error
	// LoadTable loads a table; on an error nothing of it is kept. It returns ErrLoaded,
	// ErrMemory, ErrNotLoaded without the model, ErrRequest where the rows are not
	// those of its features, or the error of rows.
	LoadTable(ctx context.Context, head TableHead, rows Rows) error
	// PatchTable changes a table, as a whole or not at all. It returns ErrNotLoaded,
	// ErrLoaded, ErrMemory, or ErrRequest for numbers or rows that do not fit.
	PatchTable(ctx context.Context, p Patch) error
	// Unload frees models and tables; one that is not loaded is no error, and calls
	// that are under way end as if it were.
	Unload(ctx context.Context, models, tables []Version) error
	// Rescore returns the best of the rows of those numbers. It returns ErrNotLoaded,
	// or ErrRequest for a query, a K or a row that does not fit.
	Rescore(ctx context.Context, a Ask, rows []uint32) (Best, error)
	// Scan returns the best of all rows or, where bitmap is not empty, of those whose
	// bit, i%8 of byte i/8, is set. Its errors are those of Rescore.
	Scan(ctx context.Context, a Ask, bitmap []byte) (Best, error)
}

// none is the Next of an answer that left nothing out.
var none = float32(math.Inf(-1))

// finite reports whether x is neither NaN nor infinite.
func finite(x float32) bool { return x-x == 0 }
