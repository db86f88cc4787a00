package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

const dropCompanionLong = `Shows the collection; --yes deletes it. It has to be a companion of the route's model:
every vector field is one that the model derives. A collection that a route of the
configuration names is refused: take it out of the configuration and reload first.`

// dropCompanionFlags are the flags of drop-companion.
type dropCompanionFlags struct {
	route, companion string
	yes              bool
}

// droppedCompanion is the report of `likeness drop-companion`.
type droppedCompanion struct {
	Store     string   `json:"store"`
	Companion string   `json:"companion"`
	Rows      int64    `json:"rows"` // −1 if the store does not tell
	Fields    []string `json:"fields"`
	Dropped   bool     `json:"dropped"`
}

func newDropCompanionCommand(a *app) *cobra.Command {
	f := &dropCompanionFlags{}
	cmd := &cobra.Command{
		Use:   "drop-companion",
		Short: "Delete a companion collection",
		Long:  dropCompanionLong,
		Example: `  likeness drop-companion --config likeness.yaml --route products --companion products_mol
  likeness drop-companion --config likeness.yaml --route products --companion products_mol --yes`,
		Args: cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dropped, err := f.run(cmd.Context(), src)
		if err != nil {
			return err
		}
		return a.print(*out, dropped, func(w io.Writer) error { return printDropped(w, dropped) })
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *dropCompanionFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.route, "route", "r", "", "a route with the store and the model of the companion")
	flags.StringVar(&f.companion, "companion", "", "the collection to delete")
	flags.BoolVar(&f.yes, "yes", false, "delete it")
	for _, name := range []string{"route", "companion"} {
		_ = cmd.MarkFlagRequired(name)
	}
}

func (f *dropCompanionFlags) run(ctx context.Context, src *source) (d *droppedCompanion, err error) {
	c, err := config.Load(src.Source)
	if err != nil {
		return nil, err
	}
	version, r, err := choice.InService(c, f.route, "")
	if err != nil {
		return nil, badRoute(err)
	}
	if user := userOf(c, r.StoreName, f.companion); user != "" {
		return nil, fmt.Errorf("route %q names collection %q; take it out of the configuration, reload the sidecars, and drop it then", user, f.companion)
	}
	parts, err := wiring.Open(ctx, c, wiring.Only(f.route, version))
	if err != nil {
		return nil, badRoute(err)
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	can := adapters.AbilitiesOf(parts.Stores[r.StoreName])
	if can.Write == nil || can.Describe == nil || c.Stores[r.StoreName].Kind == "embedded" {
		return nil, usagef("--route: store %q keeps no companions", r.StoreName)
	}
	have, err := can.Describe.Describe(ctx, f.companion)
	if err != nil {
		return nil, err
	}
	d = &droppedCompanion{Store: r.StoreName, Companion: f.companion, Rows: have.Rows}
	if d.Fields, err = companionFields(have, parts.Versions[f.route].Route.Model.Similarity); err != nil {
		return nil, fmt.Errorf("collection %q is no companion of the model of route %q and stays: %w", f.companion, f.route, err)
	}
	if !f.yes {
		return d, nil
	}
	d.Dropped = true
	return d, can.Write.Drop(ctx, f.companion)
}

// userOf returns a route that names a collection of a store, in any of its versions, or "".
func userOf(c *config.Config, store, collection string) string {
	names := func(r config.Route) bool {
		return r.StoreName == store && slices.Contains([]string{r.Collection, r.Companion, r.CompanionAlias}, collection)
	}
	for _, name := range c.RouteNames() {
		r := c.Routes[name]
		if names(r) {
			return name
		}
		for _, version := range r.VersionNames() {
			if at, ok := r.At(version); ok && names(at) {
				return name
			}
		}
	}
	return ""
}

// companionFields returns the names of a collection's vector fields. It returns an error unless the
// similarity derives them all.
func companionFields(have adapters.Description, sim rerank.Similarity) ([]string, error) {
	deriver := rerank.AbilitiesOf(sim).Derive
	if deriver == nil {
		return nil, errors.New("the model derives no fields")
	}
	dims := map[string]int{}
	for _, f := range deriver.Fields() {
		dims[f.Name] = f.Dim
	}
	var names []string
	for _, f := range have.Fields {
		if dims[f.Name] != f.Dim || f.Metric != adapters.InnerProduct {
			return nil, fmt.Errorf("the model does not derive its field %q of %d dimensions, compared by %s", f.Name, f.Dim, f.Metric)
		}
		names = append(names, f.Name)
	}
	if len(names) == 0 || len(have.MaxSim) > 0 || len(have.Others) > 0 {
		return nil, errors.New("it has no vector field, or some that no model derives")
	}
	return names, nil
}

func printDropped(w io.Writer, d *droppedCompanion) error {
	rows := fmt.Sprintf("%d rows", d.Rows)
	if d.Rows < 0 {
		rows = "an unknown number of rows"
	}
	_, err := fmt.Fprintf(w, "collection %s of store %s: %s, fields %s\n", d.Companion, d.Store, rows, strings.Join(d.Fields, ", "))
	verdict := "dropped"
	if !d.Dropped {
		verdict = "nothing was deleted; --yes deletes it"
	}
	_, _ = fmt.Fprintln(w, verdict)
	return err
}
