package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Create creates an empty collection for Write.
func (s *Store) Create(ctx context.Context, schema adapters.Schema) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if most := s.limits.MaxVectorFields; most > 0 && len(schema.Fields) > most {
		return &adapters.LimitError{Limit: "max_vector_fields", Value: int64(len(schema.Fields)), Max: int64(most),
			Remedy: "use a model with fewer components, or raise the limit in the store's configuration"}
	}
	in := Collection{OwnerField: schema.Owner, IDs: []rerank.ID{}}
	for _, f := range schema.Fields {
		in.Fields = append(in.Fields, Field{VectorField: f, Vectors: rerank.Matrix{Cols: f.Dim}})
	}
	c, err := newCollection(schema.Collection, in)
	if err != nil {
		return fmt.Errorf("collection %q: %w", schema.Collection, err)
	}
	c.writable, c.textIDs = true, schema.TextIDs
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.collections[schema.Collection]; exists {
		return fmt.Errorf("%w: collection %q exists; drop it first", adapters.ErrStore, schema.Collection)
	}
	s.collections[schema.Collection] = c
	return nil
}

// Write copies rows into a collection that Create made. It replaces a row with the
// same id as a whole. If any row is invalid, Write changes nothing.
func (s *Store) Write(ctx context.Context, name string, schema adapters.Schema, rows adapters.Rows) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := s.find(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.writable {
		return fmt.Errorf("%w: collection %q was loaded and is read-only", adapters.ErrUnsupported, name)
	}
	fields, err := c.checkWrite(schema, rows)
	if err != nil {
		return fmt.Errorf("collection %q: %w", name, err)
	}
	for i := range rows.IDs {
		c.putRow(fields, rows, i)
	}
	c.discardObjects()
	return nil
}

// Delete removes rows of a collection that Create made. The other rows keep their
// order.
func (s *Store) Delete(ctx context.Context, name string, ids []rerank.ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := s.find(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.writable {
		return fmt.Errorf("%w: collection %q was loaded and is read-only", adapters.ErrUnsupported, name)
	}
	gone := make(map[int]bool, len(ids))
	for _, id := range ids {
		if n, ok := c.index[id]; ok {
			gone[n] = true
		}
	}
	if len(gone) > 0 {
		c.keepRows(func(n int) bool { return !gone[n] })
	}
	return nil
}

// keepRows removes the rows for which keep returns false.
func (c *collection) keepRows(keep func(n int) bool) {
	clear(c.index)
	to := 0
	for n := range c.rows {
		if !keep(n) {
			continue
		}
		c.ids[to], c.serials[to], c.payloads[to] = c.ids[n], c.serials[n], c.payloads[n]
		if c.owner != "" {
			c.owners[to] = c.owners[n]
		}
		for _, f := range c.fields {
			copy(f.vectors.Row(to), f.vectors.Row(n))
		}
		c.index[c.ids[to]] = to
		to++
	}
	clear(c.payloads[to:])
	c.rows, c.ids, c.serials, c.payloads = to, c.ids[:to], c.serials[:to], c.payloads[:to]
	if c.owner != "" {
		c.owners = c.owners[:to]
	}
	for i := range c.fields {
		c.fields[i].vectors = c.fields[i].vectors.Slice(0, to)
	}
	c.discardObjects()
}

// Drop removes a collection and its aliases.
func (s *Store) Drop(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.collections, name)
	for alias, to := range s.aliases {
		if to == name {
			delete(s.aliases, alias)
		}
	}
	return nil
}

// checkWrite validates rows and returns the field of each matrix in rows.Vectors.
func (c *collection) checkWrite(schema adapters.Schema, rows adapters.Rows) ([]*field, error) {
	if len(rows.Vectors) != len(schema.Fields) || len(schema.Fields) != len(c.fields) {
		return nil, fmt.Errorf("%w: %d matrices for the %d fields of the schema and the %d of the collection",
			adapters.ErrField, len(rows.Vectors), len(schema.Fields), len(c.fields))
	}
	fields := make([]*field, len(schema.Fields))
	for i, f := range schema.Fields {
		into, err := c.field(f.Name)
		if err != nil {
			return nil, err
		}
		if m := rows.Vectors[i]; m.Cols != into.Dim || m.Rows != len(rows.IDs) {
			return nil, fmt.Errorf("%w: field %q takes %d rows of %d numbers and was given %d rows of %d",
				adapters.ErrDimension, into.Name, len(rows.IDs), into.Dim, m.Rows, m.Cols)
		}
		fields[i] = into
	}
	for _, id := range rows.IDs {
		if _, text := id.Text(); id.IsZero() || text != c.textIDs {
			return nil, fmt.Errorf("%w: %q; the ids of this collection are %s", adapters.ErrID, id, map[bool]string{true: "strings", false: "numbers"}[c.textIDs])
		}
	}
	if c.owner != "" && len(rows.Owners) != len(rows.IDs) {
		return nil, fmt.Errorf("%w: %d owners for %d rows", adapters.ErrField, len(rows.Owners), len(rows.IDs))
	}
	for i, p := range rows.Payloads {
		if len(p) > 0 && (firstByte(p) != '{' || !json.Valid(p)) {
			return nil, fmt.Errorf("%w: the payload of row %s is not a JSON object", adapters.ErrStore, rows.IDs[i])
		}
	}
	if rows.Payloads != nil && len(rows.Payloads) != len(rows.IDs) {
		return nil, fmt.Errorf("%w: %d payloads for %d rows", adapters.ErrStore, len(rows.Payloads), len(rows.IDs))
	}
	return fields, nil
}

// putRow inserts or replaces row i of rows.
func (c *collection) putRow(fields []*field, rows adapters.Rows, i int) {
	id := rows.IDs[i]
	n, replace := c.index[id]
	if !replace {
		n = c.rows
		c.append(id)
	}
	for j, f := range fields {
		v := f.vectors.Row(n)
		copy(v, rows.Vectors[j].Row(i))
		if f.Metric == adapters.Cosine {
			rerank.Normalise(v)
		}
		if norm := rerank.Norm(v); norm > f.norm() {
			f.norm = func() float64 { return norm }
		}
	}
	if c.owner != "" {
		c.owners[n] = rows.Owners[i]
	}
	c.payloads[n] = nil
	if rows.Payloads != nil {
		c.payloads[n] = slices.Clone(rows.Payloads[i])
	}
}

func (c *collection) append(id rerank.ID) {
	c.index[id] = c.rows
	c.ids = append(c.ids, id)
	c.serials = append(c.serials, c.next)
	c.next++
	c.payloads = append(c.payloads, nil)
	if c.owner != "" {
		c.owners = append(c.owners, rerank.ID{})
	}
	for i := range c.fields {
		m := &c.fields[i].vectors
		m.Data = append(m.Data, make([]float32, m.Cols)...)
		m.Rows++
	}
	c.rows++
}
