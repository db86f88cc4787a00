package qdrant

import (
	"context"
	"fmt"
	"slices"

	"github.com/qdrant/go-client/qdrant"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Create creates an in-memory collection with named vectors, or with one unnamed
// vector if the only field has no name. Fields have Qdrant's default HNSW index,
// except those marked Unsearched. The owner field gets a payload index: of keywords if
// items have text ids, otherwise of integers.
func (s *Store) Create(ctx context.Context, schema adapters.Schema) error {
	if n, most := len(schema.Fields), s.options.Limits.MaxVectorFields; n > most {
		return &adapters.LimitError{Limit: "max_vector_fields", Value: int64(n), Max: int64(most),
			Remedy: "use a model with fewer components, or raise max_vector_fields of the store"}
	}
	config, err := vectorsConfig(schema.Fields)
	if err != nil {
		return fmt.Errorf("collection %q: %w", schema.Collection, err)
	}
	defer s.infos.Forget(schema.Collection)
	_, err = call(ctx, s, "create", schema.Collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.CollectionOperationResponse, error) {
		return c.Collections().Create(ctx, &qdrant.CreateCollection{CollectionName: schema.Collection, VectorsConfig: config, Timeout: s.timeoutSeconds(ctx)})
	})
	if err != nil || schema.Owner == "" {
		return err
	}
	kind := qdrant.FieldType_FieldTypeInteger
	if schema.TextOwners {
		kind = qdrant.FieldType_FieldTypeKeyword
	}
	_, err = call(ctx, s, "index of the owner", schema.Collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.PointsOperationResponse, error) {
		return c.Points().CreateFieldIndex(ctx, &qdrant.CreateFieldIndexCollection{
			CollectionName: schema.Collection, FieldName: schema.Owner, FieldType: &kind, Wait: qdrant.PtrOf(true)})
	})
	return err
}

func vectorsConfig(fields []adapters.VectorField) (*qdrant.VectorsConfig, error) {
	params := map[string]*qdrant.VectorParams{}
	for _, f := range fields {
		p, err := vectorParams(f)
		if err != nil {
			return nil, err
		}
		if _, twice := params[f.Name]; twice || f.Name == "" && len(fields) > 1 {
			return nil, fmt.Errorf("%w: field name %q is not unique, or empty beside others", adapters.ErrField, f.Name)
		}
		params[f.Name] = p
	}
	if one, unnamed := params[""]; unnamed {
		return qdrant.NewVectorsConfig(one), nil
	}
	return qdrant.NewVectorsConfigMap(params), nil
}

func vectorParams(f adapters.VectorField) (*qdrant.VectorParams, error) {
	p := &qdrant.VectorParams{Size: uint64(f.Dim)}
	switch f.Metric {
	case adapters.InnerProduct, "":
		p.Distance = qdrant.Distance_Dot
	case adapters.Cosine:
		p.Distance = qdrant.Distance_Cosine
	case adapters.L2:
		p.Distance = qdrant.Distance_Euclid
	default:
		return nil, fmt.Errorf("%w: field %q has the metric %q; Qdrant is asked for %s, %s or %s",
			adapters.ErrMetric, f.Name, f.Metric, adapters.InnerProduct, adapters.Cosine, adapters.L2)
	}
	if f.Unsearched {
		p.HnswConfig = &qdrant.HnswConfigDiff{M: qdrant.PtrOf(uint64(0))}
	}
	return p, nil
}

