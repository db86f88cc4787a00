package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
)

// The defaults of a route that does not say.
const (
	defaultDepth     = 200
	defaultMaxK      = 1000
	defaultMaxDepth  = 16384
	defaultMaxRounds = 8
)

// wrong is ErrSetup of the route.
func (o *opened) wrong(format string, args ...any) error {
	return fmt.Errorf("%w: route %q: %s", ErrSetup, o.Name, fmt.Sprintf(format, args...))
}

// configure checks the route without its store and fills in the defaults.
func (o *opened) configure() error {
	if o.Name == "" {
		return fmt.Errorf("%w: a route has no name", ErrSetup)
	}
	if o.Model.Similarity == nil {
		return o.wrong("it has no model")
	}
	o.spec = o.Model.Spec()
	if o.Live != nil {
		o.Table = o.Live.Schema()
	}
	if d, ok := o.Model.Similarity.(rerank.Deriver); ok && len(d.Fields()) > 0 {
		o.deriver = d
	}
	o.behavioural = o.Behavioural()
	if err := o.fillDefaults(); err != nil {
		return err
	}
	for _, check := range []func() error{o.checkWords, o.checkPlacement, o.checkTable, o.checkOwner, o.checkLimits, o.checkRanker} {
		if err := check(); err != nil {
			return err
		}
	}
	probes, err := o.trial()
	if err != nil {
		return o.wrong("strategy %q: %v", o.Strategy, err)
	}
	return o.checkProbes(probes)
}

func (o *opened) fillDefaults() error {
	if o.behavioural {
		o.Owner = cmp.Or(o.Owner, maxsim.Owner)
	}
	switch {
	case o.Placement != "":
	case o.Table != nil:
		o.Placement = PlacementTable
	case o.behavioural:
		o.Placement = PlacementDerived
	default:
		o.Placement = PlacementStored
	}
	o.MaxK = cmp.Or(o.MaxK, defaultMaxK)
	o.MaxDepth = cmp.Or(o.MaxDepth, defaultMaxDepth)
	o.MaxRounds = cmp.Or(o.MaxRounds, defaultMaxRounds)
	o.Depth = cmp.Or(o.Depth, min(defaultDepth, o.MaxDepth))
	o.AverageDepth = cmp.Or(o.AverageDepth, o.Depth)
	o.Weights = cmp.Or(o.Weights, rerank.UniformWeights)
	o.Failure = cmp.Or(o.Failure, FailOpen)
	if o.Strategy != "" {
		return nil
	}
	order := []rerank.Strategy{rerank.Distilled, rerank.Average, rerank.PerEmbedding, rerank.Scan}
	if o.spec.SingleInnerProduct {
		order = []rerank.Strategy{rerank.Average, rerank.Scan}
	}
	for _, s := range order {
		o.Strategy = s
		if s == rerank.Scan && o.Table == nil {
			continue
		}
		if _, err := o.trial(); err == nil {
			return nil
		}
	}
	return o.wrong("no strategy applies to its model and placement; give it a table or a companion (`likeness index`)")
}

// trial makes the probes of the route's strategy for some query.
func (o *opened) trial() ([]rerank.Probe, error) {
	if o.Strategy == rerank.Scan {
		return nil, nil
	}
	enc, err := o.trialQuery()
	if err != nil {
		return nil, err
	}
	probes, err := enc.Probes(o.plan(Request{Strategy: o.Strategy, Depth: o.Depth, AverageDepth: o.AverageDepth, Weights: o.Weights, Head: o.Head}))
	if err == nil {
		err = o.checkReach(probes)
	}
	return probes, err
}

// checkReach refuses probes that search the items' own vectors as if φ were of
// those alone. It returns ErrSetup.
func (o *opened) checkReach(probes []rerank.Probe) error {
	if !o.behavioural {
		return nil
	}
	for _, p := range probes {
		if p.Field == "" && p.Target == rerank.TargetScore {
			return o.wrong("its model has behavioural vectors, which collection %q does not hold; name a companion, which `likeness index` builds, or use strategy %q with a table",
				o.Collection, rerank.Scan)
		}
	}
	return nil
}

