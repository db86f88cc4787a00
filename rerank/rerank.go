// Package rerank defines the learned similarity φ(q, x) and the data of the four steps of a
// query: the probes that it sends, the lists that the store returns, the scores of the
// candidates, and the certificate of the answer.
//
// Each kind of similarity is a subpackage (mol, bilinear, maxsim, late, dot, rbe). This package
// defines the types that they share. It imports no database client and no protocol.
package rerank

import (
	"encoding/json"
	"errors"
	"math"
)

// Sentinel errors. The wrapping text says what failed, where, the value against the limit,
// and the remedy.
var (
	// ErrQuery: the query does not fit the similarity (dimension, NaN, missing user id).
	ErrQuery = errors.New("query does not fit the similarity")
	// ErrStrategy: the similarity has no probes for this strategy in this placement.
	ErrStrategy = errors.New("strategy does not apply")
	// ErrModel: the parameters do not describe a valid similarity.
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
	KindLate     Kind = "late"
)

// Strategy says which first-stage probes a query sends.
type Strategy string

// The strategies. The RAILS paper (000, section 4) calls the first three TopKPerEmbd,
// TopKAvg and CombTopK.
const (
	// PerEmbedding sends a probe for every pair of components.
	PerEmbedding Strategy = "per_embedding"
	// Average sends one probe: mean query component against mean item component.
	Average Strategy = "average"
	// Combined sends the probes of PerEmbedding and of Average.
	Combined Strategy = "combined"
	// Distilled sends one learned probe to the stored vectors.
	Distilled Strategy = "distilled"
	// Companion sends one learned probe to learned vectors of the items.
	Companion Strategy = "companion"
	// Scan sends no probe: every item of the resident table is scored.
	Scan Strategy = "scan"
)

// Strategies lists every strategy in the order of the documentation.
func Strategies() []Strategy {
	return []Strategy{PerEmbedding, Average, Combined, Distilled, Companion, Scan}
}

// Weights says how the averaged probe weighs the component pairs.
type Weights string

const (
	// UniformWeights gives every pair the same weight.
	UniformWeights Weights = "uniform"
	// GateWeights weighs pair (i, j) by the gate π_ij(q, x̄) for the mean item x̄.
	GateWeights Weights = "gates"
)

// Spec describes a similarity to the rest of the program.
type Spec struct {
	Kind     Kind
	QueryDim int // length of Query.Vector
	ItemDim  int // length of a base vector
	// Features is the length of an item's feature row (Items.Features.Cols).
	Features int
	// Block is the length of the sub-vectors that make up a feature row, such as the
	// components of a MoL; each may have its own scale. 0 means that the row is one vector.
	Block int
	// Normalise: the similarity was fitted on unit vectors. Encode and EncodeItems
	// normalise their input.
	Normalise bool
	// UserIDs: every query must carry Query.UserID.
	UserIDs bool
	// SingleInnerProduct: φ is one inner product of a vector made from the query with a
	// vector field (bilinear, dot, max-sim, query-only gates), so one exact list is the
	// exact answer.
	SingleInnerProduct bool
	// MaxScore bounds φ from above over all queries and items; +Inf if no bound is known.
	MaxScore float32
	// GroupedRows: an item owns one or more feature rows (max-sim, late interaction).
	GroupedRows bool
	// ManyVectors: a query can have several vectors (Query.Vectors).
	ManyVectors bool
	// PairsQuery and PairsItem are P_Q and P_X of a MoL; 1 and 1 for other kinds.
	PairsQuery, PairsItem int
}

// Query is the input of a search. A similarity never changes it.
type Query struct {
	Vector []float32 // Spec.QueryDim, finite
	// Vectors replaces Vector for a kind with Spec.ManyVectors: at most MaxQueryVectors rows of
	// Spec.QueryDim numbers.
	Vectors Matrix
	// UserID selects rows of user embeddings; HasUserID says whether the client sent it.
	UserID    int64
	HasUserID bool
	// Text and Context are for a ranker. No similarity reads them.
	Text    string
	Context map[string]float32
}

// MaxQueryVectors is the greatest number of vectors of one query.
const MaxQueryVectors = 512

// Similarity is a learned φ(q, x) whose candidates can be found by dot products. It is
// immutable and safe for concurrent use.
type Similarity interface {
	Spec() Spec
	// Encode computes the query's side of φ. It returns ErrQuery, with the field, the value
	// and the limit, if the query does not fit.
	Encode(q Query) (Encoded, error)
	// EncodeItems computes the feature row (Spec.Features) of every base vector
	// (Spec.ItemDim). dst has as many rows as base and does not alias it; every element of
	// dst is overwritten. Tables are built from feature rows, and the stored placement
	// computes them before it scores.
	EncodeItems(dst, base Matrix) error
}

// Encoded is one query's side of φ. It is safe for concurrent use.
type Encoded interface {
	// Probes returns the first-stage searches of a plan. It returns ErrStrategy, with the
	// remedy, if the similarity has no such probes.
	Probes(p Plan) ([]Probe, error)
	// Score writes φ of every item to dst, which has Items.Len elements. An item whose
	// features are not finite gets a score that is not finite; Score does not panic.
	Score(dst []float32, items Items) error
	// ScoreWide is Score in float64, for the few items on which an answer turns: it takes
	// far longer. epsilon bounds the error of every score that is finite.
	ScoreWide(dst []float64, items Items) (epsilon float64, err error)
	// Bound bounds φ over the items that no list contains. lists[i] answers probes[i]; all
	// lists must have been searched exactly, under the same filter.
	Bound(probes []Probe, lists []List) Bound
}

// Explainer is implemented by an Encoded that can break a score down.
type Explainer interface {
	// Explain returns one explanation per item. Its terms add up to the item's score.
	Explain(items Items) ([]Explanation, error)
}