// Write upserts rows in batches below the message limit and waits until each batch is
// applied. After an error the earlier batches are written, and writing all rows again
// repairs the rest. UUIDs must have Qdrant's spelling, lower case with hyphens, so
// that they come back unchanged.
func (s *Store) Write(ctx context.Context, collection string, schema adapters.Schema, rows adapters.Rows) error {
	points, err := pointsOf(schema, rows)
	if err != nil {
		return fmt.Errorf("collection %q: %w", collection, err)
	}
	longer := false
	err = s.withInfo(ctx, collection, func(in *info) error {
		longer = false
		for i, f := range schema.Fields {
			into, err := in.field(f.Name)
			if err != nil {
				return err
			}
			if rows.Vectors[i].Cols != into.Dim {
				return fmt.Errorf("%w: field %q of collection %q has dimension %d; the rows have %d",
					adapters.ErrDimension, f.Name, collection, into.Dim, rows.Vectors[i].Cols)
			}
			longer = longer || into.isExceededBy(rows.Vectors[i])
		}
		return nil
	})
	if err != nil {
		return err
	}
	if longer { // norms are samples; the next search must sample the new rows too
		defer s.infos.Forget(collection)
	}
	for _, part := range s.splitBatches(points, rows) {
		_, err := call(ctx, s, "write", collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.PointsOperationResponse, error) {
			return c.Points().Upsert(ctx, &qdrant.UpsertPoints{CollectionName: collection, Wait: qdrant.PtrOf(true), Points: part})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isExceededBy reports whether a row is longer than the field's estimated norm.
func (f *field) isExceededBy(m rerank.Matrix) bool {
	for r := range m.Rows {
		if rerank.Norm(m.Row(r)) > f.norm {
			return true
		}
	}
	return false
}

// splitBatches divides points into batches of at most batchBytes and a quarter of the message
// limit.
func (s *Store) splitBatches(points []*qdrant.PointStruct, rows adapters.Rows) [][]*qdrant.PointStruct {
	most := min(batchBytes, s.options.Limits.MaxMessageBytes/4)
	fixed := 64
	for _, m := range rows.Vectors {
		fixed += 4*m.Cols + 64
	}
	var out [][]*qdrant.PointStruct
	from, size := 0, 0
	for i := range points {
		row := fixed
		if rows.Payloads != nil {
			row += 2 * len(rows.Payloads[i])
		}
		if i > from && size+row > most {
			out = append(out, points[from:i])
			from, size = i, 0
		}
		size += row
	}
	if from < len(points) {
		out = append(out, points[from:])
	}
	return out
}

// pointsOf validates and converts rows.
func pointsOf(schema adapters.Schema, rows adapters.Rows) ([]*qdrant.PointStruct, error) {
	if err := checkRows(schema, rows); err != nil {
		return nil, err
	}
	points := make([]*qdrant.PointStruct, len(rows.IDs))
	for i, id := range rows.IDs {
		p, err := pointID(id)
		if err != nil {
			return nil, err
		}
		if idOf(p) != id {
			return nil, fmt.Errorf("%w: %q would come back as %q; write UUIDs in lower case with hyphens", adapters.ErrID, id, idOf(p))
		}
		payload := map[string]*qdrant.Value{}
		if rows.Payloads != nil {
			if payload, err = payloadOf(rows.Payloads[i]); err != nil {
				return nil, fmt.Errorf("row %s: %w", id, err)
			}
		}
		if schema.Owner != "" {
			if payload[schema.Owner], err = ownerValue(rows.Owners[i]); err != nil {
				return nil, fmt.Errorf("row %s: %w", id, err)
			}
		}
		points[i] = &qdrant.PointStruct{Id: p, Payload: payload, Vectors: vectorsOf(schema, rows, i)}
	}
	return points, nil
}

func vectorsOf(schema adapters.Schema, rows adapters.Rows, i int) *qdrant.Vectors {
	if len(schema.Fields) == 1 && schema.Fields[0].Name == "" {
		return qdrant.NewVectorsDense(rows.Vectors[0].Row(i))
	}
	named := make(map[string]*qdrant.Vector, len(schema.Fields))
	for j, f := range schema.Fields {
		named[f.Name] = qdrant.NewVectorDense(rows.Vectors[j].Row(i))
	}
	return qdrant.NewVectorsMap(named)
}

func checkRows(schema adapters.Schema, rows adapters.Rows) error {
	if len(rows.Vectors) != len(schema.Fields) {
		return fmt.Errorf("%w: %d matrices for the %d fields of the schema", adapters.ErrField, len(rows.Vectors), len(schema.Fields))
	}
	for i, m := range rows.Vectors {
		if m.Rows != len(rows.IDs) {
			return fmt.Errorf("%w: field %q has %d vectors for %d rows", adapters.ErrDimension, schema.Fields[i].Name, m.Rows, len(rows.IDs))
		}
		for r := range m.Rows {
			if err := rerank.CheckFinite(fmt.Sprintf("field %q of row %s", schema.Fields[i].Name, rows.IDs[r]), m.Row(r)); err != nil {
				return fmt.Errorf("%w: %w", adapters.ErrStore, err)
			}
		}
	}
	if schema.Owner != "" && len(rows.Owners) != len(rows.IDs) {
		return fmt.Errorf("%w: %d owners for %d rows", adapters.ErrField, len(rows.Owners), len(rows.IDs))
	}
	if rows.Payloads != nil && len(rows.Payloads) != len(rows.IDs) {
		return fmt.Errorf("%w: %d payloads for %d rows", adapters.ErrStore, len(rows.Payloads), len(rows.IDs))
	}
	return nil
}

// Delete removes points by id in batches and waits until each is applied.
func (s *Store) Delete(ctx context.Context, collection string, ids []rerank.ID) error {
	points := make([]*qdrant.PointId, len(ids))
	for i, id := range ids {
		var err error
		if points[i], err = pointID(id); err != nil {
			return fmt.Errorf("collection %q: %w", collection, err)
		}
	}
	for part := range slices.Chunk(points, batchRows) {
		_, err := call(ctx, s, "delete", collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.PointsOperationResponse, error) {
			return c.Points().Delete(ctx, &qdrant.DeletePoints{
				CollectionName: collection, Wait: qdrant.PtrOf(true), Points: qdrant.NewPointsSelector(part...)})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Drop removes a collection.
func (s *Store) Drop(ctx context.Context, collection string) error {
	defer s.infos.Forget(collection)
	_, err := call(ctx, s, "drop", collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.CollectionOperationResponse, error) {
		return c.Collections().Delete(ctx, &qdrant.DeleteCollection{CollectionName: collection, Timeout: s.timeoutSeconds(ctx)})
	})
	return err
}

// SwitchAlias deletes and creates the alias in one request, which Qdrant applies
// atomically.
func (s *Store) SwitchAlias(ctx context.Context, alias, collection string) error {
	defer s.infos.Forget(alias)
	_, err := call(ctx, s, "switch of alias "+alias, collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.CollectionOperationResponse, error) {
		return c.Collections().UpdateAliases(ctx, &qdrant.ChangeAliases{
			Actions: []*qdrant.AliasOperations{qdrant.NewAliasDelete(alias), qdrant.NewAliasCreate(alias, collection)},
			Timeout: s.timeoutSeconds(ctx),
		})
	})
	return err
}

// CheckWrite implements adapters.WriteChecker. It deletes the points of an empty list.
func (s *Store) CheckWrite(ctx context.Context, collection string, _ adapters.WriteWay) error {
	_, err := call(ctx, s, "check_write", collection, func(ctx context.Context, c *qdrant.GrpcClient) (*qdrant.PointsOperationResponse, error) {
		return c.Points().Delete(ctx, &qdrant.DeletePoints{CollectionName: collection, Wait: qdrant.PtrOf(false), Points: qdrant.NewPointsSelector()})
	})
	return err
}
