package server

import (
	"math"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// maxQueryDim is the max_items rule of Query.vector.
const maxQueryDim = 65536

// validate checks a message by the rules of its proto definition, with two exceptions. SearchBatch
// checks the searches of a batch, so that each has its own error. checkVector checks Query.vector,
// because protovalidate takes longer for its elements than many a search takes.
func (s *services) validate(m proto.Message) error {
	if err := s.validator.Validate(m, protovalidate.WithFilter(protovalidate.FilterFunc(isValidated))); err != nil {
		return err
	}
	if r, ok := m.(interface{ GetQuery() *likenessv1.Query }); ok {
		return checkVector(r.GetQuery().GetVector())
	}
	return nil
}

// isValidated reports whether protovalidate checks the rules of a field. checkVector checks
// the vector of a query, and SearchBatch each of its searches.
func isValidated(_ protoreflect.Message, d protoreflect.Descriptor) bool {
	switch d.FullName() {
	case "likeness.v1.Query.vector", "likeness.v1.SearchBatchRequest.searches":
		return false
	default:
		return true
	}
}

func checkVector(v []float32) error {
	if len(v) > maxQueryDim {
		return fieldError("query.vector", "it has %d elements, at most %d", len(v), maxQueryDim)
	}
	for i, x := range v {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return fieldError("query.vector["+itoa(int64(i))+"]", "it is %v; every element must be finite", x)
		}
	}
	return nil
}
