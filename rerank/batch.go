package rerank

import "fmt"

// BatchScorer is implemented by a Similarity that scores the same items for several queries
// in one pass, so that each item is read once.
type BatchScorer interface {
	// ScoreBatch writes φ of item i for queries[q] to dst[q·n+i], n = items.Len(). All
	// queries must have been encoded by this similarity. A score depends on its query and
	// its item alone, and differs from Encoded.Score by no more than the rounding that
	// Bound states. ScoreBatch returns ErrQuery for a query of another similarity, and
	// ErrItems as Score does.
	ScoreBatch(dst []float32, queries []Encoded, items Items) error
}

// Transposer is implemented by a Similarity that scores one item for many queries as quickly as many items for
// one query.
type Transposer interface {
	// Transpose returns a function that writes φ of item i for queries[q] to dst[i·n+q], n = len(queries), and
	// is safe for concurrent use. A score depends on its query and its item alone, and differs from
	// Encoded.Score by rounding only. Transpose returns ErrQuery for a query of another similarity, and the
	// function ErrItems as Score does.
	Transpose(queries []Encoded) (func(dst []float32, items Items) error, error)
}

// Batch scores and screens the same items for several queries.
type Batch interface {
	BatchScorer
	BatchScreener
}

// Batcher is implemented by an Encoded that can be scored and screened together with other
// queries, with the same results as alone.
type Batcher interface {
	// Batch returns what scores the query together with all queries for which it returns an
	// equal value. The value is comparable.
	Batch() Batch
}

// CheckBatch is Items.Check for a batch of queries whose scores go to one slice of length
// places. It returns ErrItems.
func CheckBatch(places, queries int, items Items, s Spec) error {
	n := items.Len()
	if places != queries*n {
		return fmt.Errorf("%w: %d places for the scores of %d items for %d queries", ErrItems, places, n, queries)
	}
	return items.Check(n, s)
}

// BatchEncoder is implemented by a Similarity that encodes several queries in one pass, so
// that its weights are read once for all of them.
type BatchEncoder interface {
	// EncodeBatch returns the same bits as Encode for each query. An error names the
	// position of the query that caused it.
	EncodeBatch(queries []Query) ([]Encoded, error)
}

// EncodeAll encodes all queries: in one pass if batch (from Abilities.EncodeBatch) is not
// nil, otherwise with one Encode each. It returns Encode's errors, prefixed with the
// position of the query.
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

// ScoreAll writes φ of item i for queries[q] to dst[q·n+i], n = items.Len(). It makes one
// call if batch (from Abilities.ScoreBatch) is not nil, otherwise one Score per query, and
// returns their errors.
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
