// Package rerank defines the learned similarity φ(q, x) and what surrounds it
// in the four steps of a query: the probes it sends, the lists they bring, the
// scores of the candidates, and the certificate of the answer.
//
// The kinds of similarity are its subpackages (mol, bilinear, maxsim, dot);
// this package holds the words that they share. It knows no database and no
// protocol.
package rerank

import (
	"errors"
	"math"
)

// Sentinel errors, wrapped with what, where, value against limit, and remedy.
var (
	// ErrQuery: the query does not fit the similarity (dimension, NaN, missing user id).
	ErrQuery = errors.New("query does not fit the similarity")
	// ErrStrategy: the similarity cannot make the probes of this strategy in this placement.
	ErrStrategy = errors.New("strategy does not apply")
	// ErrModel: a similarity cannot be built from these parameters.
	ErrModel = errors.New("model is not valid")
)

// Kind names a family of similarities.
type Kind string

// The kinds that are served.
const (
	KindDot      Kind = "dot"
	KindBilinear Kind = "bilinear"
	KindMoL      Kind = "mol"
	KindMaxSim   Kind = "maxsim"
	KindRBE      Kind = "rbe"
)

// Strategy says which first-stage probes a query sends.
type Strategy string

// The strategies; TopKPerEmbd, TopKAvg and CombTopK are the RAILS paper's
// (000, section 4) names of the first three.
const (
	// PerEmbedding sends a probe for every pair of components.
	PerEmbedding Strategy = "per_embedding"
	// Average sends one probe: mean query component against mean item component.
	Average Strategy = "average"
	// Combined sends both.
	Combined Strategy = "combined"
	// Distilled sends one learned probe to the stored vectors.
	Distilled Strategy = "distilled"
	// Scan sends none: the resident table is scored whole.
	Scan Strategy = "scan"
)

// Strategies lists every strategy in the order of the documentation.
func Strategies() []Strategy {
	return []Strategy{PerEmbedding, Average, Combined, Distilled, Scan}
}

// Weights says how the averaged probe weighs the component pairs.
type Weights string

const (
	// UniformWeights weigh every pair alike.
	UniformWeights Weights = "uniform"
	// GateWeights weigh pair (i, j) by the gate π_ij(q, x̄) of the mean item x̄.
	GateWeights Weights = "gates"
)

// Spec is what the rest of the program must know of a similarity.
type Spec struct {
	Kind     Kind
	QueryDim int // length of Query.Vector
	ItemDim  int // length of a base vector
	// Features is the length of an item's feature row (Items.Features.Cols).
	Features int
	// Block is the length of the vectors that a feature row consists of, such as the
	// components of a MoL, each of which may have its own scale; 0: it is one vector.
	Block int
	// Normalise: the similarity was fitted on unit vectors. Encode and
	// EncodeItems normalise what they are given.
	Normalise bool
	// UserIDs: a query must carry Query.UserID.
	UserIDs bool
	// SingleInnerProduct: φ is one inner product of a query-made vector with a
	// field (bilinear, dot, max-sim, query-only gates), so one exact list is the answer.
	SingleInnerProduct bool
	// MaxScore is an upper bound of φ over every query and item, +Inf if none is known.
	MaxScore float32
	// GroupedRows: an item owns one row or more, and scores the best of them (max-sim).
	GroupedRows bool
	// PairsQuery, PairsItem: P_Q and P_X of a MoL, 1 and 1 otherwise.
	PairsQuery, PairsItem int
}

// Query is one question. A similarity never changes it.
type Query struct {
	Vector []float32 // Spec.QueryDim, finite
	// UserID selects rows of user-id embeddings; HasUserID says it was given.
	UserID    int64
	HasUserID bool
	// Text and Context are what a ranker may read; no similarity does.
	Text    string
	Context map[string]float32
}

// Similarity is a learned φ(q, x) that first-stage dot products can lead to.
// It is immutable and safe for concurrent use.
type Similarity interface {
	Spec() Spec
	// Encode computes the query's side of φ once. It returns ErrQuery, with the
	// field, the value and the limit, if the query does not fit.
	Encode(q Query) (Encoded, error)
	// EncodeItems computes the feature row (Spec.Features) of every base vector
	// (Spec.ItemDim). dst has as many rows as base, does not alias it, and is
	// written whole, whatever it holds.
	// It is the stored placement's first half and what a table is built from.
	EncodeItems(dst, base Matrix) error
}

// Encoded is one query's side of φ. It is safe for concurrent use.
type Encoded interface {
	// Probes returns the first-stage searches of a plan. It returns ErrStrategy,
	// with the remedy, if the similarity has no such probes.
	Probes(p Plan) ([]Probe, error)
	// Score writes φ of every item to dst, which has Items.Len elements. A
	// feature that is not finite gives a score that is not finite, never a panic.
	Score(dst []float32, items Items) error
	// Bound is the greatest φ that an item in none of the lists can have. lists[i]
	// answers probes[i]; all of them were searched exactly, under the same filter.
	Bound(probes []Probe, lists []List) Bound
}