// ownerIn is the field with each row's item in a collection; "": its rows are the
// items. Behavioural vectors stand in the companion, and the collection's own rows
// are the items then.
func (o *opened) ownerIn(collection string) string {
	if o.behavioural && collection != o.Companion {
		return ""
	}
	return o.Owner
}

// trialQuery is some query.
func (o *opened) trialQuery() (rerank.Encoded, error) {
	q := rerank.Query{Vector: make([]float32, o.spec.QueryDim), HasUserID: o.spec.UserIDs}
	for i := range q.Vector {
		q.Vector[i] = 1
	}
	return o.Model.Encode(q)
}

// plan is a request's plan; derived strategies search the companion.
func (o *opened) plan(r Request) rerank.Plan {
	return rerank.Plan{
		Strategy: r.Strategy, Depth: r.Depth, AverageDepth: r.AverageDepth, Weights: r.Weights, Head: r.Head,
		Derived: o.derived(r.Strategy),
	}
}

// derived reports whether the probes of a strategy search the companion.
func (r *Route) derived(s rerank.Strategy) bool { return r.Companion != "" && s != rerank.Distilled }

func (o *opened) checkWords() error {
	switch {
	case !slices.Contains(rerank.Strategies(), o.Strategy):
		return o.wrong("strategy %q is none of %q", o.Strategy, rerank.Strategies())
	case o.Failure != FailOpen && o.Failure != FailClosed:
		return o.wrong("failure %q is neither %q nor %q", o.Failure, FailOpen, FailClosed)
	case o.ScanIfFaster && o.Table == nil:
		return o.wrong("scan_if_faster scans a table and it has none; build one with `likeness index`")
	case o.Strategy == rerank.Scan && o.Table == nil:
		return o.wrong("strategy %q reads a table and it has none; build one with `likeness index`", o.Strategy)
	case o.Strategy == rerank.Scan && len(o.Partitions) > 0:
		return o.wrong("strategy %q reads the whole table, not partitions %q of it; use another strategy", o.Strategy, o.Partitions)
	case o.Strategy != rerank.Scan && o.Store == nil:
		return o.wrong("strategy %q searches a store and it has none", o.Strategy)
	case o.Companion != "" && o.deriver == nil:
		return o.wrong("a model of kind %q derives no fields, so companion %q cannot be searched; remove it", o.spec.Kind, o.Companion)
	}
	return nil
}

func (o *opened) checkPlacement() error {
	o.featureFields = nil
	if o.Companion != "" {
		for _, f := range o.deriver.Fields() {
			if f.Feature {
				o.featureFields = append(o.featureFields, f.Name)
			}
		}
	}
	switch o.Placement {
	case PlacementTable:
		if o.Table == nil {
			return o.wrong("placement %q needs a table; build one with `likeness index`", o.Placement)
		}
	case PlacementDerived:
		if o.Companion == "" {
			return o.wrong("placement %q needs a companion; build one with `likeness index`", o.Placement)
		}
	case PlacementStored:
		if o.behavioural {
			return o.wrong("placement %q would score items by their own vector alone; use %q or %q", o.Placement, PlacementDerived, PlacementTable)
		}
	default:
		return o.wrong("placement %q is none of %q, %q, %q", o.Placement, PlacementTable, PlacementStored, PlacementDerived)
	}
	if _, fetches := o.Store.(adapters.Fetcher); o.Placement != PlacementTable && o.Store != nil && !fetches {
		return o.wrong("placement %q fetches vectors by id, which store %q cannot; use a table", o.Placement, o.StoreName)
	}
	return nil
}

