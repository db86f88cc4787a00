package eval

import (
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// Class orders similarities by how simple they are to serve and to understand.
type Class string

// The classes, the simplest first.
const (
	ClassBaseline  Class = "baseline"
	ClassDiagonal  Class = "diagonal"
	ClassLowRank   Class = "low_rank"
	ClassBilinear  Class = "bilinear"
	ClassMaxSim    Class = "maxsim"
	ClassQueryGate Class = "mol_query_gates"
	ClassMoL       Class = "mol"
	ClassRBE       Class = "rbe"
)

var classes = []Class{ClassBaseline, ClassDiagonal, ClassLowRank, ClassBilinear, ClassMaxSim, ClassQueryGate, ClassMoL, ClassRBE}

// Traits are what a similarity does not say of itself.
type Traits struct {
	// Form of a bilinear one; empty is full.
	Form bilinear.Form
	// Parameters is the number of numbers in its tensors.
	Parameters int
	// Spectrum are the singular values of its W − I, for the report.
	Spectrum []float64
}

func classOf(s rerank.Spec, t Traits) Class {
	switch {
	case s.Kind == rerank.KindBilinear && t.Form == bilinear.Diagonal:
		return ClassDiagonal
	case s.Kind == rerank.KindBilinear && (t.Form == bilinear.LowRank || t.Form == bilinear.IdentityLowRank):
		return ClassLowRank
	case s.Kind == rerank.KindBilinear:
		return ClassBilinear
	case s.Kind == rerank.KindMaxSim:
		return ClassMaxSim
	case s.Kind == rerank.KindMoL && s.SingleInnerProduct:
		return ClassQueryGate
	case s.Kind == rerank.KindMoL:
		return ClassMoL
	case s.Kind == rerank.KindRBE:
		return ClassRBE
	default:
		return ClassBaseline
	}
}

// simpler reports whether a is simpler than b: by class, then by parameters.
func simpler(a, b *ModelReport) int {
	if d := slices.Index(classes, a.Class) - slices.Index(classes, b.Class); d != 0 {
		return d
	}
	return a.Parameters - b.Parameters
}
