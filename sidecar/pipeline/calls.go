package pipeline

import (
	"cmp"

	"github.com/likenessdb/likeness/rerank"
)

// The defaults of a route with a ranker, and the most rounds that one is asked in.
const (
	defaultCalls  = 100
	maxRankRounds = 16
)

// supportItems is the number of items whose scores make a query's vector; 0: it is
// not made of scores.
func (o *opened) supportItems() int {
	if sim, ok := o.Model.Similarity.(supported); ok {
		return len(sim.Supports())
	}
	return 0
}

// checkRanker checks what a route says of its ranker.
func (o *opened) checkRanker() error {
	if o.Ranker == nil && o.RankerName == "" { // a name alone: nothing was started that could be asked
		return nil
	}
	o.Calls, o.RankRounds = cmp.Or(o.Calls, defaultCalls), cmp.Or(o.RankRounds, 1)
	_, refines := o.Model.Similarity.(refined)
	switch {
	case o.Calls < 1:
		return o.wrong("calls is %d, must be at least 1", o.Calls)
	case o.Calls <= o.supportItems():
		return o.wrong("calls is %d and its model %q has %d support items, which ranker %q scores first; raise calls above that, or fit a model with fewer supports",
			o.Calls, o.Model.Name, o.supportItems(), o.RankerName)
	case o.RankRounds < 1 || o.RankRounds > maxRankRounds:
		return o.wrong("rank_rounds is %d, must be between 1 and %d", o.RankRounds, maxRankRounds)
	case o.RankRounds > 1 && !refines:
		return o.wrong("rank_rounds is %d, and only the query of a relevance-based model can be fitted to a ranker's scores; a model of kind %q takes 1", o.RankRounds, o.spec.Kind)
	case o.MaxGap != nil:
		return o.wrong("max_gap bounds the similarity, and its answers are in the order of ranker %q, of which nothing is proved; remove one of them", o.RankerName)
	}
	return nil
}

// resolveRanking fills in what a ranker may be asked for a request, and refuses what
// only a ranker could read. It returns a *FieldError.
func (o *opened) resolveRanking(r *Request) error {
	if o.Ranker == nil {
		return o.checkUnranked(*r)
	}
	calls, supports := o.Calls, o.supportItems()
	made := supports > 0 && len(r.Query.Vector) == 0
	_, refines := o.Model.Similarity.(refined)
	switch {
	case len(r.Query.Vector) == 0 && !made:
		return o.noVector()
	case r.Calls == nil:
		r.Calls = &calls
	case *r.Calls < 0 || *r.Calls > calls:
		return badField("calls", "%d is not between 0 and %d, calls of the route", *r.Calls, calls)
	}
	switch {
	case made && *r.Calls > 0 && *r.Calls < supports:
		return badField("calls", "%d is less than the %d support items that make the query's vector; give as many at least, 0 for them alone, or the vector", *r.Calls, supports)
	case r.Rounds < 0 || r.Rounds > maxRankRounds:
		return badField("rounds", "%d is not between 1 and %d; 0 is the route's", r.Rounds, maxRankRounds)
	case r.Rounds > 1 && !refines:
		return badField("rounds", "%d, and only the query of a relevance-based model can be fitted to a ranker's scores; leave it out", r.Rounds)
	case r.MaxGap != nil && *r.Calls > 0:
		return badField("max_gap", "it bounds the similarity, and the answer is in the order of ranker %q, of which nothing is proved; leave it out, or give calls 0", o.RankerName)
	}
	r.Rounds = cmp.Or(r.Rounds, o.RankRounds)
	return nil
}

// checkUnranked refuses what a route without a ranker cannot heed.
func (o *opened) checkUnranked(r Request) error {
	switch {
	case r.Calls != nil:
		return badField("calls", "route %q has no ranker that could be called; leave it out", o.Name)
	case r.Rounds != 0:
		return badField("rounds", "route %q has no ranker that could be called; leave it out", o.Name)
	}
	return o.checkQuery(r.Query)
}

// checkQuery wants a vector, and nothing that only a ranker reads where there is none.
func (o *opened) checkQuery(q rerank.Query) error {
	const remedy = "route %q has no ranker that reads it; leave it out"
	switch {
	case o.Ranker == nil && q.Text != "":
		return badField("query.text", remedy, o.Name)
	case o.Ranker == nil && len(q.Context) > 0:
		return badField("query.context", remedy, o.Name)
	case len(q.Vector) == 0:
		return o.noVector()
	}
	return nil
}

func (o *opened) noVector() error {
	return badField("query.vector", "it is empty; give the %d elements that the model of route %q takes", o.spec.QueryDim, o.Name)
}
