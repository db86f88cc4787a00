package telemetry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
)

// recentAnswers is how many of a route's last answers the quantiles of its stages cover.
const recentAnswers = 512

// SearchHistory remembers the last searches of each route. It is safe for concurrent use.
type SearchHistory struct{ routes map[string]*routeHistory }

type routeHistory struct {
	mu      sync.Mutex
	timings [recentAnswers]search.Timings // the times of the last answers, in a ring
	answers int                           // how many answers there were
	counts  SearchCounts
	trouble *StoreTrouble
}

// StoreTrouble describes consecutive searches of a route that failed because of its store.
type StoreTrouble struct {
	Since    time.Time `json:"since"`
	Searches int       `json:"searches"`
	// Error is the type of the last error, as in traces.
	Error string `json:"error"`
}

// SearchCounts counts a route's searches since the start, by outcome.
type SearchCounts struct {
	Rescored int64     `json:"rescored"`
	Degraded int64     `json:"degraded"`
	Failed   int64     `json:"failed"`
	Last     time.Time `json:"last,omitzero"`
}

var _ search.Observer = (*SearchHistory)(nil)

// NewSearchHistory makes a history of the routes with these names.
func NewSearchHistory(routes []string) *SearchHistory {
	h := &SearchHistory{routes: map[string]*routeHistory{}}
	for _, name := range routes {
		h.routes[name] = &routeHistory{}
	}
	return h
}

// Searched implements search.Observer.
func (h *SearchHistory) Searched(_ context.Context, route string, _ search.Request, a search.Answer, err error) {
	in := h.routes[route]
	if in == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.counts.Last = time.Now()
	switch {
	case err != nil:
		in.counts.Failed++
	case a.Degraded != nil:
		in.counts.Degraded++
	default:
		in.counts.Rescored++
	}
	if err == nil {
		in.timings[in.answers%recentAnswers] = a.Timings
		in.answers++
	}
	switch fault := storeFault(a, err); {
	case fault == "" && err == nil && a.Timings.Retrieve > 0:
		in.trouble = nil
	case fault == "":
	case in.trouble == nil:
		in.trouble = &StoreTrouble{Since: in.counts.Last, Searches: 1, Error: fault}
	default:
		in.trouble = &StoreTrouble{Since: in.trouble.Since, Searches: in.trouble.Searches + 1, Error: fault}
	}
}

// storeFault names the failure of the store in a search, or returns "" if the store did not fail.
func storeFault(a search.Answer, err error) string {
	for _, of := range []error{adapters.ErrUnavailable, adapters.ErrRefused, adapters.ErrNotFound, adapters.ErrStore} {
		if errors.Is(err, of) {
			return search.ErrorType(err)
		}
	}
	if d := a.Degraded; err == nil && d != nil && (d.Reason == failure.Store || d.Reason == failure.Features) {
		return d.Reason
	}
	return ""
}

// Trouble returns the trouble with a route's store, or nil if the last search had none.
func (h *SearchHistory) Trouble(route string) *StoreTrouble {
	in := h.routes[route]
	if in == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.trouble
}

// StageTimes holds quantiles of the seconds that one step took, over a route's last answers.
type StageTimes struct {
	Stage string  `json:"stage"`
	P50   float64 `json:"p50_seconds"`
	P95   float64 `json:"p95_seconds"`
	P99   float64 `json:"p99_seconds"`
}

// stages lists the steps of a search, and the whole search.
var stages = []struct {
	name string
	of   func(t search.Timings) time.Duration
}{
	{"embed", func(t search.Timings) time.Duration { return t.Embed }},
	{"encode", func(t search.Timings) time.Duration { return t.Encode }},
	{"retrieve", func(t search.Timings) time.Duration { return t.Retrieve }},
	{"score", func(t search.Timings) time.Duration { return t.Score }},
	{"certify", func(t search.Timings) time.Duration { return t.Certify }},
	{"rank", func(t search.Timings) time.Duration { return t.Rank }},
	{"total", func(t search.Timings) time.Duration { return t.Total }},
}

// read returns the counts, the times of the stages, and the number of answers they sum up.
func (h *SearchHistory) read(route string) (counts SearchCounts, times []StageTimes, answers int) {
	in := h.routes[route]
	if in == nil {
		return counts, nil, 0
	}
	in.mu.Lock()
	kept := slices.Clone(in.timings[:min(in.answers, recentAnswers)])
	counts = in.counts
	in.mu.Unlock()
	if len(kept) == 0 {
		return counts, nil, 0
	}
	sorted := make([]time.Duration, len(kept))
	for _, stage := range stages {
		for i, t := range kept {
			sorted[i] = stage.of(t)
		}
		slices.Sort(sorted)
		at := func(share float64) float64 {
			return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)].Seconds()
		}
		times = append(times, StageTimes{Stage: stage.name, P50: at(.5), P95: at(.95), P99: at(.99)})
	}
	return counts, times, len(kept)
}
