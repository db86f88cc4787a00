// Package dataset reads what a similarity is fitted and judged on: item and
// query vectors, their ids, and a log of which items were chosen.
//
// Vectors come from .npy, .safetensors and .parquet files, or straight from a
// store; the log from CSV, JSON lines or Parquet. What can be mapped is mapped,
// the rest is read in pieces, and nothing is allocated from a length that a file
// claims.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// ErrInput: a file cannot be read, is damaged, holds what it must not, or does
// not fit another. The message says which file, where in it, and what to do.
var ErrInput = errors.New("input is not valid")

// Sources name where the parts of a dataset are. A file of vectors or ids can
// hold several: FILE#NAME names a tensor of .safetensors or a column of .parquet.
type Sources struct {
	// Items are the item vectors' file. Collection, if set, takes its place.
	Items      string
	Collection *Collection
	// Queries are the query vectors' file.
	Queries string
	// Pairs are the log's file: .jsonl or .ndjson, .parquet, and CSV whatever the
	// name. Empty: no log.
	Pairs string
	// ItemIDs and QueryIDs are files of ids; the log then names items or queries by
	// them. Empty: the ids that the vectors came with, and row numbers from 0
	// without any.
	ItemIDs, QueryIDs string
	// UserIDs is a .npy file with one integer a query row; empty is none.
	UserIDs string
	// RowPerTime makes a row of each query and time, so that a split by time can
	// part the pairs of one query: the query's vector stands there several times.
	RowPerTime bool
	// NaNItems permits items that are not finite. Queries never may be so.
	NaNItems bool
	Progress Progress
}

// Progress is told of long work: it is called at the start of a stage with the
// number of its steps, −1 if that is not known, and returns what is called with
// the number of steps done.
type Progress func(stage string, steps int) (done func(n int))

func (p Progress) begin(stage string, steps int) func(n int) {
	if p == nil {
		return func(int) {}
	}
	return p(stage, steps)
}

// Dataset is what was read. It is read-only, safe for concurrent use, and must
// not be used after Close: the matrices may be mapped files.
type Dataset struct {
	Items, Queries rerank.Matrix
	// ItemIDs and QueryIDs are one a row; nil: row numbers.
	ItemIDs, QueryIDs []rerank.ID
	// Relevant are the chosen item rows of each query row, ascending and distinct;
	// nil without a log.
	Relevant [][]int32
	// Weights[q][i] > 0 is the weight of the pair (q, Relevant[q][i]); nil: all 1.
	Weights [][]float32
	// Times are the times of the query rows in Unix seconds, each the latest of its
	// pairs, 0 for a row without pairs; nil: the log has none.
	Times []int64
	// UserIDs are one a query row; nil: none.
	UserIDs []int64
	Counts  Counts

	parts   []part
	closers []io.Closer
}

// part is a source with its digest.
type part struct {
	name, file string
	digest     func() (string, error)
}

// Counts say what was read, and what was left out and why.
type Counts struct {
	Items   int `json:"items"`
	Queries int `json:"queries"`
	// Pairs are distinct, and are what is left of the Rows of the log.
	Rows  int `json:"rows"`
	Pairs int `json:"pairs"`
	// DuplicatePairs are rows of a pair that came before. Their weights are added
	// where the log has weights; otherwise a pair counts once.
	DuplicatePairs int `json:"duplicate_pairs"`
	// UnknownItems and UnknownQueries are rows whose id is none of the items' or
	// queries'; they were dropped. A row that has both is an unknown query.
	UnknownItems   int `json:"unknown_items"`
	UnknownQueries int `json:"unknown_queries"`
	// ZeroWeights are rows of weight 0; they were dropped.
	ZeroWeights int `json:"zero_weights"`
	// SeveralTimes are queries whose pairs are of several times; see
	// Sources.RowPerTime.
	SeveralTimes int `json:"several_times"`
	// NotFiniteItems have NaN or an infinity in their vector; see Sources.NaNItems.
	NotFiniteItems int `json:"not_finite_items"`
	// MissingItems are rows of a collection without the vector, which were left out, and
	// FirstMissingItem is the id of the first of them.
	MissingItems     int    `json:"missing_items,omitempty"`
	FirstMissingItem string `json:"first_missing_item,omitempty"`
	// Ignored are columns of the log that mean nothing here.
	Ignored []string `json:"ignored_columns,omitempty"`
}

