package milvus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/likenessdb/likeness/adapters"
)

const (
	maxTextLength = 65535 // bytes of a VarChar
	loadPoll      = 50 * time.Millisecond
)

// Create creates a companion collection, indexes its fields (Options.Companion) and
// waits until it is loaded. If the schema has more vector fields than the server
// allows, each component gets a row of its own; all fields must then have one metric,
// otherwise Create returns a *LimitError. It returns ErrStore if the collection
// exists. If a later step fails, it drops the collection again.
func (s *Store) Create(ctx context.Context, schema adapters.Schema) error {
	if err := checkSchema(schema); err != nil {
		return err
	}
	has, err := s.raw.HasCollection(ctx, &milvuspb.HasCollectionRequest{DbName: s.options.Database, CollectionName: schema.Collection})
	switch {
	case errors.Is(err, adapters.ErrNotFound):
	case err != nil:
		return fmt.Errorf("create collection %q: %w", schema.Collection, err)
	case has.GetValue():
		return fmt.Errorf("%w: collection %q exists; drop it or choose another name", adapters.ErrStore, schema.Collection)
	}
	l, err := s.createCollection(ctx, schema)
	if err == nil {
		err = s.indexAndLoad(ctx, schema.Collection, l)
	}
	s.forget(schema.Collection)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("create collection %q: %w", schema.Collection, err)
	if l == nil {
		return err
	}
	return errors.Join(err, s.Drop(context.WithoutCancel(ctx), schema.Collection))
}

func checkSchema(schema adapters.Schema) error {
	if len(schema.Fields) == 0 {
		return fmt.Errorf("%w: collection %q has no vector field", adapters.ErrField, schema.Collection)
	}
	seen := map[string]bool{}
	for _, f := range schema.Fields {
		switch f.Metric {
		case "", adapters.InnerProduct, adapters.Cosine, adapters.L2:
		default:
			return fmt.Errorf("%w: field %q compares by %q", adapters.ErrMetric, f.Name, f.Metric)
		}
		if f.Dim < 1 {
			return fmt.Errorf("%w: field %q has dimension %d", adapters.ErrDimension, f.Name, f.Dim)
		}
		if seen[f.Name] {
			return fmt.Errorf("%w: two fields are named %q", adapters.ErrField, f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

// createCollection first tries one column for each field, unless the server is known
// to allow fewer columns. It returns a nil layout if it created nothing.
func (s *Store) createCollection(ctx context.Context, schema adapters.Schema) (*layout, error) {
	for {
		most := s.limits().MaxVectorFields
		l := newLayout(schema, most)
		if err := l.checkMetrics(most); err != nil {
			return nil, err
		}
		description, err := l.describe()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", adapters.ErrStore, err)
		}
		err = s.sdk.CreateCollection(ctx, l.sdkSchema(schema.Collection, description), entity.DefaultShardNumber, client.WithConsistencyLevel(entity.ClBounded), client.WithCollectionProperty(companionProperty, description))
		var limit *adapters.LimitError
		if !errors.As(err, &limit) || limit.Limit != limitVectorFields || s.limits().MaxVectorFields >= most {
			if err != nil {
				return nil, s.sdkError(ctx, err)
			}
			return &l, nil
		}
	}
}

// checkMetrics returns a *LimitError if components that share a column differ in their
// metric.
func (l layout) checkMetrics(most int) error {
	for _, f := range l.Fields {
		if l.Rows && f.Metric != l.Fields[0].Metric {
			return &adapters.LimitError{Limit: limitVectorFields, Value: int64(len(l.Fields)), Max: int64(most),
				Remedy: "give all fields one metric, so that they can share a column, or use fewer"}
		}
	}
	return nil
}

// sdkSchema converts the layout to a schema of the SDK.
func (l layout) sdkSchema(name, description string) *entity.Schema {
	sch := entity.NewSchema().WithName(name).WithDescription(description).WithDynamicFieldEnabled(true)
	pk := entity.NewField().WithName(companionID).WithIsPrimaryKey(true).WithDataType(entity.FieldTypeInt64)
	if l.codec().textKeys() {
		pk.WithDataType(entity.FieldTypeVarChar).WithMaxLength(maxTextLength)
	}
	sch.WithField(pk)
	if l.Rows {
		sch.WithField(entity.NewField().WithName(companionField).WithDataType(entity.FieldTypeInt16))
	}
	if l.Owner != "" {
		sch.WithField(entity.NewField().WithName(companionOwner).WithDataType(entity.FieldTypeVarChar).WithMaxLength(maxTextLength))
	}
	for _, f := range l.vectorColumns() {
		sch.WithField(entity.NewField().WithName(f.Column).WithDataType(entity.FieldTypeFloatVector).WithDim(int64(l.width(f))))
	}
	return sch
}

// vectorColumns returns the layout's vector columns. The rows layout has a single
// column.
func (l layout) vectorColumns() []layoutField {
	if l.Rows {
		return l.Fields[:1]
	}
	return l.Fields
}

// indexAndLoad indexes and loads a new collection and waits until it answers.
func (s *Store) indexAndLoad(ctx context.Context, name string, l *layout) error {
	for _, f := range l.vectorColumns() {
		index := entity.NewGenericIndex(f.Column, entity.IndexType(s.options.Companion.Type), s.indexParams(f.Metric))
		if err := s.sdk.CreateIndex(ctx, name, f.Column, index, false, client.WithIndexName(f.Column)); err != nil {
			return fmt.Errorf("index of %q: %w", f.Column, s.sdkError(ctx, err))
		}
	}
	if err := s.sdk.LoadCollection(ctx, name, true); err != nil {
		return s.sdkError(ctx, err)
	}
	ticker := time.NewTicker(loadPoll)
	defer ticker.Stop()
	for {
		state, err := s.raw.GetLoadState(ctx, &milvuspb.GetLoadStateRequest{DbName: s.options.Database, CollectionName: name})
		if err != nil || state.GetState() == commonpb.LoadState_LoadStateLoaded {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (s *Store) indexParams(metric adapters.Metric) map[string]string {
	params := map[string]string{}
	maps.Copy(params, s.options.Companion.Params)
	for native, m := range metrics {
		if m == metric {
			params["metric_type"] = native
		}
	}
	return params
}

// Drop removes a collection.
func (s *Store) Drop(ctx context.Context, collection string) error {
	defer s.forget(collection)
	err := s.sdk.DropCollection(ctx, collection)
	if err == nil || errors.Is(err, adapters.ErrNotFound) {
		return nil
	}
	if strings.Contains(err.Error(), "not exist") {
		return nil
	}
	return fmt.Errorf("drop collection %q: %w", collection, s.sdkError(ctx, err))
}
