package route

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/edits"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/sidecar/config"
)

// maxNearest is how many vector fields a message lists.
const maxNearest = 8

// MaxRankRounds is the greatest number of rounds in which a ranker is asked.
const MaxRankRounds = 16

// wrong returns ErrSetup with the name of the route and the problem.
func (c *Checked) wrong(format string, args ...any) error {
	return fmt.Errorf("%w: route %q: %s", ErrSetup, c.Name, fmt.Sprintf(format, args...))
}

// configure fills in the defaults of a route, and makes every check that needs no call to the
// store.
func (c *checking) configure() error {
	if c.Name == "" {
		return fmt.Errorf("%w: a route has no name", ErrSetup)
	}
	if c.Model.Similarity == nil {
		return c.wrong("it has no model")
	}
	c.Spec = c.Model.Similarity.Spec()
	c.StoreCan, c.ModelCan = adapters.AbilitiesOf(c.Store), rerank.AbilitiesOf(c.Model.Similarity)
	c.SpellIDs = c.IDSpeller()
	c.Behavioural = c.ModelCan.Vectors != nil
	if c.Live != nil {
		c.Table = c.Live.Schema()
	}
	if c.Table != nil {
		c.built, _ = time.Parse(time.RFC3339, c.Table.Meta().Created) // zero means that the time of the build is not known
	}
	if err := c.fillDefaults(); err != nil {
		return err
	}
	for _, check := range []func() error{c.checkWords, c.checkPlacement, c.checkTable, c.checkOwner, c.checkLimits, c.checkRanker, c.checkEmbedding, c.checkReembedding} {
		if err := check(); err != nil {
			return err
		}
	}
	probes, err := c.trialProbes()
	if err != nil {
		return c.wrong("strategy %q: %v", c.Strategy, err)
	}
	return c.CheckProbes(probes)
}

func (c *checking) fillDefaults() error {
	if c.Behavioural {
		c.Owner = cmp.Or(c.Owner, maxsim.Owner)
	}
	c.rewriteNamed = c.Placement == PlacementRewrite
	c.fillPlacement()
	usual, process := config.DefaultPolicy(), config.Default().Limits
	c.MaxK = cmp.Or(c.MaxK, process.MaxK)
	c.MaxDepth = cmp.Or(c.MaxDepth, process.MaxDepth)
	c.MaxRounds = cmp.Or(c.MaxRounds, usual.MaxRounds)
	c.Depth = cmp.Or(c.Depth, min(usual.Depth, c.MaxDepth))
	c.AverageDepth = cmp.Or(c.AverageDepth, c.Depth)
	c.Weights = cmp.Or(c.Weights, usual.Weights)
	c.Failure = cmp.Or(c.Failure, usual.Failure)
	if c.Strategy != "" && c.Strategy != config.StrategyAuto {
		return nil
	}
	c.strategyOpen = true
	return c.chooseStrategy()
}

// fillPlacement chooses a placement if the operator named none.
func (c *checking) fillPlacement() {
	switch {
	case c.Placement != "" && c.Placement != config.PlacementAuto:
	case c.Table != nil:
		c.Placement = PlacementTable
	case c.Behavioural:
		c.Placement = PlacementDerived
	case c.Companion != "":
		c.Placement = PlacementStored
	default:
		c.Placement, c.WhyNotRewritten = PlacementRewrite, c.modelBarsRewrite()
		if c.WhyNotRewritten != "" {
			c.Placement = PlacementStored
		}
	}
}

// trialProbes makes the probes of the route's strategy for an arbitrary query.
func (c *checking) trialProbes() ([]rerank.Probe, error) {
	if c.Strategy == rerank.Scan {
		return nil, nil
	}
	enc, err := c.trialQuery()
	if err != nil {
		return nil, err
	}
	probes, err := enc.Probes(rerank.Plan{
		Strategy: c.Strategy, Depth: c.Depth, AverageDepth: c.AverageDepth, Weights: c.Weights, Head: c.Head, Derived: c.SearchesCompanion(c.Strategy),
	})
	if err == nil {
		err = c.checkReach(probes)
	}
	return probes, err
}

