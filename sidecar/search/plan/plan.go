// Package plan is the first step of a search: a request becomes a plan, with the
// strategy, the encoded query and the probes of each round.
package plan

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
)

// Plan says how one search is run. Probes and depths belong to the current round.
type Plan struct {
	// Request has every field filled in. K is the number of candidates to find.
	Request Request
	// AnswerRows is the number of rows that the client asked for. It is less than Request.K if a
	// ranker, or another page of the same query, needs more candidates.
	AnswerRows int
	Encoded    rerank.Encoded
	Can        rerank.EncodedAbilities
	// Reason says why the strategy was chosen, if the route leaves the choice to measured costs.
	// For a request that explains, it says why the search is not Rewritten.
	Reason string
	// Encoding is how long it took to encode the query and to make the probes.
	Encoding time.Duration

	Probes              []rerank.Probe // none for a scan
	Depth, AverageDepth int
	// Rewritten: the single probe searches the collection by φ itself, and its list with its scores
	// is the answer. Nothing is scored again, and no vector is read.
	Rewritten bool
	// PayloadApart: the payload is read by id afterwards, not with the rewritten search.
	PayloadApart bool
}

// New encodes the query of a resolved request and chooses its strategy. The caller
// calls Start before the first round. It returns rerank.ErrQuery, or a *failure.Error
// if time ran out while a scan was measured.
func New(ctx context.Context, v route.View, r Request, strategyAsked bool) (*Plan, error) {
	p := &Plan{Request: r, AnswerRows: r.K}
	began := time.Now()
	var err error
	if p.Encoded, err = v.Model.Similarity.Encode(r.Query); err != nil {
		return nil, err
	}
	p.Can = rerank.EncodedAbilitiesOf(p.Encoded)
	p.Encoding = time.Since(began)
	if strategyAsked || !canChoose(v, r) {
		return p, nil
	}
	if err := v.MeasureScan(ctx, p.Encoded); err != nil {
		return nil, failure.TimedOut(ctx, err)
	}
	p.Request.Strategy, p.Reason = v.Costs.Choose(v.Table.Len(), r.Strategy)
	return p, nil
}

// canChoose reports whether measured costs may choose between a scan of the table
// and the strategy of the request.
func canChoose(v route.View, r Request) bool {
	return v.ScanIfFaster && r.Strategy != rerank.Scan && v.Table != nil && v.Table.Len() > 0 &&
		len(r.Partitions) == 0 && (r.Filter == "" || v.FiltersTable())
}

// Widen makes the search find as many candidates as the query's pages may show and as a ranker may
// score, up to what the first stage can find. A scan is exact for every K, so it needs no widening
// for pages.
func (p *Plan) Widen(v route.View, forRanker int) {
	k := p.AnswerRows
	if p.Request.Strategy != rerank.Scan {
		k = max(k, p.AtMost(v, p.Request.MaxRank))
	}
	p.Request.K = max(k, p.AtMost(v, forRanker))
}

// AtMost returns candidates, lowered to what the first stage can find.
func (p *Plan) AtMost(v route.View, candidates int) int {
	if p.Request.Strategy == rerank.Scan {
		return candidates
	}
	return min(candidates, v.MaxDepth)
}

// Refined returns the plan of another search, for the given number of candidates and with another
// encoded query.
func (p *Plan) Refined(q rerank.Encoded, candidates int) *Plan {
	r := *p
	r.Encoded, r.Can, r.Encoding = q, rerank.EncodedAbilitiesOf(q), 0
	r.Request.K = candidates
	return &r
}

// Start makes the probes of the first round. It returns rerank.ErrStrategy, or a *FieldError if the
// route lacks the fields that the probes search.
func (p *Plan) Start(v route.View) error {
	p.Depth, p.AverageDepth = firstDepths(v, p.Request)
	if err := p.makeProbes(v); err != nil {
		return err
	}
	if p.Rewritten = p.canRewrite(v); p.Rewritten {
		p.Depth = rewrittenDepth(v, p.Request)
		p.Probes[0].Depth = p.Depth
	}
	if v.Field.MaxSim && v.Vectors == "" && !p.Rewritten {
		return BadField("query", "field %q has several vectors a row, which are not read: scores are not explained, and the query must not be zero", v.Field.Name)
	}
	if p.Request.Explain && p.Reason == "" {
		p.Reason = p.whyNotRewritten(v)
	}
	return nil
}

