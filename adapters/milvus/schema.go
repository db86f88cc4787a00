package milvus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/adapters"
)

// dynamicField is Milvus's name for the field with the keys that have no field of
// their own.
const dynamicField = "$meta"

// collection is the cached schema of a collection, with its indexes and the layout of
// its ids and vector fields.
type collection struct {
	name     string // as requested: the name of a collection or an alias
	resolved string
	pk       string
	vectors  []vectorColumn
	scalars  []scalarColumn
	dynamic  bool
	ids      idCodec
	layout   *layout // nil for a user's own collection
	settings map[string]string
	indexing string // an index that Milvus still builds, with its progress
	expires  bool   // Milvus removes rows after a time to live
}

// vectorColumn is a vector field of the schema.
type vectorColumn struct {
	name   string
	dim    int
	kind   schemapb.DataType
	metric adapters.Metric // "" without an index, or for an unknown metric
	index  string          // index type, in Milvus's words
	native string          // metric, in Milvus's words
}

type scalarColumn struct {
	name string
	kind schemapb.DataType
}

// column is a searchable field: a vector column, or the rows of one component within
// it.
type column struct {
	vectorColumn
	field  string // name in requests
	filter string // selects the component's rows; empty: all rows
	dim    int    // dimension of the field; the column may be longer, padded with zeros
	comp   int
}

// isExact reports whether Milvus searches the column exhaustively: it has a FLAT index,
// which compares every vector, and Milvus builds no interim index for it.
func (v vectorColumn) isExact() bool {
	return v.index == "FLAT" && v.kind == schemapb.DataType_FloatVector
}

// statesTrueScores lists the indexes whose scores are computed from the vectors themselves.
// DISKANN finds rows by rounded vectors and reads the vectors to score them; AUTOINDEX of
// the supported servers is one of the others.
var statesTrueScores = []string{"", "FLAT", "IVF_FLAT", "IVF_FLAT_CC", "HNSW", "DISKANN", "AUTOINDEX", "GPU_BRUTE_FORCE", "GPU_IVF_FLAT", "GPU_CAGRA"}

// quantized names an index that states scores of rounded vectors, or is "".
func (v vectorColumn) quantized() string {
	if slices.Contains(statesTrueScores, v.index) {
		return ""
	}
	return v.index
}

var metrics = map[string]adapters.Metric{"IP": adapters.InnerProduct, "COSINE": adapters.Cosine, "L2": adapters.L2}

// collection returns the schema of a collection or alias, at most SchemaTTL old.
func (s *Store) collection(ctx context.Context, name string) (*collection, error) {
	c, _, err := s.schemas.Load(name, func() (*collection, error) {
		c, err := s.describe(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("collection %q: %w", name, err)
		}
		return c, nil
	})
	return c, err
}

// forget removes a cached schema and its norms, so that the next call reads them
// again.
func (s *Store) forget(name string) {
	s.schemas.Forget(name)
	s.forgetNorms(name)
}

// withSchema calls do with the collection's schema. If do fails in a way that a stale
// schema explains, withSchema calls it once more with a fresh schema.
func (s *Store) withSchema(ctx context.Context, name string, do func(*collection) error) error {
	c, err := s.collection(ctx, name)
	if err != nil {
		return err
	}
	err = do(c)
	if !outdated(err) {
		return err
	}
	s.forget(name)
	fresh, again := s.collection(ctx, name)
	if again != nil {
		return again
	}
	if fresh.same(c) {
		return err
	}
	return do(fresh)
}

// errMoved means that an alias was switched after its schema was read.
var errMoved = fmt.Errorf("%w: the alias has been switched", adapters.ErrNotFound)

// checkAlias checks, concurrently with the searches, whether an alias still points at
// the collection of its cached schema. Otherwise a list could be called exact because
// of another collection's index.
func (s *Store) checkAlias(ctx context.Context, c *collection) error {
	d, err := s.raw.DescribeCollection(ctx, &milvuspb.DescribeCollectionRequest{DbName: s.options.Database, CollectionName: c.name})
	if err != nil {
		return fmt.Errorf("collection %q: %w", c.name, err)
	}
	if d.GetSchema().GetName() != c.resolved {
		return fmt.Errorf("collection %q: %w", c.name, errMoved)
	}
	return nil
}

func outdated(err error) bool {
	return errors.Is(err, adapters.ErrField) || errors.Is(err, adapters.ErrDimension) ||
		errors.Is(err, adapters.ErrMetric) || errors.Is(err, adapters.ErrNotFound)
}

func (c *collection) same(o *collection) bool {
	return c.resolved == o.resolved && slices.Equal(c.vectors, o.vectors) && slices.Equal(c.scalars, o.scalars)
}

