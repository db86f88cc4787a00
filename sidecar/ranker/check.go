package ranker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/plugin"
)

// sameShare is how far two scores of one item may differ within a call, relative to the
// range of the call's scores. Sums in a different order cause such differences.
const sameShare = 1e-3

// repeatedItem picks the item that a call contains twice. It is not the first, because then
// a reversed answer could go unnoticed.
func repeatedItem(items int) int {
	if items < 2 {
		return 0
	}
	return 1 + rand.IntN(items-1)
}

// sentItems returns the items of the call, including the repeated one.
func (b batch) sentItems() []plugin.Item {
	if b.repeated == 0 {
		return b.items
	}
	return append(slices.Clone(b.items), b.items[b.repeated])
}

// check verifies an answer and returns the scores of the items. It returns ErrAnswer for a
// wrong number of scores, an infinite score, or two different scores of the repeated item.
func (b batch) check(scores []float32) ([]float32, error) {
	want := len(b.items)
	if b.repeated > 0 {
		want++
	}
	if len(scores) != want {
		return nil, fmt.Errorf("%w: %d scores for %d items", ErrAnswer, len(scores), want)
	}
	if i := slices.IndexFunc(scores, func(s float32) bool { return math.IsInf(float64(s), 0) }); i >= 0 {
		return nil, fmt.Errorf("%w: the score of item %d of the call is infinite; NaN is for an item that cannot be scored", ErrAnswer, i)
	}
	if b.repeated > 0 && !same(scores[b.repeated], scores[want-1], scores) {
		return nil, fmt.Errorf("%w: item %s has the scores %g and %g in one call: scores are not in the order of the items, "+
			"or not those of the items alone", ErrAnswer, b.items[b.repeated].ID, scores[b.repeated], scores[want-1])
	}
	return scores[:len(b.items)], nil
}

// same reports whether two scores can belong to the same item.
func same(x, y float32, all []float32) bool {
	if x == y || x != x && y != y {
		return true
	}
	least, most := float32(math.Inf(1)), float32(math.Inf(-1))
	for _, s := range all {
		if s == s {
			least, most = min(least, s), max(most, s)
		}
	}
	return math.Abs(float64(x)-float64(y)) <= sameShare*(float64(most)-float64(least)) // false for NaN
}
