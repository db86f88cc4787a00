package server

import (
	"fmt"
	"math"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/search"
)

// maxQueryDim is the max_items rule of Query.vector.
const maxQueryDim = 65536

// validate checks a message by the rules of its proto definition, with exceptions. SearchBatch
// checks the searches of a batch, so that each has its own error. checkVector and checkDocuments check
// Query.vector and ScoreRequest.documents, because protovalidate takes longer for their elements than
// many a call takes.
func (s *services) validate(m proto.Message) error {
	if err := s.validator.Validate(m, protovalidate.WithFilter(protovalidate.FilterFunc(isValidated))); err != nil {
		return err
	}
	if r, ok := m.(*likenessv1.ScoreRequest); ok && r.GetDocuments() != nil && len(r.GetDocuments().GetDocuments()) == 0 {
		return fieldError("documents", "there are 0; give 1 to %d", MaxDocuments)
	}
	if r, ok := m.(interface{ GetQuery() *likenessv1.Query }); ok {
		return checkVector(r.GetQuery().GetVector())
	}
	return nil
}

// isValidated reports whether protovalidate checks the rules of a field. checkVector checks the
// vector of a query, checkDocuments the documents of a ScoreRequest, and SearchBatch each of its
// searches, and Feedback each of its events.
func isValidated(_ protoreflect.Message, d protoreflect.Descriptor) bool {
	switch d.FullName() {
	case "likeness.v1.Query.vector", "likeness.v1.ScoreRequest.documents", "likeness.v1.SearchBatchRequest.searches", "likeness.v1.FeedbackRequest.events":
		return false
	default:
		return true
	}
}

// The rules of Query, Documents and Document.
const (
	MaxDocuments = 16384   // of a call
	MaxTextBytes = 1 << 20 // of a query or a document
	maxIDBytes   = 65535
)

// checkDocuments checks the documents of a call that scores them. A call of other items has none.
func checkDocuments(documents []search.Document) error {
	if n := len(documents); n > MaxDocuments {
		return fieldError("documents", "there are %d; give 1 to %d", n, MaxDocuments)
	}
	for i, d := range documents {
		problem := ""
		id, _ := d.ID.Text()
		switch {
		case d.ID.IsZero() && d.Text == "":
			problem = "it is neither an id nor a text"
		case len(id) > maxIDBytes:
			problem = fmt.Sprintf("an id of %d bytes, at most %d", len(id), maxIDBytes)
		case len(d.Text) > MaxTextBytes:
			problem = fmt.Sprintf("a text of %d bytes, at most %d", len(d.Text), MaxTextBytes)
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
