package relevance

import (
	"context"
	"time"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// Estimate predicts the cost of computing some scores. A call scores one item for one
// query; a request carries many calls.
type Estimate struct {
	Ranker  string `json:"ranker"`
	Version string `json:"version"`
	Items   int    `json:"items"`
	Queries int    `json:"queries"`
	// Calls counts the calls still to be made. Kept counts the scores that are stored
	// already and need no call.
	Calls            int64 `json:"calls"`
	Kept             int64 `json:"kept"`
	Requests         int64 `json:"requests"`
	ItemsPerRequest  int   `json:"items_per_request"`
	ParallelRequests int   `json:"parallel_requests"`
	// Cost is in the ranker's own unit.
	Cost float64 `json:"cost"`
	// PerSecond is the measured number of calls per second, 0 if it was not measured.
	// Seconds is the time that the calls take at that rate.
	PerSecond float64 `json:"calls_per_second,omitempty"`
	Seconds   float64 `json:"seconds,omitempty"`
}

// Estimate returns an empty estimate, to which Add adds.
func (a *Asker) Estimate() Estimate {
	return Estimate{
		Ranker: a.described.Name, Version: a.described.Version,
		ItemsPerRequest: a.requestItems(), ParallelRequests: max(1, a.described.Parallel),
	}
}

// Add adds the scores of items for the given columns of queries to the estimate.
func (a *Asker) Add(e *Estimate, items Items, queries []plugin.Query, columns []int) {
	e.Items, e.Queries = e.Items+items.Len(), len(columns)
	for _, col := range columns {
		n := int64(len(a.takeStored(items, queryKey(queries[col]), func(int, float32) {})))
		e.Kept += int64(items.Len()) - n
		e.Calls += n
		e.Requests += (n + int64(e.ItemsPerRequest) - 1) / int64(e.ItemsPerRequest)
		e.Cost += float64(n) * a.described.Cost
	}
}

// Probe ends after probeTime or probeRounds, whichever comes first. The last round
// counts, so a ranker can wake up in the first.
const (
	probeTime   = time.Second
	probeRounds = 8
)

// Probe measures the ranker's speed with some of the scores that will be needed, which
// are stored, and completes the estimate.
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
