package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/reembed"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/telemetry"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

func newBridgeCommand(a *app) *cobra.Command {
	return newGroup("bridge", "Bring a bridge between two embedding models to its end", newBridgeFillCommand(a), newBridgeFinishCommand(a))
}

const bridgeFinishLong = `Counts the items of a route with reembed that have a vector of the new model. If all have one, it says how to
search the new vectors without the bridge; otherwise it says what is missing. It reads every item, and changes nothing
without --alias, which points a name of the store at the collection of the new vectors once all items have one.`

// bridgeFinishFlags are the flags of bridge finish.
type bridgeFinishFlags struct{ route, alias string }

// finishedBridge is the report of `likeness bridge finish`.
type finishedBridge struct {
	Route string `json:"route"`
	reembed.Count
	Finished bool `json:"finished"`
	// Collection and Field have the new vectors, of Dim numbers. Unit: they have norm 1.
	Collection string `json:"collection"`
	Field      string `json:"field"`
	Dim        int    `json:"dim"`
	Unit       bool   `json:"unit"`
	// Old is the collection of the old vectors.
	Old   string `json:"old_collection"`
	Alias string `json:"alias,omitempty"`
	// Steps say how to go on.
	Steps []string `json:"steps"`
}

func newBridgeFinishCommand(a *app) *cobra.Command {
	f := &bridgeFinishFlags{}
	cmd := &cobra.Command{
		Use:   "finish",
		Short: "Say whether all items have a vector of the new model, and how to switch to it",
		Long:  bridgeFinishLong,
		Example: `  likeness bridge finish --config likeness.yaml --route products
  likeness bridge finish --config likeness.yaml --route products --alias products_v2`,
		Args: cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := f.run(cmd.Context(), a, src)
		if err != nil {
			return err
		}
		return a.print(*out, r, func(w io.Writer) error { return printFinished(w, r) })
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *bridgeFinishFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.route, "route", "r", "", "the route of the bridge")
	cmd.Flags().StringVar(&f.alias, "alias", "", "a name that the store shall have for the collection of the new vectors")
	_ = cmd.MarkFlagRequired("route")
}

func (f *bridgeFinishFlags) run(ctx context.Context, a *app, src *source) (_ *finishedBridge, err error) {
	c, err := config.Load(src.Source)
	if err != nil {
		return nil, err
	}
	parts, r, err := openReembedded(ctx, c, f.route, wiring.Part{Route: f.route})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	fields := rerank.AbilitiesOf(r.Model.Similarity).Derive.Fields()
	spec := r.Model.Similarity.Spec()
	done := &finishedBridge{Route: r.Name, Collection: r.Companion, Field: fields[0].Name, Dim: spec.Features, Unit: spec.Normalise, Old: r.Collection}
	if done.Count, err = reembed.CountItems(ctx, r, newProgress(a.stderr).begin("counting new vectors", -1)); err != nil {
		return nil, err
	}
	if done.Finished = done.New == done.Items && done.Items > 0; done.Finished && f.alias != "" {
		aliaser := adapters.AbilitiesOf(r.Store).Alias
		if aliaser == nil {
			return nil, usagef("--alias: store %q has no aliases", r.StoreName)
		}
		if err := aliaser.SwitchAlias(ctx, f.alias, r.Companion); err != nil {
			return nil, err
		}
		done.Alias = f.alias
	}
	if done.Finished {
		done.Steps = done.switchSteps(c, r)
	} else {
		done.Steps = done.missingSteps(r)
	}
	return done, nil
}

// missingSteps say what is left to do before the switch.
func (d *finishedBridge) missingSteps(r *route.Route) (steps []string) {
	if n := d.Bridged + d.Changed; n > 0 {
		took := time.Duration(math.Ceil(float64(n)/r.Reembed.Rate)) * time.Second
		steps = append(steps, fmt.Sprintf("leave `likeness serve` running: %d items are to be embedded, %v at routes.%s.reembed.rate %g; or bring their vectors in a file: `likeness bridge fill --route %s --new new.npy --item-ids ids.txt`",
			n, took, r.Name, r.Reembed.Rate, r.Name))
	}
	if d.NoText > 0 {
		steps = append(steps, fmt.Sprintf("give %d items a text in the payload field %q, or a vector by `likeness bridge fill`, or delete them: %s",
			d.NoText, r.Reembed.Text, joinIDs(d.Untold)))
	}
	if d.NoVector > 0 {
		steps = append(steps, fmt.Sprintf("give %d items without a vector in the field %q one of the old model, or delete them", d.NoVector, r.Vector))
	}
	if d.Items == 0 {
		steps = append(steps, fmt.Sprintf("collection %q has no items; nothing is to be switched", d.Old))
	}
	return steps
}

