package server

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server/fieldrules"
)

// maxQueryDim is the max_items rule of Query.vector.
const maxQueryDim = 65536

// requestRules compiles the rules of all requests, with exceptions. checkVector and checkDocuments check
// Query.vector and ScoreRequest.documents, because reflection takes longer for their elements than many a
// call takes. SearchBatch checks its searches, and Feedback its events, so that each has its own error.
func requestRules() (*fieldrules.Rules, error) {
	var requests []protoreflect.MessageDescriptor
	for _, file := range []protoreflect.FileDescriptor{
		likenessv1.File_likeness_v1_search_proto, likenessv1.File_likeness_v1_catalog_proto,
		likenessv1.File_likeness_v1_admin_proto, likenessv1.File_likeness_v1_feedback_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for k := range methods.Len() {
				requests = append(requests, methods.Get(k).Input())
			}
		}
	}
	return fieldrules.Compile(requests,
		"likeness.v1.Query.vector", "likeness.v1.ScoreRequest.documents", "likeness.v1.SearchBatchRequest.searches", "likeness.v1.FeedbackRequest.events")
}

// validate checks a request by the rules of its proto definition.
func (s *services) validate(m proto.Message) error {
	if err := s.rules.Validate(m); err != nil {
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
