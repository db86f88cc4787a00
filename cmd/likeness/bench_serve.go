package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/bench"
)

const benchServeLong = `First --workers callers send a query as soon as the last one is answered (a closed
loop), which measures the capacity. Then each --load, a multiple of the capacity, is
sent at random times that do not depend on answers (an open loop); latency counts from
the time at which a call was due. --rate sets the calls per second instead.

A call ends as good, degraded, refused (by a limit), late, failed, or unsent (beyond
--max-open). Of good answers, own is the sidecar's time without its store, and around is
the time in the network, in queues and in this program. If both run on one machine, they
share its capacity.`

// benchServeFlags are the flags of bench serve.
type benchServeFlags struct {
	dial           dialFlags
	route, queries string
	k              int32
	strategy       string
	timeout        time.Duration
	load           bench.Load
	rates          []string
	multiples      []string
}

func newBenchServeCommand(a *app) *cobra.Command {
	f := &benchServeFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Load a running sidecar and measure its answers",
		Long:  benchServeLong,
		Example: `  likeness bench serve --route questions --queries queries.npy
  likeness bench serve --route questions --queries queries.npy --rate 200,400 --duration 30s --output json`,
		Args: cobra.NoArgs,
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := f.run(cmd.Context(), newProgress(a.stderr))
		if err != nil {
			return err
		}
		return a.print(*out, report, func(w io.Writer) error { return printLoad(w, report) })
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *benchServeFlags) flags(cmd *cobra.Command) {
	f.dial.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.route, "route", "r", "", "route to search")
	flags.StringVar(&f.queries, "queries", "", "query vectors, .npy")
	flags.Int32VarP(&f.k, "k", "k", 10, "length of an answer")
	flags.StringVar(&f.strategy, "strategy", "", "per_embedding, average, combined, distilled, companion or scan; empty is the route's")
	flags.DurationVar(&f.timeout, "timeout", time.Second, "time that a caller waits for an answer")
	flags.IntVar(&f.load.Workers, "workers", 16, "callers of the closed loop")
	flags.StringSliceVar(&f.multiples, "load", []string{"0.8", "5"}, "open loops at these multiples of the capacity")
	flags.StringSliceVar(&f.rates, "rate", nil, "open loops at these calls a second, and no closed one")
	flags.DurationVar(&f.load.Duration, "duration", 10*time.Second, "time of each loop")
	flags.DurationVar(&f.load.WarmUp, "warm-up", 2*time.Second, "time before each loop that is not measured")
	flags.IntVar(&f.load.MaxOpen, "max-open", 4096, "calls of an open loop that wait for an answer, at most")
	flags.Uint64Var(&f.load.Seed, "seed", 1, "seed of the times of an open loop")
	for _, name := range []string{"route", "queries"} {
		_ = cmd.MarkFlagRequired(name)
	}
	cmd.MarkFlagsMutuallyExclusive("load", "rate")
}

// loadReport is the JSON report of `likeness bench serve`.
type loadReport struct {
	Route string             `json:"route"`
	Loops []bench.LoadResult `json:"loops"`
}

func (f *benchServeFlags) run(ctx context.Context, p *progress) (_ *loadReport, err error) {
	rates, err := numbers("--rate", f.rates)
	if err != nil {
		return nil, err
	}
	multiples, err := numbers("--load", f.multiples)
	if err != nil {
		return nil, err
	}
	if f.load.Workers < 1 || f.load.MaxOpen < 1 || f.load.Duration <= 0 || f.load.WarmUp < 0 || f.timeout <= 0 {
		return nil, usagef("--workers and --max-open start at 1, --duration and --timeout are more than 0")
	}
	call, done, err := f.caller()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if err := f.try(ctx, call); err != nil {
		return nil, err
	}
	report := &loadReport{Route: f.route}
	loop := func(rate float64, name string) bench.LoadResult {
		l := f.load
		l.Rate = rate
		ended := p.begin(name, 1)
		r := l.RunSpent(ctx, func(ctx context.Context, n int) (bench.Outcome, bench.Spent) {
			answer, err := call(ctx, n)
			return outcomeOf(answer, err), spent(answer)
		})
		ended(1)
		report.Loops = append(report.Loops, r)
		return r
	}
	if len(rates) == 0 {
		capacity := loop(0, fmt.Sprintf("closed loop of %d callers", f.load.Workers)).Goodput
		if capacity == 0 {
			return report, ctx.Err()
		}
		for _, m := range multiples {
			rates = append(rates, m*capacity)
		}
	}
	for _, rate := range rates {
		loop(rate, fmt.Sprintf("open loop of %.0f calls a second", rate))
	}
	return report, ctx.Err()
}