// checkReach returns ErrSetup if the model has behavioural vectors and the probes search the
// collection: it holds only the items' own vectors, so the probes would miss the behavioural ones.
func (c *Checked) checkReach(probes []rerank.Probe) error {
	if !c.Behavioural {
		return nil
	}
	for _, p := range probes {
		if p.Field == "" && p.Target == rerank.TargetScore {
			return c.wrong("its model has behavioural vectors, which collection %q does not hold; name a companion, which `likeness index` builds, or use strategy %q with a table",
				c.Collection, rerank.Scan)
		}
	}
	return nil
}

// OwnerIn returns the field that names, in each row of a collection, the item to which the row
// belongs. It returns "" if every row is an item. Several rows an item exist only in the companion
// of a model with behavioural vectors.
func (c *Checked) OwnerIn(collection string) string {
	if c.Behavioural && collection != c.Companion {
		return ""
	}
	return c.Owner
}

// trialQuery encodes an arbitrary query, a vector of ones.
func (c *Checked) trialQuery() (rerank.Encoded, error) {
	q := rerank.Query{Vector: make([]float32, c.Spec.QueryDim), HasUserID: c.Spec.UserIDs}
	for i := range q.Vector {
		q.Vector[i] = 1
	}
	return c.Model.Similarity.Encode(q)
}

func (c *checking) checkWords() error {
	switch {
	case !slices.Contains(rerank.Strategies(), c.Strategy):
		return c.wrong("strategy %q is none of %q", c.Strategy, rerank.Strategies())
	case c.Failure != FailOpen && c.Failure != FailClosed:
		return c.wrong("failure %q is neither %q nor %q", c.Failure, FailOpen, FailClosed)
	case c.ScanIfFaster && c.Table == nil:
		return c.wrong("scan_if_faster scans a table and it has none; build one with `likeness index`")
	case c.Strategy == rerank.Scan && c.Table == nil:
		return c.wrong("strategy %q reads a table and it has none; build one with `likeness index`", c.Strategy)
	case c.Strategy == rerank.Scan && len(c.Partitions) > 0:
		return c.wrong("strategy %q reads the whole table, not partitions %q of it; use another strategy", c.Strategy, c.Partitions)
	case c.Strategy != rerank.Scan && c.Store == nil:
		return c.wrong("strategy %q searches a store and it has none", c.Strategy)
	case c.Companion != "" && c.ModelCan.Derive == nil:
		return c.wrong("a model of kind %q derives no fields, so companion %q cannot be searched; remove it", c.Spec.Kind, c.Companion)
	}
	return nil
}

func (c *checking) checkPlacement() error {
	c.FeatureFields = nil
	if c.Companion != "" {
		for _, f := range c.ModelCan.Derive.Fields() {
			if f.Feature {
				c.FeatureFields = append(c.FeatureFields, f.Name)
			}
		}
	}
	switch c.Placement {
	case PlacementTable:
		if c.Table == nil {
			return c.wrong("placement %q needs a table; build one with `likeness index`", c.Placement)
		}
	case PlacementDerived:
		if c.Companion == "" {
			return c.wrong("placement %q needs a companion; build one with `likeness index`", c.Placement)
		}
	case PlacementStored:
		if c.Behavioural {
			return c.wrong("placement %q would score items by their own vector alone; use %q or %q", c.Placement, PlacementDerived, PlacementTable)
		}
	case PlacementRewrite:
		if why := c.modelBarsRewrite(); why != "" {
			return c.cannotRewrite(why)
		}
	default:
		return c.wrong("placement %q is none of %q, %q, %q, %q", c.Placement, PlacementRewrite, PlacementTable, PlacementStored, PlacementDerived)
	}
	if c.Placement != PlacementTable && c.Store != nil && c.StoreCan.Fetch == nil {
		return c.wrong("placement %q fetches vectors by id, which store %q cannot; use a table", c.Placement, c.StoreName)
	}
	return nil
}

