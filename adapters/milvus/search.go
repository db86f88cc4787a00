package milvus

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Search sends one Milvus search for each vector field, concurrently. Each carries all
// probes of the field as its query vectors, and each list is truncated to its probe's
// depth. List.Exact is true only with a FLAT index. SearchRequest.Exact has no effect,
// because Milvus cannot bypass another index.
//
// SearchRequest.Consistency is Strong, Session, Bounded or Eventually; empty selects
// the collection's own level.
func (s *Store) Search(ctx context.Context, r adapters.SearchRequest) ([]rerank.List, error) {
	if err := r.Check(s.limits()); err != nil {
		return nil, err
	}
	if err := CheckFilter(r.Filter); err != nil {
		return nil, err
	}
	if _, err := consistencyLevel(r.Consistency); err != nil {
		return nil, err
	}
	var lists []rerank.List
	err := s.withSchema(ctx, r.Collection, func(c *collection) error {
		searches, err := s.planSearches(c, r)
		if err != nil {
			return err
		}
		lists = make([]rerank.List, len(r.Probes))
		g, gctx := errgroup.WithContext(ctx)
		for _, one := range searches {
			g.Go(func() error { return s.searchField(gctx, one, lists) })
		}
		if c.resolved != c.name {
			g.Go(func() error { return s.checkAlias(gctx, c) })
		}
		return g.Wait()
	})
	if err != nil {
		return nil, err
	}
	return lists, nil
}

// fieldSearch is one Milvus search: all probes of one field.
type fieldSearch struct {
	c       *collection
	col     column
	request adapters.SearchRequest
	probes  []int // indexes in request.Probes
	depth   int   // the greatest depth of the probes
	exclude exclusion
	owner   string  // output field with the owners, if requested
	payload reading // which fields of the payload, if requested
	longest float64 // greatest norm of a row, if the error of scores depends on it
}

// planSearches groups the probes by field and returns an error for a request that contradicts
// the schema.
func (s *Store) planSearches(c *collection, r adapters.SearchRequest) ([]fieldSearch, error) {
	var searches []fieldSearch
	byField := map[string]int{}
	for i, p := range r.Probes {
		name := r.FieldOf(p)
		at, ok := byField[name]
		if !ok {
			col, err := c.searchable(name, r.UnitVectors)
			if err != nil {
				return nil, err
			}
			at = len(searches)
			byField[name] = at
			searches = append(searches, fieldSearch{c: c, col: col, request: r})
		}
		f := &searches[at]
		if len(p.Vector) != f.col.dim {
			return nil, fmt.Errorf("%w: probes[%d] has %d elements and field %q of collection %q %d",
				adapters.ErrDimension, i, len(p.Vector), f.col.field, c.name, f.col.dim)
		}
		f.probes, f.depth = append(f.probes, i), max(f.depth, p.Depth)
	}
	for i := range searches {
		if err := s.readExtras(&searches[i]); err != nil {
			return nil, err
		}
	}
	return searches, nil
}

// topk returns the number of rows to request, which includes rows that will be dropped.
func (f fieldSearch) topk() int { return f.depth + len(f.exclude.dropped) }

// readExtras fills in what a search excludes and which fields it returns beside the ids. It returns an
// error if the rows with their vectors would not fit one message.
func (s *server) readExtras(f *fieldSearch) (err error) {
	if f.exclude, err = f.c.exclude(f.request.Exclude, f.request.Owner, f.col.comp); err != nil {
		return err
	}
	if f.request.Owner != "" {
		if f.owner, err = f.c.ownerColumn(f.request.Owner); err != nil {
			return err
		}
	}
	if f.request.Payload {
		if f.payload, err = newReading(f.c, nil, "", true, f.request.PayloadFields); err != nil {
			return err
		}
	}
	if size := int64(f.depth) * int64(4*f.col.vectorColumn.dim+16); f.request.WithVectors && size > int64(s.options.Limits.MaxMessageBytes) {
		return s.messageLimit(size)
	}
	return err
}

