package route

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Norms checks the vectors of a route that declares unit_vectors. It is safe for concurrent use. A
// nil Norms checks nothing.
type Norms struct {
	wrong  atomic.Pointer[WrongNorm]
	logged atomic.Bool
}

// WrongNorm is a row whose vector does not have norm 1.
type WrongNorm struct {
	ID   rerank.ID
	Norm float64
}

func (w *WrongNorm) String() string { return fmt.Sprintf("row %s has norm %.4g", w.ID, w.Norm) }

// normTolerance is how far the norm of a unit vector may be from 1.
const normTolerance = 1e-4

// See checks the vectors of rows, and remembers the first row whose norm is not 1.
func (n *Norms) See(ids []rerank.ID, vectors rerank.Matrix) {
	if n == nil || n.wrong.Load() != nil {
		return
	}
	for i := range min(len(ids), vectors.Rows) {
		if norm := rerank.Norm(vectors.Row(i)); !(math.Abs(norm-1) <= normTolerance) { // also if it is not a number
			n.wrong.CompareAndSwap(nil, &WrongNorm{ids[i], norm})
			return
		}
	}
}

// Wrong returns the first row seen whose norm is not 1, or nil.
func (n *Norms) Wrong() *WrongNorm {
	if n == nil {
		return nil
	}
	return n.wrong.Load()
}

// WrongOnce returns what Wrong returns, but only once, for the log.
func (n *Norms) WrongOnce() *WrongNorm {
	if w := n.Wrong(); w != nil && !n.logged.Swap(true) {
		return w
	}
	return nil
}

// normSample is how many rows are checked when a route is opened.
const normSample = 1000

var errSampled = errors.New("enough rows were read")

// sampleNorms checks the first rows of the collection. Rows that it cannot read are checked when
// searches read them.
func (c *checking) sampleNorms(ctx context.Context) {
	if c.Norms == nil || c.StoreCan.Scan == nil {
		return
	}
	request := adapters.ScanRequest{Collection: c.Collection, Vectors: []string{c.Vector}, Batch: normSample}
	_ = c.StoreCan.Scan.Scan(ctx, request, func(rows adapters.Rows, _ string) error {
		if len(rows.Vectors) == 1 {
			c.Norms.See(rows.IDs, rows.Vectors[0])
		}
		return errSampled
	})
}
