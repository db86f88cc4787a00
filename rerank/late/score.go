package late

import (
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/internal/inner"
)

// scoredItems and scoredVectors bound a call of inner.ScoreBatch, and so its memory.
const (
	scoredItems   = 64
	scoredVectors = rerank.MaxQueryVectors
)

// scratch is the working memory of a call. It is pooled.
type scratch struct {
	products []*inner.Product
	best     []float32 // [query vector][item]
	sums     []float64
}

// score writes φ of every item for every query. Each query vector scores the items as max-sim does,
// and the results are added in float64.
func (w *scratch) score(dst []float32, queries []*encoded, items rerank.Items) error {
	n := items.Len()
	for len(queries) > 0 {
		some, vectors := 0, 0
		w.products = w.products[:0]
		for some < len(queries) && (some == 0 || vectors+len(queries[some].products) <= scoredVectors) {
			w.products = append(w.products, queries[some].products...)
			vectors += len(queries[some].products)
			some++
		}
		for from := 0; from < n; from += scoredItems {
			to := min(from+scoredItems, n)
			if err := w.scorePiece(dst[from:], n, queries[:some], items.Slice(from, to)); err != nil {
				return err
			}
		}
		dst, queries = dst[some*n:], queries[some:]
	}
	clear(w.products)
	return nil
}

// scorePiece scores a few items. The scores of query q begin at dst[q·n].
func (w *scratch) scorePiece(dst []float32, n int, queries []*encoded, items rerank.Items) error {
	count := items.Len()
	w.best = slices.Grow(w.best[:0], len(w.products)*count)[:len(w.products)*count]
	if err := inner.ScoreBatch(w.best, w.products, items); err != nil {
		return err
	}
	best := w.best
	for q, e := range queries {
		w.sums = append(w.sums[:0], make([]float64, count)...)
		for range e.products {
			for i, v := range best[:count] {
				w.sums[i] += float64(v)
			}
			best = best[count:]
		}
		for i, v := range w.sums {
			dst[q*n+i] = float32(v)
		}
	}
	return nil
}

// rows are the feature rows of one item, numbered in the order of the items.
type rows struct {
	items    rerank.Items
	from, to int
}

func rowsOf(items rerank.Items, i int) rows {
	if items.Starts != nil {
		return rows{items, int(items.Starts[i]), int(items.Starts[i+1])}
	}
	return rows{items, i, i + 1}
}

// row returns the item's r-th row. buf has room for it.
func (o rows) row(r int, buf []float32) []float32 {
	r += o.from
	if o.items.Rows != nil {
		r = int(o.items.Rows[r])
	}
	return o.items.Row(r, buf)
}
