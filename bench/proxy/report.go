package main

import (
	"fmt"
	"slices"
)

// report contains all measurements.
type report struct {
	Processor string         `json:"processor"`
	Cores     int            `json:"cores"`
	Go        string         `json:"go"`
	Databases []string       `json:"databases"`
	Load      [2]float64     `json:"load"` // load average of the machine over one minute, at the beginning and the end
	Callers   int            `json:"callers"`
	Rounds    int            `json:"rounds"`
	Systems   []systemResult `json:"systems"`
	// NotMet lists the targets that were missed, for people to read.
	NotMet []string `json:"not_met"`
}

// systemResult is the result of one database and interface.
type systemResult struct {
	System string      `json:"system"`
	Ways   []wayResult `json:"ways"`
}

// wayResult is the result of one way. The figures beside Rounds are medians over the
// rounds. Times and Share compare with direct calls in the same round (systemResult.direct).
type wayResult struct {
	Way    string     `json:"way"`
	Rounds []wayRound `json:"rounds"`

	Alone    latency            `json:"one_at_a_time"`
	AddedP50 float64            `json:"added_p50_ms"`
	TimesP50 float64            `json:"times_p50"`
	TimesP99 float64            `json:"times_p99"`
	Rate     float64            `json:"calls_per_second"`
	Share    float64            `json:"share_of_direct"`
	CPU      map[string]float64 `json:"cpu_ms"` // a call under full load, by process
	Shares   []latency          `json:"at_share"`
}

// wayRound holds the measurements of one way in one round.
type wayRound struct {
	Alone latency `json:"one_at_a_time"`
	// Degraded counts answers that were the database's own, because likeness had no time.
	Degraded int `json:"degraded"`
	// Under full load.
	Calls   int                `json:"calls"`
	Seconds float64            `json:"seconds"`
	Rate    float64            `json:"calls_per_second"`
	CPU     map[string]float64 `json:"cpu_ms"`
	// Shares has the latency at each of shares.
	Shares []latency `json:"at_share"`
}

// latency is in milliseconds.
type latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// begin names the ways in the first round.
func (r *systemResult) begin(s system) {
	if r.Ways != nil {
		return
	}
	r.System = s.name
	for _, w := range s.ways {
		r.Ways = append(r.Ways, wayResult{Way: w.name})
	}
}

// perCall converts totals to figures a call.
func (r *wayRound) perCall() {
	r.Rate = float64(r.Calls) / r.Seconds
	for name := range r.CPU {
		r.CPU[name] *= 1e3 / float64(r.Calls)
	}
}

// finish computes the medians and compares them with the targets.
func (r *report) finish() {
	r.NotMet = []string{}
	for _, s := range r.Systems {
		for i := range s.Ways {
			w := &s.Ways[i]
			w.summarise(s.direct(w.Way))
			for _, missed := range w.missed() {
				r.NotMet = append(r.NotMet, fmt.Sprintf("%s, %s: %s", s.System, w.Way, missed))
			}
		}
	}
}

// direct returns the rounds that a way is compared with, in which the client calls the database. A
// rewritten call is compared with the same request when the client itself sends it: to another collection
// the same database may answer faster.
func (r *systemResult) direct(way string) []wayRound {
	if way == wayRewritten {
		for _, w := range r.Ways {
			if w.Way == wayByClient {
				return w.Rounds
			}
		}
	}
	return r.Ways[0].Rounds
}

// summarise computes the medians of a way's rounds, some of them relative to the same rounds of
// direct calls.
func (w *wayResult) summarise(direct []wayRound) {
	w.Alone = w.latency(func(r wayRound) latency { return r.Alone })
	w.AddedP50 = w.median(func(n int, r wayRound) float64 { return r.Alone.P50 - direct[n].Alone.P50 })
	w.TimesP50 = w.median(func(n int, r wayRound) float64 { return r.Alone.P50 / direct[n].Alone.P50 })
	w.TimesP99 = w.median(func(n int, r wayRound) float64 { return r.Alone.P99 / direct[n].Alone.P99 })
	w.Rate = w.median(func(_ int, r wayRound) float64 { return r.Rate })
	w.Share = w.median(func(n int, r wayRound) float64 { return r.Rate / direct[n].Rate })
	w.CPU = map[string]float64{}
	for name := range w.Rounds[0].CPU {
		w.CPU[name] = w.median(func(_ int, r wayRound) float64 { return r.CPU[name] })
	}
	w.Shares = nil
	for i := range shares {
		w.Shares = append(w.Shares, w.latency(func(r wayRound) latency { return r.Shares[i] }))
	}
}

// missed returns the targets that a way misses.
func (w *wayResult) missed() (missed []string) {
	check := func(name string, value, limit float64) {
		if value > limit {
			missed = append(missed, fmt.Sprintf("%s %.2f > %.2f", name, value, limit))
		}
	}
	switch w.Way {
	case wayPassed, wayRewritten:
		check("p50 / direct", w.TimesP50, 1.15)
		check("p99 / direct", w.TimesP99, 1.15)
		check("added ms at p50", w.AddedP50, 0.15)
		if w.Share < 0.85 {
			missed = append(missed, fmt.Sprintf("throughput %.0f %% < 85 %%", 100*w.Share))
		}
	case wayTable, wayScan:
		check("added ms at p50", w.AddedP50, 1)
		check("ms of its own processor time", w.CPU[processServe], 0.3)
	}
	return missed
}

func (w *wayResult) latency(of func(wayRound) latency) latency {
	return latency{
		P50: w.median(func(_ int, r wayRound) float64 { return of(r).P50 }),
		P99: w.median(func(_ int, r wayRound) float64 { return of(r).P99 }),
	}
}

func (w *wayResult) median(of func(int, wayRound) float64) float64 {
	all := make([]float64, len(w.Rounds))
	for i, r := range w.Rounds {
		all[i] = of(i, r)
	}
	return median(all)
}

// median returns the middle of the values, which it sorts.
func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}
