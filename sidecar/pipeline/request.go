package pipeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

func badField(field, format string, args ...any) error {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// resolve fills a request in from the route and checks every field that needs
// no model. It returns a *FieldError.
func (o *opened) resolve(r Request) (Request, error) {
	if r.Depth < 0 || r.AverageDepth < 0 {
		return r, badField("depth", "%d and average_depth %d must not be negative; 0 is the route's", r.Depth, r.AverageDepth)
	}
	if r.MaxGap == nil {
		r.MaxGap = o.MaxGap
	}
	if err := o.partition(&r); err != nil {
		return r, err
	}
	if err := o.resolveRanking(&r); err != nil {
		return r, err
	}
	r.Strategy = cmp.Or(r.Strategy, o.Strategy)
	r.Weights = cmp.Or(r.Weights, o.Weights)
	r.Head = cmp.Or(r.Head, o.Head)
	depth, averageDepth := o.depths(r)
	r.Depth = cmp.Or(r.Depth, depth)
	r.AverageDepth = cmp.Or(r.AverageDepth, averageDepth)
	if err := o.checkRequest(r); err != nil {
		return r, err
	}
	return r, o.checkStore(r)
}

// partition fills in the partitions, and refuses those that the route is not of.
func (o *opened) partition(r *Request) error {
	if p := o.foreign(r.Partitions); p != "" {
		return badField("partitions", "%q is none of %q, to which route %q is narrowed", p, o.Partitions, o.Name)
	}
	if len(r.Partitions) == 0 {
		r.Partitions = o.Partitions
	}
	return nil
}

func (o *opened) checkRequest(r Request) error {
	switch {
	case r.MaxRank < 0 || r.MaxRank > o.MaxK:
		return badField("max_rank", "%d is not between 0 and %d, max_k of the route", r.MaxRank, o.MaxK)
	case r.K < 1 || r.K > o.MaxK:
		return badField("k", "%d is not between 1 and %d, max_k of the route", r.K, o.MaxK)
	case !slices.Contains(rerank.Strategies(), r.Strategy):
		return badField("strategy", "%q is none of %q", r.Strategy, rerank.Strategies())
	case r.Weights != rerank.UniformWeights && r.Weights != rerank.GateWeights:
		return badField("weights", "%q is neither %q nor %q", r.Weights, rerank.UniformWeights, rerank.GateWeights)
	case r.Depth > o.MaxDepth:
		return badField("depth", "%d is more than %d, max_depth of the route or its store", r.Depth, o.MaxDepth)
	case r.AverageDepth > o.MaxDepth:
		return badField("average_depth", "%d is more than %d, max_depth of the route or its store", r.AverageDepth, o.MaxDepth)
	case r.Strategy != rerank.Scan && r.K > o.MaxDepth:
		return badField("k", "%d is more than the %d rows that one first-stage search may return; ask for fewer, or use strategy scan", r.K, o.MaxDepth)
	case r.MaxGap != nil && (!(*r.MaxGap >= 0) || math.IsInf(float64(*r.MaxGap), 1)):
		return badField("max_gap", "%v must be finite and not negative", *r.MaxGap)
	}
	return nil
}

// checkStore checks that the route can do what the request asks of its store.
func (o *opened) checkStore(r Request) error {
	_, fetches := o.Store.(adapters.Fetcher)
	scan := r.Strategy == rerank.Scan
	switch {
	case scan && o.Table == nil:
		return badField("strategy", "scan reads a resident table and route %q has none; build one with `likeness index`", o.Name)
	case !scan && o.Store == nil:
		return badField("strategy", "%s searches a store and route %q has none; use scan", r.Strategy, o.Name)
	case scan && len(o.Partitions) > 0:
		return badField("strategy", "scan reads the whole table and route %q is narrowed to partitions %q; use another strategy", o.Name, o.Partitions)
	case scan && len(r.Partitions) > 0:
		return badField("partitions", "strategy scan reads the whole table, not partitions %q of it; use another strategy", r.Partitions)
	case o.derived(r.Strategy) && !slices.Equal(r.Partitions, o.Partitions):
		return badField("partitions", "%s searches companion %q, which does not have the partitions %q of the collection; use another strategy", r.Strategy, o.Companion, r.Partitions)
	case r.Payload && !fetches:
		return badField("payload", "store %q cannot fetch rows by id", o.StoreName)
	case scan && r.Filter != "" && !o.filtersTable():
		return badField("filter", "store %q cannot list the ids that a filter lets through, which strategy scan needs; use another strategy", o.StoreName)
	}
	return nil
}

// filtersTable reports whether the store can name the items behind a filter.
func (o *opened) filtersTable() bool {
	if o.ownerIn(o.Collection) != "" {
		_, ok := o.Store.(adapters.Scanner)
		return ok
	}
	_, ok := o.Store.(adapters.Matcher)
	return ok
}

// needsStore reports whether the request makes any call.
func needsStore(r Request) bool {
	return r.Strategy != rerank.Scan || r.Filter != "" || r.Payload
}

// lastRank returns the last rank that the request's lists have to serve.
func (r Request) lastRank() int { return max(r.K, r.MaxRank) }

// deepen gives a single list at least as many rows as the last rank, and one more where
// the list is ordered by φ itself: there the extra row shows whether the last rank is tied.
// Several lists are as deep as asked: together they mostly hold enough items.
func (o *opened) deepen(r Request) Request {
	least := r.lastRank()
	switch {
	case o.spec.SingleInnerProduct:
		least++
	case r.Strategy == rerank.PerEmbedding || r.Strategy == rerank.Combined:
		return r
	}
	r.Depth = min(max(r.Depth, least), o.MaxDepth)
	r.AverageDepth = min(max(r.AverageDepth, least), o.MaxDepth)
	return r
}
