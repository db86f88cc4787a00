package calibrate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// seenItems marks the items that an answer leaves out.
type seenItems map[rerank.ID]bool

// ids returns the items in an order that is always the same.
func (s seenItems) ids() []rerank.ID { return slices.SortedFunc(maps.Keys(s), rerank.ID.Compare) }

// spellSeen sets the seen items of each query, with ids as the store spells them. It returns
// ErrInput or the error of the store.
func (r *run) spellSeen(ctx context.Context) error {
	n := len(r.Queries) + len(r.HeldOut)
	r.seen = make([]seenItems, n)
	if r.Seen == nil {
		return nil
	}
	if len(r.Seen) != n {
		return fmt.Errorf("%w: seen items of %d queries, for %d", ErrInput, len(r.Seen), n)
	}
	can, textIDs := adapters.AbilitiesOf(r.route.Store), false
	if can.Describe != nil {
		described, err := can.Describe.Describe(ctx, r.route.Collection)
		if err != nil {
			return err
		}
		textIDs = described.TextIDs
	}
	for q, texts := range r.Seen {
		ids := make([]rerank.ID, len(texts))
		for i, text := range texts {
			ids[i] = adapters.ParseID(text, textIDs)
		}
		var err error
		if r.seen[q], err = itemsOf(r.route.Store, ids); err != nil {
			return fmt.Errorf("%w: items seen before query %d: %w", ErrInput, q, err)
		}
		if len(r.seen[q]) > plan.MaxExclude {
			return fmt.Errorf("%w: %d items were seen before query %d, and a search leaves out %d at most; keep the most recent ones", ErrInput, len(r.seen[q]), q, plan.MaxExclude)
		}
	}
	return nil
}

// itemsOf returns the items of these ids, spelled as the store does.
func itemsOf(store adapters.Store, ids []rerank.ID) (seenItems, error) {
	ids, err := adapters.CanonicalIDs(adapters.AbilitiesOf(store).Exclude, ids)
	if err != nil {
		return nil, err
	}
	items := make(seenItems, len(ids))
	for _, id := range ids {
		items[id] = true
	}
	return items, nil
}