// checkTable refuses a table that was built for another model or collection.
func (c *checking) checkTable() error {
	if c.Table == nil {
		return nil
	}
	meta := c.Table.Meta()
	switch {
	case meta.ModelVersion != c.Model.Version:
		return c.wrong("its table is of model version %q and its model is version %q; build the table again with `likeness index`", meta.ModelVersion, c.Model.Version)
	case meta.Collection != c.Collection:
		return c.wrong("its table is of collection %q and the route searches %q; build the table again with `likeness index`", meta.Collection, c.Collection)
	case meta.Features != c.Spec.Features:
		return c.wrong("its table has feature rows of %d numbers and its model has %d; build the table again with `likeness index`", meta.Features, c.Spec.Features)
	case meta.Format != rerank.FormatFloat32 && meta.Block != c.Spec.Block:
		return c.wrong("its table has blocks of %d numbers and its model has %d; build the table again with `likeness index`", meta.Block, c.Spec.Block)
	case c.Table.Grouped() && !c.Spec.GroupedRows:
		return c.wrong("its table has items of several rows, which a model of kind %q cannot score", c.Spec.Kind)
	}
	return nil
}

func (c *checking) checkOwner() error {
	switch {
	case c.Spec.Kind == rerank.KindLate && c.Placement == PlacementStored && c.Owner == "" && c.Vectors == "":
		return c.wrong("a model of kind %q scores items by several vectors; name the multi-vector field that has them as vectors, or keep them in a table", c.Spec.Kind)
	case c.Spec.Kind != rerank.KindLate && c.Vectors != "":
		return c.wrong("a model of kind %q takes one vector field, so vectors %q means nothing; remove it", c.Spec.Kind, c.Vectors)
	case c.Vectors != "" && c.Owner != "":
		return c.wrong("vectors %q are all vectors of an item, so owner %q means nothing; remove one of them", c.Vectors, c.Owner)
	case c.Spec.GroupedRows && c.Spec.Kind != rerank.KindLate && c.Owner == "" && c.Store != nil && c.Placement != PlacementRewrite:
		return c.wrong("a model of kind %q scores items by their rows; name the field with each row's item as owner", c.Spec.Kind)
	case c.Spec.GroupedRows && c.Spec.Kind != rerank.KindLate && c.Owner == "" && slices.ContainsFunc(c.OptIn, ordersFound):
		return c.wrong("opt_in %q: only the database's own search scores a field of several vectors a row, so the rows that a client's query finds cannot be ordered; remove prefetch and hybrid, and rewrite_legs: true has the database order them", c.OptIn)
	case !c.Spec.GroupedRows && c.Owner != "":
		return c.wrong("a model of kind %q scores rows one by one, so owner %q means nothing; remove it", c.Spec.Kind, c.Owner)
	}
	return nil
}

// ordersFound reports whether a route with this opt_in finds rows by the client's own query, and orders them by the similarity.
func ordersFound(optIn string) bool { return optIn == "prefetch" || optIn == "hybrid" }

func (c *checking) checkLimits() error {
	for _, l := range []struct {
		name  string
		value int
	}{{"max_k", c.MaxK}, {"max_depth", c.MaxDepth}, {"max_rounds", c.MaxRounds}, {"depth", c.Depth}, {"average_depth", c.AverageDepth}} {
		if l.value < 1 {
			return c.wrong("%s is %d, must be at least 1", l.name, l.value)
		}
	}
	switch {
	case max(c.Depth, c.AverageDepth) > c.MaxDepth:
		return c.wrong("depth %d and average_depth %d must not exceed max_depth %d", c.Depth, c.AverageDepth, c.MaxDepth)
	case c.Timeout < 0:
		return c.wrong("timeout is %v, must not be negative", c.Timeout)
	case c.MaxGap != nil && !(*c.MaxGap >= 0):
		return c.wrong("max_gap is %v, must not be negative", *c.MaxGap)
	}
	return nil
}

// checkStore checks the route against its store and narrows its limits.
func (c *checking) checkStore(ctx context.Context) error {
	d := c.StoreCan.Describe
	if d == nil {
		c.tellPromise(nil)
		if c.Placement != PlacementRewrite {
			return nil
		}
		return c.cannotRewrite(fmt.Sprintf("store %q does not say how it compares vectors", c.StoreName))
	}
	have, err := d.Describe(ctx, c.Collection)
	if err != nil {
		return fmt.Errorf("route %q: %w", c.Name, err)
	}
	field, err := c.checkField(have)
	if err != nil {
		return err
	}
	if err := c.settleRewrite(field); err != nil {
		return err
	}
	if field.Metric != adapters.Cosine && !c.VectorsElsewhere {
		c.sampleNorms(ctx)
	} else {
		c.Norms = nil // with the metric cosine the database compares unit vectors, whatever vectors it is given
	}
	if c.OwnName, c.NameHidden, err = c.askOwnName(ctx); err != nil {
		return fmt.Errorf("route %q: %w", c.Name, err)
	}
	c.TextIDs, c.Expires = have.TextIDs, have.Expires
	c.narrow(have.Limits)
	settings := prefixed(nil, "collection", have.Settings)
	if err := c.checkCompanion(ctx, d, settings); err != nil {
		return err
	}
	if c.strategyOpen { // the companion may lack the fields of the strategy that came first without it
		if err := c.chooseStrategy(); err != nil {
			return err
		}
	}
	probes, err := c.trialProbes()
	if err != nil {
		return c.wrong("strategy %q: %v", c.Strategy, err)
	}
	c.tellPromise(settings)
	return c.CheckProbes(probes)
}

