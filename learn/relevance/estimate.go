package relevance

import (
	"context"
	"time"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// Estimate is what some scores will cost. A call is one item scored for one query;
// a request has many.
type Estimate struct {
	Ranker  string `json:"ranker"`
	Version string `json:"version"`
	Items   int    `json:"items"`
	Queries int    `json:"queries"`
	// Calls are those to come, Kept the scores that need none.
	Calls            int64 `json:"calls"`
	Kept             int64 `json:"kept"`
	Requests         int64 `json:"requests"`
	ItemsPerRequest  int   `json:"items_per_request"`
	ParallelRequests int   `json:"parallel_requests"`
	// Cost is in the ranker's own unit.
	Cost float64 `json:"cost"`
	// PerSecond was measured; 0: it was not. Seconds are what the calls take at it.
	PerSecond float64 `json:"calls_per_second,omitempty"`
	Seconds   float64 `json:"seconds,omitempty"`
}

// Estimate begins an estimate, for Add.
func (a *Asker) Estimate() Estimate {
	return Estimate{
		Ranker: a.described.Name, Version: a.described.Version,
		ItemsPerRequest: a.perRequest(), ParallelRequests: max(1, a.described.Parallel),
	}
}

// Add counts scores of more items for queries.
func (a *Asker) Add(e *Estimate, items Items, queries []plugin.Query, columns []int) {
	e.Items, e.Queries = e.Items+items.Len(), len(columns)
	for _, col := range columns {
		n := int64(len(a.take(items, queryKey(queries[col]), func(int, float32) {})))
		e.Kept += int64(items.Len()) - n
		e.Calls += n
		e.Requests += (n + int64(e.ItemsPerRequest) - 1) / int64(e.ItemsPerRequest)
		e.Cost += float64(n) * a.described.Cost
	}
}

// The probe ends after so long, or so many rounds. The first is not counted where
// there are more: a ranker may have to wake.
const (
	probeTime   = time.Second
	probeRounds = 8
)

// Probe measures how fast the ranker is by some of the scores that it will be asked
// for, which are kept, and completes the estimate.
func (a *Asker) Probe(ctx context.Context, e *Estimate, items Items, queries []plugin.Query, columns []int) error {
	begun := time.Now()
	n := min(items.Len(), e.ItemsPerRequest*e.ParallelRequests)
	dst := rerank.NewMatrix(n, len(queries))
	rounds := 0
	for i, col := range columns {
		if rounds == probeRounds || time.Since(begun) > probeTime {
			break
		}
		from := n * i % max(1, items.Len()-n+1)
		before, at := a.Asked(), time.Now()
		if err := a.Fill(ctx, dst, items.slice(from, from+n), queries, []int{col}); err != nil {
			return err
		}
		if calls := a.Asked() - before; calls > 0 {
			e.PerSecond = float64(calls) / time.Since(at).Seconds()
			rounds++
		}
	}
	if e.PerSecond > 0 {
		e.Seconds = float64(e.Calls) / e.PerSecond
	}
	return nil
}