// Open reads a dataset; Close frees it. It returns ErrInput, the store's error,
// or the context's.
func Open(ctx context.Context, s Sources) (*Dataset, error) {
	d := &Dataset{}
	if err := d.open(ctx, s); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Dataset) open(ctx context.Context, s Sources) error {
	if err := d.openItems(ctx, s); err != nil {
		return err
	}
	queries, err := OpenVectors(ctx, s.Queries)
	if err != nil {
		return fmt.Errorf("queries: %w", err)
	}
	d.closers = append(d.closers, queries)
	d.Queries, d.QueryIDs = queries.Matrix, queries.IDs
	if _, err := finite(queries.name, d.Queries, false); err != nil {
		return fmt.Errorf("queries: %w", err)
	}
	d.addFile("queries", s.Queries)
	d.Counts.Queries = d.Queries.Rows
	if err := d.readIDs(s); err != nil {
		return err
	}
	if s.Pairs == "" {
		return nil
	}
	return d.readPairs(ctx, s)
}

func (d *Dataset) openItems(ctx context.Context, s Sources) error {
	var (
		items *Vectors
		err   error
	)
	if s.Collection != nil {
		items, err = s.Collection.scan(ctx, s.Progress)
	} else {
		items, err = OpenVectors(ctx, s.Items)
	}
	if err != nil {
		return fmt.Errorf("items: %w", err)
	}
	d.closers = append(d.closers, items)
	d.Items, d.ItemIDs = items.Matrix, items.IDs
	if d.Counts.NotFiniteItems, err = finite(items.name, d.Items, s.NaNItems); err != nil {
		return fmt.Errorf("items: %w", err)
	}
	if m := items.missing; m.Rows > 0 {
		d.Counts.MissingItems, d.Counts.FirstMissingItem = m.Rows, m.First.String()
	}
	if s.Collection != nil {
		d.parts = append(d.parts, part{"items", items.name, func() (string, error) { return items.digest, nil }})
	} else {
		d.addFile("items", s.Items)
	}
	d.Counts.Items = d.Items.Rows
	return nil
}

func (d *Dataset) readIDs(s Sources) error {
	for _, ids := range []struct {
		name, file string
		to         *[]rerank.ID
		rows       int
	}{{"item_ids", s.ItemIDs, &d.ItemIDs, d.Items.Rows}, {"query_ids", s.QueryIDs, &d.QueryIDs, d.Queries.Rows}} {
		if ids.file == "" {
			continue
		}
		read, err := ReadIDs(ids.file)
		if err != nil {
			return err
		}
		if len(read) != ids.rows {
			return fmt.Errorf("%w: %s has %d ids for %d rows of vectors", ErrInput, ids.file, len(read), ids.rows)
		}
		*ids.to = read
		d.addFile(ids.name, ids.file)
	}
	if s.UserIDs == "" {
		return nil
	}
	users, err := npy.ReadInts(s.UserIDs)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	if len(users) != d.Queries.Rows {
		return fmt.Errorf("%w: %s has %d user ids for %d queries", ErrInput, s.UserIDs, len(users), d.Queries.Rows)
	}
	d.UserIDs = users
	d.addFile("user_ids", s.UserIDs)
	return nil
}

// Close frees the vectors. A second Close does nothing.
func (d *Dataset) Close() error {
	var failed []error
	for _, c := range d.closers {
		failed = append(failed, c.Close())
	}
	d.closers = nil
	d.Items, d.Queries = rerank.Matrix{}, rerank.Matrix{}
	return errors.Join(failed...)
}

func (d *Dataset) addFile(name, spec string) {
	path, _ := splitSpec(spec)
	d.parts = append(d.parts, part{name, filepath.Base(spec), func() (string, error) { return FileDigest(path) }})
}

// Digests returns the SHA-256 of every source by its name (items, queries,
// pairs, item_ids, query_ids, user_ids), as "items.npy sha256:…". It reads the
// files again.
func (d *Dataset) Digests() (map[string]string, error) {
	digests := map[string]string{}
	for _, p := range d.parts {
		digest, err := p.digest()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInput, err)
		}
		digests[p.name] = p.file + " sha256:" + digest
	}
	return digests, nil
}
