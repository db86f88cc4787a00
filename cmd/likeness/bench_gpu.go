package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/gpu/workload"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
	"github.com/likenessdb/likeness/plugin/plugintest"
)

const benchGPULong = `Starts a device as the sidecar does and loads random tables into it. Compares two
answers of each case with the CPU's scores, and measures the device beside the cores of
this machine.

With --config and --route it measures the route's device with the route's model and
table, and does not ask the route's store. likeness-gpu bench measures the kernels and
limits of a GPU.`

// benchGPUFlags are the flags of bench gpu.
type benchGPUFlags struct {
	path     string
	args     []string
	env      []string
	cases    []string
	rows     int
	seed     uint32
	withCPU  bool
	duration time.Duration
	route    benchGPURoute
}

// gpuReport is the JSON report of `likeness bench gpu`.
type gpuReport struct {
	Device  string    `json:"device"`
	Version string    `json:"version"`
	Cases   []gpuCase `json:"cases"`
}

// gpuCase holds the measurements of one case, on the device and in this process.
type gpuCase struct {
	workload.Case
	Plugin workload.Answered  `json:"plugin"`
	CPU    *workload.Answered `json:"cpu,omitempty"`
}

func newBenchGPUCommand(a *app) *cobra.Command {
	f := &benchGPUFlags{}
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "Measure a device through the plugin's protocol, beside this machine's cores",
		Long:  benchGPULong,
		Example: `  likeness bench gpu --plugin /usr/local/bin/likeness-gpu
  likeness bench gpu --config likeness.yaml --route products --queries queries.npy
  likeness bench gpu --plugin ./bin/likeness --args plugin,device --rows 5000 --case rescore-8x4x64`,
		Args: cobra.NoArgs,
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		run := f.run
		if f.route.name != "" {
			run = f.ofRoute
		}
		r, err := run(cmd.Context(), a.stderr)
		if err != nil {
			return err
		}
		return a.print(*out, r, r.text)
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *benchGPUFlags) flags(cmd *cobra.Command) {
	f.route.source = addConfigFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.route.name, "route", "", "measure this route of the configuration")
	flags.StringVar(&f.route.queries, "queries", "", "query vectors for the route, .npy")
	flags.IntVar(&f.route.k, "k", 10, "with a route: rows of an answer")
	flags.IntVar(&f.route.batch, "batch", 32, "with a route: queries at once")
	flags.IntVar(&f.route.candidates, "candidates", 0, "with a route: rows that each query names; 0 scans the table")
	flags.StringVar(&f.path, "plugin", "", "the device's executable")
	flags.StringSliceVar(&f.args, "args", []string{"serve"}, "arguments of the device")
	flags.StringSliceVar(&f.env, "env", nil, "environment variables that the plugin sees")
	flags.StringSliceVar(&f.cases, "case", nil, "names of the cases to measure; all without it")
	flags.IntVar(&f.rows, "rows", 0, "rows of a table at most; 0 is the case's own")
	flags.Uint32Var(&f.seed, "seed", 1, "seed of the generated data")
	flags.BoolVar(&f.withCPU, "cpu", true, "measure the scorer of this process too")
	flags.DurationVar(&f.duration, "time", 3*time.Second, "time to measure a case for, at most, after one answer")
	cmd.MarkFlagsOneRequired("plugin", "route")
	cmd.MarkFlagsRequiredTogether("config", "route", "queries")
	for _, own := range []string{"plugin", "args", "env", "case", "seed"} { // fixed by the route
		cmd.MarkFlagsMutuallyExclusive("route", own)
	}
}

func (f *benchGPUFlags) run(ctx context.Context, stderr io.Writer) (*gpuReport, error) {
	cases, err := workload.Named(f.cases)
	if err != nil {
		return nil, usagef("--case: %w", err)
	}
	c := pluginCheck{env: f.env}
	if err := c.read(); err != nil {
		return nil, err
	}
	conn, stop, err := plugintest.Start(ctx, plugintest.Command{Path: f.path, Args: f.args, Env: c.command.Env, Stderr: stderr, StartTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	defer stop()
	there := device.NewClient(conn)
	said, err := there.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s does not say what it is: %w", f.path, err)
	}
	r := &gpuReport{Device: said.Name, Version: said.Version}
	for i := range cases {
		_, _ = fmt.Fprintf(stderr, "case %d of %d: %s\n", i+1, len(cases), cases[i].Name)
		one, err := f.measure(ctx, there, cases[i].AtMost(f.rows))
		if err != nil {
			return nil, err
		}
		r.Cases = append(r.Cases, one)
	}
	return r, nil
}

func (f *benchGPUFlags) measure(ctx context.Context, there device.Device, c workload.Case) (gpuCase, error) {
	w, err := workload.Make(c, f.seed)
	if err != nil {
		return gpuCase{Case: c}, err
	}
	return f.measureWork(ctx, there, w)
}

func (f *benchGPUFlags) measureWork(ctx context.Context, there device.Device, w *workload.Work) (out gpuCase, err error) {
	out.Case = w.Case
	if out.Plugin, err = f.on(ctx, there, w); err != nil {
		return out, err
	}
	for q := range min(2, len(w.Queries)) {
		if err := w.Check(q, out.Plugin.Answers[q]); err != nil {
			return out, err
		}
	}
	if !f.withCPU {
		return out, nil
	}
	here, err := f.on(ctx, cpu.New(cpu.Options{}), w)
	out.CPU = &here
	return out, err
}

func (f *benchGPUFlags) on(ctx context.Context, d device.Device, w *workload.Work) (out workload.Answered, err error) {
	if err := w.Load(ctx, d); err != nil {
		return out, err
	}
	out, err = w.Measure(ctx, d, workload.Effort{Runs: 200, Warm: 1, Time: f.duration})
	return out, errors.Join(err, w.Unload(ctx, d))
}

func (r *gpuReport) text(w io.Writer) error {
	_, _ = fmt.Fprintf(w, "%s, version %s\nmilliseconds for all queries of a case, least / half / p99\n\n", r.Device, r.Version)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "case\twhat\tthrough the plugin\tthis machine's cores\ttimes")
	for i := range r.Cases {
		c := &r.Cases[i]
		here, times := "", ""
		if c.CPU != nil {
			here, times = milliseconds(c.CPU.Batch), fmt.Sprintf("%.1f", c.CPU.Batch.P50/max(c.Plugin.Batch.P50, 1e-9))
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.Case.String(), milliseconds(c.Plugin.Batch), here, times)
	}
	return t.Flush()
}

func milliseconds(t workload.Times) string {
	return fmt.Sprintf("%.2f / %.2f / %.2f", t.Min, t.P50, t.P99)
}
