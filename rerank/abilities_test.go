package rerank_test

import (
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// able is a similarity that has the methods of three abilities.
type able struct {
	rerank.Similarity
	rerank.Refiner
	rerank.Transposer
	spec   rerank.Spec
	digest string
}

func (a able) Spec() rerank.Spec     { return a.spec }
func (a able) VectorsDigest() string { return a.digest }

// TestAbilitiesOf: a method alone is no ability. Only one inner product with one row an item can be refined, only
// what is no inner product is transposed, and vectors need a digest.
func TestAbilitiesOf(t *testing.T) {
	for _, c := range []struct {
		of                         able
		refine, transpose, vectors bool
	}{
		{able{spec: rerank.Spec{SingleInnerProduct: true}}, true, false, false},
		{able{spec: rerank.Spec{SingleInnerProduct: true, GroupedRows: true}, digest: "d"}, false, false, true},
		{able{}, false, true, false},
	} {
		if got := rerank.AbilitiesOf(c.of); got.Refine != nil != c.refine || got.Transpose != nil != c.transpose || got.Vectors != nil != c.vectors {
			t.Errorf("%+v: %+v", c.of, got)
		}
	}
}
