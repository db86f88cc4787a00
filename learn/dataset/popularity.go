package dataset

import (
	"context"
	"fmt"
	"math"
)

// Popularity sums the weights of each item row in another log of the same items, such
// as the log that a model was fitted to. It ignores the log's queries and times, and
// skips rows with unknown items and rows of items that were only seen. It returns ErrInput or the context's error.
func (d *Dataset) Popularity(ctx context.Context, path string) ([]float64, error) {
	items, err := newIDIndex(columnItem, path, d.ItemCount(), d.ItemIDs)
	if err != nil {
		return nil, err
	}
	l := &pairLog{items: items, counts: &Counts{}}
	sums := make([]float64, d.ItemCount())
	_, err = readLog(ctx, path, l.counts, func(e entry) error {
		if e.seen {
			return nil
		}
		weight := 1.0
		if e.hasWeight {
			weight = e.weight
		}
		if math.IsNaN(weight) || weight < 0 || weight > math.MaxFloat32 {
			return fmt.Errorf("weight is %v; want 0 to %g", weight, math.MaxFloat32)
		}
		item, err := l.findRow(items, e.item, e.line, &l.counts.UnknownItems)
		if err == nil && item >= 0 {
			sums[item] += weight
		}
		return err
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, path, err)
	}
	return sums, nil
}
