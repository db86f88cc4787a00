package milvus

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/likenessdb/likeness/rerank"
)

// Excluded implements adapters.Excluder. Milvus spells ids as they were written. Ids in an
// expression are left to Milvus.
func (s *Store) Excluded(ids []rerank.ID, expression string) (all []rerank.ID, rest string, err error) {
	return ids, expression, nil
}

// exclusion leaves rows out of a search.
type exclusion struct {
	// condition is the expression that the other rows fulfil, or "".
	condition string
	// dropped holds ids that no expression selects on every server. Their rows are dropped from
	// the answer.
	dropped map[rerank.ID]bool
}

// exclude excludes the rows with the given ids or, with an owner field, the rows of these items.
func (c *collection) exclude(ids []rerank.ID, owner string, comp int) (e exclusion, err error) {
	if len(ids) == 0 {
		return e, nil
	}
	if owner != "" {
		e.condition, err = c.noOwnerOf(ids, owner)
		return e, err
	}
	keys := make([]key, 0, len(ids))
	for i, id := range ids {
		k, err := c.ids.key(id, comp)
		if err != nil {
			return e, fmt.Errorf("collection %q: excluded id %d: %w", c.name, i, err)
		}
		if !k.inexpressible() {
			keys = append(keys, k)
			continue
		}
		if e.dropped == nil {
			e.dropped = map[rerank.ID]bool{}
		}
		e.dropped[id] = true
	}
	e.condition = noneOf(c.pk, keys)
	return e, nil
}

// noneOf returns the expression that selects the rows with other keys, "" for no keys. See oneOf
// for the smallest int64.
func noneOf(pk string, keys []key) string {
	var literals, parts []string
	for _, k := range keys {
		if !k.isText && k.num == math.MinInt64 {
			parts = []string{fmt.Sprintf("%s >= %d", pk, int64(math.MinInt64+1))}
			continue
		}
		literals = append(literals, k.literal())
	}
	if len(literals) > 0 {
		parts = append(parts, pk+" not in ["+strings.Join(literals, ",")+"]")
	}
	return strings.Join(parts, " && ")
}

// noOwnerOf returns the expression that selects the rows of other items.
func (c *collection) noOwnerOf(owners []rerank.ID, field string) (string, error) {
	name, err := c.ownerName(field)
	if err != nil {
		return "", err
	}
	literals := make([]string, len(owners))
	for i, o := range owners {
		if literals[i], err = c.ownerLiteral(field, o); err != nil {
			return "", fmt.Errorf("collection %q: excluded id %d: %w", c.name, i, err)
		}
	}
	return name + " not in [" + strings.Join(literals, ",") + "]", nil
}

// withoutDropped removes the rows of dropped ids.
func (e exclusion) withoutDropped(rows []row) []row {
	return slices.DeleteFunc(rows, func(r row) bool { return e.dropped[r.id] })
}
