package inner_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestPullBack: a dot product is searched by the query itself, as the model has it, and so
// is each row of max-sim.
func TestPullBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	all := similarities(t, r)
	q := random(r, 1, dim).Data
	unit := slices.Clone(q)
	rerank.Normalise(unit)
	for kind, want := range map[string][]float32{"dot": q, "cosine": unit, "maxsim": q} {
		e, err := all[kind].Encode(rerank.Query{Vector: q})
		if err != nil {
			t.Fatal(err)
		}
		p, ok := rerank.EncodedAbilitiesOf(e).PullBack.PullBack()
		if !ok || !slices.Equal(p.Vector, want) || p.Scale != 1 || p.Offset != 0 {
			t.Errorf("%s: %+v, %t; want %v", kind, p, ok, want)
		}
	}
}
