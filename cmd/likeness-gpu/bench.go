//go:build cuda

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/agreement"
	"github.com/likenessdb/likeness/gpu/bench"
	"github.com/likenessdb/likeness/gpu/cuda"
	"github.com/likenessdb/likeness/gpu/workload"
	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/plugin/device"
)

const benchLong = `bench measures what the device can do at most (memory, tensor cores, float32, special
functions, instructions), then a matrix of cases on tables made up from a seed:
the kernels by the device's own clock, with the share of each limit that they reach,
certified answers in this process, and answers through gRPC on this host. With
--pytorch the same cases run in PyTorch, eager and compiled, where it has CUDA.

With --agreement N it asks N queries of the processors too, as long as --agreement-time,
and counts the answers that are the same.

A report is written whenever a case was measured: what is interrupted has the figures so
far. --part measures some parts, and takes the others of the report that is there.

Bars are met or missed by half of the runs. A missed one says what limits it. The exit
code says only whether everything could be measured.`

// benchFlags holds the flags of `likeness-gpu bench`.
type benchFlags struct {
	machine                         machineFlags
	cases, parts                    []string
	rows                            int
	seed                            uint32
	quick                           bool
	output, report, pytorch, script string
	agreement                       int
	agreementTime                   time.Duration
}

func newBench(stdout, stderr io.Writer) *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the device, the kernels and the answers, beside PyTorch",
		Long:  benchLong,
		Example: `  likeness-gpu bench
  likeness-gpu bench --pytorch python3 --report gpu-results
  likeness-gpu bench --quick --case scan-8x8x32 --output json
  likeness-gpu bench --part agreement --agreement 10000 --agreement-time 8m --report gpu-results`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), stdout, stderr) },
	}
	f.machine.add(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.cases, "case", nil, "names of the cases to measure; all without it")
	flags.StringSliceVar(&f.parts, "part", nil, "parts to measure, of limits, kernels, answers, agreement and pytorch; the report's others stay. All without it, into a new report")
	flags.IntVar(&f.agreement, "agreement", 0, "queries of "+bench.AgreementCase+" to ask of the processors too; 0: none")
	flags.DurationVar(&f.agreementTime, "agreement-time", 2*time.Minute, "the longest to ask them for, once the table is made")
	flags.IntVar(&f.rows, "rows", 0, "rows of a table at most, for a try; smaller cases have no bars")
	flags.Uint32Var(&f.seed, "seed", 1, "of what is made up")
	flags.BoolVar(&f.quick, "quick", false, "measure less often")
	flags.StringVarP(&f.output, "output", "o", "text", "what to print: text or json")
	flags.StringVar(&f.report, "report", "", "folder that gets gpu.json, gpu.md, gpu.svg and summary.txt")
	flags.StringVar(&f.pytorch, "pytorch", "", "a Python that has PyTorch, to compare with")
	flags.StringVar(&f.script, "script", filepath.Join("bench", "gpu", "baseline.py"), "the program of the comparison")
	return cmd
}

func (f *benchFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	cases, err := workload.Named(f.cases)
	if err != nil {
		return fmt.Errorf("--case: %w", err)
	}
	if f.output != "text" && f.output != "json" || f.rows < 0 {
		return fmt.Errorf("--output is %q, want text or json; --rows is 0 at least", f.output)
	}
	if f.agreement < 0 || f.agreementTime <= 0 {
		return errors.New("--agreement is 0 at least, --agreement-time is above it")
	}
	parts, err := f.partsOf()
	if err != nil {
		return err
	}
	before, err := f.before()
	if err != nil {
		return err
	}
	o := bench.Options{
		Parts: parts, Before: before, Saved: f.save,
		Agreement: agreement.Options{Queries: f.agreement, Batch: 32, Time: f.agreementTime, Seed: f.seed},
		Cases:     cases, Seed: f.seed, Rows: f.rows, Quick: f.quick, Effort: workload.Effort{Runs: 200, Warm: 10, Time: 3 * time.Second},
		Open: f.open, Device: func() (*gpu.Device, error) { return f.machine.open(slog.New(slog.NewTextHandler(stderr, nil))) },
		Plugin: throughSocket, Told: func(what string) { _, _ = fmt.Fprintln(stderr, what) },
	}
	if f.quick {
		o.Effort = workload.Effort{Runs: 20, Warm: 2, Time: 250 * time.Millisecond}
	}
	if f.pytorch != "" {
		o.PyTorch = &bench.PyTorch{Python: f.pytorch, Script: f.script}
		if f.quick {
			o.PyTorch.Arguments = []string{"--seconds", "0.3", "--runs", "10"}
		}
	}
	r, err := bench.Run(ctx, o)
	if err == nil {
		err = f.save(r)
	}
	if err != nil {
		return err
	}
	if f.output == "json" {
		e := json.NewEncoder(stdout)
		e.SetIndent("", " ")
		return e.Encode(r)
	}
	return r.Text(stdout)
}

