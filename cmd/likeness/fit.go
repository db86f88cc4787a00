package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
)

func newFitCommand(a *app) *cobra.Command {
	return newGroup("fit", "Learn a similarity from a log of chosen items", newFitBilinearCommand(a), newFitBridgeCommand(a), newFitMoLCommand(a), newFitDistilledCommand(a), newFitCompanionCommand(a), newFitMaxSimCommand(a), newFitRBECommand(a))
}

// fitInputs are the flags of every fit: the data, the common options, and the output file. A fit's
// command embeds them, registers them, and calls run.
type fitInputs struct {
	dataFlags
	common        *fit.Common
	out, name     string
	force, resume bool
	clickFlags

	data    *dataset.Dataset // for learn
	itemIDs []rerank.ID      // ids of the items, for learn; nil: row numbers
}

// register adds the flags. Their defaults are the values in common, and parsed values are stored
// there.
func (f *fitInputs) register(cmd *cobra.Command, common *fit.Common, pairsRequired bool) {
	f.common = common
	f.registerData(cmd, pairsRequired)
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "model file to write, "+model.Extension)
	flags.StringVar(&f.name, "name", "", "name of the model; empty is the file's")
	flags.BoolVar(&f.force, "force", false, "replace existing files; begin an interrupted run again")
	flags.BoolVar(&f.resume, "resume", false, "go on with an interrupted fit of the same data and flags")
	flags.BoolVar(&common.Normalise, "normalise", common.Normalise, "fit on unit vectors")
	flags.Uint64Var(&common.Seed, "seed", common.Seed, "seed of the split, the order and the samples")
	flags.Float64Var(&common.HeldOut, "held-out", common.HeldOut, "share of the queries that judge the fit")
	flags.StringVar((*string)(&common.SplitBy), "split", string(common.SplitBy), "what judges the fit: random queries (query), or the latest (time)")
	flags.StringVar((*string)(&common.Cold), "cold", string(common.Cold), "items without logs: auto weighs them by their traffic, guard keeps them, ignore does neither")
	flags.Float64Var(&common.ColdShare, "cold-share", common.ColdShare, "share of logged items held out to judge items without logs; 0 is --cold ignore")
	f.clickFlags.register(cmd)
	flags.Float64Var(&common.ColdTraffic, "cold-traffic", common.ColdTraffic, "share of the traffic to come that looks for items without logs, for --cold auto; -1 estimates it from the log: by new items in its last tenth, or without times by items chosen once")
	cmd.MarkFlagsMutuallyExclusive("resume", "force")
	_ = cmd.MarkFlagRequired("out")
	_ = cmd.MarkFlagFilename("out", strings.TrimPrefix(model.Extension, "."))
	for name, values := range map[string][]string{"cold": {"auto", "guard", "ignore"}, "split": {"query", "time"}} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// addMeasure adds --metric to a fit that chooses its settings by a measure.