// searchable finds a field and checks that its scores can be converted to inner
// products.
func (c *collection) searchable(name string, unit bool) (column, error) {
	col, err := c.column(name)
	if err != nil {
		return col, err
	}
	switch {
	case col.index == "":
		return col, fmt.Errorf("%w: field %q of collection %q has no index; create one and load the collection", adapters.ErrUnavailable, col.field, c.name)
	case col.metric == "":
		return col, fmt.Errorf("%w: field %q of collection %q compares by %s; likeness needs IP, COSINE or L2", adapters.ErrMetric, col.field, c.name, col.native)
	case col.metric == adapters.L2 && !unit:
		return col, fmt.Errorf("%w: field %q of collection %q compares by L2, whose distances tell inner products only if every vector has norm 1; say that they have (unit_vectors), or index the field with IP",
			adapters.ErrMetric, col.field, c.name)
	}
	return col, nil
}

// searchField sends the search and fills the lists of its probes.
func (s *Store) searchField(ctx context.Context, f fieldSearch, lists []rerank.List) error {
	request, err := s.searchRequest(f)
	if err != nil {
		return err
	}
	reply := newReply()
	defer reply.release()
	if err := s.searchWire(ctx, request, reply); err != nil {
		return fmt.Errorf("collection %q, field %q: %w", f.c.name, f.col.field, err)
	}
	if f.col.metric == adapters.InnerProduct && !f.request.UnitVectors {
		if f.longest, err = s.greatestNorm(ctx, f.c, f.col); err != nil {
			return err
		}
	}
	set := fieldsOf(reply.fields)
	if len(reply.topks) > len(f.probes) || len(reply.keys) < len(reply.scores) {
		return fmt.Errorf("%w: collection %q: the server answered %d probes with %d lists, %d scores and %d ids",
			adapters.ErrStore, f.c.name, len(f.probes), len(reply.topks), len(reply.scores), len(reply.keys))
	}
	from := 0
	for i, p := range f.probes {
		n := 0
		if i < len(reply.topks) {
			n = int(reply.topks[i])
		}
		if n < 0 || n > len(reply.scores)-from {
			return fmt.Errorf("%w: collection %q: the server's lists are longer than its scores", adapters.ErrStore, f.c.name)
		}
		lists[p], err = f.makeList(f.request.Probes[p], reply, from, from+n, set)
		if err != nil {
			return fmt.Errorf("collection %q, field %q: %w", f.c.name, f.col.field, err)
		}
		from += n
	}
	return nil
}

// searchWire calls Search and decodes the answer into r. The interceptor sees the call
// like any other.
func (s *server) searchWire(ctx context.Context, request *milvuspb.SearchRequest, r *reply) error {
	return s.conn.Invoke(ctx, milvuspb.MilvusService_Search_FullMethodName, request, r, s.wire)
}

func (s *server) searchRequest(f fieldSearch) (*milvuspb.SearchRequest, error) {
	group, err := proto.Marshal(&commonpb.PlaceholderGroup{Placeholders: []*commonpb.PlaceholderValue{{
		Tag: "$0", Type: commonpb.PlaceholderType_FloatVector, Values: f.vectors(),
	}}})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", adapters.ErrStore, err)
	}
	params := map[string]any{}
	maps.Copy(params, s.options.SearchParams)
	if f.request.EF > 0 {
		params["ef"] = f.request.EF
	}
	settings, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("%w: search parameters: %w", adapters.ErrStore, err)
	}
	level, _ := consistencyLevel(f.request.Consistency) // checked by Search
	request := &milvuspb.SearchRequest{
		DbName: s.options.Database, CollectionName: f.request.Collection, PartitionNames: f.request.Partitions,
		Dsl: joinConditions(f.request.Filter, f.col.filter, f.exclude.condition), DslType: commonpb.DslType_BoolExprV1,
		PlaceholderGroup: group, Nq: int64(len(f.probes)),
		SearchParams: pairs("anns_field", f.col.name, "topk", strconv.Itoa(f.topk()), "metric_type", f.col.native,
			"params", string(settings), "round_decimal", "-1", "offset", "0"),
		ConsistencyLevel: level, UseDefaultConsistency: f.request.Consistency == "",
	}
	if f.owner != "" {
		request.OutputFields = append(request.OutputFields, f.owner)
	}
	if f.request.WithVectors {
		request.OutputFields = append(request.OutputFields, f.col.name)
	}
	if f.request.Payload {
		request.OutputFields = append(request.OutputFields, f.payload.outputFields()[1:]...) // the key comes anyway
	}
	return request, nil
}

