package milvus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// reading says which parts of each row a query or scan needs.
type reading struct {
	c       *collection
	columns []column
	owner   string // as requested; empty: no owner
	payload bool
	scalars []string // requested payload fields that are scalar fields
	keys    []string // requested payload fields that are keys of the dynamic field; nil: all keys
	level   string
	strong  bool // see all earlier writes, whatever the collection's level
}

// reader reads rows of a collection from its server.
type reader struct {
	*server
	reading
}

// read returns a reader of a collection's rows.
func (s *server) read(r reading) reader { return reader{server: s, reading: r} }

// newReading checks the requested parts of a row against the schema.
func newReading(c *collection, vectors []string, owner string, payload bool, fields []string) (reading, error) {
	r := reading{c: c, owner: owner, payload: payload || len(fields) > 0}
	for _, name := range vectors {
		col, err := c.column(name)
		if err != nil {
			return r, err
		}
		r.columns = append(r.columns, col)
	}
	if owner != "" {
		if _, err := c.ownerColumn(owner); err != nil {
			return r, err
		}
	}
	if r.payload {
		return r, r.setPayload(fields)
	}
	return r, nil
}

func (r *reading) setPayload(fields []string) error {
	if len(fields) == 0 {
		for _, s := range r.c.scalars {
			if !r.c.isInternal(s.name) {
				r.scalars = append(r.scalars, s.name)
			}
		}
		return nil
	}
	r.keys = []string{}
	for _, name := range fields {
		s, err := r.c.scalar(name)
		switch {
		case err != nil:
			return err
		case s.name == dynamicField:
			r.keys = append(r.keys, name)
		default:
			r.scalars = append(r.scalars, name)
		}
	}
	return nil
}

// isInternal reports whether a field is a companion's own, which is not part of the
// payload.
func (c *collection) isInternal(name string) bool {
	return c.layout != nil && (name == companionField || name == companionOwner)
}

// outputFields returns the fields to request from the server.
func (r reading) outputFields() []string {
	out := []string{r.c.pk}
	seen := map[string]bool{r.c.pk: true}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	for _, col := range r.columns {
		add(col.name)
	}
	if r.owner != "" {
		name, _ := r.c.ownerColumn(r.owner) // checked by newReading
		add(name)
	}
	for _, name := range r.scalars {
		add(name)
	}
	if r.payload && r.c.dynamic && (r.keys == nil || len(r.keys) > 0) {
		add(dynamicField)
	}
	return out
}

// rowBytes estimates the size of a row in a reply, to keep replies below the message
// limit.
func (r reading) rowBytes() int {
	n := 64
	for _, col := range r.columns {
		n += 4 * col.vectorColumn.dim
	}
	if r.payload {
		n += 2048
	}
	return n
}

// pageRows returns the number of rows that fit one reply.
func (r reader) pageRows() int {
	return max(1, min(r.limits().MaxDepth, r.options.Limits.MaxMessageBytes/2/r.rowBytes()))
}

// isTooLong reports whether a reply failed because its rows were larger than rowBytes
// estimated.
func isTooLong(err error) bool {
	var limit *adapters.LimitError
	return errors.As(err, &limit) && limit.Limit == limitMessage
}

// queryReply is a reply to a query: the rows' keys and columns.
type queryReply struct {
	keys []key
	set  fieldSet
	skip int // rows of the columns before the first key's row
}

// query returns at most limit matching rows, ordered by primary key.
func (r reader) query(ctx context.Context, expr string, limit int, extra ...string) (queryReply, error) {
	level, err := consistencyLevel(r.level)
	if err != nil {
		return queryReply{}, err
	}
	if r.strong {
		level = commonpb.ConsistencyLevel_Strong
	}
	reply, err := r.raw.Query(ctx, &milvuspb.QueryRequest{
		DbName: r.options.Database, CollectionName: r.c.name, Expr: expr, OutputFields: r.outputFields(),
		QueryParams:      pairs(append(extra, "limit", strconv.Itoa(limit))...),
		ConsistencyLevel: level, UseDefaultConsistency: r.level == "" && !r.strong,
	})
	if err != nil {
		return queryReply{}, fmt.Errorf("collection %q: %w", r.c.name, err)
	}
	set := fieldsOf(reply.GetFieldsData())
	return queryReply{keys: set.primaryKeys(r.c.pk), set: set}, nil
}

// withoutFirst returns the reply without its first n rows.
func (f queryReply) withoutFirst(n int) queryReply {
	return queryReply{keys: f.keys[n:], set: f.set, skip: f.skip + n}
}

