package route

import (
	"fmt"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

// modelBarsRewrite returns the reason why the model or the settings of the route rule out rewritten
// searches, or "". It calls no store.
func (c *checking) modelBarsRewrite() string {
	switch {
	case c.Store == nil:
		return "it has no store that could search"
	case c.Behavioural:
		return "its model has behavioural vectors, which are no rows of the collection"
	case c.Spec.Kind == rerank.KindRBE:
		return "the base vectors of a model of kind \"rbe\" are a ranker's answers, and not the stored vectors"
	case c.Spec.GroupedRows && c.Owner != "":
		return "its model scores an item by the best of several rows"
	case c.Spec.Kind == rerank.KindLate:
		return "its queries have several vectors, so that φ is not one inner product"
	case !c.Spec.SingleInnerProduct:
		return "the gates of its model depend on the item, so that φ is not one inner product"
	case c.Companion != "":
		return fmt.Sprintf("its searches go to companion %q", c.Companion)
	case c.Strategy == rerank.Scan || c.Strategy == rerank.Distilled || c.Strategy == rerank.Companion:
		return fmt.Sprintf("strategy %q does not search by φ itself", c.Strategy)
	case !c.pullsBack():
		return "φ of its model is no inner product with the stored vector: its item side is not linear, or its components are normalised"
	}
	return ""
}

// pullsBack reports whether an arbitrary query of the model can be pulled back.
func (c *checking) pullsBack() bool {
	q, err := c.trialQuery()
	if err != nil {
		return false
	}
	able := rerank.EncodedAbilitiesOf(q).PullBack
	if able == nil {
		return false
	}
	_, ok := able.PullBack()
	return ok
}

// fieldBarsRewrite returns the reason why the database's scores on a field are not inner products
// with the query as it is sent, or "".
func (c *checking) fieldBarsRewrite(f adapters.VectorField) string {
	where := fmt.Sprintf("%s of collection %q", fieldPhrase(f.Name), c.Collection)
	switch {
	case c.Spec.GroupedRows && !f.MaxSim:
		return where + " has one vector a row, and its model scores an item by the best of several"
	case f.Metric != adapters.InnerProduct && f.Metric != adapters.Cosine:
		return fmt.Sprintf("%s is compared by %s, whose score is no inner product times a scale", where, f.Metric)
	case f.Datatype != adapters.Float32 && f.Datatype != adapters.Float16:
		return fmt.Sprintf("%s has the datatype %q, to which the database rounds the query as well", where, f.Datatype)
	case f.Quantized != "" && !f.Rescores && !c.rewriteNamed:
		return fmt.Sprintf("%s has the index %q, which states scores of rounded vectors", where, f.Quantized)
	}
	return ""
}

// settleRewrite decides, from the store's description of the vector field, whether the route's
// searches are rewritten. It returns ErrSetup if the operator demands rewriting and the field rules
// it out.
func (c *checking) settleRewrite(f adapters.VectorField) error {
	if c.Placement != PlacementRewrite {
		return nil
	}
	why := c.fieldBarsRewrite(f)
	if why == "" {
		return nil
	}
	return c.cannotRewrite(why)
}

// cannotRewrite makes the route PlacementStored, and records the reason. If the operator named
// PlacementRewrite, it returns ErrSetup instead.
func (c *checking) cannotRewrite(why string) error {
	if c.Spec.GroupedRows && c.Spec.Kind != rerank.KindLate && c.Owner == "" { // no other placement can score its items
		return c.wrong("%s; name the field with each row's item as owner, or a multi-vector field", why)
	}
	if c.rewriteNamed {
		return c.wrong("placement %q: %s; use placement %q, or a table, which `likeness index` builds", PlacementRewrite, why, PlacementStored)
	}
	c.Placement, c.WhyNotRewritten = PlacementStored, why
	return nil
}
