package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/rerank"
)

const (
	// mostChanged is how many comparisons of a route are kept.
	mostChanged = 10
	// comparedFor is how long a comparison is kept.
	comparedFor = 24 * time.Hour
	// shownRows is how many rows of each answer a comparison keeps.
	shownRows = 10
)

// Comparison holds the answer that a client got in shadow mode beside the rescored answer to the
// same search.
type Comparison struct {
	At time.Time `json:"at"`
	// Overlap is the share of the rows that both answers have. RankBiased is their rank-biased
	// overlap, which weighs the first rows most. Both are 1 for equal answers.
	Overlap    float64 `json:"overlap"`
	RankBiased float64 `json:"rank_biased_overlap"`
	// Served and Rescored have the ids of the rows, best first.
	Served   []rerank.ID `json:"served"`
	Rescored []rerank.ID `json:"rescored"`
}

// FirstChanged reports whether the answers have different first rows.
func (c Comparison) FirstChanged() bool {
	return !slices.Equal(c.Served[:min(1, len(c.Served))], c.Rescored[:min(1, len(c.Rescored))])
}

// ProxyCounts counts the searches of a route through the proxy since the start.
type ProxyCounts struct {
	Rewritten int64            `json:"rewritten"`
	Rescored  int64            `json:"rescored"`
	Shadow    int64            `json:"shadow"`             // answered by the database's own order, for comparison
	Passed    map[string]int64 `json:"passed,omitempty"`   // by reason
	Degraded  map[string]int64 `json:"degraded,omitempty"` // by reason
}

// proxyHistory remembers of each route what became of its searches through the proxy, and the
// comparisons that differ most. Its methods are safe for concurrent use.
type proxyHistory struct {
	mu     sync.Mutex
	routes map[string]*proxyRoute
}

type proxyRoute struct {
	counts  ProxyCounts
	changed []Comparison // sorted, the least alike first
}

// of returns the history of a route. The caller holds the lock.
func (h *proxyHistory) of(route string) *proxyRoute {
	r := h.routes[route]
	if r == nil {
		r = &proxyRoute{counts: ProxyCounts{Passed: map[string]int64{}, Degraded: map[string]int64{}}}
		h.routes[route] = r
	}
	return r
}

// count counts a search of the routes.
func (h *proxyHistory) count(routes []string, outcome, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range routes {
		switch c := &h.of(name).counts; outcome {
		case "rewritten":
			c.Rewritten++
		case "rescored":
			c.Rescored++
		case "shadow":
			c.Shadow++
		case "passed":
			c.Passed[reason]++
		case "degraded":
			c.Degraded[reason]++
		}
	}
}

// compared keeps a comparison if it is one of the least alike of the last day.
func (h *proxyHistory) compared(route string, c Comparison) {
	if c.RankBiased >= 1 {
		return
	}
	c.Served, c.Rescored = firstRows(c.Served), firstRows(c.Rescored)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.of(route)
	r.changed = slices.DeleteFunc(r.changed, func(old Comparison) bool { return c.At.Sub(old.At) > comparedFor })
	at, _ := slices.BinarySearchFunc(r.changed, c, func(a, b Comparison) int { return cmp.Compare(a.RankBiased, b.RankBiased) })
	r.changed = slices.Insert(r.changed, at, c)
	r.changed = r.changed[:min(mostChanged, len(r.changed))]
}

// read returns copies of a route's counts and of its comparisons of the last day.
func (h *proxyHistory) read(route string, now time.Time) (counts ProxyCounts, changed []Comparison) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.of(route)
	counts = r.counts
	counts.Passed, counts.Degraded = maps.Clone(counts.Passed), maps.Clone(counts.Degraded)
	for _, c := range r.changed {
		if now.Sub(c.At) <= comparedFor {
			changed = append(changed, c)
		}
	}
	return counts, changed
}

// firstRows copies the first ids of an answer.
func firstRows(ids []rerank.ID) []rerank.ID { return slices.Clone(ids[:min(shownRows, len(ids))]) }
