// Package ranker calls a heavy ranker R(x, q) reliably: in batches within its limits, with
// limited concurrency, with verified answers, and not at all while it is broken.
package ranker

import (
	"context"

	"github.com/likenessdb/likeness/plugin"
)

// Sentinel errors of a Scorer, wrapped with the scorer's name and message.
var (
	// ErrUnavailable: the ranker is down, starting, quarantined, or its breaker is open.
	ErrUnavailable = plugin.ErrUnavailable
	// ErrTooLarge: the call has too many items or bytes; a smaller call may work.
	ErrTooLarge = plugin.ErrTooLarge
	// ErrQuery: the ranker cannot read this query.
	ErrQuery = plugin.ErrQuery
	// ErrAnswer: the ranker failed or gave an invalid answer, such as a wrong number of
	// scores.
	ErrAnswer = plugin.ErrAnswer
)

// Result contains a ranker's scores of some items.
type Result struct {
	// Scores is R(x, q) in the order of the items, NaN for items without a score.
	Scores []float32
	// Calls is the number of items sent to the ranker. Items of failed calls count.
	Calls int
	// Version is the ranker's version.
	Version string
}

// Ranker scores items for searches, fits and builds. It is safe for concurrent use.
type Ranker interface {
	// Describe returns the scorer's last description, or ErrUnavailable.
	Describe(ctx context.Context) (plugin.Description, error)
	// Rank scores items in batches. After an error (ErrUnavailable, ErrQuery, ErrAnswer, or
	// the context's error) the result still contains the scores obtained so far.
	Rank(ctx context.Context, q plugin.Query, items []plugin.Item) (Result, error)
}

// BoundedRanker is implemented by a Ranker that can limit the number of calls, including
// retries. Rank alone does not count retries.
type BoundedRanker interface {
	// RankWithin is Rank with at most the given number of calls. 0 means no limit.
	RankWithin(ctx context.Context, q plugin.Query, items []plugin.Item, calls int) (Result, error)
}

// Within returns RankWithin of a ranker that has it. Otherwise it returns Rank, which
// ignores the limit.
func Within(r Ranker) func(ctx context.Context, q plugin.Query, items []plugin.Item, calls int) (Result, error) {
	if b, ok := r.(BoundedRanker); ok {
		return b.RankWithin
	}
	return func(ctx context.Context, q plugin.Query, items []plugin.Item, _ int) (Result, error) {
		return r.Rank(ctx, q, items)
	}
}
