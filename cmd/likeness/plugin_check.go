package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/plugintest"
	"github.com/likenessdb/likeness/rerank"
)

// errCheck: the plugin failed a case of the conformance kit.
var errCheck = errors.New("the plugin does not conform")

// pluginCheck holds the arguments of `likeness plugin check`.
type pluginCheck struct {
	command plugintest.Command
	options plugintest.Options
	query   string
	items   string
	env     []string
}

// pluginReport is the JSON report of `likeness plugin check`.
type pluginReport struct {
	Name    string              `json:"name"`
	Version string              `json:"version"`
	Cases   []plugintest.Result `json:"cases"`
	Failed  int                 `json:"failed"`
}

func newPluginCheckCommand(a *app) *cobra.Command {
	var c pluginCheck
	cmd := &cobra.Command{
		Use:   "check PATH [ARGUMENT...]",
		Short: "Run the conformance kit against a scorer or a device",
		Long: `Starts a scorer or a device as the sidecar does and runs the cases that likeness relies
on. Exit code 1: a case failed. Queries and items are made up; --dim, --query and
--items provide those that the scorer needs. Flags must precede PATH; arguments after
PATH are the scorer's.`,
		Example: `  likeness plugin check ./scorer_go
  likeness plugin check --query "Where is my card?" --items items.jsonl ./scorer_go -corpus items.jsonl`,
		Args: cobra.MinimumNArgs(1),
	}
	c.add(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.command.Path, c.command.Args, c.command.Stderr = args[0], args[1:], a.stderr
		report, err := a.checkPlugin(cmd.Context(), c)
		if err != nil {
			return err
		}
		if err := a.print(*out, report, report.text); err != nil {
			return err
		}
		if report.Failed > 0 {
			return fmt.Errorf("%w: %d of %d cases failed", errCheck, report.Failed, len(report.Cases))
		}
		return nil
	}
	return cmd
}

func (c *pluginCheck) add(cmd *cobra.Command) {
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().IntVar(&c.options.Dim, "dim", 384, "length of the vectors that are made up")
	cmd.Flags().StringVar(&c.query, "query", "", "the text of a query that it can read")
	cmd.Flags().StringVar(&c.items, "items", "", "payloads of items that it can read, a JSON object a line")
	cmd.Flags().StringSliceVar(&c.env, "env", nil, "environment variables that the plugin sees")
	cmd.Flags().DurationVar(&c.options.Timeout, "timeout", 30*time.Second, "time for a case")
	cmd.Flags().DurationVar(&c.command.StartTimeout, "start-timeout", 10*time.Second, "time to start")
	cmd.Flags().Float64Var(&c.options.Tolerance, "tolerance", 1e-5, "relative difference of two scores of one item, at most")
}

func (a *app) checkPlugin(ctx context.Context, c pluginCheck) (*pluginReport, error) {
	if err := c.read(); err != nil {
		return nil, err
	}
	conn, stop, err := plugintest.Start(ctx, c.command)
	if err != nil {
		return nil, err
	}
	defer stop()
	done, failed := newProgress(a.stderr).begin("cases", -1), 0
	told := func(r plugintest.Result) {
		done(1)
		if r.State == plugintest.Failed {
			failed++
		}
	}
	c.options.Conn = conn
	scorer := plugin.NewClient(conn)
	d, err := scorer.Describe(ctx)
	if err != nil {
		if report, ok := checkDevice(ctx, conn, c.options, told); ok {
			report.Failed = failed
			return report, ctx.Err()
		}
		return nil, fmt.Errorf("%s does not say what it is: %w", c.command.Path, err)
	}
	report := &pluginReport{Name: d.Name, Version: d.Version, Cases: plugintest.Check(ctx, scorer, c.options, told)}
	report.Failed = failed
	return report, ctx.Err()
}

// read reads the files that the flags name.
func (c *pluginCheck) read() error {
	for _, name := range c.env {
		if value, ok := os.LookupEnv(name); ok {
			c.command.Env = append(c.command.Env, name+"="+value)
		}
	}
	if c.query != "" {
		c.options.Query = &plugin.Query{Text: c.query}
	}
	if c.items == "" {
		return nil
	}
	file, err := os.Open(c.items)
	if err != nil {
		return err
	}
	defer file.Close()
	const most = 1000
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 0; n < most && lines.Scan(); n++ {
		if !json.Valid(lines.Bytes()) {
			return fmt.Errorf("--items: %s: line %d is not JSON", c.items, n+1)
		}
		c.options.Items = append(c.options.Items, plugin.Item{ID: rerank.UintID(uint64(n)), Payload: append([]byte(nil), lines.Bytes()...)})
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("--items: %s: %w", c.items, err)
	}
	if n := len(c.options.Items); n < 2 {
		return fmt.Errorf("--items: %s has %d lines, want 2 at least", c.items, n)
	}
	return nil
}

func (r *pluginReport) text(w io.Writer) error {
	_, _ = fmt.Fprintf(w, "%s, version %s\n\n", r.Name, r.Version)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "case\tstate\tseconds\twants")
	for _, c := range r.Cases {
		wants := c.Wants
		if c.State == plugintest.Skipped {
			wants += ": " + c.Detail
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%.3f\t%s\n", c.Case, c.State, c.Seconds, wants)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, c := range r.Cases {
		if c.State == plugintest.Failed {
			_, _ = fmt.Fprintf(w, "\n%s: %s\n", c.Case, c.Detail)
		}
	}
	return nil
}
