package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/internal/filelock"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/telemetry"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

const reconcileLong = `Adds missing rows to the live table and the companion, updates changed rows and removes
surplus ones. It never writes to the collection. With --address a running sidecar does
so; otherwise the command opens the files itself, which it refuses while a sidecar uses
them. It reads at most reconcile.rows_per_second, and goes on where an interrupted run
stopped.
` + adminNote

// reconcileFlags are the flags of reconcile.
type reconcileFlags struct {
	adminFlags

	compare bool
}

func newReconcileCommand(a *app) *cobra.Command {
	f := &reconcileFlags{}
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Bring a route's live table and companion in step with their collection",
		Long:  reconcileLong,
		Example: `  likeness reconcile --config likeness.yaml --route products
  likeness reconcile --config likeness.yaml --route products --compare --output json
  likeness reconcile --address 127.0.0.1:7600 --route products`,
		Args: cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	out := f.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("address", "compare")
	cmd.MarkFlagsMutuallyExclusive("address", "config")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		reconcile := func(ctx context.Context) (reconciled, error) { return f.run(ctx, a, src) }
		if cmd.Flags().Changed("address") {
			reconcile = f.ask
		}
		r, err := reconcile(cmd.Context())
		if errors.Is(err, filelock.ErrHeld) {
			return fmt.Errorf("%w; a sidecar that serves the route can be asked with --address", err)
		}
		if err != nil {
			return err
		}
		return a.print(*out, r, func(w io.Writer) error { return printReconciled(w, r) })
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *reconcileFlags) flags(cmd *cobra.Command) *output {
	cmd.Flags().BoolVar(&f.compare, "compare", false, "say what differs, and repair nothing")
	return f.add(cmd)
}

// reconciled is the report of `likeness reconcile`.
type reconciled struct {
	Route    string `json:"route"`
	Repaired bool   `json:"repaired"`
	follow.Drift
}

// ask makes a running sidecar reconcile the route.
func (f *reconcileFlags) ask(ctx context.Context) (reconciled, error) {
	answer, err := callAdmin(ctx, &f.adminFlags, func(ctx context.Context, c likenessv1.AdminServiceClient, o ...grpc.CallOption) (*likenessv1.ReconcileResponse, error) {
		return c.Reconcile(ctx, &likenessv1.ReconcileRequest{Route: f.route}, o...)
	})
	if err != nil {
		return reconciled{}, err
	}
	return reconciled{Route: f.route, Repaired: true, Drift: toDrift(answer.GetDrift())}, nil
}

func toDrift(d *likenessv1.Drift) follow.Drift {
	return follow.Drift{
		Rows: d.GetRows(), Missing: d.GetMissing(), Changed: d.GetChanged(), Surplus: d.GetSurplus(), Unfit: d.GetUnfit(),
	}
}

func (f *reconcileFlags) run(ctx context.Context, a *app, src *source) (r reconciled, err error) {
	c, err := config.Load(src.Source)
	if err != nil {
		return r, err
	}
	parts, opened, err := f.open(ctx, c)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	r = reconciled{Route: f.route, Repaired: !f.compare}
	p := newProgress(a.stderr)
	if f.compare {
		r.Drift, err = follow.Compare(ctx, opened, p.begin)
		return r, err
	}
	log, err := telemetry.NewLogger(a.stderr, c.Log.Level, c.Log.Format)
	if err != nil {
		return r, err
	}
	followers, err := wiring.Follow(c, parts, follow.Options{Logger: log, OnRequest: true})
	if err != nil {
		return r, err
	}
	defer func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, followers.Close(ended))
	}()
	rt := c.Routes[f.route]
	shown := make(chan struct{})
	watched, stop := context.WithCancel(ctx)
	go func() {
		defer close(shown)
		watch(watched, followers, p.begin("comparing the rows of "+rt.Collection, -1))
	}()
	found, err := followers[rt.StoreName].Reconcile(ctx, rt.Collection)
	stop()
	<-shown
	r.Drift = found[f.route]
	return r, err
}

// watch reports the number of rows read to done, until ctx ends.
func watch(ctx context.Context, followers wiring.Followers, done func(n int)) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	shown := int64(0)
	for {
		rows := followers.Status()[0].Rows
		done(int(rows - shown))
		shown = rows
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// part names what to open. With --compare, which needs no journal, that is the route alone.
func (f *reconcileFlags) part() wiring.Part {
	if f.compare {
		return wiring.Only(f.route, "")
	}
	return wiring.WithJournal(f.route)
}

// open opens what part names, and returns the route.
func (f *reconcileFlags) open(ctx context.Context, c *config.Config) (*wiring.Assembly, *route.Route, error) {
	_, r, err := choice.InService(c, f.route, "")
	switch {
	case err != nil:
		return nil, nil, badRoute(err)
	case !r.TableLive && r.Companion == "":
		return nil, nil, usagef("--route: %q has neither a live table (table_live) nor a companion", f.route)
	case c.Stores[r.StoreName].Kind == "embedded":
		return nil, nil, usagef("--route: the collections of an embedded store never change")
	case c.StateDir == "" && !f.compare:
		return nil, nil, usagef("there is no journal of writes; set state_dir, or give --compare")
	}
	parts, err := wiring.Open(ctx, c, f.part())
	if err != nil {
		return nil, nil, err
	}
	rt := parts.Versions[f.route].Route
	if !follow.Followed(rt) {
		return nil, nil, errors.Join(usagef("--route: what %q has is not derived row by row, or nothing is", f.route), parts.Close())
	}
	return parts, rt, nil
}

func printReconciled(w io.Writer, r reconciled) error {
	_, _ = fmt.Fprintf(w, "%d rows compared: %d missing, %d changed, %d surplus", r.Rows, r.Missing, r.Changed, r.Surplus)
	if r.Repaired && r.Differing() > 0 {
		_, _ = fmt.Fprint(w, "; repaired")
	}
	if r.Unfit > 0 {
		_, _ = fmt.Fprintf(w, "; %d have numbers that the table's format cannot hold", r.Unfit)
	}
	_, err := fmt.Fprintln(w)
	return err
}