func addMeasure(cmd *cobra.Command, m *fit.Measure) {
	cmd.Flags().StringVar((*string)(m), "metric", string(*m), "what chooses the settings and judges the fit: mrr@10, the place of the first right item, or ndcg@10, the places of all")
	var names []string
	for _, m := range fit.Measures() {
		names = append(names, string(m))
	}
	_ = cmd.RegisterFlagCompletionFunc("metric", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// modelSettings are the flags of fitInputs that a fit to a model's own scores does not have.
func modelSettings() []string { return []string{"normalise", "cold", "cold-share", "cold-traffic"} }

// hideSettings leaves the flags of modelSettings out of the help.
func (f *fitInputs) hideSettings(cmd *cobra.Command) {
	for _, name := range modelSettings() {
		_ = cmd.Flags().MarkHidden(name)
	}
}

// refuseSettings refuses the flags of modelSettings.
func (f *fitInputs) refuseSettings(cmd *cobra.Command) error {
	for _, name := range modelSettings() {
		if cmd.Flags().Changed(name) {
			return usagef("--%s says nothing to fit %s: the model decides it", name, cmd.Name())
		}
	}
	return nil
}

// learned is the result of a fit. run adds a name and provenance to the model. Options and report
// go into the provenance as JSON, under keys that start with prefix.
type learned struct {
	model           model.Parameters
	options, report any
	prefix          string
}

// fitHead has the fields that the report of every fit starts with.
type fitHead struct {
	Model   string         `json:"model"`
	Version string         `json:"version"`
	Path    string         `json:"path"`
	Log     dataset.Counts `json:"log"`
	// Clicks is there if the log has positions and the fit corrected for them.
	Clicks *clickReport `json:"clicks,omitempty"`
}

// fitGCPercent is the GOGC of a fit. A low value saves memory and costs no time, because most of a
// fit's heap is a few large matrices, which the collector need not scan.
const fitGCPercent = 20

// run reads the data, calls learn and writes the model. An interrupted fit returns
// both a model and the context's error; run then writes the model and returns the
// error.
func (f *fitInputs) run(ctx context.Context, p *progress, learn func(context.Context, fit.Data) (*learned, error)) (_ *fitHead, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(fitGCPercent))
	if err := f.clickFlags.check(); err != nil {
		return nil, err
	}
	if err := f.refuseExisting(); err != nil {
		return nil, err
	}
	f.RowPerTime, f.History.Unit = f.common.SplitBy == fit.ByTime, f.common.Normalise
	d, err := f.open(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	checkpoint := checkpointFile{path: f.checkpoint(), resume: f.resume}
	if f.resume && !checkpoint.exists() {
		p.note(checkpoint.path + " is not there: the fit begins at its beginning")
	}
	f.common.Progress, f.common.Note, f.common.Checkpoint = p.begin, p.note, checkpoint
	f.data, f.itemIDs = d, d.ItemIDs
	data, clicked := f.clickFlags.correct(d, f.common.Seed)
	if clicked != nil {
		p.note(clicked.Text)
	}
	found, failed := learn(ctx, data)
	if found == nil {
		return nil, f.asUsageError(failed)
	}
	m, err := f.write(d, found, failed != nil)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	head := &fitHead{Model: m.Name, Version: m.Version, Path: f.out, Log: d.Counts, Clicks: clicked}
	if failed != nil {
		return head, fmt.Errorf("%s holds the best so far; go on with --resume: %w", f.out, failed)
	}
	return head, checkpoint.remove()
}

// asUsageError turns errors that the user can mend into wrong usage, and adds how to go on after an
// interruption.
func (f *fitInputs) asUsageError(err error) error {
	switch {
	case errors.Is(err, fit.ErrCheckpoint):
		return usagef("%s: %w; begin again with --force", f.checkpoint(), err)
	case errors.Is(err, fit.ErrData) || errors.Is(err, fit.ErrOption):
		return usageError{err}
	case errors.Is(err, context.Canceled) && f.common.Checkpoint.(checkpointFile).exists():
		return fmt.Errorf("there is no model yet; go on with --resume: %w", err)
	default:
		return err
	}
}

// refuseExisting refuses an output file that exists, before the work begins. With --resume it accepts the
// model that the interrupted fit wrote.
func (f *fitInputs) refuseExisting() error {
	if info, err := os.Stat(filepath.Dir(f.out)); err != nil || !info.IsDir() {
		return usagef("%s cannot be written: its directory does not exist", f.out)
	}
	unfinished := checkpointFile{path: f.checkpoint()}.exists()
	if unfinished && !f.resume && !f.force {
		return usagef("%s is of an interrupted fit; go on with --resume, or begin again with --force", f.checkpoint())
	}
	if _, err := os.Lstat(f.out); errors.Is(err, fs.ErrNotExist) || f.force || f.resume && f.leftUnfinished() {
		return nil
	}
	return usagef("%s exists; replace it with --force", f.out)
}

// leftUnfinished reports whether the model comes from an interrupted fit. A saved
// state may be missing, because a fit saves its first state only after some seconds.
func (f *fitInputs) leftUnfinished() bool {
	m, err := model.Open(f.out)
	return err == nil && m.Provenance[interruptedKey] != ""
}

func (f *fitInputs) checkpoint() string { return f.out + ".checkpoint" }

// interruptedKey marks, in the provenance, a model of an interrupted fit.
const interruptedKey = "fit.interrupted"

// write creates the model with the digests and counts of the dataset, and writes it to --out.
func (f *fitInputs) write(d *dataset.Dataset, found *learned, interrupted bool) (*model.Model, error) {
	digests, err := d.Digests()
	if err != nil {
		return nil, err
	}
	return f.writeModel(digests, d.Counts, found, interrupted)
}

// writeModel creates the model with the given digests and counts of its data, and writes it to
// --out.
func (f *fitInputs) writeModel(digests map[string]string, counts any, found *learned, interrupted bool) (*model.Model, error) {
	p := found.model
	own, err := provenance(digests, counts, found)
	if err != nil {
		return nil, err
	}
	p.Provenance = map[string]string{}
	maps.Copy(p.Provenance, found.model.Provenance)
	for key, value := range own {
		p.Provenance[found.prefix+key] = value
	}
	if interrupted {
		p.Provenance[interruptedKey] = "yes"
	}
	p.Name = cmp.Or(f.name, strings.TrimSuffix(filepath.Base(f.out), model.Extension))
	m, err := model.New(p)
	if err != nil {
		return nil, err
	}
	if err := m.Embed(); err != nil { // embeds scores for `model verify` to compare with
		return nil, err
	}
	return m, model.Write(f.out, m)
}

// provenance returns the data, options and report that a fitted model came from. It contains no
// date, so that equal inputs give equal files.
func provenance(digests map[string]string, counts any, found *learned) (p map[string]string, err error) {
	p = map[string]string{"tool": "likeness " + buildinfo.Read(stamp()).Version}
	for name, digest := range digests {
		p["data."+name] = digest
	}
	for key, value := range map[string]any{"data.counts": counts, "fit.options": found.options, "fit.report": found.report} {
		if p[key], err = compactJSON(value); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// compactJSON encodes v in one line.
func compactJSON(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSpace(b.String()), err
}