// whyNotRewritten returns why a request that explains cannot have the list of a probe as its
// answer. It returns "" if the route's operator named another placement.
func (p *Plan) whyNotRewritten(v route.View) string {
	switch {
	case v.WhyNotRewritten != "":
		return "not rewritten: " + v.WhyNotRewritten
	case v.Placement == route.PlacementRewrite:
		return "not rewritten: explaining scores takes the vectors of the items"
	}
	return ""
}

// canRewrite reports whether the list of the only probe can be the answer. It cannot if
// scores are to be explained, which takes the vectors of the items, or if the probe's
// vector is zero, which has no direction to search in, or too large for the field. Such a
// request is answered as on a route of PlacementStored.
func (p *Plan) canRewrite(v route.View) bool {
	if v.Placement != route.PlacementRewrite || p.Request.Explain || p.Can.PullBack == nil || len(p.Probes) != 1 {
		return false
	}
	probe := p.Probes[0]
	norm := rerank.Norm(probe.Vector)
	return probe.Target == rerank.TargetScore && probe.Field == "" && norm > 0 && !math.IsInf(norm, 0) && v.Field.CanCompare(probe.Vector)
}

// rewrittenDepth returns how many rows a rewritten search asks for: the rows of the answer. An
// exhaustive search asks for one more, to see whether it ties with the last rank.
func rewrittenDepth(v route.View, r Request) int {
	rows := r.LastRank()
	if v.ExactSearch {
		rows++
	}
	return min(max(r.Depth, rows), v.MaxDepth)
}

// Deepen makes the probes of the next round, which are twice as deep.
func (p *Plan) Deepen(v route.View) error {
	p.Depth, p.AverageDepth = min(2*p.Depth, v.MaxDepth), min(2*p.AverageDepth, v.MaxDepth)
	return p.makeProbes(v)
}

// firstDepths makes a single list at least as deep as the last rank, and one row deeper if its
// inner product is φ, to see whether that row ties with the last rank. Several lists stay as deep
// as asked, because together they mostly hold enough items.
func firstDepths(v route.View, r Request) (depth, averageDepth int) {
	least := r.LastRank()
	switch {
	case v.Spec.SingleInnerProduct:
		least++
	case r.Strategy == rerank.PerEmbedding || r.Strategy == rerank.Combined:
		return r.Depth, r.AverageDepth
	}
	return min(max(r.Depth, least), v.MaxDepth), min(max(r.AverageDepth, least), v.MaxDepth)
}

func (p *Plan) makeProbes(v route.View) (err error) {
	r := p.Request
	if r.Strategy == rerank.Scan {
		return nil
	}
	began := time.Now()
	p.Probes, err = p.Encoded.Probes(rerank.Plan{
		Strategy: r.Strategy, Depth: p.Depth, AverageDepth: p.AverageDepth, Weights: r.Weights, Head: r.Head,
		Derived: v.SearchesCompanion(r.Strategy),
	})
	p.Encoding += time.Since(began)
	switch {
	case err != nil:
		return err
	case len(p.Probes) == 0:
		return fmt.Errorf("%w: %s makes no probes for this query", rerank.ErrStrategy, r.Strategy)
	}
	if err := v.CheckProbes(p.Probes); err != nil {
		return BadField("strategy", "%v", err)
	}
	return nil
}

// Rule returns how this round's candidates are found, in the form that calibrations record.
func (p *Plan) Rule(v route.View) rerank.Rule {
	if p.Request.Strategy == rerank.Scan {
		return rerank.Rule{Strategy: rerank.Scan, Weights: v.Weights, Head: v.Head}
	}
	r := p.Request.Rule()
	r.Depth, r.AverageDepth = p.Depth, p.AverageDepth
	return r
}

// SearchesCompanion reports whether the probes search the route's companion.
func (p *Plan) SearchesCompanion() bool { return len(p.Probes) > 0 && p.Probes[0].Field != "" }

// Collection returns the collection that the probes search.
func (p *Plan) Collection(v route.View) string {
	if p.SearchesCompanion() {
		return v.Companion
	}
	return v.Collection
}

// TargetProbe returns the probe whose inner product is φ itself, or nil.
func (p *Plan) TargetProbe() *rerank.Probe {
	for i := range p.Probes {
		if p.Probes[i].Target == rerank.TargetScore {
			return &p.Probes[i]
		}
	}
	return nil
}

// ReadsDerived reports whether the answer depends on the table or the companion, which may lack
// recent writes to the collection.
func (p *Plan) ReadsDerived(v route.View) bool {
	return !v.Placement.ScoresStored() || p.Request.Strategy == rerank.Scan || p.SearchesCompanion()
}
