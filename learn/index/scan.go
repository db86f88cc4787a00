package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Part is one of several parts of a collection that can be built independently, on
// several machines if need be. The zero Part is the whole collection.
type Part struct {
	Number int `json:"number"` // from 1
	Of     int `json:"of"`
}

// String returns the part in the form "2/4".
func (p Part) String() string { return fmt.Sprintf("%d/%d", p.Number, p.Of) }

func (p Part) isWhole() bool { return p.Of <= 1 }

// Check returns ErrSource if the part's number is out of range.
func (p Part) Check() error {
	if p != (Part{}) && (p.Number < 1 || p.Number > p.Of) {
		return fmt.Errorf("%w: there is no part %s; the parts are 1/%d to %d/%d", ErrSource, p, p.Of, p.Of, p.Of)
	}
	return nil
}

// hasID reports whether the hash of an id assigns it to the part.
func (p Part) hasID(id rerank.ID) bool {
	if p.isWhole() {
		return true
	}
	h := fnv.New64a()
	if n, ok := id.Uint64(); ok {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], n)
		_, _ = h.Write(b[:])
	} else {
		_, _ = h.Write([]byte(id.String()))
	}
	return h.Sum64()%uint64(p.Of) == uint64(p.Number-1)
}

// bounds holds the cursors between which a part is scanned.
type bounds struct {
	From  string `json:"from,omitempty"`
	Until string `json:"until,omitempty"`
	// Hash means that the store cannot divide a collection. The whole collection is
	// scanned, and the part consists of the rows whose ids hash to it.
	Hash bool `json:"hash,omitempty"`
}

// findBounds asks the store for the bounds of the source's part. If the store is an
// adapters.Partitioner, parts are ranges of ids and each row is read once. Otherwise
// every part scans the whole collection.
func (s Source) findBounds(ctx context.Context) (b bounds, err error) {
	if err := s.Part.Check(); err != nil || s.Part.isWhole() {
		return b, err
	}
	cutter := adapters.AbilitiesOf(s.Store).Partition
	if cutter == nil {
		return bounds{Hash: true}, nil
	}
	cuts, err := cutter.Cut(ctx, s.Collection, s.Part.Of)
	if errors.Is(err, adapters.ErrUnsupported) {
		return bounds{Hash: true}, nil
	}
	if err != nil {
		return b, err
	}
	if n := s.Part.Number; n > 1 {
		b.From = cuts[n-2]
	}
	if n := s.Part.Number; n < s.Part.Of {
		b.Until = cuts[n-1]
	}
	return b, nil
}

// scan reads the rows of the source's part at no more than its RowsPerSecond.
func (s Source) scan(ctx context.Context, b bounds, r adapters.ScanRequest, yield func(rows adapters.Rows, cursor string) error) error {
	scanner, err := s.scanner()
	if err != nil {
		return err
	}
	r.Until = b.Until
	if r.Cursor == "" {
		r.Cursor = b.From
	}
	next := time.Now()
	return scanner.Scan(ctx, r, func(rows adapters.Rows, cursor string) error {
		read := len(rows.IDs)
		if b.Hash {
			rows = filterRows(rows, s.Part.hasID)
		}
		if err := yield(rows, cursor); err != nil || s.RowsPerSecond <= 0 {
			return err
		}
		next = next.Add(time.Duration(float64(read) / float64(s.RowsPerSecond) * float64(time.Second)))
		return pause(ctx, time.Until(next))
	})
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// filterRows returns the rows whose ids keep accepts.
func filterRows(rows adapters.Rows, keep func(rerank.ID) bool) adapters.Rows {
	var at []int
	for i, id := range rows.IDs {
		if keep(id) {
			at = append(at, i)
		}
	}
	if len(at) == len(rows.IDs) {
		return rows
	}
	return rows.Pick(at)
}
