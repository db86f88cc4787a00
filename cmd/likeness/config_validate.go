package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/serve"
)

// validation is the JSON output of `likeness config validate`.
type validation struct {
	Stores  int  `json:"stores"`
	Models  int  `json:"models"`
	Rankers int  `json:"rankers"`
	Routes  int  `json:"routes"`
	Connect bool `json:"connected"`
	// Calibrations describes the calibrated routes. It is filled only with --connect,
	// because a calibration depends on the stores' indexes.
	Calibrations []routeCalibration `json:"calibrations,omitempty"`
	// Unanswered lists the routes that answer no search of the proxy's clients. It is
	// filled in with --connect only.
	Unanswered []serve.Unanswered `json:"proxy_unanswered,omitempty"`
	// NotRewritten lists the routes whose searches the proxy does not rewrite although no placement
	// is configured. It is filled only with --connect, because it depends on the vector field.
	NotRewritten []routeNotRewritten `json:"not_rewritten,omitempty"`
	// NeverExact lists the routes with exact_search whose vector field can give no exact list. It
	// is filled only with --connect.
	NeverExact []routeNeverExact `json:"never_exact,omitempty"`
	// WrongNorms lists the routes that declare unit_vectors over vectors of other norms. It is filled
	// only with --connect.
	WrongNorms []routeWrongNorm `json:"wrong_norms,omitempty"`
	// Uncertain lists the routes whose experiment cannot tell people apart.
	Uncertain []routeUncertain `json:"uncertain_experiments,omitempty"`
}

// routeWrongNorm names a row of a route with unit_vectors whose vector does not have norm 1.
type routeWrongNorm struct {
	Route string `json:"route"`
	Row   string `json:"row"`
}

// routeUncertain says why the verdict of a route's experiment may be surer than it should be.
type routeUncertain struct {
	Route string `json:"route"`
	Why   string `json:"why"`
}

// routeNeverExact says why exact_search cannot make the lists of a route exact.
type routeNeverExact struct {
	Route string `json:"route"`
	Why   string `json:"why"`
}

// routeNotRewritten says why the proxy does not rewrite the searches of a route.
type routeNotRewritten struct {
	Route     string          `json:"route"`
	Placement route.Placement `json:"placement"`
	Why       string          `json:"why"`
}

// routeCalibration is the promise of a route's answers, or the reason why they make
// none.
type routeCalibration struct {
	Route        string              `json:"route"`
	Calibration  *rerank.Calibration `json:"calibration,omitempty"`
	Uncalibrated string              `json:"uncalibrated,omitempty"`
}

func newConfigValidateCommand(a *app) *cobra.Command {
	var o serve.CheckOptions
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration with the files that it names",
		Long: `Refuses what serve refuses, with the same error: an invalid configuration, files that
are missing or damaged, and parts that do not fit each other. It starts no plugin, opens
no listener, and can run beside a sidecar.

--connect also asks the stores and the proxied REST API. It then lists the promises of
calibrated routes, and the searches that cannot be answered.`,
		Example: `  likeness config validate --config likeness.yaml
  likeness config validate --config likeness.yaml --connect --timeout 10s`,
		Args: cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	addCheckFlags(cmd, &o)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := config.Load(src.Source)
		if err != nil {
			return err
		}
		v := validation{Stores: len(c.Stores), Models: len(c.Models), Rankers: len(c.Rankers), Routes: len(c.Routes), Connect: o.Connect}
		checked, err := serve.Check(cmd.Context(), c, o)
		if err != nil {
			return err
		}
		v.Uncertain = uncertain(c)
		if o.Connect {
			v.Calibrations, v.Unanswered, v.NotRewritten = calibrations(checked.Routes), checked.Unanswered, notRewritten(checked.Routes)
			v.NeverExact, v.WrongNorms = neverExact(checked.Routes), wrongNorms(checked.Routes)
		}
		return a.print(*out, v, func(w io.Writer) error { return printValidation(w, v) })
	}
	return cmd
}

