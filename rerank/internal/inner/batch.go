package inner

import "github.com/likenessdb/likeness/rerank"

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