// checkTable wants the table to be of this model and collection.
func (o *opened) checkTable() error {
	if o.Table == nil {
		return nil
	}
	meta := o.Table.Meta()
	switch {
	case meta.ModelVersion != o.Model.Version:
		return o.wrong("its table is of model version %q and its model is version %q; build the table again with `likeness index`", meta.ModelVersion, o.Model.Version)
	case meta.Collection != o.Collection:
		return o.wrong("its table is of collection %q and the route searches %q; build the table again with `likeness index`", meta.Collection, o.Collection)
	case meta.Features != o.spec.Features:
		return o.wrong("its table has feature rows of %d numbers and its model has %d; build the table again with `likeness index`", meta.Features, o.spec.Features)
	case meta.Format != rerank.FormatFloat32 && meta.Block != o.spec.Block:
		return o.wrong("its table has blocks of %d numbers and its model has %d; build the table again with `likeness index`", meta.Block, o.spec.Block)
	case o.Table.Grouped() && !o.spec.GroupedRows:
		return o.wrong("its table has items of several rows, which a model of kind %q cannot score", o.spec.Kind)
	}
	return nil
}

func (o *opened) checkOwner() error {
	switch {
	case o.spec.GroupedRows && o.Owner == "" && o.Store != nil:
		return o.wrong("a model of kind %q scores items by their rows; name the field with each row's item as owner", o.spec.Kind)
	case !o.spec.GroupedRows && o.Owner != "":
		return o.wrong("a model of kind %q scores rows one by one, so owner %q means nothing; remove it", o.spec.Kind, o.Owner)
	}
	return nil
}

func (o *opened) checkLimits() error {
	for _, l := range []struct {
		name  string
		value int
	}{{"max_k", o.MaxK}, {"max_depth", o.MaxDepth}, {"max_rounds", o.MaxRounds}, {"depth", o.Depth}, {"average_depth", o.AverageDepth}} {
		if l.value < 1 {
			return o.wrong("%s is %d, must be at least 1", l.name, l.value)
		}
	}
	switch {
	case max(o.Depth, o.AverageDepth) > o.MaxDepth:
		return o.wrong("depth %d and average_depth %d must not exceed max_depth %d", o.Depth, o.AverageDepth, o.MaxDepth)
	case o.Timeout < 0:
		return o.wrong("timeout is %v, must not be negative", o.Timeout)
	case o.MaxGap != nil && !(*o.MaxGap >= 0):
		return o.wrong("max_gap is %v, must not be negative", *o.MaxGap)
	}
	return nil
}

// agree checks the route against its store and narrows its limits.
func (o *opened) agree(ctx context.Context) error {
	d, ok := o.Store.(adapters.Describer)
	if !ok {
		o.tellPromise(nil)
		return nil
	}
	have, err := d.Describe(ctx, o.Collection)
	if err != nil {
		return fmt.Errorf("route %q: %w", o.Name, err)
	}
	if err := o.checkField(have); err != nil {
		return err
	}
	if o.target, err = o.ownName(ctx); err != nil {
		return fmt.Errorf("route %q: %w", o.Name, err)
	}
	o.narrow(have.Limits)
	settings := prefixed(nil, "collection", have.Settings)
	if err := o.checkCompanion(ctx, d, settings); err != nil {
		return err
	}
	probes, err := o.trial()
	if err != nil {
		return o.wrong("strategy %q: %v", o.Strategy, err)
	}
	o.tellPromise(settings)
	return o.checkProbes(probes)
}

// narrow lowers the route's limits to the store's.
func (o *opened) narrow(l adapters.Limits) {
	if l.MaxDepth > 0 {
		o.MaxDepth = min(o.MaxDepth, l.MaxDepth)
		o.Depth, o.AverageDepth = min(o.Depth, o.MaxDepth), min(o.AverageDepth, o.MaxDepth)
	}
	if l.MaxProbes > 0 && (o.maxProbes == 0 || l.MaxProbes < o.maxProbes) {
		o.maxProbes = l.MaxProbes
	}
}

