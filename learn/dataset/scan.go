package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"

	"github.com/likenessdb/likeness/adapters"
)

// Collection is a collection of a store whose vectors are the items.
type Collection struct {
	Store adapters.Store
	Name  string
	// Vector is the vector field. If empty, it is the only or unnamed field.
	Vector string
	// Batch is the number of rows in one read. If 0, the store chooses.
	Batch int
}

// scanVectors copies the vectors of the whole collection to a mapped temporary file, so that
// they need not fit in memory.
func (c *Collection) scanVectors(ctx context.Context, p Progress) (_ *Vectors, err error) {
	scanner := adapters.AbilitiesOf(c.Store).Scan
	if scanner == nil {
		return nil, fmt.Errorf("%w: collection %q is in a store that cannot be read whole; write the vectors to a file", ErrInput, c.Name)
	}
	s := &scanSpool{name: "collection " + c.Name, sum: sha256.New(), done: p.begin("reading collection "+c.Name, c.countRows(ctx))}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.spool.Close())
		}
	}()
	request := adapters.ScanRequest{Collection: c.Name, Vectors: []string{c.Vector}, Batch: c.Batch}
	if err := scanner.Scan(ctx, request, s.add); err != nil {
		return nil, err
	}
	if len(s.vectors.IDs) == 0 {
		return nil, fmt.Errorf("%w: collection %q has no rows with vector %q%s", ErrInput, c.Name, c.Vector, s.missing)
	}
	s.vectors.missing = s.missing
	m, err := s.spool.mapMatrix()
	if err != nil {
		return nil, err
	}
	s.vectors.Matrix, s.vectors.closer, s.vectors.name = m, &s.spool, s.name
	s.vectors.digest = hex.EncodeToString(s.sum.Sum(nil))
	return &s.vectors, nil
}

// countRows returns the number of rows for a progress bar, or −1 if the store does not
// tell it.
func (c *Collection) countRows(ctx context.Context) int {
	d := adapters.AbilitiesOf(c.Store).Describe
	if d == nil {
		return -1
	}
	description, err := d.Describe(ctx, c.Name)
	if err != nil {
		return -1 // the scan itself will report the error
	}
	return int(description.Rows)
}

// scanSpool gathers the batches of a scan.
type scanSpool struct {
	name    string
	vectors Vectors
	missing adapters.Missing
	spool   vectorSpool
	sum     hash.Hash // hash of ids and vectors in the order of the scan
	done    func(n int)
}

func (s *scanSpool) add(rows adapters.Rows, _ string) error {
	read := len(rows.IDs)
	rows = s.missing.Drop(rows)
	if len(rows.IDs) == 0 {
		s.done(read)
		return nil
	}
	vectors := rows.Vectors[0]
	if err := s.spool.appendRows(vectors); err != nil {
		return err
	}
	if rows.Starts != nil {
		s.addStarts(rows.Starts)
	}
	for i, id := range rows.IDs {
		text, err := id.MarshalJSON()
		if err != nil {
			return err
		}
		s.sum.Write(append(text, '\n'))
		own := vectors.Slice(i, i+1)
		if rows.Starts != nil {
			own = vectors.Slice(int(rows.Starts[i]), int(rows.Starts[i+1]))
		}
		if err := hashFloats(s.sum, own.Data); err != nil {
			return err
		}
	}
	s.vectors.IDs = append(s.vectors.IDs, rows.IDs...)
	s.done(read)
	return nil
}

// addStarts appends the starts of a batch, whose vectors follow the vectors of earlier batches.
func (s *scanSpool) addStarts(starts []int32) {
	if s.vectors.Starts == nil {
		s.vectors.Starts = []int32{0}
	}
	for i := range len(starts) - 1 {
		last := s.vectors.Starts[len(s.vectors.Starts)-1]
		s.vectors.Starts = append(s.vectors.Starts, last+starts[i+1]-starts[i])
	}
}