// narrow lowers the route's limits to the store's.
func (c *checking) narrow(l adapters.Limits) {
	if l.MaxDepth > 0 {
		c.MaxDepth = min(c.MaxDepth, l.MaxDepth)
		c.Depth, c.AverageDepth = min(c.Depth, c.MaxDepth), min(c.AverageDepth, c.MaxDepth)
	}
	if l.MaxProbes > 0 && (c.MaxProbes == 0 || l.MaxProbes < c.MaxProbes) {
		c.MaxProbes = l.MaxProbes
	}
}

// checkField returns the vector field of the route. It returns ErrSetup if the field contradicts
// the model.
func (c *checking) checkField(d adapters.Description) (adapters.VectorField, error) {
	f, ok := FindField(d.Fields, c.Vector)
	if c.Vectors != "" {
		if err := c.checkVectors(d); err != nil {
			return f, err
		}
		if !ok && (c.Strategy == rerank.Scan || c.SearchesCompanion(c.Strategy)) { // no probe searches the collection
			c.Field, _ = FindField(d.MaxSim, c.Vectors)
			return c.Field, nil
		}
	}
	if !ok && c.Spec.GroupedRows && c.Spec.Kind != rerank.KindLate && c.Owner == "" {
		f, ok = FindField(d.MaxSim, c.Vector)
	}
	// A ranker's scores of support queries need not be vectors of the collection.
	c.VectorsElsewhere = ok && c.Spec.Kind == rerank.KindRBE && f.Dim != c.Spec.ItemDim && !c.Placement.ScoresStored() &&
		(c.Strategy == rerank.Scan || c.Companion != "")
	if multi, found := FindField(d.MaxSim, c.Vector); !ok && found {
		return f, c.wrong("field %q of collection %q has several vectors a row, which only a model of kind %q without an owner scores", multi.Name, c.Collection, rerank.KindMaxSim)
	}
	switch {
	case ok:
	case c.Vector == "" && len(d.Fields) > 1:
		return f, c.wrong("collection %q has several vector fields; name one of %q as the route's vector", c.Collection, edits.Nearest("", fieldNames(d.Fields), maxNearest))
	default:
		return f, c.wrong("collection %q has no vector field %q; it has %q: name one as the route's vector", c.Collection, c.Vector, edits.Nearest(c.Vector, fieldNames(d.Fields), maxNearest))
	}
	c.Field = f
	if c.ExactSearch && c.Placement != PlacementDerived {
		c.WhyNeverExact = neverExact(f)
	}
	switch {
	case f.MaxSim && c.UnitVectors && f.Metric != adapters.Cosine:
		return f, c.wrong("%s of collection %q is a multi-vector, whose vectors are not read, so that unit_vectors cannot be checked; use a cosine field", fieldPhrase(f.Name), c.Collection)
	case f.Metric == "":
		return f, c.wrong("%s of collection %q has no index, or a metric from which no inner product follows", fieldPhrase(f.Name), c.Collection)
	case f.Metric != adapters.InnerProduct && f.Metric != adapters.Cosine && f.Metric != adapters.L2:
		return f, c.wrong("%s of collection %q is compared by %s, from which no inner product follows", fieldPhrase(f.Name), c.Collection, f.Metric)
	case c.VectorsElsewhere:
		return f, nil
	case f.Dim != c.Spec.ItemDim:
		return f, c.wrong("%s of collection %q has %d dimensions and its model takes %d", fieldPhrase(f.Name), c.Collection, f.Dim, c.Spec.ItemDim)
	case c.Vectors != "": // the field only suggests candidates
		return f, nil
	case f.Metric == adapters.Cosine && !c.Spec.Normalise:
		return f, c.wrong("its model was fitted on raw vectors and %s of collection %q is compared by cosine, which loses their norms; "+
			"use an inner-product field, or a model fitted on unit vectors", fieldPhrase(f.Name), c.Collection)
	case f.Metric != adapters.Cosine && c.Spec.Normalise && !c.UnitVectors:
		return f, c.wrong("its model was fitted on unit vectors and %s of collection %q is compared by %s; "+
			"if its vectors have norm 1, say so with unit_vectors: true", fieldPhrase(f.Name), c.Collection, f.Metric)
	case f.Metric == adapters.L2 && !c.UnitVectors:
		return f, c.wrong("%s of collection %q is compared by L2 distance, from which inner products follow only for vectors of norm 1; "+
			"if they are, say so with unit_vectors: true", fieldPhrase(f.Name), c.Collection)
	}
	return f, nil
}