// try makes one call before the load, to report mistakes in the flags.
func (f *benchServeFlags) try(ctx context.Context, call func(context.Context, int) (*likenessv1.SearchResponse, error)) error {
	_, err := call(ctx, 0)
	switch outcomeOf(nil, err) {
	case bench.Failed:
		return callError(f.dial.address, err)
	default:
		return nil
	}
}

// caller returns a function that makes the nth call, taking the queries in turn, and a function
// that closes its connection and file.
func (f *benchServeFlags) caller() (call func(context.Context, int) (*likenessv1.SearchResponse, error), done func() error, err error) {
	m, err := npy.Open(f.queries)
	if err != nil {
		return nil, nil, usageError{err}
	}
	if m.Rows == 0 {
		return nil, nil, errors.Join(usagef("--queries: %s has no row", f.queries), m.Close())
	}
	conn, err := f.dial.connect()
	if err != nil {
		return nil, nil, errors.Join(err, m.Close())
	}
	options, err := f.dial.callOptions()
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close(), m.Close())
	}
	var strategy int32
	if f.strategy != "" {
		if strategy, err = enumValue("strategy", "STRATEGY_", f.strategy, likenessv1.Strategy_value); err != nil {
			return nil, nil, errors.Join(err, conn.Close(), m.Close())
		}
	}
	client := likenessv1.NewSearchServiceClient(conn)
	call = func(ctx context.Context, n int) (*likenessv1.SearchResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		return client.Search(ctx, &likenessv1.SearchRequest{
			Route: f.route, Query: &likenessv1.Query{Vector: m.Row(n % m.Rows)}, K: f.k, Strategy: likenessv1.Strategy(strategy),
		}, options...)
	}
	return call, func() error { return errors.Join(conn.Close(), m.Close()) }, nil
}

func outcomeOf(answer *likenessv1.SearchResponse, err error) bench.Outcome {
	switch {
	case err == nil && answer.GetDegraded() != nil:
		return bench.Degraded
	case err == nil:
		return bench.Good
	case status.Code(err) == codes.ResourceExhausted:
		return bench.Refused
	case status.Code(err) == codes.DeadlineExceeded:
		return bench.Late
	default:
		return bench.Failed
	}
}

// spent returns the times that an answer reports, or zeros for a nil answer.
func spent(answer *likenessv1.SearchResponse) bench.Spent {
	t := answer.GetTimings()
	return bench.Spent{Search: t.GetTotal().AsDuration(), Store: t.GetRetrieve().AsDuration()}
}

// numbers parses positive numbers. Its errors name the flag.
func numbers(flag string, texts []string) ([]float64, error) {
	var out []float64
	for _, text := range texts {
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !(n > 0) || n > 1e7 {
			return nil, usagef("%s: %q is not a number above 0", flag, text)
		}
		out = append(out, n)
	}
	return out, nil
}

func printLoad(w io.Writer, r *loadReport) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "loop\tgoodput/s\toutcome\tcalls\tp50 ms\tp90 ms\tp99 ms\tp99.9 ms\tmax ms\t")
	for _, l := range r.Loops {
		name := fmt.Sprintf("%d callers", l.Workers)
		if l.Rate > 0 {
			name = fmt.Sprintf("%.0f/s", l.Rate)
		}
		goodput := fmt.Sprintf("%.0f", l.Goodput)
		for _, o := range []bench.Outcome{bench.Good, bench.Degraded, bench.Refused, bench.Late, bench.Failed, bench.Unsent} {
			q, any := l.Latency[o]
			if !any {
				continue
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", name, goodput, o, l.Outcomes[o], times(q))
			name, goodput = "", ""
		}
		if l.Own != nil {
			_, _ = fmt.Fprintf(t, "\t\town\t\t%s\n\t\taround\t\t%s\n", times(*l.Own), times(*l.Around))
		}
	}
	return t.Flush()
}

func times(q bench.LatencyQuantile) string {
	return fmt.Sprintf("%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t", q.P50, q.P90, q.P99, q.P999, q.Max)
}
