package route

import (
	"math"

	"github.com/likenessdb/likeness/rerank"
)

// checkReembedding returns ErrSetup if a route with reembed has a model that is no bridge. Only a bridge
// compares the embedder's vectors as they are.
func (c *checking) checkReembedding() error {
	switch {
	case !c.Reembeds():
		return nil
	case c.Placement != PlacementDerived:
		return c.wrong("reembed keeps new vectors in a companion, and its placement is %q; set %q", c.Placement, PlacementDerived)
	case c.Table != nil:
		return c.wrong("its table holds what the bridge makes of an item, never its new vector (reembed); remove the table, or reembed")
	case c.ModelCan.Derive == nil || !c.comparesQueriesWithFeatures():
		return c.wrong("reembed is for a bridge, which compares a query's vector with an item's, and model %q compares something else; make one with `likeness fit bridge`, or remove reembed", c.Model.Name)
	}
	return nil
}

// comparesQueriesWithFeatures reports whether φ of a query and a feature row is the inner product of
// both, up to a positive factor. It tries some queries and rows of norm 1.
func (c *checking) comparesQueriesWithFeatures() bool {
	const tries = 4
	dim := c.Spec.QueryDim
	if c.Spec.GroupedRows || !c.Spec.SingleInnerProduct {
		return false
	}
	vectors := waves(2*tries, dim)
	rows, scale := vectors.Slice(tries, 2*tries), 0.0
	scores := make([]float32, tries)
	for i := range tries {
		q := vectors.Row(i)
		encoded, err := c.Model.Similarity.Encode(rerank.Query{Vector: q, HasUserID: c.Spec.UserIDs})
		if err != nil || encoded.Score(scores, rerank.Items{Features: rows}) != nil { // rows of another length are an error
			return false
		}
		for j, s := range scores {
			product := 0.0
			for k, x := range rows.Row(j) {
				product += float64(x) * float64(q[k])
			}
			if scale == 0 && math.Abs(product) > 1e-2 {
				scale = float64(s) / product
			}
			if math.Abs(float64(s)-scale*product) > 1e-3*math.Abs(scale) {
				return false
			}
		}
	}
	return scale > 0
}

// waves returns rows of norm 1 that point in different directions.
func waves(rows, dim int) rerank.Matrix {
	m := rerank.NewMatrix(rows, dim)
	for i := range rows {
		for j := range dim {
			m.Row(i)[j] = float32(1 + math.Sin(float64((i+1)*(j+1))))
		}
		rerank.Normalise(m.Row(i))
	}
	return m
}