// Explainer is implemented by an Encoded that can show how a score came about.
type Explainer interface {
	// Explain returns one explanation an item, each of which adds up to its score.
	Explain(items Items) ([]Explanation, error)
}

// Explanation is a score taken apart: φ = Σ Terms[t].Gate · Terms[t].Logit.
type Explanation struct {
	Score float32
	Terms []Term
}

// Term is one weighted inner product of a score.
type Term struct {
	QueryComponent, ItemComponent int
	Dot                           float32 // ⟨f_i, g_j⟩
	Logit                         float32 // Dot divided by the temperature
	Gate                          float32 // π_ij; 1 where a kind has no gates
}

// Deriver is implemented by a similarity whose probes can search fields that
// are computed from the items and written beside them (derived placement).
type Deriver interface {
	// Fields are the fields that Derive can make: those that the probes of the
	// strategies search, and those from which a feature row can be put together.
	Fields() []Field
	// Derive writes a field's vectors, computed from feature rows, to dst.
	Derive(dst Matrix, field string, features Matrix) error
	// Features puts feature rows together from the vectors of the fields with
	// Field.Feature, in the order of Fields.
	Features(dst Matrix, fields []Matrix) error
}

// Field is one vector field of a companion collection.
type Field struct {
	Name string
	Dim  int
	// Feature: the field is part of the feature row.
	Feature bool
	// Strategies whose probes search the field; none for a field that is only a feature.
	Strategies []Strategy
	// Weights, where not empty, narrows an averaged probe's field to that option.
	Weights Weights
}

// Plan asks an Encoded for probes.
type Plan struct {
	Strategy Strategy
	Depth    int // rows asked of each probe
	// AverageDepth is the depth of the averaged probe of Combined.
	AverageDepth int
	Weights      Weights // of the averaged probe; empty is uniform
	// Derived: the probes search fields of the companion collection. Otherwise
	// they are pulled back onto the stored vector.
	Derived bool
	// Head names the learned probe of Distilled where a model has several; empty is its first.
	Head string
}

// Target says what a probe's inner product stands for.
type Target int

const (
	// TargetNone: the list only suggests candidates.
	TargetNone Target = iota
	// TargetLogit: score + Offset is ⟨f_i, g_j⟩ of the pair Probe.Pair.
	TargetLogit
	// TargetScore: Scale · (score + Offset) is φ itself.
	TargetScore
)

// Probe is one first-stage dot-product top-K search.
type Probe struct {
	// Field is the vector field to search; empty is the route's stored vector.
	Field  string
	Vector []float32
	Depth  int
	Target Target
	Pair   int // i·P_X + j, with TargetLogit
	Offset float32
	Scale  float32
}

// List is one probe's answer, best row first.
type List struct {
	IDs    []ID
	Scores []float32 // inner products with Probe.Vector, whatever the store's metric
	// Owners are the items the rows belong to, where the request named an owner field.
	Owners []ID
	// Vectors are the rows' stored vectors, where the request asked for them.
	Vectors Matrix
	// Exhausted: the store has no further row for this probe.
	Exhausted bool
	// Exact: the store searched exhaustively, over full-precision vectors.
	Exact bool
	// Epsilon bounds the rounding error of each score, as the adapter states it.
	Epsilon float32
}

// Threshold is the most that a row outside the list can score: the last row's
// score, −Inf if the list is exhausted, +Inf if it is empty and is not.
func (l List) Threshold() float32 {
	switch {
	case l.Exhausted:
		return float32(math.Inf(-1))
	case len(l.Scores) == 0:
		return float32(math.Inf(1))
	default:
		return l.Scores[len(l.Scores)-1]
	}
}

// Bound is what the lists say of the items in none of them.
type Bound struct {
	// Max is U: no such item scores above it. +Inf: not known.
	Max float32
	// Epsilon is the rounding error, in units of φ, of the lists and of Score.
	Epsilon float32
}

// Items are candidates by their features. Item i has the feature row Rows[i],
// or i itself where Rows is nil. With Starts, item i has the rows
// Rows[Starts[i]:Starts[i+1]] and scores the best of them (Spec.GroupedRows).
type Items struct {
	Features Matrix
	// Packed, if not nil, has the feature rows in place of Features.
	Packed *Packed
	Rows   []int32
	Starts []int32
}

// Len is the number of items.
func (it Items) Len() int {
	switch {
	case it.Starts != nil:
		return len(it.Starts) - 1
	case it.Rows != nil:
		return len(it.Rows)
	default:
		return it.FeatureRows()
	}
}

// FeatureRows is the number of feature rows, whether or not an item has them.
func (it Items) FeatureRows() int {
	if it.Packed != nil {
		return it.Packed.Rows
	}
	return it.Features.Rows
}

// Row returns feature row r: a view of Features, or buf with the unpacked row,
// for which it has Packed.Cols numbers.
func (it Items) Row(r int, buf []float32) []float32 {
	if it.Packed == nil {
		return it.Features.Row(r)
	}
	it.Packed.Row32(buf[:it.Packed.Cols], r)
	return buf[:it.Packed.Cols]
}