// describe reads the schema and the indexes with two concurrent calls.
func (s *Store) describe(ctx context.Context, name string) (*collection, error) {
	var d *milvuspb.DescribeCollectionResponse
	var x *milvuspb.DescribeIndexResponse
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		d, err = s.raw.DescribeCollection(gctx, &milvuspb.DescribeCollectionRequest{DbName: s.options.Database, CollectionName: name})
		return err
	})
	g.Go(func() (err error) {
		x, err = s.raw.DescribeIndex(gctx, &milvuspb.DescribeIndexRequest{DbName: s.options.Database, CollectionName: name})
		if errors.Is(err, errNoIndex) {
			return nil
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	c := &collection{name: name, resolved: d.GetSchema().GetName(), dynamic: d.GetSchema().GetEnableDynamicField(), expires: expires(d.GetProperties())}
	c.readFields(d.GetSchema().GetFields())
	c.readIndexes(x.GetIndexDescriptions())
	description := cmp.Or(d.GetSchema().GetDescription(), value(d.GetProperties(), companionProperty))
	var err error
	if c.layout, err = readLayout(description); err != nil {
		return nil, err
	}
	if c.layout != nil {
		c.ids = c.layout.codec()
	}
	return c, nil
}

// expires reports whether a collection's properties set a time to live: of all rows, or of each row by a field.
// Milvus takes numbers below one for no time to live.
func expires(properties []*commonpb.KeyValuePair) bool {
	seconds := value(properties, "collection.ttl.seconds")
	n, err := strconv.ParseInt(seconds, 10, 64)
	return seconds != "" && (err != nil || n > 0) || value(properties, "ttl_field") != ""
}

func (c *collection) readFields(fields []*schemapb.FieldSchema) {
	for _, f := range fields {
		switch kind := f.GetDataType(); {
		case f.GetIsPrimaryKey():
			c.pk = f.GetName()
			c.ids = plainIDs{pk: c.pk, text: kind == schemapb.DataType_VarChar || kind == schemapb.DataType_String}
		case kind >= schemapb.DataType_BinaryVector:
			dim, _ := strconv.Atoi(value(f.GetTypeParams(), "dim")) // sparse vectors have no dimension
			c.vectors = append(c.vectors, vectorColumn{name: f.GetName(), dim: dim, kind: kind})
		case f.GetIsDynamic():
			c.dynamic = true
		default:
			c.scalars = append(c.scalars, scalarColumn{name: f.GetName(), kind: kind})
		}
	}
}

func (c *collection) readIndexes(indexes []*milvuspb.IndexDescription) {
	c.settings = map[string]string{}
	for _, x := range indexes {
		if state := x.GetState(); state == commonpb.IndexState_Unissued || state == commonpb.IndexState_InProgress || x.GetPendingIndexRows() > 0 {
			c.indexing = fmt.Sprintf("index of field %q has %d of %d rows", x.GetFieldName(), x.GetIndexedRows(), x.GetTotalRows())
		}
		for _, p := range x.GetParams() {
			c.settings[x.GetFieldName()+"."+p.GetKey()] = p.GetValue()
		}
		for i := range c.vectors {
			v := &c.vectors[i]
			if v.name == x.GetFieldName() {
				v.native = strings.ToUpper(value(x.GetParams(), "metric_type"))
				v.index, v.metric = strings.ToUpper(value(x.GetParams(), "index_type")), metrics[v.native]
			}
		}
	}
}

func value(params []*commonpb.KeyValuePair, key string) string {
	for _, p := range params {
		if p.GetKey() == key {
			return p.GetValue()
		}
	}
	return ""
}

// columns returns the collection's searchable fields, in order.
func (c *collection) columns() []column {
	if c.layout != nil {
		return c.layout.columns(c.vectors)
	}
	all := make([]column, len(c.vectors))
	for i, v := range c.vectors {
		all[i] = column{vectorColumn: v, field: v.name, dim: v.dim}
	}
	return all
}

// column finds a vector field. "" finds the only field.
func (c *collection) column(field string) (column, error) {
	all := c.columns()
	if field == "" && len(all) == 1 {
		return all[0], c.checkColumn(all[0])
	}
	names := make([]string, len(all))
	for i, col := range all {
		if col.field == field {
			return col, c.checkColumn(col)
		}
		names[i] = col.field
	}
	what := fmt.Sprintf("no vector field %q", field)
	if field == "" {
		what = "several vector fields, none was named"
	}
	return column{}, fmt.Errorf("%w: collection %q has %s; name one of %s", adapters.ErrField, c.name, what, strings.Join(names, ", "))
}

func (c *collection) checkColumn(col column) error {
	if col.kind != schemapb.DataType_FloatVector {
		return fmt.Errorf("%w: field %q of collection %q holds %s; only FloatVector fields can be used", adapters.ErrField, col.field, c.name, col.kind)
	}
	return nil
}

// scalar finds a scalar field, or a key of the dynamic field.
func (c *collection) scalar(name string) (scalarColumn, error) {
	for _, s := range c.scalars {
		if s.name == name {
			return s, nil
		}
	}
	if c.dynamic {
		return scalarColumn{name: dynamicField, kind: schemapb.DataType_JSON}, nil
	}
	return scalarColumn{}, fmt.Errorf("%w: collection %q has no field %q and no dynamic field", adapters.ErrField, c.name, name)
}