// fieldPhrase names a vector field as a sentence does.
func fieldPhrase(name string) string {
	if name == "" {
		return "the unnamed vector"
	}
	return fmt.Sprintf("field %q", name)
}

// checkVectors returns ErrSetup if the field with the items' vectors contradicts the model.
func (c *checking) checkVectors(d adapters.Description) error {
	f, ok := FindField(d.MaxSim, c.Vectors)
	switch {
	case !ok:
		return c.wrong("collection %q has no multi-vector field %q; it has %q", c.Collection, c.Vectors, fieldNames(d.MaxSim))
	case f.Dim != c.Spec.ItemDim:
		return c.wrong("%s of collection %q has %d dimensions and its model takes %d", fieldPhrase(f.Name), c.Collection, f.Dim, c.Spec.ItemDim)
	case !c.Spec.Normalise && f.Metric == adapters.Cosine:
		return c.wrong("its model takes raw vectors and %s of collection %q is compared by cosine, which loses their norms; "+
			"use an inner-product field, or a model that normalises", fieldPhrase(f.Name), c.Collection)
	}
	return nil
}

// checkCompanion returns ErrSetup if the companion lacks fields that the placement needs. It adds
// the companion's index settings to settings.
func (c *checking) checkCompanion(ctx context.Context, d adapters.Describer, settings map[string]string) error {
	if c.Companion == "" {
		return nil
	}
	have, err := d.Describe(ctx, c.Companion)
	if err != nil {
		return fmt.Errorf("route %q: its companion, which `likeness index` builds: %w", c.Name, err)
	}
	c.narrow(have.Limits)
	prefixed(settings, "companion", have.Settings)
	c.CompanionDims = map[string]int{}
	for _, f := range have.Fields {
		if f.Metric != adapters.InnerProduct {
			return c.wrong("field %q of companion %q is compared by %s, must be %s; build it again with `likeness index`", f.Name, c.Companion, f.Metric, adapters.InnerProduct)
		}
		c.CompanionDims[f.Name] = f.Dim
	}
	for _, f := range c.ModelCan.Derive.Fields() {
		dim, ok := c.CompanionDims[f.Name]
		if f.Feature && c.Placement == PlacementDerived && !ok {
			return c.wrong("companion %q lacks the field %q of a feature row; it has %q; build it again with `likeness index`", c.Companion, f.Name, fieldNames(have.Fields))
		}
		if ok && dim != f.Dim {
			return c.wrong("field %q of companion %q has %d dimensions and the model derives %d; build it again with `likeness index`", f.Name, c.Companion, dim, f.Dim)
		}
	}
	return nil
}

// CheckProbes refuses probes of fields that do not exist, and more probes than the
// store takes in one request. It returns ErrSetup.
func (c *Checked) CheckProbes(probes []rerank.Probe) error {
	if c.MaxProbes > 0 && len(probes) > c.MaxProbes {
		return c.wrong("a query sends %d probes and the store takes %d; choose a strategy with fewer, or raise max_probes of the store", len(probes), c.MaxProbes)
	}
	if err := c.checkReach(probes); err != nil {
		return err
	}
	for _, p := range probes {
		if (p.Field == "") != (probes[0].Field == "") || p.Field != "" && c.Companion == "" {
			return c.wrong("its model's probes search stored and derived vectors at once, or derived ones without a companion")
		}
		if p.Field == "" || c.CompanionDims == nil {
			continue
		}
		if dim, ok := c.CompanionDims[p.Field]; !ok || dim != len(p.Vector) {
			return c.wrong("companion %q has no field %q of %d dimensions, which the probes search; build it with `likeness index`", c.Companion, p.Field, len(p.Vector))
		}
	}
	return nil
}

