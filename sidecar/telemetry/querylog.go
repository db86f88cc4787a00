package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// slowLines bounds how many slow searches are logged in a second: if every search is slow, a line
// for each would slow them further.
const slowLines = 10

// QueryLog logs slow searches and a share of the others: what was done and how long it took,
// never the query. It is safe for concurrent use.
type QueryLog struct {
	log   *slog.Logger
	rule  atomic.Pointer[queryRule]
	lines *rate.Limiter
	left  atomic.Int64 // how many slow searches were not logged
}

// queryRule says which searches get a line.
type queryRule struct {
	share float64
	slow  time.Duration
}

var _ search.Observer = (*QueryLog)(nil)

// NewQueryLog returns a QueryLog that logs a share of the searches, and every search that
// took slow or longer. With 0 it logs none of either.
func NewQueryLog(log *slog.Logger, share float64, slow time.Duration) *QueryLog {
	q := &QueryLog{log: log, lines: rate.NewLimiter(slowLines, slowLines)}
	q.Adjust(share, slow)
	return q
}

// Adjust changes the share and the duration.
func (q *QueryLog) Adjust(share float64, slow time.Duration) { q.rule.Store(&queryRule{share, slow}) }

// Searched implements search.Observer.
func (q *QueryLog) Searched(ctx context.Context, rt string, r search.Request, a search.Answer, err error) {
	if errors.Is(err, route.ErrUnknown) {
		return // the caller invented the name
	}
	rule := q.rule.Load()
	if rule.slow > 0 && a.Timings.Total >= rule.slow {
		if !q.lines.Allow() {
			q.left.Add(1)
			return
		}
		attrs := append(describe(rt, r, a, err), slog.Int64("left_out", q.left.Swap(0)))
		q.log.LogAttrs(ctx, slog.LevelWarn, "slow query", attrs...)
		return
	}
	if rule.share > 0 && rand.Float64() < rule.share {
		q.log.LogAttrs(ctx, slog.LevelInfo, "query", describe(rt, r, a, err)...)
	}
}

// describe returns the attributes of a search's line.
func describe(rt string, r search.Request, a search.Answer, err error) []slog.Attr {
	seconds := func(name string, d time.Duration) slog.Attr { return slog.Float64(name+"_seconds", d.Seconds()) }
	outcome, strategy := "rescored", a.Strategy
	switch {
	case err != nil:
		outcome, strategy = "error", r.Strategy
	case a.Degraded != nil:
		outcome = "degraded"
	}
	attrs := []slog.Attr{
		slog.String("route", rt), slog.String("outcome", outcome), slog.String("strategy", string(strategy)), slog.Int("k", r.K),
		seconds("total", a.Timings.Total),
	}
	if err != nil {
		return append(attrs, slog.String("error_type", search.ErrorType(err)))
	}
	attrs = append(attrs,
		slog.Int("hits", len(a.Hits)), slog.Int("rounds", a.Certificate.Rounds), slog.Int("candidates", a.Certificate.Candidates),
		slog.String("certificate", string(a.Certificate.Status)), slog.String("stop", string(a.Certificate.Stop)), slog.String("model_version", a.Version),
		seconds("encode", a.Timings.Encode), seconds("retrieve", a.Timings.Retrieve), seconds("score", a.Timings.Score), seconds("certify", a.Timings.Certify),
	)
	if a.Timings.Embed > 0 {
		attrs = append(attrs, seconds("embed", a.Timings.Embed))
	}
	if a.Degraded != nil {
		attrs = append(attrs, slog.String("reason", a.Degraded.Reason))
	}
	if a.Ranking != nil {
		attrs = append(attrs, seconds("rank", a.Timings.Rank), slog.Int("ranker_calls", a.Ranking.Calls))
	}
	return attrs
}
