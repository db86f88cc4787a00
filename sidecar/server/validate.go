package server

import (
	"fmt"
	"math"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// maxQueryDim is the max_items rule of Query.vector.
const maxQueryDim = 65536

// validate checks a message by the rules of its proto definition, with two exceptions. SearchBatch
// checks the searches of a batch, so that each has its own error. checkVector and checkDocuments check
// Query.vector and ScoreRequest.documents, because protovalidate takes longer for their elements than
// many a call takes.
func (s *services) validate(m proto.Message) error {
	if err := s.validator.Validate(m, protovalidate.WithFilter(protovalidate.FilterFunc(isValidated))); err != nil {
		return err
	}
	if r, ok := m.(*likenessv1.ScoreRequest); ok {
		if err := checkDocuments(r); err != nil {
			return err
		}
	}
	if r, ok := m.(interface{ GetQuery() *likenessv1.Query }); ok {
		return checkVector(r.GetQuery().GetVector())
	}
	return nil
}

// isValidated reports whether protovalidate checks the rules of a field. checkVector checks the
// vector of a query, checkDocuments the documents of a ScoreRequest, and SearchBatch each of its
// searches.
func isValidated(_ protoreflect.Message, d protoreflect.Descriptor) bool {
	switch d.FullName() {
	case "likeness.v1.Query.vector", "likeness.v1.ScoreRequest.documents", "likeness.v1.SearchBatchRequest.searches":
		return false
	default:
		return true
	}
}

// The rules of Documents and Document.
const (
	maxDocuments = 16384
	maxIDBytes   = 65535
	maxTextBytes = 1 << 20
)

func checkDocuments(r *likenessv1.ScoreRequest) error {
	if _, given := r.GetItems().(*likenessv1.ScoreRequest_Documents); !given {
		return nil
	}
	documents := r.GetDocuments().GetDocuments()
	if n := len(documents); n == 0 || n > maxDocuments {
		return fieldError("documents", "there are %d; give 1 to %d", n, maxDocuments)
	}
	for i, d := range documents {
		problem := ""
		switch v := d.GetDocument().(type) {
		case nil:
			problem = "it is neither an id nor a text"
		case *likenessv1.Document_Negative:
			if v.Negative >= 0 {
				problem = "it must be negative; give it as number"
			}
		case *likenessv1.Document_Id:
			if len(v.Id) > maxIDBytes {
				problem = fmt.Sprintf("an id of %d bytes, at most %d", len(v.Id), maxIDBytes)
			}
		case *likenessv1.Document_Text:
			if n := len(v.Text); n == 0 || n > maxTextBytes {
				problem = fmt.Sprintf("a text of %d bytes, want 1 to %d", n, maxTextBytes)
			}
		}
		if problem != "" {
			return fieldError("documents["+itoa(int64(i))+"]", "%s", problem)
		}
	}
	return nil
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