// addCheckFlags adds the flags that say how the stores are asked.
func addCheckFlags(cmd *cobra.Command, o *serve.CheckOptions) {
	cmd.Flags().BoolVar(&o.Connect, "connect", false, "ask the stores too")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 10*time.Second, "time for --connect")
}

func printValidation(w io.Writer, v validation) error {
	rankers := ""
	if v.Rankers > 0 {
		rankers = fmt.Sprintf("%d rankers, ", v.Rankers)
	}
	_, err := fmt.Fprintf(w, "valid: %d stores, %d models, %s%d routes\n", v.Stores, v.Models, rankers, v.Routes)
	for _, r := range v.Calibrations {
		if c := r.Calibration; c != nil && r.Uncalibrated == "" {
			_, err = fmt.Fprintf(w, "route %s: recall@%d >= %.4g for %.4g %% of the queries, at depth %d\n", r.Route, c.K, c.Recall, 100*c.Share, c.Rule.Depth)
		} else {
			_, err = fmt.Fprintf(w, "route %s: its calibration is not claimed: %s\n", r.Route, r.Uncalibrated)
		}
	}
	for _, r := range v.NotRewritten {
		_, err = fmt.Fprintf(w, "route %s: placement %s, since its searches cannot be rewritten: %s\n", r.Route, r.Placement, r.Why)
	}
	for _, r := range v.NeverExact {
		_, err = fmt.Fprintf(w, "route %s: exact_search makes none of its lists exact: %s\n", r.Route, r.Why)
	}
	for _, r := range v.WrongNorms {
		_, err = fmt.Fprintf(w, "warning: route %s: unit_vectors is declared and %s: no answer is exact; write unit vectors, or use a cosine field\n", r.Route, r.Row)
	}
	for _, r := range v.Uncertain {
		_, err = fmt.Fprintf(w, "warning: route %s: %s\n", r.Route, r.Why)
	}
	for _, r := range v.Unanswered {
		_, err = fmt.Fprintf(w, "route %s: the proxy leaves every search of it to the database: reason=%s (docs/proxy.md says what that means)\n", r.Route, r.Reason)
	}
	return err
}

// notRewritten returns the routes whose searches the proxy does not rewrite although no placement
// is configured, with the reasons.
func notRewritten(routes []*route.Route) (all []routeNotRewritten) {
	for _, r := range routes {
		if r.WhyNotRewritten != "" {
			all = append(all, routeNotRewritten{r.Name, r.Placement, r.WhyNotRewritten})
		}
	}
	return all
}

// uncertain returns the routes whose experiment cannot tell people apart, with the reasons.
func uncertain(c *config.Config) (all []routeUncertain) {
	for _, name := range c.RouteNames() {
		if why := c.Routes[name].WhyUncertain(); why != "" {
			all = append(all, routeUncertain{name, why})
		}
	}
	return all
}

// neverExact returns the routes whose vector field cannot give the exact lists that exact_search
// asks for.
func neverExact(routes []*route.Route) (all []routeNeverExact) {
	for _, r := range routes {
		if r.WhyNeverExact != "" {
			all = append(all, routeNeverExact{r.Name, r.WhyNeverExact})
		}
	}
	return all
}

// wrongNorms returns the routes with unit_vectors that have seen a row whose norm is not 1.
func wrongNorms(routes []*route.Route) (all []routeWrongNorm) {
	for _, r := range routes {
		if wrong := r.Norms.Wrong(); wrong != nil {
			all = append(all, routeWrongNorm{r.Name, wrong.String()})
		}
	}
	return all
}

func calibrations(routes []*route.Route) (all []routeCalibration) {
	for _, r := range routes {
		if r.Promise == nil {
			continue
		}
		if c, void := r.Promise.Calibration(); c != nil || void != "" {
			all = append(all, routeCalibration{r.Name, c, void})
		}
	}
	return all
}
