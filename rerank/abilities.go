package rerank

import "context"

// Relevance asks a heavy ranker for R(x, q) of every item x, and returns the scores in the
// order of items.
type Relevance func(ctx context.Context, items []ID, q Query) ([]float32, error)

// SupportAsker is implemented by a Similarity whose query vectors consist of a ranker's
// scores of its support items.
type SupportAsker interface {
	// Supports returns the support items.
	Supports() []ID
	// QueryFeatures returns how many numbers of the query's own vector the similarity reads behind
	// the ranker's scores.
	QueryFeatures() int
	// Ask sends q and the support items to the ranker and returns q with the ranker's
	// scores as its vector, followed by q's own vector if the similarity has QueryFeatures. It
	// returns the ranker's error, or ErrQuery.
	Ask(ctx context.Context, ranker Relevance, q Query) (Query, error)
}

// QuestionOwner is implemented by a Similarity whose base vector of an item consists of a
// ranker's scores of that item for the support queries.
type QuestionOwner interface {
	// Questions returns the support queries, or nil if base vectors are stored vectors.
	Questions() []Query
}

// Refiner is implemented by a Similarity that can adapt an encoded query to true scores of
// a few items, if φ is one inner product with the one feature row of an item. If it is not, Refine
// returns ErrQuery.
type Refiner interface {
	// Refine returns q adapted so that it predicts scores[i] for the feature row i of rows.
	Refine(q Encoded, rows Matrix, scores []float32) (Encoded, error)
}

// VectorOwner is implemented by a Similarity that carries vectors of items in addition to
// the vectors of the collection (max-sim over behavioural vectors).
type VectorOwner interface {
	// VectorsDigest identifies the additional vectors. "" means that the similarity has
	// none.
	VectorsDigest() string
}

// InnerProduct states φ(q, x) = Scale·⟨Vector, x⟩ + Offset for the base vector x of
// any item. x has norm 1 where Spec.Normalise holds. Scale is positive, and every
// number is finite.
type InnerProduct struct {
	Vector        []float32 // Spec.ItemDim elements; the caller does not change them
	Scale, Offset float32
}

// PullBacker is implemented by an Encoded whose φ can be one inner product with the
// base vector of an item, so that a search of the base vectors is a search by φ.
type PullBacker interface {
	// PullBack reports false if φ of this query is no such inner product, or if its
	// numbers are too large for float32. The vector may be zero.
	PullBack() (InnerProduct, bool)
}

// Abilities holds the optional interfaces of a similarity. A nil field means that the
// similarity lacks the ability. Whoever opens a model calls AbilitiesOf once and passes the
// result on.
type Abilities struct {
	Derive      Deriver // Fields returns at least one field
	EncodeBatch BatchEncoder
	ScoreBatch  BatchScorer
	Transpose   Transposer // Spec says that φ is no single inner product
	Supports    SupportAsker
	Questions   QuestionOwner // Questions returns at least one query
	Refine      Refiner       // Spec says that φ is one inner product, with one row an item
	Vectors     VectorOwner   // VectorsDigest is not empty
}

// AbilitiesOf finds the optional interfaces of a similarity.
func AbilitiesOf(s Similarity) Abilities {
	var a Abilities
	if d, ok := s.(Deriver); ok && len(d.Fields()) > 0 {
		a.Derive = d
	}
	a.EncodeBatch, _ = s.(BatchEncoder)
	a.ScoreBatch, _ = s.(BatchScorer)
	a.Supports, _ = s.(SupportAsker)
	if q, ok := s.(QuestionOwner); ok && len(q.Questions()) > 0 {
		a.Questions = q
	}
	spec := s.Spec()
	if spec.SingleInnerProduct && !spec.GroupedRows {
		a.Refine, _ = s.(Refiner)
	}
	if !spec.SingleInnerProduct {
		a.Transpose, _ = s.(Transposer)
	}
	if v, ok := s.(VectorOwner); ok && v.VectorsDigest() != "" {
		a.Vectors = v
	}
	return a
}

// FeatureOwner is implemented by an Encoded of a similarity for which a companion can be learned.
type FeatureOwner interface {
	// QueryFeatures returns what a learned companion computes ψ(q) from. A row begins with a query
	// vector, as the similarity sees it, followed by what the similarity made of it. A query of
	// several vectors has a row for each. All rows of all queries have the same length.
	QueryFeatures() Matrix
}

// EncodedAbilities holds the optional interfaces of an encoded query. A nil field means
// that the query lacks the ability.
type EncodedAbilities struct {
	Explain  Explainer
	Round    Rounder
	Screen   Screener
	Batch    Batcher
	Operate  Operator
	Features FeatureOwner
	// PullBack is set for some queries that cannot be pulled back, too: ask it.
	PullBack PullBacker
}

// EncodedAbilitiesOf finds the optional interfaces of an encoded query.
func EncodedAbilitiesOf(e Encoded) EncodedAbilities {
	var a EncodedAbilities
	a.Explain, _ = e.(Explainer)
	a.Round, _ = e.(Rounder)
	a.Screen, _ = e.(Screener)
	a.Batch, _ = e.(Batcher)
	a.Operate, _ = e.(Operator)
	a.Features, _ = e.(FeatureOwner)
	a.PullBack, _ = e.(PullBacker)
	return a
}
