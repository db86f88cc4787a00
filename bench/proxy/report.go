package main

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"

	"github.com/likenessdb/likeness/bench/internal/host"
)

// report contains all measurements.
type report struct {
	Processor string        `json:"processor"`
	Cores     int           `json:"cores"`
	Go        string        `json:"go"`
	Qdrant    string        `json:"qdrant"`
	Load      [2]float64    `json:"load"` // load average of the machine over one minute, at the beginning and the end
	Callers   int           `json:"callers"`
	Alone     []aloneResult `json:"one_at_a_time"`
	Loaded    []loadResult  `json:"in_flight"`
}

// aloneResult is the result of one comparison with one call at a time.
type aloneResult struct {
	Call string     `json:"call"`
	Bar  float64    `json:"bar_ms,omitempty"`
	Ways []aloneWay `json:"ways"`
}

type aloneWay struct {
	Way    string       `json:"way"`
	Rounds []aloneRound `json:"rounds"`
	// Medians over the rounds. Added is the median difference from the first way's P50 in
	// the same round.
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Added float64 `json:"added_p50_ms"`
}

type aloneRound struct {
	Calls int     `json:"calls"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
}

// loadResult is the result of one comparison with many concurrent calls.
type loadResult struct {
	Call string    `json:"call"`
	Bar  float64   `json:"bar_share,omitempty"`
	Ways []loadWay `json:"ways"`
}

type loadWay struct {
	Way    string      `json:"way"`
	Rounds []loadRound `json:"rounds"`
	// Medians over the rounds. Share is the rate relative to the first way's in the same
	// round. CPU is milliseconds per call for each process.
	Rate  float64            `json:"calls_per_second"`
	Share float64            `json:"share_of_direct"`
	CPU   map[string]float64 `json:"cpu_ms"`
}

type loadRound struct {
	Calls   int                `json:"calls"`
	Seconds float64            `json:"seconds"`
	Rate    float64            `json:"calls_per_second"`
	CPU     map[string]float64 `json:"cpu_ms"`
}

// perCall converts totals to figures per call.
func (r *loadRound) perCall() {
	r.Rate = float64(r.Calls) / r.Seconds
	for name := range r.CPU {
		r.CPU[name] *= 1e3 / float64(r.Calls)
	}
}

func newReport(s settings, qdrant string) *report {
	return &report{
		Processor: host.Processor(), Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), Qdrant: qdrant,
		Load: [2]float64{host.Load()}, Callers: s.callers,
	}
}

// alone returns the i-th result and creates it in the first round.
func (r *report) alone(i int, c comparison) *aloneResult {
	if i == len(r.Alone) {
		a := aloneResult{Call: c.name, Bar: c.bar}
		for _, w := range c.ways {
			a.Ways = append(a.Ways, aloneWay{Way: w.name})
		}
		r.Alone = append(r.Alone, a)
	}
	return &r.Alone[i]
}

// loaded returns the i-th result and creates it in the first round.
func (r *report) loaded(i int, c comparison) *loadResult {
	if i == len(r.Loaded) {
		l := loadResult{Call: c.name, Bar: c.bar}
		for _, w := range c.ways {
			l.Ways = append(l.Ways, loadWay{Way: w.name})
		}
		r.Loaded = append(r.Loaded, l)
	}
	return &r.Loaded[i]
}

// finish computes the medians.
func (r *report) finish() {
	r.Load[1] = host.Load()
	for _, a := range r.Alone {
		for i := range a.Ways {
			w, direct := &a.Ways[i], a.Ways[0].Rounds
			w.P50 = median(w.Rounds, func(_ int, r aloneRound) float64 { return r.P50 })
			w.P99 = median(w.Rounds, func(_ int, r aloneRound) float64 { return r.P99 })
			w.Added = median(w.Rounds, func(n int, r aloneRound) float64 { return r.P50 - direct[n].P50 })
		}
	}
	for _, l := range r.Loaded {
		for i := range l.Ways {
			w, direct := &l.Ways[i], l.Ways[0].Rounds
			w.Rate = median(w.Rounds, func(_ int, r loadRound) float64 { return r.Rate })
			w.Share = median(w.Rounds, func(n int, r loadRound) float64 { return r.Rate / direct[n].Rate })
			w.CPU = map[string]float64{}
			for name := range w.Rounds[0].CPU {
				w.CPU[name] = median(w.Rounds, func(_ int, r loadRound) float64 { return r.CPU[name] })
			}
		}
	}
}

func median[R any](rounds []R, of func(int, R) float64) float64 {
	var all []float64
	for i, r := range rounds {
		all = append(all, of(i, r))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

func (r *report) markdown() []byte {
	var b bytes.Buffer
	line := func(format string, a ...any) { _, _ = fmt.Fprintf(&b, format+"\n", a...) }
	line("# What the proxy costs\n\nMade by `make bench-proxy`: client, proxy and Qdrant %s as three processes on %d cores of an %s, %s. Each query is", r.Qdrant, r.Cores, r.Processor, r.Go)
	line("sent by every way, in turn forwards and backwards; medians of %d rounds. Searches are of the 10,003 questions with 384", len(r.Alone[0].Ways[0].Rounds))
	line("dimensions, limit %d, in a collection without any setting of its own. The load of the machine was %.1f at the beginning and", limit, r.Load[0])
	line("%.1f at the end. [The figures of each round](proxy-overhead.json).\n\n## One call at a time\n\nMilliseconds.\n", r.Load[1])
	line("| call | way | p50 | p99 | added p50 | at most |\n|---|---|---|---|---|---|")
	for _, a := range r.Alone {
		for i, w := range a.Ways {
			added, bar := "", ""
			if i > 0 {
				added = fmt.Sprintf("%.3f", w.Added)
			}
			if i == 1 && a.Bar > 0 {
				bar = fmt.Sprintf("%.2f", a.Bar)
			}
			line("| %s | %s | %.3f | %.3f | %s | %s |", a.Call, w.Way, w.P50, w.P99, added, bar)
		}
	}
	line("\n`likeness serve` has routes for two other collections with the same rows and a bilinear model. *rewritten* searches the one\nby its route's vector, in one call; *rescored* the other: two searches of the database, and the scores of 20 rows.")
	line("\n## %d calls in flight\n\nBlocks of one way each. Processor time of a call, user and system, in milliseconds.\n", r.Callers)
	line("| call | way | calls/s | of direct | at least | client | proxy | Qdrant |\n|---|---|---|---|---|---|---|---|")
	for _, l := range r.Loaded {
		for i, w := range l.Ways {
			share, bar, own := "", "", ""
			if i > 0 && l.Bar > 0 {
				bar = fmt.Sprintf("%.0f %%", 100*l.Bar)
			}
			if i > 0 {
				share, own = fmt.Sprintf("%.0f %%", 100*w.Share), fmt.Sprintf("%.3f", w.CPU["proxy"])
			}
			line("| %s | %s | %.0f | %s | %s | %.3f | %s | %.3f |", l.Call, w.Way, w.Rate, share, bar, w.CPU["client"], own, w.CPU["Qdrant"])
		}
	}
	return b.Bytes()
}