func joinIDs(ids []rerank.ID) string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = id.String()
	}
	return strings.Join(all, ", ")
}

// switchSteps say how to search the new vectors without the bridge.
func (d *finishedBridge) switchSteps(c *config.Config, r *route.Route) []string {
	norm := ""
	if d.Unit {
		norm = "; the vectors have norm 1, so normalise yours"
	}
	name := cmp.Or(d.Alias, "NAME")
	steps := []string{fmt.Sprintf("stop what writes to %s; from now on it writes vectors of the new model, with %s as the vector field, to %s (%d numbers, inner product%s)", d.Old, d.Field, d.Collection, d.Dim, norm)}
	if d.Alias == "" {
		steps = append(steps, fmt.Sprintf("run `likeness bridge finish --route %s --alias NAME`: it counts again, and gives %s a name of your choice", d.Route, d.Collection))
	}
	steps = append(steps, fmt.Sprintf("point clients at the collection %s, the vector field %s and the new model", name, d.Field))
	if try := trySearch(c, r.StoreName, name, d); try != "" {
		steps = append(steps, "try it: "+try)
	}
	return append(steps,
		fmt.Sprintf("take routes.%s out of the configuration, and restart the sidecar", d.Route),
		fmt.Sprintf("when nothing reads %s any more, delete it", d.Old))
}

// trySearch returns a command that searches the new vectors, or "".
func trySearch(c *config.Config, store, collection string, d *finishedBridge) string {
	s := c.Stores[store]
	host, _, err := net.SplitHostPort(s.Address)
	if err != nil || s.Kind != "qdrant" {
		return ""
	}
	base := "http://" + net.JoinHostPort(host, "6333")
	if c.Proxy.Store == store && c.Proxy.RESTURL != "" {
		base = c.Proxy.RESTURL
	}
	return fmt.Sprintf(`curl -s %s/collections/%s/points/query -H 'content-type: application/json' -d '{"query": VECTOR, "using": %q, "limit": 10, "with_payload": true}'`,
		strings.TrimRight(base, "/"), url.PathEscape(collection), d.Field)
}

func printFinished(w io.Writer, d *finishedBridge) error {
	_, _ = fmt.Fprintf(w, "%d of %d items have a vector of the new model; %d are bridged, %d were written since, %d have no text\n", d.New, d.Items, d.Bridged, d.Changed, d.NoText)
	if d.Alias != "" {
		_, _ = fmt.Fprintf(w, "%s is a name of %s now\n", d.Alias, d.Collection)
	}
	head := "\nNot finished:"
	if d.Finished {
		head = "\nFinished. To switch:"
	}
	_, err := fmt.Fprintln(w, head)
	for i, step := range d.Steps {
		_, err = fmt.Fprintf(w, "%d. %s\n", i+1, step)
	}
	return err
}

const bridgeFillLong = `Takes vectors of the new model from a file, in place of embedding texts: row i is of the i-th of --item-ids. Each is
a vector of its item as it is now. The command follows writes while it runs, so that it refuses while a
sidecar has state_dir.`

// bridgeFillFlags are the flags of bridge fill.
type bridgeFillFlags struct{ route, now, ids string }

// filledBridge is the report of `likeness bridge fill`.
type filledBridge struct {
	Route   string `json:"route"`
	Vectors int    `json:"vectors"`
	// Written counts the items that have a new vector of the file. The collection lacks the others.
	Written int `json:"written"`
}

func newBridgeFillCommand(a *app) *cobra.Command {
	f := &bridgeFillFlags{}
	cmd := &cobra.Command{
		Use:     "fill",
		Short:   "Give the items of a bridge vectors of the new model from a file",
		Long:    bridgeFillLong,
		Example: `  likeness bridge fill --config likeness.yaml --route products --new new.npy --item-ids ids.txt`,
		Args:    cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := f.run(cmd.Context(), a, src)
		if errors.Is(err, filelock.ErrHeld) {
			return fmt.Errorf("%w; stop the sidecar that serves the route for as long as the command runs", err)
		}
		if err != nil {
			return err
		}
		return a.print(*out, r, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%d of %d vectors written to the companion of route %s; the collection lacks the other items\n", r.Written, r.Vectors, r.Route)
			return err
		})
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *bridgeFillFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.route, "route", "r", "", "the route of the bridge")
	flags.StringVar(&f.now, "new", "", "vectors of items by the new model: .npy, .safetensors or .parquet")
	flags.StringVar(&f.ids, "item-ids", "", "ids of the items: .npy of integers, text with one a line, or .parquet")
	for name, extensions := range map[string][]string{"route": nil, "new": vectorFiles, "item-ids": idFiles} {
		_ = cmd.MarkFlagRequired(name)
		if extensions != nil {
			_ = cmd.MarkFlagFilename(name, extensions...)
		}
	}
}

