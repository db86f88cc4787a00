package eval

import (
	"cmp"
	"slices"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
)

// Class orders similarities by how simple they are to serve and to understand.
type Class string

// Classes, the simplest first.
const (
	ClassBaseline  Class = "baseline"
	ClassDiagonal  Class = "diagonal"
	ClassLowRank   Class = "low_rank"
	ClassBilinear  Class = "bilinear"
	ClassMaxSim    Class = "maxsim"
	ClassQueryGate Class = "mol_query_gates"
	ClassMoL       Class = "mol"
	ClassLate      Class = "late"
	ClassRBE       Class = "rbe"
)

var classes = []Class{ClassBaseline, ClassDiagonal, ClassLowRank, ClassBilinear, ClassMaxSim, ClassQueryGate, ClassMoL, ClassLate, ClassRBE}

// Traits holds facts about a model that its similarity does not tell.
type Traits struct {
	// Form is the form of a bilinear model. If empty, it is full.
	Form bilinear.Form
	// Parameters counts the numbers in the model's tensors.
	Parameters int
	// Spectrum holds the singular values of W − I of a bilinear model, for the report.
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
	case s.Kind == rerank.KindLate:
		return ClassLate
	case s.Kind == rerank.KindRBE:
		return ClassRBE
	default:
		return ClassBaseline
	}
}

// compareSimplicity orders models by the work of serving their class, then by the
// numbers that they store, the simpler first. Bilinear forms are all served alike, so
// that their numbers alone decide: a low rank can store more than a full matrix.
func compareSimplicity(a, b *ModelReport) int {
	if a.Class.isBilinear() && b.Class.isBilinear() && a.Parameters > 0 && b.Parameters > 0 {
		return cmp.Or(a.Parameters-b.Parameters, slices.Index(classes, a.Class)-slices.Index(classes, b.Class))
	}
	return cmp.Or(slices.Index(classes, a.Class)-slices.Index(classes, b.Class), a.Parameters-b.Parameters)
}

// isBilinear reports whether models of the class are bilinear forms.
func (c Class) isBilinear() bool {
	return c == ClassDiagonal || c == ClassLowRank || c == ClassBilinear
}