// checkField wants the stored vectors to be what the model was fitted on.
func (o *opened) checkField(d adapters.Description) error {
	f, ok := findField(d.Fields, o.Vector)
	// A ranker's scores of support queries need not be vectors of the collection.
	o.elsewhere = ok && o.spec.Kind == rerank.KindRBE && f.Dim != o.spec.ItemDim && o.Placement != PlacementStored &&
		(o.Strategy == rerank.Scan || o.Companion != "")
	if !ok {
		return o.wrong("collection %q has no vector field %q; it has %q", o.Collection, o.Vector, fieldNames(d.Fields))
	}
	switch {
	case f.Metric == "":
		return o.wrong("field %q of collection %q has no index, or a metric from which no inner product follows", f.Name, o.Collection)
	case f.Metric != adapters.InnerProduct && f.Metric != adapters.Cosine && f.Metric != adapters.L2:
		return o.wrong("field %q of collection %q is compared by %s, from which no inner product follows", f.Name, o.Collection, f.Metric)
	case o.elsewhere:
		return nil
	case f.Dim != o.spec.ItemDim:
		return o.wrong("field %q of collection %q has %d dimensions and its model takes %d", f.Name, o.Collection, f.Dim, o.spec.ItemDim)
	case f.Metric == adapters.Cosine && !o.spec.Normalise:
		return o.wrong("its model was fitted on raw vectors and field %q of collection %q is compared by cosine, which loses their norms; "+
			"use an inner-product field, or a model fitted on unit vectors", f.Name, o.Collection)
	case f.Metric != adapters.Cosine && o.spec.Normalise && !o.UnitVectors:
		return o.wrong("its model was fitted on unit vectors and field %q of collection %q is compared by %s; "+
			"if its vectors have norm 1, say so with unit_vectors: true", f.Name, o.Collection, f.Metric)
	case f.Metric == adapters.L2 && !o.UnitVectors:
		return o.wrong("field %q of collection %q is compared by L2 distance, from which inner products follow only for vectors of norm 1; "+
			"if they are, say so with unit_vectors: true", f.Name, o.Collection)
	}
	return nil
}

// checkCompanion wants the companion to have the fields of the placement, and adds
// its settings.
func (o *opened) checkCompanion(ctx context.Context, d adapters.Describer, settings map[string]string) error {
	if o.Companion == "" {
		return nil
	}
	have, err := d.Describe(ctx, o.Companion)
	if err != nil {
		return fmt.Errorf("route %q: its companion, which `likeness index` builds: %w", o.Name, err)
	}
	o.narrow(have.Limits)
	prefixed(settings, "companion", have.Settings)
	o.companion = map[string]int{}
	for _, f := range have.Fields {
		if f.Metric != adapters.InnerProduct {
			return o.wrong("field %q of companion %q is compared by %s, must be %s; build it again with `likeness index`", f.Name, o.Companion, f.Metric, adapters.InnerProduct)
		}
		o.companion[f.Name] = f.Dim
	}
	for _, f := range o.deriver.Fields() {
		dim, ok := o.companion[f.Name]
		if f.Feature && o.Placement == PlacementDerived && !ok {
			return o.wrong("companion %q lacks the field %q of a feature row; it has %q; build it again with `likeness index`", o.Companion, f.Name, fieldNames(have.Fields))
		}
		if ok && dim != f.Dim {
			return o.wrong("field %q of companion %q has %d dimensions and the model derives %d; build it again with `likeness index`", f.Name, o.Companion, dim, f.Dim)
		}
	}
	return nil
}

// checkProbes wants the fields of the probes to exist, in the number that the
// store takes. It returns ErrSetup.
func (o *opened) checkProbes(probes []rerank.Probe) error {
	if o.maxProbes > 0 && len(probes) > o.maxProbes {
		return o.wrong("a query sends %d probes and the store takes %d; choose a strategy with fewer, or raise max_probes of the store", len(probes), o.maxProbes)
	}
	if err := o.checkReach(probes); err != nil {
		return err
	}
	for _, p := range probes {
		if (p.Field == "") != (probes[0].Field == "") || p.Field != "" && o.Companion == "" {
			return o.wrong("its model's probes search stored and derived vectors at once, or derived ones without a companion")
		}
		if p.Field == "" || o.companion == nil {
			continue
		}
		if dim, ok := o.companion[p.Field]; !ok || dim != len(p.Vector) {
			return o.wrong("companion %q has no field %q of %d dimensions, which the probes search; build it with `likeness index`", o.Companion, p.Field, len(p.Vector))
		}
	}
	return nil
}

// findField finds a field by name; "" is also the only one.
func findField(fields []adapters.VectorField, name string) (adapters.VectorField, bool) {
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
