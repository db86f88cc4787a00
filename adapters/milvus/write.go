package milvus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// Greatest size of an upsert. Milvus accepts larger ones but splits them again for its
// log; milvus-lite first deletes each row by itself.
const (
	writeBytes = 8 << 20
	writeRows  = 5000
)

// Write upserts rows into a companion collection, with each payload in the dynamic
// field. It waits with a Strong query until searches of any consistency level see the
// rows. Of several rows with one id, it writes the last.
func (s *Store) Write(ctx context.Context, collection string, schema adapters.Schema, rows adapters.Rows) error {
	if err := checkRows(schema, rows); err != nil {
		return fmt.Errorf("collection %q: %w", collection, err)
	}
	c, err := s.collection(ctx, collection)
	if err != nil {
		return err
	}
	if c.layout == nil {
		return fmt.Errorf("%w: collection %q is not a companion that Create has made", adapters.ErrUnsupported, collection)
	}
	if err := c.layout.checkSchema(schema); err != nil {
		return fmt.Errorf("collection %q: %w", collection, err)
	}
	kept := lastOfEach(rows.IDs)
	if len(kept) == 0 {
		return nil
	}
	for comp := range c.layout.components() {
		for batch := range slices.Chunk(kept, s.writeBatch(c, rows)) {
			if err := s.upsert(ctx, c, rows, batch, comp); err != nil {
				return fmt.Errorf("collection %q: %w", collection, err)
			}
		}
	}
	s.forgetNorms(collection)
	return s.awaitVisible(ctx, c, rows.IDs[kept[len(kept)-1]])
}

// CheckWrite implements adapters.WriteChecker. It makes a call that Milvus refuses to a caller without the right, and
// that is faulty otherwise. For any change, whose right is not known, it asks whether Milvus knows the caller.
func (s *Store) CheckWrite(ctx context.Context, collection string, way adapters.WriteWay) error {
	database := s.options.Database
	var err error
	switch way {
	case adapters.WriteInsert:
		_, err = s.raw.Insert(ctx, &milvuspb.InsertRequest{DbName: database, CollectionName: collection})
	case adapters.WriteUpsert:
		_, err = s.raw.Upsert(ctx, &milvuspb.UpsertRequest{DbName: database, CollectionName: collection})
	case adapters.WriteDelete:
		_, err = s.raw.Delete(ctx, &milvuspb.DeleteRequest{DbName: database, CollectionName: collection, Expr: "("})
	case adapters.WriteAny:
		_, err = s.raw.GetVersion(ctx, &milvuspb.GetVersionRequest{})
	}
	for _, fault := range []error{adapters.ErrFilter, adapters.ErrField, adapters.ErrDimension, adapters.ErrLimit, adapters.ErrUnsupported, adapters.ErrStore} {
		if errors.Is(err, fault) {
			return nil
		}
	}
	return err
}

// Delete removes rows of a companion collection with all their components. It waits
// with a Strong query until no search sees them.
func (s *Store) Delete(ctx context.Context, collection string, ids []rerank.ID) error {
	c, err := s.collection(ctx, collection)
	if err != nil {
		return err
	}
	if c.layout == nil {
		return fmt.Errorf("%w: collection %q is not a companion that Create has made", adapters.ErrUnsupported, collection)
	}
	if len(ids) == 0 {
		return nil
	}
	for comp := range c.layout.components() {
		keys := make([]key, len(ids))
		for i, id := range ids {
			if keys[i], err = c.ids.key(id, comp); err != nil {
				return fmt.Errorf("collection %q: ids[%d]: %w", collection, i, err)
			}
		}
		for part := range slices.Chunk(keys, deleteKeys) {
			_, err := s.raw.Delete(ctx, &milvuspb.DeleteRequest{DbName: s.options.Database, CollectionName: collection, Expr: oneOf(c.pk, part)})
			if err != nil {
				return fmt.Errorf("collection %q: %w", collection, err)
			}
		}
	}
	return s.awaitVisible(ctx, c, ids[len(ids)-1])
}

