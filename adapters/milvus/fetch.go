package milvus

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Fetch reads rows by primary key, or all rows of owners. It splits the ids into
// concurrent calls so that no reply exceeds the limits. It returns ErrID for an id
// that cannot be a primary key.
func (s *Store) Fetch(ctx context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	if _, err := consistencyLevel(r.Consistency); err != nil {
		return adapters.Rows{}, err
	}
	var rows adapters.Rows
	err := s.withSchema(ctx, r.Collection, func(c *collection) error {
		reading, err := newReading(c, r.Vectors, r.Owner, r.Payload, r.PayloadFields)
		if err != nil {
			return err
		}
		reading.level = r.Consistency
		if r.Owner != "" {
			rows, err = s.read(reading).fetchOwned(ctx, distinctIDs(r.IDs))
		} else {
			rows, err = s.read(reading).fetch(ctx, distinctIDs(r.IDs))
		}
		return err
	})
	return rows, err
}

func distinctIDs(ids []rerank.ID) []rerank.ID {
	seen := make(map[rerank.ID]bool, len(ids))
	out := make([]rerank.ID, 0, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// fetch reads rows by distinct ids, in the order of the ids.
func (r reader) fetch(ctx context.Context, ids []rerank.ID) (adapters.Rows, error) {
	parts := r.components()
	results := make([]adapters.Rows, len(parts))
	g, gctx := errgroup.WithContext(ctx)
	for i, part := range parts {
		g.Go(func() (err error) {
			results[i], err = part.fetchPart(gctx, ids)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return adapters.Rows{}, err
	}
	return r.joinComponents(results, ids)
}

// components splits a reader into one reader for each component whose rows must be
// read. If every field has its own column, there is only one.
func (r reader) components() []reader {
	if r.c.layout == nil || !r.c.layout.Rows || len(r.columns) < 2 {
		return []reader{r}
	}
	parts := make([]reader, len(r.columns))
	for i, col := range r.columns {
		parts[i] = r.read(reading{c: r.c, columns: []column{col}, level: r.level, strong: r.strong})
	}
	first := r
	first.columns = r.columns[:1]
	parts[0] = first
	return parts
}

// component returns the number of the component that the reading reads.
func (r reading) component() int {
	if len(r.columns) == 0 {
		return 0
	}
	return r.columns[0].comp
}

func (r reader) fetchPart(ctx context.Context, ids []rerank.ID) (adapters.Rows, error) {
	keys := make([]key, len(ids))
	for i, id := range ids {
		var err error
		if keys[i], err = r.c.ids.key(id, r.component()); err != nil {
			return adapters.Rows{}, fmt.Errorf("collection %q: ids[%d]: %w", r.c.name, i, err)
		}
	}
	batches := r.batches(keys)
	results := make([]adapters.Rows, len(batches))
	g, gctx := errgroup.WithContext(ctx)
	for i, batch := range batches {
		g.Go(func() (err error) {
			results[i], err = r.lookup(gctx, batch)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return adapters.Rows{}, err
	}
	all, err := r.convertReply(queryReply{}) // gives the empty answer its shape
	for _, rows := range results {
		all = concatRows(all, rows)
	}
	return all, err
}

// batches splits keys so that neither the expression nor the reply becomes too long.
func (r reader) batches(keys []key) [][]key {
	page, room := r.pageRows(), r.options.Limits.MaxMessageBytes/2
	var batches [][]key
	from, size := 0, 0
	for i, k := range keys {
		n := len(k.text)*2 + 22
		if i > from && (i-from >= page || size+n > room) {
			batches, from, size = append(batches, keys[from:i]), i, 0
		}
		size += n
	}
	if from < len(keys) {
		batches = append(batches, keys[from:])
	}
	return batches
}

// joinComponents combines the rows of the components, in the order of ids. It leaves out
// items that lack a component.
func (r reading) joinComponents(parts []adapters.Rows, ids []rerank.ID) (adapters.Rows, error) {
	places := make([]map[rerank.ID]int, len(parts))
	for i, part := range parts {
		places[i] = make(map[rerank.ID]int, len(part.IDs))
		for at, id := range part.IDs {
			places[i][id] = at
		}
	}
	positions := make([][]int, len(parts))
	for _, id := range ids {
		whole := true
		for i := range parts {
			_, ok := places[i][id]
			whole = whole && ok
		}
		for i := range parts {
			if whole {
				positions[i] = append(positions[i], places[i][id])
			}
		}
	}
	out := pickRows(parts[0], positions[0])
	for i := 1; i < len(parts); i++ {
		out.Vectors = append(out.Vectors, pickRows(parts[i], positions[i]).Vectors...)
	}
	return out, nil
}

// fetchOwned reads all rows of owners, ordered by owner as requested, then by id.
func (r reader) fetchOwned(ctx context.Context, owners []rerank.ID) (adapters.Rows, error) {
	rank := make(map[rerank.ID]int, len(owners))
	literals := make([]string, len(owners))
	for i, o := range owners {
		rank[o] = i
		var err error
		if literals[i], err = r.c.ownerLiteral(r.owner, o); err != nil {
			return adapters.Rows{}, fmt.Errorf("collection %q: ids[%d]: %w", r.c.name, i, err)
		}
	}
	name, err := r.c.ownerName(r.owner)
	if err != nil {
		return adapters.Rows{}, err
	}
	all, err := r.convertReply(queryReply{})
	if err != nil {
		return all, err
	}
	parts := r.components()
	const ownersAtOnce = 1000
	for batch := range slices.Chunk(literals, ownersAtOnce) {
		expr := name + " in [" + strings.Join(batch, ",") + "]"
		err := parts[0].readPages(ctx, expr, nil, r.pageRows(), func(rows adapters.Rows, _ key) error {
			rows, err := fetchOthers(ctx, parts, rows)
			all = concatRows(all, rows)
			return err
		})
		if err != nil {
			return all, err
		}
	}
	positions := make([]int, 0, len(all.IDs))
	for i := range all.IDs {
		if _, ok := rank[all.Owners[i]]; ok {
			positions = append(positions, i)
		}
	}
	slices.SortFunc(positions, func(a, b int) int {
		return cmp.Or(cmp.Compare(rank[all.Owners[a]], rank[all.Owners[b]]), all.IDs[a].Compare(all.IDs[b]))
	})
	return pickRows(all, positions), nil
}

// ownerName returns the owner field's name in an expression.
func (c *collection) ownerName(field string) (string, error) {
	name, err := c.ownerColumn(field)
	if err != nil || name != dynamicField {
		return name, err
	}
	if !columnName.MatchString(field) {
		return "", fmt.Errorf("%w: owner field %q is not a name that an expression can hold", adapters.ErrField, field)
	}
	return field, nil
}

// ownerLiteral formats an owner's id as a literal of Milvus's expression language: a number, or a quoted text.
func (c *collection) ownerLiteral(field string, owner rerank.ID) (string, error) {
	if c.layout != nil && field == c.layout.Owner {
		t, err := ownerText(owner)
		return quote(t), err
	}
	if n, ok := owner.Int64(); ok {
		return key{num: n}.literal(), nil
	}
	t, err := textOf(owner)
	return quote(t), err
}
