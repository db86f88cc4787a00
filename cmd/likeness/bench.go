package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/bench"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

const benchSearchLong = `Sends one query after the other. Reports the time of the four steps, the time of the
store, and own: the time of the sidecar itself.

Without a configuration, items and similarities are random and the store runs in this
process; own is then the total without the store. With --config and --route the route's
store is searched, and own is the processor time of this process for a search.

With --events, searches whose answers are kept alternate with searches whose answers are
not, in as many turns of 250 searches each. The events lie in a temporary folder. Without a
configuration, only the cheapest search is measured.`

// benchFlags are the flags of bench search.
type benchFlags struct {
	source          *source
	synthetic       bench.Synthetic
	cores           int
	route, queries  string
	strategy        string
	depth, avgDepth int
	head            string
	kernel          string
}

// benchReport is the JSON report of `likeness bench search`.
type benchReport struct {
	Cores   int            `json:"cores"`
	Kernel  string         `json:"kernel,omitempty"`
	Results []bench.Result `json:"results"`
}

func newBenchCommand(a *app) *cobra.Command {
	return newGroup("bench", "Measure where the time goes", newBenchSearchCommand(a), newBenchScoreCommand(a), newBenchScanCommand(a), newBenchRAILSCommand(a), newBenchMachineCommand(a), newBenchServeCommand(a), newBenchRerankCommand(a), newBenchGPUCommand(a))
}

func newBenchSearchCommand(a *app) *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "search",
		Short: "Measure the steps of a search and the sidecar's own share",
		Long:  benchSearchLong,
		Example: `  likeness bench search --candidates 1000 --cores 1
  likeness bench search --config likeness.yaml --route products --queries queries.npy --strategy per_embedding --depth 50`,
		Args: cobra.NoArgs,
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := f.run(cmd.Context(), a.stderr)
		if err != nil {
			return err
		}
		return a.print(*out, report, func(w io.Writer) error { return printBench(w, report) })
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *benchFlags) flags(cmd *cobra.Command) {
	f.source = addConfigFlags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.cores, "cores", 1, "processor cores to use")
	flags.IntVar(&f.synthetic.K, "k", 10, "length of an answer")
	flags.IntVar(&f.synthetic.Searches, "searches", 200, "searches that are measured")
	flags.IntVar(&f.synthetic.Turns, "events", 0, "turns that compare searches with and without events, such as 100; 0 for none")
	flags.IntVar(&f.synthetic.Items, "items", 20000, "without a route: items to make up")
	flags.IntVar(&f.synthetic.Candidates, "candidates", 1000, "without a route: candidates of a search")
	flags.StringVar(&f.kernel, "kernel", "", "go, avx2, avx512 or neon; empty is the fastest")
	flags.StringVar(&f.route, "route", "", "measure this route of the configuration")
	flags.StringVar(&f.queries, "queries", "", "query vectors for the route, .npy")
	flags.StringVar(&f.strategy, "strategy", "", "per_embedding, average, combined, distilled, companion or scan; empty is the route's")
	flags.IntVar(&f.depth, "depth", 0, "rows of each first-stage search; 0 is the route's")
	flags.IntVar(&f.avgDepth, "average-depth", 0, "rows of the averaged search of combined; 0 is the route's")
	flags.StringVar(&f.head, "head", "", "learned search of distilled; empty is the route's")
	cmd.MarkFlagsRequiredTogether("config", "route", "queries")
}

func (f *benchFlags) run(ctx context.Context, stderr io.Writer) (benchReport, error) {
	s := f.synthetic
	if f.cores < 1 || s.K < 1 || s.Searches < 1 || s.Items < 1 || s.Candidates < s.K || s.Turns < 0 {
		return benchReport{}, usagef("--cores, --k, --searches and --items start at 1, --candidates at --k, --events at 0")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(f.cores))
	defer collectAtFloor()() // as serve does
	report := benchReport{Cores: f.cores}
	if f.route == "" {
		k, err := kernel.Named(f.kernel)
		if err != nil {
			return report, usagef("--%v", err)
		}
		s.Kernel, report.Kernel = k, k.Name()
		report.Results, err = bench.RunSynthetic(ctx, s, func(name string) { _, _ = fmt.Fprintln(stderr, "measuring", name) })
		return report, err
	}
	result, err := f.runRoute(ctx)
	report.Results = []bench.Result{result}
	return report, err
}

func (f *benchFlags) runRoute(ctx context.Context) (_ bench.Result, err error) {
	c, err := config.Load(f.source.Source)
	if err != nil {
		return bench.Result{}, err
	}
	queries, err := f.readQueries()
	if err != nil {
		return bench.Result{}, err
	}
	parts, err := wiring.Open(ctx, c, wiring.Only(f.route, ""))
	if err != nil {
		return bench.Result{}, badRoute(err)
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	return bench.Run(ctx, parts.Routes[0], search.Request{
		K: f.synthetic.K, Strategy: rerank.Strategy(f.strategy), Depth: f.depth, AverageDepth: f.avgDepth, Head: f.head,
	}, queries, nil, f.synthetic.Turns)
}

func (f *benchFlags) readQueries() ([]rerank.Query, error) {
	m, err := npy.Open(f.queries)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if m.Rows == 0 {
		return nil, usagef("--queries: %s has no row", f.queries)
	}
	queries := make([]rerank.Query, f.synthetic.Searches)
	for i := range queries { // equally spaced, because the file may be ordered
		queries[i].Vector = slices.Clone(m.Row(i * m.Rows / len(queries) % m.Rows))
	}
	return queries, nil
}

func printBench(w io.Writer, r benchReport) error {
	_, _ = fmt.Fprintf(w, "milliseconds, p50 / p99, %d core(s)\n\n", r.Cores)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "case\tstrategy\tplacement\tcandidates\tencode\tretrieve\tin store\tscore\tcertify\ttotal\town\t")
	for _, s := range r.Results {
		store := "server"
		if s.Store != nil {
			store = pair(*s.Store)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", s.Case, s.Strategy, s.Placement, s.Candidates,
			pair(s.Encode), pair(s.Retrieve), store, pair(s.Score), pair(s.Certify), pair(s.Total), pair(s.Own))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range r.Results {
		if e := s.Events; e != nil {
			_, _ = fmt.Fprintf(w, "\n%s, %s: events add %.1f µs of processor time to a search (median %.1f), and %.1f allocations, %.3f for each candidate; %d of %d answers were dropped\n",
				s.Case, s.Placement, e.Added, e.Median, e.Allocations, e.Allocations/s.Candidates, e.Dropped, e.Searches)
		}
	}
	return nil
}

func pair(q bench.Quantiles) string { return fmt.Sprintf("%.2f / %.2f", q.P50, q.P99) }
