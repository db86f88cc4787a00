package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
)

// ErrRequest: a field of the request is out of range; the error is a *FieldError.
var ErrRequest = errors.New("request not valid")

// FieldError names a field of a request, its value, its limit and the remedy.
// errors.Is(err, ErrRequest) holds.
type FieldError struct {
	Field, Problem string
}

func (e *FieldError) Error() string { return ErrRequest.Error() + ": " + e.Field + ": " + e.Problem }

// Unwrap makes errors.Is(err, ErrRequest) true.
func (e *FieldError) Unwrap() error { return ErrRequest }

// BadField returns a *FieldError.
func BadField(field, format string, args ...any) error {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Request is one search. Fields that are left empty get the route's defaults.
type Request struct {
	Route string
	// Collection, if set, is searched instead of the route's collection. It is the collection that
	// an alias in the route stands for.
	Collection string
	Query      rerank.Query
	// History holds items whose vectors' weighted mean is the query's vector, at most MaxHistory.
	// They are excluded from the answer, unless KeepHistory is set.
	History     []WeightedID
	KeepHistory bool
	K           int
	// Filter is passed to the store in its own language.
	Filter string
	// Exclude holds the ids of items that the answer must not have, at most MaxExclude.
	Exclude []rerank.ID
	// Partitions to search; if empty, the route's. A route that is narrowed to some partitions
	// takes only those. The first stage must search the collection itself, because tables and
	// companions do not have its partitions.
	Partitions   []string
	Strategy     rerank.Strategy
	Depth        int
	AverageDepth int
	Weights      rerank.Weights
	Head         string
	// MaxGap asks for deeper rounds until the gap is at most this.
	MaxGap *float32
	// RequireExact asks for an exact answer or an error: MaxGap is then 0, and the store's own
	// order does not stand in.
	RequireExact bool
	// Explain asks for the terms of each returned score.
	Explain bool
	// Payload asks for the payload of the returned rows: all of it, or PayloadFields.
	Payload       bool
	PayloadFields []string
	// NoFallback makes a fail_open route return failure.ErrDegraded in place of an answer in the store's own order,
	// because the caller has that already.
	NoFallback bool
	// Calls is the number of items that the route's ranker may score, Rounds the number
	// of rounds.
	Calls  *int
	Rounds int
	// Mix is the share of the ranker's first round that is taken from the store's own order.
	Mix *float64
	// StoredVector is the query's vector by the model that embedded the collection, which Mix searches with. If it
	// is empty, the query's own vector serves.
	StoredVector []float32
	// Confirms: the caller asks the store itself for the rows of the answer, so the answer may
	// contain rows that are gone.
	Confirms bool
	// Versions asks for the versions of the hits, as the store showed them in this search.
	Versions bool
	// MaxRank is the last rank that any page of the query may show; 0 stands for K. Requests that
	// differ only in K, up to MaxRank, are answered from the same first-stage lists, so that pages
	// neither repeat nor skip an item.
	MaxRank int
	// Shown: a person will see the answer, so a route that keeps events keeps an impression of it. User names the
	// person, if known.
	Shown bool
	User  string
	// Tried: the route's experiment may answer the request, as it may a Shown one.
	Tried bool
	// AnswerBy is the time after which the answer is of no use to the caller. An experiment waits for its candidate
	// no longer than that. The zero time stands for the context's deadline.
	AnswerBy time.Time
}

// WeightedID is an item of a history. The weight is finite and not negative.
type WeightedID struct {
	ID     rerank.ID
	Weight float64
}

const (
	// MaxExclude is the most ids that a request may exclude, not counting the items of its
	// history.
	MaxExclude = 10_000
	// MaxHistory is the most items in a history.
	MaxHistory = 1000
)

// LastRank returns the last rank that the request's lists have to reach.
func (r Request) LastRank() int { return max(r.K, r.MaxRank) }

// IsUnrestricted reports whether the request searches the whole collection.
func (r Request) IsUnrestricted() bool {
	return !r.HidesRows() && len(r.Exclude) == 0 && (len(r.History) == 0 || r.KeepHistory)
}

// HidesRows reports whether the search may leave out some rows of an item and find others, as a filter or
// partitions do. Exclude does not, because it leaves out all rows of an item.
func (r Request) HidesRows() bool { return r.Filter != "" || len(r.Partitions) > 0 }

// NeedsStore reports whether answering the request calls the store.
func (r Request) NeedsStore() bool {
	return r.Strategy != rerank.Scan || r.Filter != "" || r.Payload
}

// Rule returns how the request's candidates are found, in the form that calibrations record.
func (r Request) Rule() rerank.Rule {
	return rerank.Rule{Strategy: r.Strategy, Depth: r.Depth, AverageDepth: r.AverageDepth, Weights: r.Weights, Head: r.Head}
}

// Resolve fills in the route's defaults and checks every field that can be checked
// without encoding the query. It returns a *FieldError.
func Resolve(c *route.Checked, r Request) (Request, error) {
	if r.Depth < 0 || r.AverageDepth < 0 {
		return r, BadField("depth", "%d and average_depth %d must not be negative; 0 is the route's", r.Depth, r.AverageDepth)
	}
	if r.MaxGap == nil {
		r.MaxGap = c.MaxGap
	}
	if r.RequireExact {
		r.MaxGap, r.NoFallback = new(float32), true
	}
	if p := c.ForeignPartition(r.Partitions); p != "" {
		return r, BadField("partitions", "%q is none of %q, to which route %q is narrowed", p, c.Partitions, c.Name)
	}
	if len(r.Partitions) == 0 {
		r.Partitions = c.Partitions
	}
	if err := resolveRanking(c, &r); err != nil {
		return r, err
	}
	r.Strategy = cmp.Or(r.Strategy, c.Strategy)
	r.Weights = cmp.Or(r.Weights, c.Weights)
	r.Head = cmp.Or(r.Head, c.Head)
	depth, averageDepth := defaultDepths(c, r)
	r.Depth = cmp.Or(r.Depth, depth)
	r.AverageDepth = cmp.Or(r.AverageDepth, averageDepth)
	if err := checkLimits(c, r); err != nil {
		return r, err
	}
	if err := resolveExcluded(c, &r); err != nil {
		return r, err
	}
	return r, checkStore(c, r)
}

// resolveExcluded spells the excluded ids as the store does, and adds the ids that the filter
// excludes. It returns a *FieldError, adapters.ErrID or adapters.ErrFilter.
func resolveExcluded(c *route.Checked, r *Request) error {
	if len(r.Exclude) > MaxExclude {
		return BadField("exclude_ids", "%d ids, at most %d; send the most recent ones", len(r.Exclude), MaxExclude)
	}
	if !r.KeepHistory {
		r.Exclude = slices.Clone(r.Exclude)
		for _, it := range r.History {
			r.Exclude = append(r.Exclude, it.ID)
		}
	}
	for i, id := range r.Exclude {
		if _, isText := id.Text(); id.IsZero() || c.TextIDs && !isText {
			return BadField("exclude_ids", "exclude_ids[%d], %q, is no id of collection %q", i, id, c.Collection)
		}
	}
	if c.StoreCan.Exclude == nil || c.OwnerIn(c.Collection) != "" { // a filter cannot exclude an item of several rows by its id
		return nil
	}
	var err error
	r.Exclude, r.Filter, err = c.StoreCan.Exclude.Excluded(r.Exclude, r.Filter)
	return err
}

// defaultDepths returns the depths for a request that names none: the calibrated depths if the
// strategy was calibrated, as many rows as the answer has if the route is rewritten, otherwise the
// route's depths. If the request's pages show more ranks than were calibrated, it returns the
// greater depths.
func defaultDepths(c *route.Checked, r Request) (depth, averageDepth int) {
	depth, averageDepth = c.Depth, c.AverageDepth
	if c.Placement == route.PlacementRewrite { // its lists are answers, not candidates
		depth = min(r.LastRank(), c.MaxDepth)
	}
	if c.Promise == nil {
		return depth, averageDepth
	}
	calibration, _ := c.Promise.Calibration()
	switch {
	case calibration == nil || !r.Rule().Same(calibration.Rule):
	case r.LastRank() > calibration.K:
		depth, averageDepth = max(depth, calibration.Rule.Depth), max(averageDepth, calibration.Rule.AverageDepth)
	default:
		depth = calibration.Rule.Depth
		if r.Strategy == rerank.Combined {
			averageDepth = calibration.Rule.AverageDepth
		}
	}
	return depth, averageDepth
}

func checkLimits(c *route.Checked, r Request) error {
	switch {
	case r.MaxRank < 0 || r.MaxRank > c.MaxK:
		return BadField("max_rank", "%d is not between 0 and %d, max_k of the route", r.MaxRank, c.MaxK)
	case r.K < 1 || r.K > c.MaxK:
		return BadField("k", "%d is not between 1 and %d, max_k of the route", r.K, c.MaxK)
	case !slices.Contains(rerank.Strategies(), r.Strategy):
		return BadField("strategy", "%q is none of %q", r.Strategy, rerank.Strategies())
	case r.Weights != rerank.UniformWeights && r.Weights != rerank.GateWeights:
		return BadField("weights", "%q is neither %q nor %q", r.Weights, rerank.UniformWeights, rerank.GateWeights)
	case r.Depth > c.MaxDepth:
		return BadField("depth", "%d is more than %d, max_depth of the route or its store", r.Depth, c.MaxDepth)
	case r.AverageDepth > c.MaxDepth:
		return BadField("average_depth", "%d is more than %d, max_depth of the route or its store", r.AverageDepth, c.MaxDepth)
	case r.Strategy != rerank.Scan && r.K > c.MaxDepth:
		return BadField("k", "%d is more than the %d rows that one first-stage search may return; ask for fewer, or use strategy scan", r.K, c.MaxDepth)
	case r.MaxGap != nil && (!(*r.MaxGap >= 0) || math.IsInf(float64(*r.MaxGap), 1)):
		return BadField("max_gap", "%v must be finite and not negative", *r.MaxGap)
	}
	return nil
}

// checkStore checks that the route's store can do what the request asks for.
func checkStore(c *route.Checked, r Request) error {
	scan := r.Strategy == rerank.Scan
	switch {
	case scan && c.Table == nil:
		return BadField("strategy", "scan reads a resident table and route %q has none; build one with `likeness index`", c.Name)
	case !scan && c.Store == nil:
		return BadField("strategy", "%s searches a store and route %q has none; use scan", r.Strategy, c.Name)
	case scan && len(c.Partitions) > 0:
		return BadField("strategy", "scan reads the whole table and route %q is narrowed to partitions %q; use another strategy", c.Name, c.Partitions)
	case scan && len(r.Partitions) > 0:
		return BadField("partitions", "strategy scan reads the whole table, not partitions %q of it; use another strategy", r.Partitions)
	case c.MissesPartitions(r.Strategy, r.Partitions):
		return BadField("partitions", "%s searches companion %q, which does not have the partitions %q of the collection; use another strategy", r.Strategy, c.Companion, r.Partitions)
	case r.Payload && c.StoreCan.Fetch == nil:
		return BadField("payload", "store %q cannot fetch rows by id", c.StoreName)
	case scan && r.Filter != "" && !c.FiltersTable():
		return BadField("filter", "store %q cannot list the ids that a filter lets through, which strategy scan needs; use another strategy", c.StoreName)
	}
	return nil
}

// resolveRanking fills in how much the ranker may be asked, and refuses fields that only a ranker
// could read. It returns a *FieldError.
func resolveRanking(c *route.Checked, r *Request) error {
	if c.Ranker == nil {
		return checkUnranked(c, *r)
	}
	calls, supports := c.Calls, c.SupportItems()
	fromSupports := supports > 0 && len(r.Query.Vector) == 0 // the ranker's scores make the query's vector
	switch {
	case len(r.Query.Vector) == 0 && !fromSupports:
		return noVector(c)
	case r.Calls == nil:
		r.Calls = &calls
	case *r.Calls < 0 || *r.Calls > calls:
		return BadField("calls", "%d is not between 0 and %d, calls of the route", *r.Calls, calls)
	}
	switch {
	case fromSupports && *r.Calls > 0 && *r.Calls < supports:
		return BadField("calls", "%d is less than the %d support items that make the query's vector; give as many at least, 0 for them alone, or the vector", *r.Calls, supports)
	case r.Rounds < 0 || r.Rounds > route.MaxRankRounds:
		return BadField("rounds", "%d is not between 1 and %d; 0 is the route's", r.Rounds, route.MaxRankRounds)
	case r.Rounds > 1 && c.ModelCan.Refine == nil:
		return BadField("rounds", "%d, and only a similarity that is one inner product with one vector an item can be fitted to a ranker's scores between rounds; leave it out", r.Rounds)
	case r.RequireExact && *r.Calls > 0:
		return BadField("require_exact", "the answer is in the order of ranker %q, of which nothing is proved; leave it out, or give calls 0", c.RankerName)
	case r.MaxGap != nil && *r.Calls > 0:
		return BadField("max_gap", "it bounds the similarity, and the answer is in the order of ranker %q, of which nothing is proved; leave it out, or give calls 0", c.RankerName)
	}
	r.Rounds = cmp.Or(r.Rounds, c.RankRounds)
	return resolveMix(c, r)
}

// resolveMix fills in which share of the ranker's first round comes from the store's order, and checks
// that the store can compare the query with its vectors. It returns a *FieldError.
func resolveMix(c *route.Checked, r *Request) error {
	if r.Mix == nil {
		r.Mix = &c.Mix
	}
	dim := len(r.StoredVector)
	switch mix := *r.Mix; {
	case !(mix >= 0 && mix <= 1):
		return BadField("mix", "%g is not between 0 and 1", mix)
	case rerank.CheckFinite("stored_vector", r.StoredVector) != nil:
		return BadField("stored_vector", "it has a number that is not finite")
	case c.QueryFeatures() > 0 && len(r.Query.Vector) == 0 && dim != c.QueryFeatures():
		return BadField("stored_vector", "it has %d elements, and the model of route %q reads %d of the query's own vector beside the ranker's scores; give the query as the stored vectors were made, or its text if the route has an embedder",
			dim, c.Name, c.QueryFeatures())
	case mix == 0 || *r.Calls == 0:
		return nil
	case c.Store == nil:
		return BadField("mix", "route %q has no store whose order could be mixed in; leave it out", c.Name)
	case dim == 0 && (c.SupportItems() > 0 || c.Spec.QueryDim != c.Spec.ItemDim):
		return BadField("stored_vector", "mix is %g, and the store cannot compare the vectors that the model of route %q takes; give the query as the stored vectors were made, or its text if the route has an embedder, or mix 0", mix, c.Name)
	case dim > 0 && c.Field.Dim > 0 && dim != c.Field.Dim:
		return BadField("stored_vector", "it has %d elements, and the stored vectors have %d", dim, c.Field.Dim)
	}
	return nil
}

// checkUnranked refuses ranker settings in a request to a route without a ranker.
func checkUnranked(c *route.Checked, r Request) error {
	switch {
	case r.Calls != nil:
		return BadField("calls", "route %q has no ranker that could be called; leave it out", c.Name)
	case r.Rounds != 0:
		return BadField("rounds", "route %q has no ranker that could be called; leave it out", c.Name)
	case len(r.StoredVector) > 0:
		return BadField("stored_vector", "route %q has no ranker whose calls could be mixed; leave it out", c.Name)
	case r.Mix != nil:
		return BadField("mix", "route %q has no ranker whose calls could be mixed; leave it out", c.Name)
	}
	return CheckQuery(c, r.Query)
}

// CheckQuery requires a vector, and refuses fields that only a ranker reads if the
// route has no ranker. It returns a *FieldError.
func CheckQuery(c *route.Checked, q rerank.Query) error {
	const remedy = "route %q has no ranker that reads it; leave it out"
	switch {
	case c.Ranker == nil && c.Embedder != nil && q.Text != "":
		return BadField("query.text", "the query has a vector too, and route %q has no ranker that reads the text; leave one of them out", c.Name)
	case c.Ranker == nil && q.Text != "":
		return BadField("query.text", "route %q has no embedder that makes a vector of it, and no ranker that reads it; name one in the configuration, or leave it out", c.Name)
	case c.Ranker == nil && len(q.Context) > 0:
		return BadField("query.context", remedy, c.Name)
	case len(q.Vector) == 0 && q.Vectors.Rows == 0:
		return noVector(c)
	}
	return nil
}

func noVector(c *route.Checked) error {
	if c.Embedder != nil && c.SupportItems() == 0 {
		return BadField("query", "it has neither text nor a vector; give text, or the %d elements that the model of route %q takes", c.Spec.QueryDim, c.Name)
	}
	return BadField("query.vector", "it is empty; give the %d elements that the model of route %q takes", c.Spec.QueryDim, c.Name)
}

// CheckHistory returns a *FieldError for a history that makes no query of a route.
func CheckHistory(c *route.Checked, items []WeightedID) error {
	const field = "query.item_ids"
	total := 0.0
	for i, it := range items {
		if it.ID.IsZero() || !(it.Weight >= 0) || math.IsInf(it.Weight, 0) {
			return BadField(field, "item_ids[%d] is %q with weight %v; it is an id with a weight of 0 at least", i, it.ID, it.Weight)
		}
		total += it.Weight
	}
	switch {
	case len(items) > MaxHistory:
		return BadField(field, "%d items, at most %d; send the most recent ones", len(items), MaxHistory)
	case total == 0:
		return BadField(field, "all weights are 0; give one above 0, or none")
	case c.Spec.QueryDim != c.Spec.ItemDim:
		return BadField(field, "queries of route %q have %d elements and its items %d; give a vector", c.Name, c.Spec.QueryDim, c.Spec.ItemDim)
	case c.StoreCan.Fetch == nil:
		return BadField(field, "route %q has no store that fetches rows by id; give a vector", c.Name)
	}
	return nil
}
