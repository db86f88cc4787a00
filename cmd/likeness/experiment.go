package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/sidecar/experiment"
)

func newExperimentCommand(a *app) *cobra.Command {
	return newGroup("experiment", "Plan comparisons of two versions on live traffic", newExperimentPlanCommand(a))
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
	flags := cmd.Flags()
	flags.Float64Var(&q.Preference, "preference", q.Preference, "share of the sessions with a preference that prefer the better version")
	flags.Float64Var(&q.Decisive, "decisive", q.Decisive, "share of the sessions with a preference: with clicks, and not as many for both versions")
	flags.Float64Var(&q.Impressions, "impressions", q.Impressions, "answers in a session")
	flags.Float64Var(&q.PerDay, "per-day", 0, "answers of the route in a day; 0: unknown")
	flags.Float64Var(&q.Share, "share", q.Share, "share of the traffic that takes part")
	flags.Float64Var(&q.Alpha, "alpha", q.Alpha, "chance of a decision where nobody is better")
	flags.Float64Var(&q.Power, "power", q.Power, "chance of a decision within the plan")
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

func printExperimentPlan(w io.Writer, q experiment.Question, p experiment.Plan) error {
	_, err := fmt.Fprintf(w, "%d impressions in %d sessions, of which %d have a preference, show a preference of %g : %g with a chance of %g %%\n",
		p.Impressions, p.Sessions, p.Preferences, 100*q.Preference, 100-100*q.Preference, 100*q.Power)
	if err == nil && p.Days > 0 {
		_, err = fmt.Fprintf(w, "%.1f days, if %g %% of %g answers a day take part\n", p.Days, 100*q.Share, q.PerDay)
	}
	return err
}