// deleteKeys is the number of keys in one delete, which limits the expression that
// Milvus must parse.
const deleteKeys = 1000

// awaitVisible waits until earlier writes are visible.
func (s *Store) awaitVisible(ctx context.Context, c *collection, last rerank.ID) error {
	k, err := c.ids.key(last, 0)
	if err != nil {
		return err
	}
	_, err = s.read(reading{c: c, strong: true}).query(ctx, oneOf(c.pk, []key{k}), 1)
	return err
}

// components returns the number of rows of an item.
func (l layout) components() int {
	if l.Rows {
		return len(l.Fields)
	}
	return 1
}

func (l layout) checkSchema(schema adapters.Schema) error {
	if len(schema.Fields) != len(l.Fields) || schema.Owner != l.Owner {
		return fmt.Errorf("%w: it has %d vector fields and owner %q, the rows are of %d and %q", adapters.ErrField, len(l.Fields), l.Owner, len(schema.Fields), schema.Owner)
	}
	for i, f := range schema.Fields {
		if f.Name != l.Fields[i].Name {
			return fmt.Errorf("%w: its fields[%d] is %q, that of the rows %q", adapters.ErrField, i, l.Fields[i].Name, f.Name)
		}
		if f.Dim != l.Fields[i].Dim {
			return fmt.Errorf("%w: field %q has %d dimensions, the rows have %d", adapters.ErrDimension, f.Name, l.Fields[i].Dim, f.Dim)
		}
	}
	return nil
}

func checkRows(schema adapters.Schema, rows adapters.Rows) error {
	n := len(rows.IDs)
	if len(rows.Vectors) != len(schema.Fields) {
		return fmt.Errorf("%w: %d fields of vectors for the schema's %d", adapters.ErrField, len(rows.Vectors), len(schema.Fields))
	}
	for i, m := range rows.Vectors {
		f := schema.Fields[i]
		if m.Rows != n || n > 0 && m.Cols != f.Dim || len(m.Data) != m.Rows*m.Cols {
			return fmt.Errorf("%w: field %q has %d vectors of %d elements; %d of %d are needed", adapters.ErrDimension, f.Name, m.Rows, m.Cols, n, f.Dim)
		}
		if err := rerank.CheckFinite("vectors of "+f.Name, m.Data); err != nil {
			return fmt.Errorf("%w: %w", adapters.ErrStore, err)
		}
	}
	if schema.Owner != "" && len(rows.Owners) != n {
		return fmt.Errorf("%w: %d owners for %d rows", adapters.ErrField, len(rows.Owners), n)
	}
	if rows.Payloads != nil && len(rows.Payloads) != n {
		return fmt.Errorf("%w: %d payloads for %d rows", adapters.ErrStore, len(rows.Payloads), n)
	}
	return nil
}

// lastOfEach returns the positions of ids, and for a repeated id only the last.
func lastOfEach(ids []rerank.ID) []int {
	last := make(map[rerank.ID]int, len(ids))
	for i, id := range ids {
		last[id] = i
	}
	kept := make([]int, 0, len(last))
	for i, id := range ids {
		if last[id] == i {
			kept = append(kept, i)
		}
	}
	return kept
}

func (s *Store) writeBatch(c *collection, rows adapters.Rows) int {
	size := 64
	for _, v := range c.vectors {
		size += 4 * v.dim
	}
	if n := len(rows.Payloads); n > 0 {
		total := 0
		for _, p := range rows.Payloads {
			total += len(p)
		}
		size += total / n
	}
	return max(1, min(writeRows, min(writeBytes, s.options.Limits.MaxMessageBytes/2)/size))
}

