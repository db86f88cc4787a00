package ranker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/likenessdb/likeness/plugin"
)

// sameShare is how far two scores of one item may be apart in one call, as a share of
// the distance between the call's greatest and least: sums in another order are.
const sameShare = 1e-3

// repeatedItem picks the item that is asked of twice in a call: not the first, so that a
// list in reverse differs in it.
func repeatedItem(items int) int {
	if items < 2 {
		return 0
	}
	return 1 + rand.IntN(items-1)
}

// sentItems are the items of the call.
func (b batch) sentItems() []plugin.Item {
	if b.repeated == 0 {
		return b.items
	}
	return append(slices.Clone(b.items), b.items[b.repeated])
}

// check returns the scores of the items, or ErrAnswer for what no ranker can say: a
// wrong count, an infinite score, two scores of one item.
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

// same reports whether two scores can be of one item.
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
	return math.Abs(float64(x)-float64(y)) <= sameShare*(float64(most)-float64(least)) // NaN is not
}
