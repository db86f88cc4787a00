package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/likenessdb/likeness/sidecar/bench"
	"github.com/likenessdb/likeness/sidecar/route"
)

// Targets for the sidecar's own time under load, in milliseconds.
const wantedP50, wantedP99 = .5, 1

// report contains all measurements.
type report struct {
	Processor string         `json:"processor"`
	Cores     int            `json:"cores"`
	Go        string         `json:"go"`
	Qdrant    string         `json:"qdrant"`
	Kernel    string         `json:"kernel"`
	Load      [2]float64     `json:"load"` // load average of the machine over one minute, at the beginning and the end
	PlainGo   []bench.Result `json:"one_process_plain_go"`
	MadeUp    []bench.Result `json:"one_process"`
	Alone     []bench.Result `json:"over_qdrant"`
	Loaded    []loadedResult `json:"at_80_percent"`
}

// loadedResult is the result of one route at 80 % of Capacity, which is the rate of good
// answers with 16 callers.
type loadedResult struct {
	Case     string           `json:"case"`
	Capacity float64          `json:"capacity"`
	At       bench.LoadResult `json:"at"`
}

func (r *report) markdown() []byte {
	var b bytes.Buffer
	line := func(format string, a ...any) { _, _ = fmt.Fprintf(&b, format+"\n", a...) }
	line("# Where the time of a search goes\n")
	line("Made by `make bench-search` on an %s, one core for the sidecar and, where there is one, another for Qdrant and the generator of the load;", r.Processor)
	line("%s, loops for %s. Milliseconds, p50 / p99, 1,000 candidates, k = 10. The load of the machine was %.1f at the beginning and %.1f at the", r.Go, r.Kernel, r.Load[0], r.Load[1])
	line("end. The figures are in [search.json](search.json).\n")
	r.oneProcess(line)
	r.overQdrant(line)
	r.underLoad(line)
	return b.Bytes()
}

func (r *report) oneProcess(line func(string, ...any)) {
	line("## In one process\n\n`likeness bench search`: 20,000 made-up items in a store of the same process. *own* is all but the time inside the store.\n")
	line("| similarity | encode | in store | score | certify | own, plain Go | own, assembly |\n|---|---|---|---|---|---|---|")
	var stored []string
	for i, c := range r.MadeUp {
		if c.Placement == route.PlacementStored {
			stored = append(stored, fmt.Sprintf("%s %s (plain Go %s)", c.Case, both(c.Own), both(r.PlainGo[i].Own)))
			continue
		}
		line("| %s | %s | %s | %s | %s | %s | %s |", c.Case, both(c.Encode), both(*c.Store), both(c.Score), both(c.Certify), both(r.PlainGo[i].Own), both(c.Own))
	}
	line("\nSteps are those with assembly; plain Go is `--kernel go`. With stored placement, where the feature rows of 1,000 candidates are computed in\nevery search, own is:\n")
	line("%s.\n", strings.Join(stored, ", "))
}

func (r *report) overQdrant(line func(string, ...any)) {
	line("## Over Qdrant\n\n`likeness bench search --config`: Qdrant %s, the 10,003 questions of 384 dimensions, exact search, one search after the other. *own* is", r.Qdrant)
	line("the processor time of the sidecar for a search, the encoding of its requests and the decoding of Qdrant's answers included.\n")
	line("| route | candidates | total | score | own |\n|---|---|---|---|---|")
	for _, c := range r.Alone {
		line("| %s | %.0f | %s | %s | %s |", c.Case, c.Candidates, both(c.Total), both(c.Score), both(c.Own))
	}
	line("\nThe last row is what 1,000 stored vectors cost: fetching them, not scoring them, takes the time.\n")
}

func (r *report) underLoad(line func(string, ...any)) {
	line("## At 80 %% of what it can answer\n\n`likeness serve` with one processor (`GOMAXPROCS=1`), loaded by `likeness bench serve --load 0.8`: calls at random times, 80 %% as many as 16 callers")
	line("in a closed loop were answered. *own* is what answers say of the search without its store, from its first probe to its certificate, waits for the")
	line("processor included; *around* is what the caller waits beyond the search: network, queue, the generator's own waits.\n")
	line("| store and route | answers a second at most | asked | good | latency | own | around |\n|---|---|---|---|---|---|---|")
	var missed []string
	for _, c := range r.Loaded {
		l := c.At
		line("| %s | %.0f | %.0f | %.1f %% | %s | %s | %s |", c.Case, c.Capacity, l.Rate, 100*float64(l.Outcomes[bench.Good])/float64(l.Calls),
			ends(l.Latency[bench.Good]), ends(*l.Own), ends(*l.Around))
		if l.Own.P50 >= wantedP50 || l.Own.P99 >= wantedP99 {
			missed = append(missed, fmt.Sprintf("%s (%s)", c.Case, ends(*l.Own)))
		}
	}
	line("\nWanted: own under %.1f ms in the median and %d ms at p99.%s", wantedP50, wantedP99, verdict(missed))
}

func verdict(missed []string) string {
	if len(missed) == 0 {
		return " Met by all."
	}
	return " Not met: " + strings.Join(missed, ", ") + "."
}

func both(q bench.Quantiles) string { return fmt.Sprintf("%.2f / %.2f", q.P50, q.P99) }

func ends(q bench.LatencyQuantile) string {
	return both(bench.Quantiles{P50: q.P50, P99: q.P99})
}