// vectors returns the probes in little-endian bytes, padded to the column's dimension.
func (f fieldSearch) vectors() [][]byte {
	rows := make([][]byte, len(f.probes))
	for i, p := range f.probes {
		row := make([]byte, 4*f.col.vectorColumn.dim)
		norm := float32(1)
		if f.col.metric == adapters.L2 {
			norm = max(float32(rerank.Norm(f.request.Probes[p].Vector)), math.SmallestNonzeroFloat32)
		}
		for j, x := range f.request.Probes[p].Vector {
			binary.LittleEndian.PutUint32(row[4*j:], math.Float32bits(x/norm))
		}
		rows[i] = row
	}
	return rows
}

// makeList makes a probe's list from rows from to to−1 of a reply.
func (f fieldSearch) makeList(p rerank.Probe, reply *reply, from, to int, set fieldSet) (rerank.List, error) {
	score := f.scorer(p)
	rows := reply.rows[:0]
	for at := from; at < to; at++ {
		id, err := f.c.ids.id(reply.keys[at])
		if err != nil {
			return rerank.List{}, err
		}
		rows = append(rows, row{id: id, score: score(reply.scores[at]), at: at})
	}
	reply.rows = rows
	complete := to-from < f.topk()
	rows = sortDistinct(f.exclude.withoutDropped(rows))
	if len(rows) > p.Depth {
		rows, complete = rows[:p.Depth], false
	}
	l := rerank.List{
		IDs: make([]rerank.ID, len(rows)), Scores: make([]float32, len(rows)),
		Exact: f.col.isExact(), Exhausted: complete && f.col.isExact(),
		Epsilon: f.epsilon(p, rows),
	}
	for i, r := range rows {
		l.IDs[i], l.Scores[i] = r.id, r.score
	}
	return l, f.fillExtras(&l, rows, set)
}

// fillExtras fills the owners, payloads and vectors, if requested.
func (f fieldSearch) fillExtras(l *rerank.List, rows []row, set fieldSet) error {
	if f.owner != "" {
		l.Owners = make([]rerank.ID, len(rows))
		for i, r := range rows {
			var err error
			if l.Owners[i], err = f.c.ownerOf(set, f.request.Owner, r.at); err != nil {
				return err
			}
		}
	}
	if f.request.Payload {
		l.Payloads = make([]json.RawMessage, len(rows))
		for i, r := range rows {
			var err error
			if l.Payloads[i], err = set.rowPayload(f.payload.scalars, f.payload.keys, r.at); err != nil {
				return fmt.Errorf("row %v: %w", r.id, err)
			}
		}
	}
	if !f.request.WithVectors {
		return nil
	}
	l.Vectors = rerank.NewMatrix(len(rows), f.col.dim)
	if len(rows) == 0 {
		return nil
	}
	for i, r := range rows {
		if err := copyVector(l.Vectors.Row(i), set[f.col.name], r.at); err != nil {
			return err
		}
	}
	return nil
}

// row is one row of a reply. at is its position in the reply's columns.
type row struct {
	id    rerank.ID
	score float32
	at    int
}

// sortDistinct sorts rows by score, then id, and drops duplicates.
func sortDistinct(rows []row) []row {
	slices.SortFunc(rows, func(a, b row) int {
		switch x, y := (rerank.Scored{ID: a.id, Score: a.score}), (rerank.Scored{ID: b.id, Score: b.score}); {
		case rerank.Better(x, y):
			return -1
		case rerank.Better(y, x):
			return 1
		default:
			return 0
		}
	})
	return slices.CompactFunc(rows, func(a, b row) bool { return a.id == b.id })
}

func pairs(kv ...string) []*commonpb.KeyValuePair {
	list := make([]*commonpb.KeyValuePair, 0, len(kv)/2)
	for i := 0; i+1 < len(kv); i += 2 {
		list = append(list, &commonpb.KeyValuePair{Key: kv[i], Value: kv[i+1]})
	}
	return list
}

// consistencyLevel returns the level with the given name. The empty name selects the
// collection's own level.
func consistencyLevel(name string) (commonpb.ConsistencyLevel, error) {
	level, ok := commonpb.ConsistencyLevel_value[name]
	if name == "" || ok && name != "Customized" {
		return commonpb.ConsistencyLevel(level), nil
	}
	return 0, fmt.Errorf("%w: consistency %q; Milvus has Strong, Session, Bounded and Eventually", adapters.ErrUnsupported, name)
}
