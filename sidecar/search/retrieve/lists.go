// Package retrieve is the second step of a search: it reads what the other steps
// need from the store, the table and the companion. Lists answers probes, Reader
// brings feature rows of candidates, and the rest reads rows of an answer. Every
// reply of a store is held to the contract of package adapters.
//
// On a stored placement every candidate's vector is fetched, in the call that finds the
// candidates, and most of a search's time goes there. Two ways around it do not hold:
//
//   - A bound from the first stage's scores that leaves few candidates. Where gates depend on
//     the item, φ is bounded by its largest logit. Components have norm 1, so a logit is no
//     inner product with the stored vector, and one score leaves it anywhere up to 1/τ. The
//     order of the scores is no help: of 1,000 candidates of banking77-questions-mol by their
//     average, the last of the ten best is the 343rd in the median and the 988th at worst.
//   - A cache of feature rows by id and version. Qdrant counts versions from 0 in a collection
//     that was created again, as a nightly rebuild does, and from the snapshot's number after
//     a restore. A row with another vector then has the same id and version, and it may have
//     the same score. A table that follows writes is such a cache that holds.
package retrieve

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/span"
)

// errContract: a store broke the contract of its interface.
var errContract = fmt.Errorf("%w: its reply broke the contract of package adapters", adapters.ErrStore)

func broken(v route.View, format string, args ...any) error {
	return fmt.Errorf("%w: store %q: %s", errContract, v.StoreName, fmt.Sprintf(format, args...))
}

// Lists sends the probes of a round, all in one call of the adapter. In the first round, numbered
// 1, the lists may bring their rows' vectors. Lists returns the store's error if the request or the
// configuration is wrong or the store is down, and a *failure.Error if the store's own answer can
// still be had.
func Lists(ctx context.Context, v route.View, p *plan.Plan, round int) (lists []rerank.List, err error) {
	collection, vectors, payload := p.Collection(v), withVectors(v, p, round), WithPayload(p)
	ctx, s := span.StoreCall(ctx, "retrieve", "search", collection, attribute.Int("likeness.probes", len(p.Probes)), attribute.Int("likeness.depth", p.Probes[0].Depth))
	defer s.End()
	ef := 0
	if p.Rewritten && v.EF > p.Depth {
		ef = v.EF
	}
	lists, err = v.Store.Search(ctx, adapters.SearchRequest{
		Collection: collection, Vector: v.Vector, Probes: p.Probes, Filter: p.Request.Filter, Exclude: p.Request.Exclude,
		Exact: v.ExactSearch, UnitVectors: v.UnitVectors && !p.SearchesCompanion(), Owner: v.OwnerIn(collection), WithVectors: vectors,
		Consistency: v.Consistency, Partitions: p.Request.Partitions,
		Payload: payload, PayloadFields: payloadFields(p, payload), Rescore: p.Rewritten, EF: ef,
		Versions: p.Request.Versions && !p.SearchesCompanion() && v.OwnerIn(collection) == "",
	})
	if err != nil {
		span.Fail(ctx, s, err)
		return nil, storeFailed(ctx, err, p.SearchesCompanion())
	}
	if payload && len(lists) == 1 && len(lists[0].Payloads) != len(lists[0].IDs) {
		return nil, broken(v, "its list has %d rows and %d payloads", len(lists[0].IDs), len(lists[0].Payloads))
	}
	if err := checkLists(v, p.Probes, lists, v.OwnerIn(collection)); err != nil {
		return nil, err
	}
	if vectors && (lists[0].Vectors.Rows != len(lists[0].IDs) || lists[0].Vectors.Cols != v.Spec.ItemDim) {
		return nil, broken(v, "its list has %d rows and vectors of shape %d x %d", len(lists[0].IDs), lists[0].Vectors.Rows, lists[0].Vectors.Cols)
	}
	return lists, nil
}

// withVectors reports whether the lists are to bring their rows' vectors. That saves a call, and
// fetches no vector twice, if a single probe searches the stored vectors in the first round.
func withVectors(v route.View, p *plan.Plan, round int) bool {
	return round == 1 && v.Placement.ScoresStored() && !p.Rewritten && len(p.Probes) == 1 &&
		!p.SearchesCompanion() && v.Owner == "" && v.Vectors == ""
}

