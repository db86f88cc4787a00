package milvus

import (
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// pick returns the given rows of a column with width values per row.
func pick[T any](column []T, rows []int, width int) []T {
	out := make([]T, 0, len(rows)*width)
	for _, r := range rows {
		out = append(out, column[r*width:(r+1)*width]...)
	}
	return out
}

// pickField returns the given rows of a field's column of n rows. It returns false if the column
// does not have one value per row, as a nullable column may not.
func pickField(f *schemapb.FieldData, rows []int, n int) (*schemapb.FieldData, bool) {
	out := proto.Clone(f).(*schemapb.FieldData)
	if valid := f.GetValidData(); len(valid) > 0 {
		if len(valid) != n {
			return nil, false
		}
		out.ValidData = pick(valid, rows, 1)
	}
	switch {
	case out.GetScalars() != nil:
		return out, pickScalars(out.GetScalars(), rows, n)
	case out.GetVectors() != nil:
		return out, pickVectors(out.GetVectors(), rows, n)
	}
	return nil, false
}

// pickScalars picks rows of any kind of scalar. Each kind is a message whose first field is
// repeated, with one value per row.
func pickScalars(s *schemapb.ScalarField, rows []int, n int) bool {
	kind := s.ProtoReflect().WhichOneof(s.ProtoReflect().Descriptor().Oneofs().Get(0))
	if kind == nil {
		return n == 0
	}
	return pickList(s.ProtoReflect().Mutable(kind).Message(), rows, n)
}

// pickList picks rows of field 1 of a message.
func pickList(m protoreflect.Message, rows []int, n int) bool {
	data := m.Descriptor().Fields().ByNumber(1)
	if data == nil || !data.IsList() || m.Get(data).List().Len() != n {
		return false
	}
	column := m.Get(data).List()
	picked := m.NewField(data).List()
	for _, r := range rows {
		picked.Append(column.Get(r))
	}
	m.Set(data, protoreflect.ValueOfList(picked))
	return true
}

func pickVectors(v *schemapb.VectorField, rows []int, n int) bool {
	dim := int(v.GetDim())
	bytes := func(b *[]byte, width int) bool {
		if width < 1 || len(*b) != n*width {
			return false
		}
		*b = pick(*b, rows, width)
		return true
	}
	switch d := v.GetData().(type) {
	case *schemapb.VectorField_FloatVector:
		if dim < 1 || len(d.FloatVector.GetData()) != n*dim {
			return false
		}
		d.FloatVector.Data = pick(d.FloatVector.GetData(), rows, dim)
		return true
	case *schemapb.VectorField_BinaryVector:
		return bytes(&d.BinaryVector, dim/8)
	case *schemapb.VectorField_Float16Vector:
		return bytes(&d.Float16Vector, 2*dim)
	case *schemapb.VectorField_Bfloat16Vector:
		return bytes(&d.Bfloat16Vector, 2*dim)
	case *schemapb.VectorField_Int8Vector:
		return bytes(&d.Int8Vector, dim)
	case *schemapb.VectorField_SparseFloatVector:
		return pickList(d.SparseFloatVector.ProtoReflect(), rows, n)
	}
	return false
}