// FindField finds a field by its name. The name "" also stands for the only field there is.
func FindField(fields []adapters.VectorField, name string) (adapters.VectorField, bool) {
	for _, f := range fields {
		if f.Name == name {
			return f, true
		}
	}
	if name == "" && len(fields) == 1 {
		return fields[0], true
	}
	return adapters.VectorField{}, false
}

func fieldNames(fields []adapters.VectorField) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// SupportItems returns how many items a ranker scores to make a query's vector, or 0 if query
// vectors are not made of scores.
func (c *Checked) SupportItems() int {
	if c.ModelCan.Supports == nil {
		return 0
	}
	return len(c.ModelCan.Supports.Supports())
}

// QueryFeatures returns how many numbers of the query's own vector the model reads beside a ranker's
// scores.
func (c *Checked) QueryFeatures() int {
	if c.ModelCan.Supports == nil {
		return 0
	}
	return c.ModelCan.Supports.QueryFeatures()
}

// checkRanker fills in the defaults for a ranker and checks its limits.
func (c *checking) checkRanker() error {
	if c.Ranker == nil && c.RankerName == "" { // offline commands know the name and start no ranker
		c.Calls, c.RankRounds = 0, 0
		return nil
	}
	usual := config.DefaultPolicy()
	c.Calls, c.RankRounds = cmp.Or(c.Calls, usual.Calls), cmp.Or(c.RankRounds, usual.RankRounds)
	switch {
	case c.Calls < 1:
		return c.wrong("calls is %d, must be at least 1", c.Calls)
	case c.Calls <= c.SupportItems():
		return c.wrong("calls is %d and its model %q has %d support items, which ranker %q scores first; raise calls above that, or fit a model with fewer supports",
			c.Calls, c.Model.Name, c.SupportItems(), c.RankerName)
	case c.RankRounds < 1 || c.RankRounds > MaxRankRounds:
		return c.wrong("rank_rounds is %d, must be between 1 and %d", c.RankRounds, MaxRankRounds)
	case c.RankRounds > 1 && c.ModelCan.Refine == nil:
		return c.wrong("rank_rounds is %d, and only a similarity that is one inner product with one vector an item can be fitted to a ranker's scores between rounds; its model %q, of kind %q, takes 1",
			c.RankRounds, c.Model.Name, c.Spec.Kind)
	case !(c.Mix >= 0 && c.Mix <= 1):
		return c.wrong("mix is %g, must be between 0 and 1", c.Mix)
	case c.Mix > 0 && c.Store == nil:
		return c.wrong("mix is %g, and it has no store whose order could be mixed in; name a store, or remove mix", c.Mix)
	case c.MaxGap != nil:
		return c.wrong("max_gap bounds the similarity, and its answers are in the order of ranker %q, of which nothing is proved; remove one of them", c.RankerName)
	}
	return nil
}

// checkEmbedding refuses an embedder that can make no vector: the query vectors of the route's model
// are a ranker's scores alone, and the store is not searched by the query's own vector.
func (c *checking) checkEmbedding() error {
	if c.EmbedderName != "" && c.SupportItems() > 0 && (c.RankerName == "" || c.Store == nil && c.QueryFeatures() == 0) {
		return c.wrong("a ranker's scores of support items make its model's query vectors, and embedder %q could only search the store for the ranker (mix); name a store and a ranker, or remove the embedder",
			c.EmbedderName)
	}
	return nil
}

// neverExact returns the reason why no search of a field can be exact, or "" if a search can be.
func neverExact(f adapters.VectorField) string {
	switch {
	case !f.FullPrecision:
		return fmt.Sprintf("field %q keeps its vectors as %s, not as float32", f.Name, f.Datatype)
	case !f.Exact && !f.AlwaysExact:
		return fmt.Sprintf("the store cannot search field %q exhaustively with the index that it has; Milvus does with the index FLAT", f.Name)
	}
	return ""
}