// upsert writes a batch of rows, or one component of each row.
func (s *Store) upsert(ctx context.Context, c *collection, rows adapters.Rows, batch []int, comp int) error {
	fields, err := c.keyColumns(rows, batch, comp)
	if err != nil {
		return err
	}
	for i, f := range c.layout.Fields {
		if !c.layout.Rows || i == comp {
			fields = append(fields, vectorData(f.Column, c.layout.width(f), rows.Vectors[i], batch))
		}
	}
	payloads, err := payloadData(rows.Payloads, batch)
	if err != nil {
		return err
	}
	_, err = s.raw.Upsert(ctx, &milvuspb.UpsertRequest{
		DbName: s.options.Database, CollectionName: c.name, FieldsData: append(fields, payloads), NumRows: uint32(len(batch)),
	})
	return err
}

// keyColumns returns the columns of primary keys, component numbers and owners.
func (c *collection) keyColumns(rows adapters.Rows, batch []int, comp int) ([]*schemapb.FieldData, error) {
	var texts, owners []string
	var nums []int64
	comps := make([]int32, len(batch))
	for i, at := range batch {
		k, err := c.ids.key(rows.IDs[at], comp)
		if err != nil {
			return nil, fmt.Errorf("ids[%d]: %w", at, err)
		}
		texts, nums, comps[i] = append(texts, k.text), append(nums, k.num), int32(comp)
		if c.layout.Owner != "" {
			owner, err := ownerText(rows.Owners[at])
			if err != nil {
				return nil, fmt.Errorf("owners[%d]: %w", at, err)
			}
			owners = append(owners, owner)
		}
	}
	var fields []*schemapb.FieldData
	if c.ids.textKeys() {
		fields = append(fields, textData(c.pk, texts))
	} else {
		fields = append(fields, scalarData(c.pk, schemapb.DataType_Int64,
			&schemapb.ScalarField{Data: &schemapb.ScalarField_LongData{LongData: &schemapb.LongArray{Data: nums}}}))
	}
	if c.layout.Rows {
		fields = append(fields, scalarData(companionField, schemapb.DataType_Int16,
			&schemapb.ScalarField{Data: &schemapb.ScalarField_IntData{IntData: &schemapb.IntArray{Data: comps}}}))
	}
	if c.layout.Owner != "" {
		fields = append(fields, textData(companionOwner, owners))
	}
	return fields, nil
}

func scalarData(name string, kind schemapb.DataType, s *schemapb.ScalarField) *schemapb.FieldData {
	return &schemapb.FieldData{FieldName: name, Type: kind, Field: &schemapb.FieldData_Scalars{Scalars: s}}
}

func textData(name string, texts []string) *schemapb.FieldData {
	return scalarData(name, schemapb.DataType_VarChar,
		&schemapb.ScalarField{Data: &schemapb.ScalarField_StringData{StringData: &schemapb.StringArray{Data: texts}}})
}

// vectorData returns a column of vectors, padded with zeros to the given width.
func vectorData(name string, width int, m rerank.Matrix, batch []int) *schemapb.FieldData {
	floats := make([]float32, len(batch)*width)
	for i, at := range batch {
		copy(floats[i*width:(i+1)*width], m.Row(at))
	}
	return &schemapb.FieldData{FieldName: name, Type: schemapb.DataType_FloatVector, Field: &schemapb.FieldData_Vectors{Vectors: &schemapb.VectorField{
		Dim: int64(width), Data: &schemapb.VectorField_FloatVector{FloatVector: &schemapb.FloatArray{Data: floats}},
	}}}
}

func payloadData(payloads []json.RawMessage, batch []int) (*schemapb.FieldData, error) {
	objects := make([][]byte, len(batch))
	for i, at := range batch {
		objects[i] = []byte("{}")
		if payloads == nil || len(payloads[at]) == 0 {
			continue
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(payloads[at], &object); err != nil {
			return nil, fmt.Errorf("%w: payloads[%d] is not a JSON object: %w", adapters.ErrStore, at, err)
		}
		if object != nil {
			objects[i] = payloads[at]
		}
	}
	fd := scalarData(dynamicField, schemapb.DataType_JSON,
		&schemapb.ScalarField{Data: &schemapb.ScalarField_JsonData{JsonData: &schemapb.JSONArray{Data: objects}}})
	fd.IsDynamic = true
	return fd, nil
}