// convertReply converts a reply, without the vectors of other components.
func (r reading) convertReply(f queryReply) (adapters.Rows, error) {
	rows := adapters.Rows{IDs: make([]rerank.ID, len(f.keys)), Vectors: make([]rerank.Matrix, len(r.columns))}
	for i, k := range f.keys {
		id, err := r.c.ids.id(k)
		if err != nil {
			return rows, err
		}
		rows.IDs[i] = id
		if r.owner != "" {
			owner, err := r.c.ownerOf(f.set, r.owner, f.skip+i)
			if err != nil {
				return rows, err
			}
			rows.Owners = append(rows.Owners, owner)
		}
		if r.payload {
			p, err := f.set.rowPayload(r.scalars, r.keys, f.skip+i)
			if err != nil {
				return rows, fmt.Errorf("row %v: %w", id, err)
			}
			rows.Payloads = append(rows.Payloads, p)
		}
	}
	for i, col := range r.columns {
		m, err := f.set.vectors(col, f.skip, len(f.keys))
		if err != nil {
			return rows, err
		}
		rows.Vectors[i] = m
	}
	return rows, nil
}

// lookup finds rows by primary key. If the reply is too large, it splits the keys in
// two.
func (r reader) lookup(ctx context.Context, keys []key) (adapters.Rows, error) {
	f, err := r.query(ctx, oneOf(r.c.pk, keys), len(keys))
	if half := len(keys) / 2; isTooLong(err) && half > 0 {
		a, err := r.lookup(ctx, keys[:half])
		if err != nil {
			return a, err
		}
		b, err := r.lookup(ctx, keys[half:])
		return concatRows(a, b), err
	}
	if err != nil {
		return adapters.Rows{}, err
	}
	rows, err := r.convertReply(f)
	if err != nil {
		return rows, err
	}
	got := make(map[key]bool, len(f.keys))
	for _, k := range f.keys {
		got[k] = true
	}
	for _, k := range keys {
		if got[k] {
			continue
		}
		one, err := r.lookupHard(ctx, k)
		if err != nil {
			return rows, err
		}
		rows = concatRows(rows, one)
	}
	return rows, nil
}

// lookupHard finds the existing rows that a query by key misses: text with a line
// break on milvus-lite, and the greatest int64 on Milvus, whose proxy takes it for the
// end of its merge. For other keys it returns no rows.
func (r reader) lookupHard(ctx context.Context, k key) (adapters.Rows, error) {
	switch {
	case k.inexpressible():
		f, err := r.query(ctx, r.c.pk+" like "+quote(wildcard(k.text)), r.pageRows())
		if errors.Is(err, adapters.ErrFilter) {
			return adapters.Rows{}, nil // the server has no such pattern, and took it for the key itself
		}
		if err != nil {
			return adapters.Rows{}, err
		}
		for i, g := range f.keys {
			if g == k {
				return r.rowAt(f, i)
			}
		}
	case !k.isText && k.num == math.MaxInt64:
		f, err := r.searchKey(ctx, k, "")
		if err != nil || len(f.keys) == 0 {
			return adapters.Rows{}, err
		}
		return r.rowAt(f, 0)
	}
	return adapters.Rows{}, nil
}

// wildcard replaces each inexpressible character of s by _, which matches any one
// character.
func wildcard(s string) string {
	b := []byte(s)
	for i, c := range b {
		switch c {
		case '\n', '\r', '\\', '"', '%':
			b[i] = '_'
		}
	}
	return string(b)
}

// rowAt converts row i of a reply.
func (r reading) rowAt(f queryReply, i int) (adapters.Rows, error) {
	one := f.withoutFirst(i)
	one.keys = one.keys[:1]
	return r.convertReply(one)
}

// searchKey finds a row by key with a search, where a query cannot find it.
func (r reader) searchKey(ctx context.Context, k key, filter string) (queryReply, error) {
	cols := r.c.columns()
	i := slices.IndexFunc(cols, func(col column) bool { return col.kind == schemapb.DataType_FloatVector && col.index != "" })
	if i < 0 {
		return queryReply{}, nil // the collection has no field to search
	}
	f := fieldSearch{c: r.c, col: cols[i], depth: 1, probes: []int{0}, request: adapters.SearchRequest{
		Collection: r.c.name, Filter: joinConditions(filter, r.c.pk+" == "+k.literal()), Consistency: r.level,
		Probes: []rerank.Probe{{Vector: make([]float32, cols[i].dim), Depth: 1}},
	}}
	if r.strong {
		f.request.Consistency = commonpb.ConsistencyLevel_Strong.String()
	}
	request, err := r.searchRequest(f)
	if err != nil {
		return queryReply{}, err
	}
	request.OutputFields = r.outputFields()[1:]
	reply, err := r.raw.Search(ctx, request)
	if errors.Is(err, adapters.ErrStore) {
		return queryReply{}, fmt.Errorf("%w: collection %q has a row with the id %v, which this Milvus finds but cannot read; write it under another id: %s", adapters.ErrUnsupported, r.c.name, k.num, err.Error())
	}
	if err != nil {
		return queryReply{}, fmt.Errorf("collection %q: %w", r.c.name, err)
	}
	return queryReply{keys: keysOf(reply.GetResults().GetIds()), set: fieldsOf(reply.GetResults().GetFieldsData())}, nil
}
