package rerank

import "fmt"

// BatchScorer is implemented by a Similarity that scores the same items for
// several queries at once, so that each item is read once.
type BatchScorer interface {
	// ScoreBatch writes φ of item i for queries[q] to dst[q·n+i], n = items.Len(). The
	// queries were encoded by this similarity. A score depends on its query and its
	// item alone, and is what Score gives within the rounding that Bound states. It
	// returns ErrQuery for a query of another similarity, ErrItems as Score does.
	ScoreBatch(dst []float32, queries []Encoded, items Items) error
}

// CheckBatch is Items.Check for a batch of queries with places in one slice. It
// returns ErrItems.
func CheckBatch(places, queries int, items Items, s Spec) error {
	n := items.Len()
	if places != queries*n {
		return fmt.Errorf("%w: %d places for the scores of %d items for %d queries", ErrItems, places, n, queries)
	}
	return items.Check(n, s)
}

// BatchEncoder is implemented by a Similarity that encodes several queries at once, so that its weights are read once
// for all of them.
type BatchEncoder interface {
	// EncodeBatch returns what Encode returns for each query, to the bit. An error says which query it is about.
	EncodeBatch(queries []Query) ([]Encoded, error)
}

// EncodeAll encodes queries, together if batch is not nil (Abilities.EncodeBatch). It
// returns Encode's errors, with the number of the query.
func EncodeAll(s Similarity, batch BatchEncoder, queries []Query) ([]Encoded, error) {
	if batch != nil {
		return batch.EncodeBatch(queries)
	}
	out := make([]Encoded, len(queries))
	for n, q := range queries {
		var err error
		if out[n], err = s.Encode(q); err != nil {
			return nil, fmt.Errorf("query %d: %w", n, err)
		}
	}
	return out, nil
}

// ScoreAll writes φ of item i for queries[q] to dst[q·n+i], n = items.Len(), for all
// queries in one call if batch is not nil (Abilities.ScoreBatch). It returns what
// Score returns.
func ScoreAll(dst []float32, batch BatchScorer, queries []Encoded, items Items) error {
	if batch != nil {
		return batch.ScoreBatch(dst, queries, items)
	}
	n := items.Len()
	for q, e := range queries {
		if err := e.Score(dst[q*n:(q+1)*n], items); err != nil {
			return fmt.Errorf("query %d: %w", q, err)
		}
	}
	return nil
}