// Explanation breaks a score down: φ = Σ Terms[t].Gate · Terms[t].Logit.
type Explanation struct {
	Score float32
	Terms []Term
}

// Term is one weighted inner product of a score.
type Term struct {
	QueryComponent, ItemComponent int
	Dot                           float32 // ⟨f_i, g_j⟩
	Logit                         float32 // Dot divided by the temperature
	Gate                          float32 // π_ij; 1 for kinds without gates
}

// Deriver is implemented by a Similarity whose probes can search vector fields that are
// computed from the items and written to the database (derived placement).
type Deriver interface {
	// Fields lists the fields that Derive can compute: the fields that probes search, and
	// the fields that together make up a feature row.
	Fields() []Field
	// Derive computes a field's vectors and writes them to dst, one row for each item. It returns
	// ErrItems.
	Derive(dst Matrix, field string, items Items) error
	// Features rebuilds feature rows from the vectors of all fields with Field.Feature,
	// given in the order of Fields.
	Features(dst Matrix, fields []Matrix) error
}

// Field is one vector field of a companion collection.
type Field struct {
	Name string
	Dim  int
	// Feature: the field is part of the feature row.
	Feature bool
	// Strategies lists the strategies whose probes search the field; nil for a field that
	// is only part of the feature row.
	Strategies []Strategy
	// Weights, if set, restricts the field to averaged probes with this weighting.
	Weights Weights
}

// Plan asks an Encoded for probes.
type Plan struct {
	Strategy Strategy
	Depth    int // rows requested from each probe
	// AverageDepth is the number of rows requested from the averaged probe of Combined.
	AverageDepth int
	Weights      Weights // weighting of the averaged probe; empty means uniform
	// Derived: the probes search fields of the companion collection. Otherwise they are
	// transformed so that they search the stored vector.
	Derived bool
	// Head names the learned probe of Distilled. Empty selects the model's first.
	Head string
}

// Target says what a probe's inner product measures.
type Target int

const (
	// TargetNone: the inner product only suggests candidates.
	TargetNone Target = iota
	// TargetLogit: score + Offset equals ⟨f_i, g_j⟩ for the pair Probe.Pair.
	TargetLogit
	// TargetScore: Scale · (score + Offset) equals φ.
	TargetScore
)

// Probe is one first-stage dot-product top-K search.
type Probe struct {
	// Field is the vector field to search; empty means the route's stored vector.
	Field  string
	Vector []float32
	Depth  int
	Target Target
	Pair   int // i·P_X + j, for TargetLogit
	Offset float32
	Scale  float32
}

// List is the store's answer to one probe, best row first.
type List struct {
	IDs    []ID
	Scores []float32 // inner products with Probe.Vector, whatever the store's metric
	// Owners[r] is the item to which row r belongs, if the request named an owner field.
	Owners []ID
	// Vectors holds the rows' stored vectors, if the request asked for them.
	Vectors Matrix
	// Payloads are the rows' payloads, JSON objects, where the request asked for them.
	Payloads []json.RawMessage
	// Versions are the numbers that the store shows with the rows and raises when it changes
	// one. They are nil unless the request asked for them, the store has them, and it shows
	// nothing else with the rows but ids and scores.
	Versions []uint64
	// Exhausted: the store has no further row for this probe.
	Exhausted bool
	// Exact: the store searched exhaustively, over full-precision vectors.
	Exact bool
	// Epsilon bounds the rounding error of each score, as the adapter states it.
	Epsilon float32
}

// Threshold bounds the score of every row outside the list: it is the last row's score,
// −Inf if the list is exhausted, and +Inf if the list is empty but not exhausted.
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

// Bound limits φ for the items that no list contains.
type Bound struct {
	// Max is U: no such item scores higher. +Inf means unknown.
	Max float32
	// Epsilon is the rounding error of the lists and of Score together, in units of φ.
	// Lists is the lists' part of it.
	Epsilon, Lists float32
}

// Items are the candidates to score, given by their features. Item i has feature row
// Rows[i], or row i if Rows is nil. If Starts is not nil, item i has the rows
// Rows[Starts[i]:Starts[i+1]] (Spec.GroupedRows).
type Items struct {
	Features Matrix
	// Packed, if not nil, replaces Features.
	Packed *Packed
	Rows   []int32
	Starts []int32
}

// Len returns the number of items.
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

// FeatureRows returns the number of feature rows, including rows that belong to no item.
func (it Items) FeatureRows() int {
	if it.Packed != nil {
		return it.Packed.Rows
	}
	return it.Features.Rows
}

// Row returns feature row r. It is a view of Features, or, for packed rows, buf filled with
// the unpacked row; buf must then have room for Packed.Cols numbers.
func (it Items) Row(r int, buf []float32) []float32 {
	if it.Packed == nil {
		return it.Features.Row(r)
	}
	it.Packed.Row32(buf[:it.Packed.Cols], r)
	return buf[:it.Packed.Cols]
}

// Pick returns the items with the given numbers.
func (it Items) Pick(numbers []int32) Items {
	out := Items{Features: it.Features, Packed: it.Packed}
	if it.Starts != nil {
		out.Starts = []int32{0}
	}
	for _, i := range numbers {
		from, to := i, i+1
		if it.Starts != nil {
			from, to = it.Starts[i], it.Starts[i+1]
		}
		for r := from; r < to; r++ {
			row := r
			if it.Rows != nil {
				row = it.Rows[r]
			}
			out.Rows = append(out.Rows, row)
		}
		if it.Starts != nil {
			out.Starts = append(out.Starts, int32(len(out.Rows)))
		}
	}
	if out.Rows == nil {
		out.Rows = []int32{}
	}
	return out
}
