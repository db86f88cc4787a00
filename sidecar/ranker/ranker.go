// Package ranker asks a heavy ranker R(x, q) as well as it can be asked: in
// batches within its limits, a few at a time, with answers that were checked, and
// not at all while it is broken.
package ranker

import (
	"context"

	"github.com/likenessdb/likeness/plugin"
)

// Sentinel errors of a Scorer, wrapped with the scorer's name and what it said.
var (
	// ErrUnavailable: the ranker is down, starting, quarantined, or its breaker is open.
	ErrUnavailable = plugin.ErrUnavailable
	// ErrTooLarge: more items or bytes than it takes at once; half of them may do.
	ErrTooLarge = plugin.ErrTooLarge
	// ErrQuery: it cannot read this query.
	ErrQuery = plugin.ErrQuery
	// ErrAnswer: it failed, or its answer has another number of scores, or says what no ranker can.
	ErrAnswer = plugin.ErrAnswer
)

// Result is what a ranker said of some items.
type Result struct {
	// Scores are R(x, q), in the order asked; NaN where there is none.
	Scores []float32
	// Calls are the items that it was asked of, those of failed calls included.
	Calls int
	// Version is the ranker's.
	Version string
}

// Ranker is what searches, fits and builds ask. It is safe for concurrent use.
type Ranker interface {
	// Describe is what the scorer said of itself last, or ErrUnavailable.
	Describe(ctx context.Context) (plugin.Description, error)
	// Rank scores items in batches. With an error, the result still has the scores
	// that came before it: ErrUnavailable, ErrQuery, ErrAnswer, or the context's error.
	Rank(ctx context.Context, q plugin.Query, items []plugin.Item) (Result, error)
}

// BoundedRanker is implemented by a Ranker that can be held to a number of calls,
// those that are made again among them. Rank alone does not count these.
type BoundedRanker interface {
	// RankWithin is Rank with at most that many calls; 0 means no limit.
	RankWithin(ctx context.Context, q plugin.Query, items []plugin.Item, calls int) (Result, error)
}

// Within returns RankWithin of a ranker that has it, and otherwise Rank, which heeds
// no number of calls.
func Within(r Ranker) func(ctx context.Context, q plugin.Query, items []plugin.Item, calls int) (Result, error) {
	if b, ok := r.(BoundedRanker); ok {
		return b.RankWithin
	}
	return func(ctx context.Context, q plugin.Query, items []plugin.Item, _ int) (Result, error) {
		return r.Rank(ctx, q, items)
	}
}
