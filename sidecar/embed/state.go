package embed

import (
	"slices"
	"time"
)

// State says how an embedder has done since it was opened.
type State struct {
	Name    string `json:"name"`
	Host    string `json:"host"`
	Breaker string `json:"breaker"` // closed, open or half-open
	// Calls counts the calls that were sent, and Failed the calls without vectors in reply.
	// Failure is the outcome of the last call if that failed.
	Calls   int64  `json:"calls"`
	Failed  int64  `json:"failed"`
	Failure string `json:"failure,omitempty"`
	// Found counts the texts that were found in the cache, and Missed the others.
	Found  int64 `json:"cache_found"`
	Missed int64 `json:"cache_missed"`
	// P50 and P95 are quantiles of the times of the last calls, in seconds.
	P50 float64 `json:"call_p50_seconds"`
	P95 float64 `json:"call_p95_seconds"`
}

// recentCalls is how many calls the quantiles of a State cover.
const recentCalls = 128

// tally counts what a State shows.
type tally struct {
	calls, failed, found, missed int64
	failure                      string
	times                        [recentCalls]time.Duration // of the last calls, in a ring
}

// add counts a call.
func (t *tally) add(outcome string, took time.Duration) {
	t.times[t.calls%recentCalls] = took
	t.calls++
	t.failure = ""
	if outcome != OK {
		t.failed++
		t.failure = outcome
	}
}

// quantile returns a quantile of the times of the last calls, in seconds.
func (t *tally) quantile(share float64) float64 {
	times := slices.Sorted(slices.Values(t.times[:min(t.calls, recentCalls)]))
	if len(times) == 0 {
		return 0
	}
	return times[int(share*float64(len(times)-1)+.5)].Seconds()
}

// State returns the state of the embedder.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &c.tally
	return State{
		Name: c.options.Name, Host: c.service.Host(), Breaker: string(c.breaker.State()),
		Calls: t.calls, Failed: t.failed, Failure: t.failure, Found: t.found, Missed: t.missed,
		P50: t.quantile(.5), P95: t.quantile(.95),
	}
}
