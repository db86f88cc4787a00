package rbe

import (
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// Question is a support query without its vector. The ranker needs it to score items that
// are added later.
type Question struct {
	Text    string             `json:"text,omitempty"`
	UserID  *int64             `json:"user_id,omitempty"`
	Context map[string]float32 `json:"context,omitempty"`
}

// questionsTensor names the tensor with the vectors of the support queries, as rows.
const questionsTensor = "questions"

// Limits of a question.
const (
	maxText    = 1 << 16 // bytes
	maxContext = 1 << 10 // entries
	maxVector  = 1 << 16 // numbers
)

// Ask stores the support queries, in their order, in the configuration and, if they have
// vectors, in a tensor. It returns rerank.ErrModel if only some have a vector or if the
// vectors differ in length.
func (c *Config) Ask(t tensor.Set, queries []rerank.Query) error {
	c.Questions = make([]Question, len(queries))
	dim := 0
	if len(queries) > 0 {
		dim = len(queries[0].Vector)
	}
	vectors := tensor.Tensor{Shape: []int{len(queries), dim}}
	for i, q := range queries {
		c.Questions[i] = Question{Text: q.Text, Context: q.Context}
		if q.HasUserID {
			user := q.UserID
			c.Questions[i].UserID = &user
		}
		if len(q.Vector) != dim {
			return fmt.Errorf("%w: support query %s has a vector of %d numbers, those before have %d", rerank.ErrModel, c.SupportQueries[i], len(q.Vector), dim)
		}
		vectors.Data = append(vectors.Data, q.Vector...)
	}
	if dim > 0 {
		t[questionsTensor] = vectors
	}
	return nil
}

// readQuestions rebuilds the support queries from configuration and tensor. It returns nil
// if the model does not contain them.
func readQuestions(c Config, r *tensor.Reader) ([]rerank.Query, error) {
	if len(c.Questions) == 0 {
		return nil, nil //nolint:nilnil // an older model, or one that was fitted to a matrix alone
	}
	if len(c.Questions) != len(c.SupportQueries) {
		return nil, fmt.Errorf("%w: %d questions for %d support queries", rerank.ErrModel, len(c.Questions), len(c.SupportQueries))
	}
	queries := make([]rerank.Query, len(c.Questions))
	for i, q := range c.Questions {
		if len(q.Text) > maxText || len(q.Context) > maxContext {
			return nil, fmt.Errorf("%w: question %d has %d bytes of text and %d of context, at most %d and %d are allowed",
				rerank.ErrModel, i, len(q.Text), len(q.Context), maxText, maxContext)
		}
		queries[i] = rerank.Query{Text: q.Text, Context: q.Context}
		if q.UserID != nil {
			queries[i].UserID, queries[i].HasUserID = *q.UserID, true
		}
	}
	if !r.Has(questionsTensor) {
		return queries, nil
	}
	dim := r.Dim(questionsTensor, 1)
	if dim < 1 || dim > maxVector {
		return nil, fmt.Errorf("%w: questions have vectors of %d numbers, want 1 to %d", rerank.ErrModel, dim, maxVector)
	}
	data := r.Get(questionsTensor, len(queries), dim)
	for i := range queries {
		if data != nil {
			queries[i].Vector = data[i*dim : (i+1)*dim : (i+1)*dim]
		}
	}
	return queries, nil
}

// Questions returns the support queries in their order. An item's base vector consists of
// the ranker's scores of the item for each of them. It is empty for a model that was fitted
// to a matrix of scores alone. The queries are read-only.
func (s *Similarity) Questions() []rerank.Query { return slices.Clone(s.questions) }

// SupportQueries returns the ids of the support queries.
func (s *Similarity) SupportQueries() []rerank.ID { return slices.Clone(s.config.SupportQueries) }
