package qdrant

import (
	"slices"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters/internal/filter"
	"github.com/likenessdb/likeness/rerank"
)

// Excluded implements adapters.Excluder. Qdrant spells a UUID in lower case with hyphens.
func (s *Store) Excluded(ids []rerank.ID, text string) (all []rerank.ID, rest string, err error) {
	more, rest, err := filter.TakeExcluded(text)
	if err != nil {
		return nil, text, err
	}
	all = make([]rerank.ID, 0, len(ids)+len(more))
	for _, id := range slices.Concat(ids, more) {
		if id, err = canonicalID(id); err != nil {
			return nil, text, err
		}
		all = append(all, id)
	}
	return all, rest, nil
}

// without narrows a filter, which may be nil, to points without the given ids or, with an owner
// field, to points of other items.
func without(f *qdrant.Filter, ids []rerank.ID, owner string) (*qdrant.Filter, error) {
	if len(ids) == 0 {
		return f, nil
	}
	var conditions []*qdrant.Condition
	var err error
	if owner == "" {
		conditions, err = hasID(ids)
	} else {
		conditions, err = hasOwner(ids, owner)
	}
	return &qdrant.Filter{
		Must: f.GetMust(), Should: f.GetShould(), MinShould: f.GetMinShould(),
		MustNot: slices.Concat(f.GetMustNot(), conditions),
	}, err
}

func hasID(ids []rerank.ID) ([]*qdrant.Condition, error) {
	points := make([]*qdrant.PointId, len(ids))
	for i, id := range ids {
		var err error
		if points[i], err = pointID(id); err != nil {
			return nil, err
		}
	}
	return []*qdrant.Condition{qdrant.NewHasID(points...)}, nil
}

// hasOwner returns the conditions that select the rows of owners. It returns adapters.ErrID for an
// id that no owner can have.
func hasOwner(ids []rerank.ID, field string) ([]*qdrant.Condition, error) {
	for _, id := range ids {
		if _, err := ownerValue(id); err != nil {
			return nil, err
		}
	}
	return ownerConditions(field, ids), nil
}

// excludedBytes bounds the size of the condition that excludes ids.
func excludedBytes(ids []rerank.ID) (size int) {
	for _, id := range ids {
		text, _ := id.Text()
		size += 16 + len(text)
	}
	return size
}
