package embedded

import (
	"github.com/likenessdb/likeness/adapters/internal/filter"
	"github.com/likenessdb/likeness/rerank"
)

// Excluded implements adapters.Excluder. The store keeps every spelling of an id.
func (s *Store) Excluded(ids []rerank.ID, text string) (all []rerank.ID, rest string, err error) {
	more, rest, err := filter.TakeExcluded(text)
	return append(ids[:len(ids):len(ids)], more...), rest, err
}

// without narrows a condition on rows to rows without the given ids or, with an owner field, to
// rows of other items. A nil condition holds for every row.
func (c *collection) without(keep func(row int) bool, ids []rerank.ID, owner string) (func(row int) bool, error) {
	if len(ids) == 0 {
		return keep, nil
	}
	excluded := make(map[rerank.ID]bool, len(ids))
	for _, id := range ids {
		excluded[id] = true
	}
	idOf := c.id
	if owner != "" {
		numbers := make([]int, c.rows)
		for i := range numbers {
			numbers[i] = i
		}
		owners, err := c.ownersOf(owner, numbers)
		if err != nil {
			return nil, err
		}
		idOf = func(row int) rerank.ID { return owners[row] }
	}
	return func(row int) bool { return !excluded[idOf(row)] && (keep == nil || keep(row)) }, nil
}
