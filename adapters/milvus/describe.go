package milvus

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	"github.com/likenessdb/likeness/adapters"
)

// Describe reads the schema and the indexes and counts the rows. Rows is −1 for a
// collection that is not loaded. Describe leaves out vector fields that are not
// float32, because they cannot be searched.
func (s *Store) Describe(ctx context.Context, name string) (adapters.Description, error) {
	s.forget(name)
	c, err := s.collection(ctx, name)
	if err != nil {
		return adapters.Description{}, err
	}
	d := adapters.Description{TextIDs: c.ids.textIDs(), Limits: s.limits(), Expires: c.expires, Settings: maps.Clone(c.settings), Indexing: c.indexing}
	d.Settings["collection"] = c.resolved
	for _, col := range c.columns() {
		if col.kind == schemapb.DataType_FloatVector {
			d.Fields = append(d.Fields, adapters.VectorField{Name: col.field, Dim: col.dim, Metric: col.metric, FullPrecision: true, Datatype: adapters.Float32, Exact: col.isExact(), AlwaysExact: col.isExact(), Quantized: col.quantized()})
			continue
		}
		if d.Others == nil {
			d.Others = map[string]string{}
		}
		d.Others[col.field] = col.kind.String()
	}
	d.Rows, err = s.count(ctx, c, false)
	if errors.Is(err, adapters.ErrUnavailable) {
		d.Rows, err = -1, nil
	}
	return d, err
}

// Count counts the rows that were written before the call.
func (s *Store) Count(ctx context.Context, name string) (int64, error) {
	c, err := s.collection(ctx, name)
	if err != nil {
		return 0, err
	}
	return s.count(ctx, c, true)
}

func (s *Store) count(ctx context.Context, c *collection, strong bool) (int64, error) {
	request := &milvuspb.QueryRequest{
		DbName: s.options.Database, CollectionName: c.name,
		OutputFields: []string{"count(*)"}, UseDefaultConsistency: !strong, // a request without a level is Strong
	}
	if c.layout != nil && c.layout.Rows {
		request.Expr = companionField + " == 0"
	}
	reply, err := s.raw.Query(ctx, request)
	if err != nil {
		return 0, fmt.Errorf("collection %q: %w", c.name, err)
	}
	for _, fd := range reply.GetFieldsData() {
		if n := fd.GetScalars().GetLongData().GetData(); len(n) == 1 {
			return n[0], nil
		}
	}
	return 0, fmt.Errorf("%w: collection %q: the server answered count(*) with no number", adapters.ErrStore, c.name)
}
