// Package index builds what a route needs beside its collection: a table of
// resident feature rows, or a companion collection with derived vector fields.
// Both are streamed from a scan of the collection and go on where an
// interrupted build stopped.
package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Sentinel errors.
var (
	// ErrExists: what was to be built is there already.
	ErrExists = errors.New("it exists already")
	// ErrSource: the collection cannot be read as the model needs it.
	ErrSource = errors.New("the collection cannot be indexed")
)

// defaultCheckpoint is how much work an interruption loses at most.
const defaultCheckpoint = 5 * time.Second

// Progress is told of long work, as eval.Progress: steps is −1 where the store
// does not tell its number of rows.
type Progress func(stage string, steps int) (done func(n int))

func (p Progress) begin(stage string, steps int) func(n int) {
	if p == nil {
		return func(int) {}
	}
	return p(stage, steps)
}

// Source is the collection that is read.
type Source struct {
	Store      adapters.Store // an adapters.Scanner; with Owner, also a Fetcher
	Collection string
	Vector     string // the stored vector field; "" is the only or unnamed one
	Owner      string // the field with each row's item, for max-sim
	Batch      int    // rows a batch; 0 is the adapter's choice
	Part       Part   // of the collection
	// Base computes the base vectors in place of the stored ones; nil: they are stored.
	Base Base
	// RowsPerSecond is how fast it is read; 0 is as fast as it can be.
	RowsPerSecond int
	// Checkpoint is the time between two notes of how far a build came; 0 is 5 s.
	Checkpoint time.Duration
}

// Base computes base vectors of rows where they are not what is stored: those of a
// relevance-based model are a ranker's scores.
type Base interface {
	// Reads says what of a row is read: its payload, of that some fields (none: all),
	// and its stored vector.
	Reads() (payload bool, fields []string, vector bool)
	// Vectors returns one base vector a row; one that is not finite is of an item of
	// which nothing can be derived.
	Vectors(ctx context.Context, rows adapters.Rows) (rerank.Matrix, error)
}

// base are the base vectors of rows.
func (s Source) base(ctx context.Context, rows adapters.Rows) (rerank.Matrix, error) {
	if s.Base == nil {
		return rows.Vectors[0], nil
	}
	return s.Base.Vectors(ctx, rows)
}

// request asks for what base reads of every row.
func (s Source) request() adapters.ScanRequest {
	r := adapters.ScanRequest{Collection: s.Collection, Batch: s.Batch}
	vector := true
	if s.Base != nil {
		r.Payload, r.PayloadFields, vector = s.Base.Reads()
	}
	if vector {
		r.Vectors = []string{s.Vector}
	}
	return r
}

// Read yields the rows of the source's part with what Base reads of them. It returns
// ErrSource, the store's error, or that of yield.
func (s Source) Read(ctx context.Context, yield func(rows adapters.Rows) error) error {
	within, err := s.bounds(ctx)
	if err != nil {
		return err
	}
	return s.scan(ctx, within, s.request(), func(rows adapters.Rows, _ string) error { return yield(rows) })
}

// due reports whether it is time for a note after the last one.
func (s Source) due(saved time.Time) bool {
	return time.Since(saved) >= cmp.Or(s.Checkpoint, defaultCheckpoint)
}

// Result is what was built.
type Result struct {
	Rows  int `json:"rows"`
	Items int `json:"items"`
	// Resumed is the number of items that an earlier run had done.
	Resumed int `json:"resumed"`
	// NotFinite counts items with a feature that is not finite; they rank last.
	NotFinite int `json:"not_finite"`
	// FirstNotFinite is the id of the first of them.
	FirstNotFinite string `json:"first_not_finite,omitempty"`
	// Missing are rows without the vector, of which nothing is derived, and FirstMissing is
	// the id of the first of them. Those of an interrupted run before are not among them.
	Missing      int    `json:"missing,omitempty"`
	FirstMissing string `json:"first_missing,omitempty"`
	// Verified is how it was read back at the end.
	Verified Verified `json:"verified"`
}

func (s Source) scanner() (adapters.Scanner, error) {
	scanner := adapters.AbilitiesOf(s.Store).Scan
	if scanner == nil {
		return nil, fmt.Errorf("%w: %w: the store of collection %q cannot list its rows", ErrSource, adapters.ErrUnsupported, s.Collection)
	}
	return scanner, nil
}

// describe returns the collection's description and checks its field's dimension.
func (s Source) describe(ctx context.Context, spec rerank.Spec) (adapters.Description, error) {
	describer := adapters.AbilitiesOf(s.Store).Describe
	if describer == nil {
		return adapters.Description{Rows: -1}, nil
	}
	d, err := describer.Describe(ctx, s.Collection)
	if err != nil {
		return d, err
	}
	for _, f := range d.Fields {
		if f.Name != s.Vector && (s.Vector != "" || len(d.Fields) > 1) {
			continue
		}
		if f.Dim != spec.ItemDim && s.Base == nil {
			return d, fmt.Errorf("%w: field %q of collection %q has dimension %d, the model takes items of %d",
				ErrSource, f.Name, s.Collection, f.Dim, spec.ItemDim)
		}
		return d, nil
	}
	if s.Base != nil {
		return d, nil // it reads the field, or none
	}
	return d, fmt.Errorf("%w: collection %q has no vector field %q", adapters.ErrField, s.Collection, s.Vector)
}

// drop returns the rows that have their vectors, and counts the others.
func (r *Result) drop(rows adapters.Rows) adapters.Rows {
	var missing adapters.Missing
	rows = missing.Drop(rows)
	if r.Missing += missing.Rows; missing.Rows > 0 && r.FirstMissing == "" {
		r.FirstMissing = missing.First.String()
	}
	return rows
}

// noteNotFinite counts the rows of features with an element that is not finite, and
// keeps the id of the first. It returns how many there are.
func (r *Result) noteNotFinite(features rerank.Matrix, id func(row int) rerank.ID) int {
	n := 0
	for i := range features.Rows {
		if rerank.CheckFinite("features", features.Row(i)) == nil {
			continue
		}
		if n++; r.FirstNotFinite == "" {
			r.FirstNotFinite = id(i).String()
		}
	}
	r.NotFinite += n
	return n
}