// part names what to open.
func (f *bridgeFillFlags) part() wiring.Part { return wiring.WithJournal(f.route) }

func (f *bridgeFillFlags) run(ctx context.Context, a *app, src *source) (_ *filledBridge, err error) {
	c, err := config.Load(src.Source)
	if err != nil {
		return nil, err
	}
	vectors, err := dataset.OpenVectors(ctx, f.now)
	if err != nil {
		return nil, badDataset(fmt.Errorf("--new: %w", err))
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	ids, err := f.readIDs(vectors.Rows)
	if err != nil {
		return nil, badDataset(err)
	}
	parts, r, err := openReembedded(ctx, c, f.route, f.part())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	if want := r.Model.Similarity.Spec().QueryDim; vectors.Cols != want {
		return nil, usagef("--new: vectors of %d numbers, and the new model of bridge %q makes %d", vectors.Cols, r.Model.Name, want)
	}
	if ids, err = storeIDs(ctx, r, ids); err == nil {
		err = checkDistinct(ids)
	}
	if err != nil {
		return nil, err
	}
	log, err := telemetry.NewLogger(a.stderr, c.Log.Level, c.Log.Format)
	if err != nil {
		return nil, err
	}
	followers, err := wiring.Follow(c, parts, follow.Options{Logger: log, OnRequest: true})
	if err != nil {
		return nil, err
	}
	defer func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, followers.Close(ended))
	}()
	filled := &filledBridge{Route: f.route, Vectors: len(ids)}
	filled.Written, err = reembed.Put(ctx, r, reembed.Vectors{IDs: ids, Rows: vectors.Matrix}, followers.Reembed, newProgress(a.stderr).begin("writing new vectors", len(ids)))
	return filled, err
}

// readIDs reads --item-ids, which has an id for each of the given number of vectors.
func (f *bridgeFillFlags) readIDs(vectors int) ([]rerank.ID, error) {
	ids, err := dataset.ReadIDs(f.ids)
	if err != nil {
		return nil, fmt.Errorf("--item-ids: %w", err)
	}
	if len(ids) != vectors {
		return nil, usagef("--item-ids has %d ids and --new has %d vectors; row i is of the i-th id", len(ids), vectors)
	}
	return ids, nil
}

// checkDistinct refuses an id that stands twice, as the store spells it.
func checkDistinct(ids []rerank.ID) error {
	seen := make(map[rerank.ID]bool, len(ids))
	for i, id := range ids {
		if seen[id] {
			return usagef("--item-ids: line %d has the id %s for the second time", i+1, id)
		}
		seen[id] = true
	}
	return nil
}

// storeIDs spells ids as the store of the route's collection does, and makes numbers of texts if the
// collection's ids may be numbers.
func storeIDs(ctx context.Context, r *route.Route, ids []rerank.ID) ([]rerank.ID, error) {
	have, err := adapters.AbilitiesOf(r.Store).Describe.Describe(ctx, r.Collection)
	if err != nil {
		return ids, err
	}
	if !have.TextIDs {
		ids = slices.Clone(ids)
		for i, id := range ids {
			text, _ := id.Text()
			if n, err := strconv.ParseUint(text, 10, 64); err == nil {
				ids[i] = rerank.UintID(n)
			}
		}
	}
	return adapters.CanonicalIDs(r.IDSpeller(), ids)
}

// openReembedded opens a part of a configuration, and a route that embeds its items again.
func openReembedded(ctx context.Context, c *config.Config, name string, part wiring.Part) (*wiring.Assembly, *route.Route, error) {
	_, r, err := choice.InService(c, name, "")
	switch {
	case err != nil:
		return nil, nil, badRoute(err)
	case !r.Reembeds():
		return nil, nil, usagef("--route: %q does not embed its items again; set routes.%s.reembed", name, name)
	}
	parts, err := wiring.Open(ctx, c, part)
	if err != nil {
		return nil, nil, err
	}
	opened := parts.Versions[name].Route
	if err := route.Consistent(opened); err != nil {
		return nil, nil, errors.Join(err, parts.Close())
	}
	return parts, opened, nil
}
