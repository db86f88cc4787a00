// Package index builds the data that a route needs beside its collection: a table of
// resident feature rows, or a companion collection with derived vector fields. It
// streams the collection, and resumes an interrupted build.
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
	// ErrExists means that the table or companion already exists.
	ErrExists = errors.New("it exists already")
	// ErrSource means that the collection does not fit the model.
	ErrSource = errors.New("the collection cannot be indexed")
)

// defaultCheckpoint is the time between checkpoints: the most work that an
// interruption loses.
const defaultCheckpoint = 5 * time.Second

// Progress reports the progress of long work, like eval.Progress. steps is −1 if the
// store does not tell its number of rows.
type Progress func(stage string, steps int) (done func(n int))

func (p Progress) begin(stage string, steps int) func(n int) {
	if p == nil {
		return func(int) {}
	}
	return p(stage, steps)
}

// Source describes the collection to read, and how to read it.
type Source struct {
	Store      adapters.Store // must be an adapters.Scanner; with Owner, also a Fetcher
	Collection string
	Vector     string // field with the items' vectors; "" is the only or unnamed field
	Owner      string // field that holds each row's item, for max-sim
	Batch      int    // rows in one read; 0: the adapter chooses
	Part       Part   // part of the collection to read
	// Base, if not nil, computes base vectors in place of the stored vectors.
	Base Base
	// RowsPerSecond limits the speed of reading. If 0, there is no limit.
	RowsPerSecond int
	// Checkpoint is the time between checkpoints. If 0, it is 5 s.
	Checkpoint time.Duration
}

// Base computes the base vectors of rows for models that do not use the stored
// vectors. The base vector of a relevance-based model consists of a ranker's scores.
type Base interface {
	// Reads says which parts of a row Base needs: its payload (only the named fields,
	// or all if fields is empty), and its stored vector.
	Reads() (payload bool, fields []string, vector bool)
	// Vectors returns one base vector for each row. A vector that is not finite marks
	// an item from which nothing can be derived.
	Vectors(ctx context.Context, rows adapters.Rows) (rerank.Matrix, error)
}

// baseVectors returns the base vectors of rows: computed by Base, or the stored
// vectors.
func (s Source) baseVectors(ctx context.Context, rows adapters.Rows) (rerank.Matrix, error) {
	if s.Base == nil {
		return rows.Vectors[0], nil
	}
	return s.Base.Vectors(ctx, rows)
}

// request returns a scan request for the parts of a row that Base needs.
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

// Read scans the source's part and passes rows to yield, with the parts that Base
// needs. It returns ErrSource, the store's error, or the error of yield.
func (s Source) Read(ctx context.Context, yield func(rows adapters.Rows) error) error {
	within, err := s.findBounds(ctx)
	if err != nil {
		return err
	}
	return s.scan(ctx, within, s.request(), func(rows adapters.Rows, _ string) error { return yield(rows) })
}

// isDue reports whether the next checkpoint is due, given the time of the last.
func (s Source) isDue(saved time.Time) bool {
	return time.Since(saved) >= cmp.Or(s.Checkpoint, defaultCheckpoint)
}

// Result describes a finished build.
type Result struct {
	Rows  int `json:"rows"`
	Items int `json:"items"`
	// Resumed counts the items that earlier runs had completed.
	Resumed int `json:"resumed"`
	// NotFinite counts items with a feature that is not finite. They rank last.
	NotFinite int `json:"not_finite"`
	// FirstNotFinite is the id of the first such item.
	FirstNotFinite string `json:"first_not_finite,omitempty"`
	// Missing counts rows without the vector, which are left out. FirstMissing is the
	// id of the first such row. Neither includes the rows of earlier, interrupted
	// runs.
	Missing      int    `json:"missing,omitempty"`
	FirstMissing string `json:"first_missing,omitempty"`
	// Verified is the outcome of the check at the end.
	Verified Verified `json:"verified"`
}

func (s Source) scanner() (adapters.Scanner, error) {
	scanner := adapters.AbilitiesOf(s.Store).Scan
	if scanner == nil {
		return nil, fmt.Errorf("%w: %w: the store of collection %q cannot list its rows", ErrSource, adapters.ErrUnsupported, s.Collection)
	}
	return scanner, nil
}

// describe returns the collection's description. It checks the dimension of the vector
// field.
func (s Source) describe(ctx context.Context, spec rerank.Spec) (adapters.Description, error) {
	describer := adapters.AbilitiesOf(s.Store).Describe
	if describer == nil {
		return adapters.Description{Rows: -1}, nil
	}
	d, err := describer.Describe(ctx, s.Collection)
	if err != nil {
		return d, err
	}
	fields := d.Fields
	if spec.Kind == rerank.KindLate && s.Owner == "" {
		fields = d.MaxSim
	}
	for _, f := range fields {
		if f.Name != s.Vector && (s.Vector != "" || len(fields) > 1) {
			continue
		}
		if f.Dim != spec.ItemDim && s.Base == nil {
			return d, fmt.Errorf("%w: field %q of collection %q has dimension %d, the model takes items of %d",
				ErrSource, f.Name, s.Collection, f.Dim, spec.ItemDim)
		}
		return d, nil
	}
	if s.Base != nil {
		return d, nil // Base decides whether it reads the field
	}
	return d, fmt.Errorf("%w: collection %q has no vector field %q", adapters.ErrField, s.Collection, s.Vector)
}

// dropMissing returns the rows that have their vectors, and counts the others.
func (r *Result) dropMissing(rows adapters.Rows) adapters.Rows {
	var missing adapters.Missing
	rows = missing.Drop(rows)
	if r.Missing += missing.Rows; missing.Rows > 0 && r.FirstMissing == "" {
		r.FirstMissing = missing.First.String()
	}
	return rows
}

// noteNotFinite counts the rows of features with an element that is not finite,
// records the id of the first, and returns the number of such rows.
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
