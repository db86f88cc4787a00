package mol

import (
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// TwoPass is the result of algorithm 1 (RAILS, section 4), which finds the exact top K in
// two passes over the items.
type TwoPass struct {
	// Top holds the best K items; Index is the number of the item.
	Top []rerank.Scored
	// Candidates is the number of items in the lists of the first pass. For every pair,
	// that pass lists the K items with the greatest ⟨f_i, g_j⟩.
	Candidates int
	// Least and KthScore are S_min and S_K: the lowest and the K-th best score of the
	// candidates. Unlisted bounds φ of every item in no list (theorem 2).
	Least, KthScore, Unlisted float32
	// Second is the number of items that the second pass scored.
	Second int
}

// FindTwoPass runs algorithm 1 for a query whose gates depend on the item. As printed in
// the paper, the second pass scores every item with ⟨f_i, g_j⟩ ≥ S_min for some pair. Here
// it requires ⟨f_i, g_j⟩ ≥ τ·S_K, with the logits' temperature and the K-th best candidate
// score, which is just as exact and scores fewer items (testdata/golden/README.md). With
// printed set, it requires τ·S_min. A scan with bounds (package scan) reaches the same
// result in one pass. FindTwoPass returns rerank.ErrQuery for a query of another
// similarity, and rerank.ErrItems.
func FindTwoPass(query rerank.Encoded, items rerank.Items, k int, printed bool) (TwoPass, error) {
	e, ok := query.(*encoded)
	if !ok {
		return TwoPass{}, fmt.Errorf("%w: algorithm 1 is of a Mixture-of-Logits with gates that depend on the item", rerank.ErrQuery)
	}
	n := items.Len()
	if err := items.Check(n, e.s.spec); err != nil {
		return TwoPass{}, err
	}
	listed, out := e.firstPass(items, k)
	best := rerank.NewTopK(k)
	out.Least = float32(math.Inf(1))
	out.Candidates = len(listed)
	err := e.scoreSome(items, listed, func(row rerank.Scored) {
		out.Least = min(out.Least, row.Score)
		best.Push(row)
	})
	if err != nil {
		return TwoPass{}, err
	}
	out.KthScore = best.Threshold()
	reach := out.KthScore
	if printed {
		reach = out.Least
	}
	// A score exceeds the largest logit by no more than the rounding of their weighted mean.
	reach -= float32(mixError(inFloat32, e.c.pairs()) * e.largestLogit())
	var rest []int32
	e.eachTop(items, func(i int, top float32) {
		if top < reach {
			return
		}
		out.Second++
		if _, found := slices.BinarySearch(listed, int32(i)); !found {
			rest = append(rest, int32(i))
		}
	})
	err = e.scoreSome(items, rest, best.Push)
	out.Top = best.Sorted()
	return out, err
}

// scoreSome scores the items with the given indices into items, and passes each item with its score to f.
func (e *encoded) scoreSome(items rerank.Items, numbers []int32, f func(rerank.Scored)) error {
	some := rerank.Items{Features: items.Features, Packed: items.Packed, Rows: make([]int32, len(numbers))}
	for i, n := range numbers {
		some.Rows[i] = rowNumber(items, int(n))
	}
	scores := make([]float32, len(numbers))
	if err := e.Score(scores, some); err != nil {
		return err
	}
	for i, n := range numbers {
		f(scored(int(n), scores[i]))
	}
	return nil
}

func scored(i int, score float32) rerank.Scored {
	return rerank.Scored{ID: rerank.UintID(uint64(i)), Score: score, Index: i}
}

// firstPass lists, in ascending order, the items that are among the K greatest logits of
// some pair.
func (e *encoded) firstPass(items rerank.Items, k int) (listed []int32, out TwoPass) {
	lists := make([]*rerank.TopK, e.c.pairs())
	for p := range lists {
		lists[p] = rerank.NewTopK(k + 1)
	}
	e.eachLogits(items, func(i int, logit func(pair int) float32) {
		for p, l := range lists {
			if x := logit(p); !(x < l.Threshold()) {
				l.Push(scored(i, x))
			}
		}
	})
	out.Unlisted = float32(math.Inf(-1))
	for _, l := range lists {
		for r, row := range l.Sorted() {
			if r == k {
				out.Unlisted = max(out.Unlisted, row.Score)
			} else {
				listed = append(listed, int32(row.Index))
			}
		}
	}
	slices.Sort(listed)
	return slices.Compact(listed), out
}

// eachTop calls f with every item's largest logit over τ.
func (e *encoded) eachTop(items rerank.Items, f func(i int, top float32)) {
	e.eachLogits(items, func(i int, logit func(pair int) float32) {
		top := logit(0)
		for p := 1; p < e.c.pairs(); p++ {
			top = max(top, logit(p))
		}
		f(i, top)
	})
}

// eachLogits calls f with every item's logits over τ.
func (e *encoded) eachLogits(items rerank.Items, f func(i int, logit func(pair int) float32)) {
	sc := e.s.borrow()
	defer e.s.scratch.Put(sc)
	alone := e.alone()
	for from := 0; from < items.Len(); from += groupSize {
		g := e.s.group(sc, items, from, min(from+groupSize, items.Len()))
		alone.computeLogits(sc, &g)
		for l := range g.count {
			tile := sc.logits[l/kernel.Lanes*e.c.logitTile()+l%kernel.Lanes:]
			f(from+l, func(pair int) float32 { return tile[pair*kernel.Lanes] })
		}
	}
}
