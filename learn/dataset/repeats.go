package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// AskedIn marks the query rows that another log has, such as the log that a model was fitted to.
// The log must name queries by the ids of this dataset: row numbers could belong to another
// matrix. AskedIn returns ErrInput or the context's error.
func (d *Dataset) AskedIn(ctx context.Context, path string) ([]bool, error) {
	if d.QueryIDs == nil {
		return nil, fmt.Errorf("%w: %s names queries by row number, which says nothing about the rows of another file; give query ids", ErrInput, path)
	}
	queries, err := newIDIndex(columnQuery, path, d.QueryCount(), d.QueryIDs)
	if err != nil {
		return nil, err
	}
	asked := make([]bool, d.QueryCount())
	_, err = readLog(ctx, path, &Counts{}, func(e entry) error {
		if row, ok := queries.find(e.query); ok {
			asked[row] = true
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, path, err)
	}
	return asked, nil
}

// LoggedItems lists the ids of the items in a log as the log spells them, each once, in the order
// in which they come. It returns ErrInput or the context's error.
func LoggedItems(ctx context.Context, path string) ([]string, error) {
	var items []string
	known := map[string]bool{}
	_, err := readLog(ctx, path, &Counts{}, func(e entry) error {
		if !known[e.item] {
			known[e.item] = true
			items = append(items, e.item)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, path, err)
	}
	return items, nil
}

// EqualTo marks the query rows whose vector equals a row of other, such as the queries that a
// model was fitted to.
func (d *Dataset) EqualTo(other rerank.Matrix) []bool {
	known := make(map[[sha256.Size]byte]bool, other.Rows)
	for r := range other.Rows {
		known[hashVector(other.Row(r))] = true
	}
	equal := make([]bool, d.Queries.Rows)
	for q := range equal {
		equal[q] = known[hashVector(d.Queries.Row(q))]
	}
	return equal
}

func hashVector(v []float32) [sha256.Size]byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return sha256.Sum256(b)
}
