package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/trial"
)

func newExperimentCommand(a *app) *cobra.Command {
	return newGroup("experiment", "Comparisons of two versions on live traffic", newExperimentPlanCommand(a), newExperimentStatusCommand(a))
}

const experimentPlanLong = `Says how many sessions an interleaved experiment takes until it shows a preference, when it is
watched after every event: the decision errs with chance --alpha at most if nobody is better.
A session is one person's visit, and counts once. docs/how-to/evaluate.md says more.`

func newExperimentPlanCommand(a *app) *cobra.Command {
	q := experiment.Question{Preference: 0.52, Decisive: 0.1, Alpha: 0.05, Power: 0.9, Impressions: 1, Share: 1}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say how many impressions show a preference",
		Long:  experimentPlanLong,
		Example: `  likeness experiment plan --preference 0.52 --decisive 0.08 --per-day 200000 --share 0.2
  likeness experiment plan --preference 0.55 --decisive 0.3 --impressions 3 --output json`,
		Args: cobra.NoArgs,
	}
	addPlanFlags(cmd, &q)
	out := addOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		p, err := experiment.NewPlan(q)
		if errors.Is(err, experiment.ErrSetting) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		return a.print(*out, p, func(w io.Writer) error { return printExperimentPlan(w, q, p) })
	}
	return cmd
}

// addPlanFlags adds the flags of a question. Their defaults are its present values.
func addPlanFlags(cmd *cobra.Command, q *experiment.Question) {
	flags := cmd.Flags()
	flags.Float64Var(&q.Preference, "preference", q.Preference, "share of the sessions with a preference that prefer the better version")
	flags.Float64Var(&q.Measured, "measured", 0, "sessions with a preference in which --preference was measured, as of an experiment before; 0: it is assumed")
	flags.Float64Var(&q.Decisive, "decisive", q.Decisive, "share of the sessions with a preference: with clicks, and not as many for both versions")
	flags.Float64Var(&q.Impressions, "impressions", q.Impressions, "answers in a session")
	flags.Float64Var(&q.PerDay, "per-day", 0, "answers of the route in a day; 0: unknown")
	flags.Float64Var(&q.Share, "share", q.Share, "share of the traffic that takes part")
	flags.Float64Var(&q.Alpha, "alpha", q.Alpha, "chance of a decision where nobody is better")
	flags.Float64Var(&q.Power, "power", q.Power, "chance of a decision within the plan")
}

func printExperimentPlan(w io.Writer, q experiment.Question, p experiment.Plan) error {
	_, err := fmt.Fprintf(w, "%d impressions in %d sessions, of which %d have a preference, show a preference of %g : %g with a chance of %g %%\n",
		p.Impressions, p.Sessions, p.Preferences, 100*q.Preference, 100-100*q.Preference, 100*q.Power)
	if err == nil && p.Days > 0 {
		_, err = fmt.Fprintf(w, "%.1f days, if %g %% of %g answers a day take part\n", p.Days, 100*q.Share, q.PerDay)
	}
	return err
}

const experimentStatusLong = `Says who leads in the experiment of a route, how sure that is, and what is missing to know. It
reads state_dir, which a running sidecar writes every few seconds.`

func newExperimentStatusCommand(a *app) *cobra.Command {
	var route string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Say how an experiment stands",
		Long:    experimentStatusLong,
		Example: "  likeness experiment status --config likeness.yaml --route products",
		Args:    cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	cmd.Flags().StringVar(&route, "route", "", "the route")
	_ = cmd.MarkFlagRequired("route")
	out := addOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		c, err := config.Load(src.Source)
		if err != nil {
			return err
		}
		if _, ok := c.Routes[route]; !ok || c.StateDir == "" {
			return usagef("the configuration has no route %q, or no state_dir; it has %q", route, c.RouteNames())
		}
		state, err := trial.Read(c.StateDir, route)
		if err != nil {
			return err
		}
		if state == nil {
			return fmt.Errorf("%w: %q; configure one, and start the sidecar", trial.ErrNone, route)
		}
		status := trial.StatusOf(route, state)
		return a.print(*out, status, func(w io.Writer) error { return printExperiment(w, status) })
	}
	return cmd
}

func printExperiment(w io.Writer, s trial.Status) error {
	_, err := fmt.Fprintf(w, "version %s, %s since %s, share %g: %s\n%d sessions, %d with a preference: mean preference %+.3f, between %+.3f and %+.3f (confidence 1 - %g), evidence %.2f of what decides\n",
		s.Version, s.Stage, s.Started.Format("2006-01-02 15:04"), s.Share, s.Leader(), s.Test.Units, s.Decisive, s.Mean, s.Low, s.High, s.Alpha, s.Evidence)
	if err == nil && s.Missing > 0 {
		_, err = fmt.Fprintf(w, "about %d sessions with a preference are missing, if it stays as it is\n", s.Missing)
	}
	if err == nil && s.Unnamed > 0 {
		_, err = fmt.Fprintf(w, "%d sessions have no user, so that one person may count more than once: keep user in events, and name it in searches\n", s.Unnamed)
	}
	for _, of := range s.Segments {
		if err == nil {
			_, err = fmt.Fprintf(w, "sessions with %s: %s; mean preference %+.3f, between %+.3f and %+.3f; sessions: %s (decides nothing)\n", of.Name, of.Leader(), of.Mean, of.Low, of.High, of.Sides)
		}
	}
	for _, why := range s.Why {
		if err == nil {
			_, err = fmt.Fprintln(w, why)
		}
	}
	return err
}
