package inner

import (
	"fmt"

	"github.com/likenessdb/likeness/rerank"
)

// Batch finds the products of a batch's queries, which of tells from what the kind
// encodes. It returns rerank.ErrQuery for a query of another similarity.
func Batch(queries []rerank.Encoded, of func(rerank.Encoded) (*Product, bool)) ([]*Product, error) {
	products := make([]*Product, len(queries))
	for i, q := range queries {
		p, ok := of(q)
		if !ok {
			return nil, fmt.Errorf("%w: query %d of the batch was encoded by another similarity", rerank.ErrQuery, i)
		}
		products[i] = p
	}
	return products, nil
}

// Same is Batch's of where a query is a Product of this spec.
func Same(s rerank.Spec) func(rerank.Encoded) (*Product, bool) {
	return func(q rerank.Encoded) (*Product, bool) {
		p, ok := q.(*Product)
		return p, ok && p.Spec == s
	}
}

// ScoreBatch scores the same items for several queries: see rerank.BatchScorer.
// It returns rerank.ErrItems.
func ScoreBatch(dst []float32, products []*Product, items rerank.Items) error {
	if len(products) == 0 {
		return nil
	}
	if err := rerank.CheckBatch(len(dst), len(products), items, products[0].Spec); err != nil {
		return err
	}
	n := items.Len()
	for q, p := range products {
		if err := p.Score(dst[q*n:][:n], items); err != nil {
			return err
		}
	}
	return nil
}