// partsOf are those that are asked for; nil: all.
func (f *benchFlags) partsOf() (parts []bench.Part, err error) {
	for _, name := range f.parts {
		p := bench.Part(name)
		switch {
		case !slices.Contains(bench.Parts(), p):
			return nil, fmt.Errorf("--part: there is no %q; there are %q", name, bench.Parts())
		case p == bench.PartAgreement && f.agreement == 0:
			return nil, errors.New("--part agreement takes --agreement, the number of queries")
		case p == bench.PartPyTorch && f.pytorch == "":
			return nil, errors.New("--part pytorch takes --pytorch, a Python that has it")
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// before is the report that parts are measured for; nil: a new one.
func (f *benchFlags) before() (*bench.Report, error) {
	if f.report == "" || len(f.parts) == 0 {
		return nil, nil //nolint:nilnil // none, and no failure
	}
	path := filepath.Join(f.report, "gpu.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // none yet
	}
	if err != nil {
		return nil, err
	}
	r, err := bench.Read(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to begin another report", path, err)
	}
	return r, nil
}

// save writes what was measured so far.
func (f *benchFlags) save(r *bench.Report) error {
	r.Version, r.Date, r.Command = build().Version, time.Now().UTC().Format(time.DateOnly), f.command()
	if f.report == "" {
		return nil
	}
	if err := write(f.report, r); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// command returns the command line that made a report, so that others can repeat it.
func (f *benchFlags) command() string {
	c := "likeness-gpu bench"
	if f.quick {
		c += " --quick"
	}
	if len(f.cases) > 0 {
		c += " --case " + strings.Join(f.cases, ",")
	}
	if f.pytorch != "" {
		c += " --pytorch python3"
	}
	if len(f.parts) > 0 {
		c += ", part by part"
	}
	return c
}

// measured is a machine whose limits are measured too.
type measured struct{ *cuda.Machine }

func (m measured) Limits(bytes int64) (bench.Limiter, error) { return m.Machine.Limits(bytes) }

func (f *benchFlags) open() (bench.Machine, error) {
	m, err := f.machine.machine(true)
	if err != nil {
		return nil, err
	}
	return measured{m}, nil
}

// throughSocket serves a device at a Unix socket, and returns a client of it.
func throughSocket(ctx context.Context, d *gpu.Device) (_ device.Device, stop func(), err error) {
	dir, err := os.MkdirTemp("", "likeness-gpu")
	if err != nil {
		return nil, nil, err
	}
	at := filepath.Join(dir, "device.sock")
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", at)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	server := grpc.NewServer()
	device.Register(server, d, device.Limits{})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	conn, err := grpc.NewClient("unix:"+at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	stop = func() {
		if conn != nil {
			_ = conn.Close()
		}
		server.Stop()
		<-ended
		os.RemoveAll(dir)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return device.NewClient(conn), stop, nil
}

// write writes the report into a folder as a page, figures, a plot and a summary.
func write(folder string, r *bench.Report) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	figures, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	for name, content := range map[string]string{"gpu.md": "# A GPU\n\n" + r.Page(), "gpu.json": string(figures) + "\n", "gpu.svg": r.Plot(), "summary.txt": r.Summary()} {
		fill := func(w io.Writer) error {
			_, err := io.WriteString(w, content)
			return err
		}
		if err := atomicfile.Write(filepath.Join(folder, name), fill); err != nil {
			return err
		}
	}
	return nil
}