// WithPayload reports whether a rewritten search asks for the payload of its rows. It
// does not if the list has many more rows than the answer: then reading the payload of
// the answer's rows afterwards costs less.
func WithPayload(p *plan.Plan) bool {
	return p.Rewritten && p.Request.Payload && !p.PayloadApart && p.Depth <= p.AnswerRows+1
}

func payloadFields(p *plan.Plan, payload bool) []string {
	if !payload {
		return nil
	}
	return p.Request.PayloadFields
}

// storeFailed decides whether an error of a call to the store is the store's own error or a
// *failure.Error.
func storeFailed(ctx context.Context, err error, onCompanion bool) error {
	if ctx.Err() != nil {
		return failure.TimedOut(ctx, err)
	}
	final := []error{adapters.ErrFilter, adapters.ErrID, adapters.ErrLimit, adapters.ErrRefused, rerank.ErrQuery}
	if !onCompanion { // a fallback to the store's own order would fail in the same way
		final = append(final, adapters.ErrUnavailable, adapters.ErrNotFound, adapters.ErrField, adapters.ErrDimension, adapters.ErrMetric)
	}
	for _, f := range final {
		if errors.Is(err, f) {
			return err
		}
	}
	return &failure.Error{Reason: failure.Store, Err: err}
}

// checkLists checks lists against the contract of adapters.Searcher.
func checkLists(v route.View, probes []rerank.Probe, lists []rerank.List, owner string) error {
	if len(lists) != len(probes) {
		return broken(v, "%d lists for %d probes", len(lists), len(probes))
	}
	for i, l := range lists {
		switch {
		case len(l.Scores) != len(l.IDs):
			return broken(v, "list %d has %d ids and %d scores", i, len(l.IDs), len(l.Scores))
		case len(l.IDs) > probes[i].Depth:
			return broken(v, "list %d has %d rows, %d were asked", i, len(l.IDs), probes[i].Depth)
		case l.Versions != nil && len(l.Versions) != len(l.IDs):
			return broken(v, "list %d has %d ids and %d versions", i, len(l.IDs), len(l.Versions))
		case owner != "" && len(l.Owners) != len(l.IDs):
			return broken(v, "list %d has %d ids and %d owners", i, len(l.IDs), len(l.Owners))
		case !(l.Epsilon >= 0):
			return broken(v, "list %d has a rounding error of %v", i, l.Epsilon)
		}
		if row := unsorted(l.Scores); row > 0 {
			return broken(v, "list %d is not sorted: row %d scores %v, row %d %v", i, row-1, l.Scores[row-1], row, l.Scores[row])
		}
	}
	return nil
}

// unsorted returns the first row that scores more than the row before it, or 0.
// Rows whose score is not finite come last.
func unsorted(scores []float32) int {
	for i := 1; i < len(scores); i++ {
		if rerank.IsFinite(scores[i]) && !(scores[i] <= scores[i-1] && rerank.IsFinite(scores[i-1])) {
			return i
		}
	}
	return 0
}

// Union collects the candidates of all rounds. The zero value is empty.
type Union struct{ seen *IDSet }

// Add adds the lists of a round and returns the new candidates.
func (u *Union) Add(v route.View, p *plan.Plan, lists []rerank.List, round int) ([]rerank.ID, error) {
	rows := 0
	for _, l := range lists {
		rows += len(l.IDs)
	}
	if u.seen == nil {
		u.seen = NewIDSet(rows)
	}
	known := len(u.seen.IDs)
	var owned *IDSet // the rows' ids, if the candidates are their owners
	if v.OwnerIn(p.Collection(v)) != "" {
		owned = NewIDSet(rows)
	}
	for i, l := range lists {
		mark := int32(round*len(lists) + i)
		for j, id := range l.IDs {
			item, twice := id, false
			if owned != nil {
				item = l.Owners[j]
				_, twice = owned.Add(id, mark)
			}
			_, again := u.seen.Add(item, mark)
			if twice || again && owned == nil || id.IsZero() || item.IsZero() {
				return nil, broken(v, "row %d of list %d has the id %q of item %q: none, or twice", j, i, id, item)
			}
		}
	}
	return u.seen.IDs[known:len(u.seen.IDs):len(u.seen.IDs)], nil
}
