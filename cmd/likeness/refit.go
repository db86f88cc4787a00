package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/internal/atomicfile"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/learn/export"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/gain"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/trial"
)

const refitLong = `Learns a model from the events of a route, and tries it if it is better than the model in
service: exports the events, fits, compares the model with the one in service and with
cosine on the newest days, puts it where the candidate's model lies, builds its table and
companion, answers the newest queries with it for nobody (a shadow), and begins the route's
experiment again.

Where the new model is not better, nothing is changed, and the exit code is 0. The comparison
counts each choice by its inverse propensity. Items that were never shown could not be chosen,
so it may refuse a better model; with --decide experiment every model is tried that the fit
finds.

experiment.candidate and active take turns: when the candidate is in service, the next run
tries its model as the version that active names. The model that was there is kept as
replaced.safetensors in --dir.

While an experiment of the route runs, or its better candidate waits for a person, only the
model in service is measured; --stop-experiment stops the experiment first.

The comparison also measures how much better than cosine the model in service still is. A
running sidecar shows that as likeness_gain_first and likeness_gain_now. With --only-eval
nothing else is done.

A run that was interrupted goes on where it stopped: its files are in --dir. It must not run
twice at a time for a route. What follows -- is passed to the fit.`

// What decides whether a refit's model is tried.
const (
	decideByComparison = "comparison"
	decideByExperiment = "experiment"
)

// refitFlags are the flags of refit.
type refitFlags struct {
	source                          *source
	route, version, dir, kind, from string
	decide                          string
	admin                           []string
	newest                          time.Duration
	least                           int64
	stop, onlyEval                  bool
	credentials                     credentialFlags // for the admin ports
}

func newRefitCommand(a *app) *cobra.Command {
	f := &refitFlags{newest: 7 * 24 * time.Hour, least: 1000}
	cmd := &cobra.Command{
		Use:   "refit [DIR...] [-- FIT_FLAG...]",
		Short: "Learn from a route's events, and try what is better",
		Long:  refitLong,
		Example: `  likeness refit --config likeness.yaml --route products --admin http://127.0.0.1:7601
  likeness refit --config likeness.yaml --route products --admin https://node-1:7601 --tls-ca ca.pem --token-file admin.token
  likeness refit --config likeness.yaml --route products --newest 72h node-1 node-2 -- --form identity_low_rank --rank 32`,
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.decide != decideByComparison && f.decide != decideByExperiment {
			return usagef("--decide %q: want %s or %s", f.decide, decideByComparison, decideByExperiment)
		}
		if f.stop && len(f.admin) == 0 {
			return usagef("--stop-experiment: give --admin, the URLs of the admin ports of the sidecars that run it")
		}
		dirs, rest := args, []string(nil)
		if n := cmd.ArgsLenAtDash(); n >= 0 {
			dirs, rest = args[:n], args[n:]
		}
		r, err := f.open(a, dirs, rest)
		if err != nil {
			return err
		}
		decision, err := r.run(cmd.Context())
		if err != nil {
			return err
		}
		return a.print(*out, decision, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, decision.Reason)
			return err
		})
	}
	return cmd
}

// flags adds the flags to cmd.
func (f *refitFlags) flags(cmd *cobra.Command) {
	f.source = addConfigFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.route, "route", "", "the route")
	flags.StringVar(&f.version, "version", "", "the version whose model file is replaced; empty is the experiment's candidate or, once that is in service, the version that active names")
	flags.StringVar(&f.dir, "dir", "", "folder for the files of a run; empty is refit/ROUTE in state_dir")
	flags.StringVar(&f.kind, "kind", "", "bilinear or mol; empty is the kind in service, or bilinear")
	flags.StringVar(&f.from, "from", "", "first time of an answer: 2026-01-31, or RFC 3339")
	flags.DurationVar(&f.newest, "newest", f.newest, "how much of the newest log is for the comparison, and not for the fit")
	flags.Int64Var(&f.least, "least", f.least, "choices without which nothing is fitted")
	flags.StringSliceVar(&f.admin, "admin", nil, "URLs of the sidecars' admin ports, to begin the experiment there; they then search the new model")
	f.credentials.add(cmd)
	flags.StringVar(&f.decide, "decide", decideByComparison, "what decides whether the model is tried: the comparison with the log, or the experiment alone, which shows what the log never did")
	flags.BoolVar(&f.onlyEval, "only-eval", false, "only measure the gain of the model in service on the newest days")
	flags.BoolVar(&f.stop, "stop-experiment", false, "stop an experiment that runs, by --admin, and lose its evidence")
	_ = cmd.RegisterFlagCompletionFunc("decide", cobra.FixedCompletions([]string{decideByComparison, decideByExperiment}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagRequired("route")
}

// refitDecision is the result of `likeness refit`.
type refitDecision struct {
	// Better: the new model is shown to be better than the one in service.
	Better  bool   `json:"better"`
	Reason  string `json:"reason"`
	Version string `json:"version"`
	// Model and Served are the digests of the new model and of the one in service.
	Model  string `json:"model,omitempty"`
	Served string `json:"served"`
}

// refit is one run.
type refit struct {
	*refitFlags
	app    *app
	config *config.Config
	dirs   []string // the state folders with events
	fit    []string // more flags of the fit
	ports  *adminPorts
	target string // the candidate's model file
	// inService is the version in service, served its model, and path the file of that.
	inService, path string
	served          *model.Model
	built           bool // the candidate has a table or a companion
	begun           refitRun
}

// refitRun records which run of refit wrote the files in its folder. It is kept in run.json.
type refitRun struct {
	Served  string    `json:"served"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Cut     time.Time `json:"cut"` // the log from here on is for the comparison
	Done    bool      `json:"done"`
}

// isOf reports whether the run is unfinished, and compares a version with the same model in service.
func (b refitRun) isOf(served, version string) bool {
	return !b.Done && b.Served == served && b.Version == version
}

// open finds what is in service and what would be replaced.
func (f *refitFlags) open(a *app, dirs, rest []string) (*refit, error) {
	c, err := config.Load(f.source.Source)
	if err != nil {
		return nil, err
	}
	name, at, err := choice.InService(c, f.route, "")
	if err != nil {
		return nil, badRoute(err)
	}
	r := &refit{refitFlags: f, app: a, config: c, dirs: dirs, fit: rest, inService: name, path: c.Models[at.ModelName].Path}
	f.version = cmp.Or(f.version, c.Routes[f.route].CandidateBeside(name))
	to, ok := c.RouteAt(f.route, f.version)
	switch {
	case f.onlyEval: // needs no candidate
	case f.version == "" || !ok:
		return nil, usagef("version %q of route %q: name one of %q by --version, or as experiment.candidate", f.version, f.route, c.Routes[f.route].VersionNames())
	case f.version == name:
		return nil, usagef("version %q is in service, and its model is not replaced; name another one of %q by --version, or as experiment.candidate", name, c.Routes[f.route].VersionNames())
	case to.TableLive:
		return nil, usagef("version %q has a live table, which would not follow writes during the experiment; remove its table_live", f.version)
	case c.Models[to.ModelName].Path == r.path:
		return nil, usagef("versions %q and %q have one model file, %s; give version %q its own", name, f.version, r.path, f.version)
	}
	if len(r.dirs) == 0 {
		if c.StateDir == "" {
			return nil, usagef("there is no state_dir; name the folders with events")
		}
		r.dirs = []string{c.StateDir}
	}
	r.target, r.built = c.Models[to.ModelName].Path, to.Table != "" || to.Companion != ""
	if info, err := os.Stat(r.target); !f.onlyEval && err == nil && info.IsDir() {
		return nil, usagef("the model of version %q is a folder, %s; give it a file", f.version, r.target)
	}
	if r.ports, err = f.credentials.adminPorts(f.admin); err != nil {
		return nil, err
	}
	if r.served, err = model.Open(r.path); err != nil {
		return nil, err
	}
	if f.kind == "" {
		if f.kind = "bilinear"; r.served.Similarity.Spec().Kind == rerank.KindMoL {
			f.kind = "mol"
		}
	}
	if f.dir == "" {
		if c.StateDir == "" {
			return nil, usagef("there is no state_dir; give --dir")
		}
		f.dir = filepath.Join(c.StateDir, "refit", filepath.Base(statedir.Route("", f.route)))
	}
	return r, os.MkdirAll(f.dir, 0o700)
}

func (r *refit) file(name string) string { return filepath.Join(r.dir, name) }

func (r *refit) has(name string) bool {
	_, err := os.Stat(r.file(name))
	return err == nil
}

// say tells what a step does, or why it is left out.
func (r *refit) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.app.stderr, "refit: "+format+"\n", args...)
}

// run makes the steps that are not made yet.
func (r *refit) run(ctx context.Context) (refitDecision, error) {
	d := refitDecision{Version: r.version, Served: r.served.Version}
	if r.onlyEval {
		return r.measure(ctx, d)
	}
	running, err := r.running(ctx)
	if err != nil {
		return d, err
	}
	if running != "" && !r.stop {
		r.onlyEval = true
		measured, err := r.measure(ctx, d)
		if err != nil {
			return d, err
		}
		r.say("%s", measured.Reason)
		d.Reason = running + "; nothing is changed (--stop-experiment stops it)"
		return d, nil
	}
	if err := r.serveTheSame(); err != nil {
		return d, err
	}
	if err := r.begin(); err != nil {
		return d, err
	}
	enough, err := r.export(ctx)
	if err != nil {
		return d, err
	}
	if enough != "" {
		d.Reason = enough
		return d, r.end()
	}
	if err := r.learn(ctx); err != nil {
		return d, err
	}
	fitted, err := model.Open(r.file("model.safetensors"))
	if err != nil {
		return d, err
	}
	d.Model = fitted.Version
	if fitted.Version == r.served.Version {
		d.Reason = "the fit found the model that is in service; nothing is changed"
		return d, r.end()
	}
	report, err := r.compare(ctx)
	if err != nil {
		return d, err
	}
	if err := r.record(report); err != nil {
		return d, err
	}
	if d.Better, d.Reason, err = betterThan(report, fitted.Version, r.served.Version); err != nil {
		return d, err
	}
	switch {
	case d.Better:
	case r.decide == decideByExperiment:
		d.Reason += "; the experiment decides"
	default:
		d.Reason += "; nothing is changed"
		return d, r.end()
	}
	r.say("%s", d.Reason)
	if err := r.stopExperiment(ctx); err != nil {
		return d, err
	}
	if err := r.register(ctx); err != nil {
		return d, err
	}
	shadowed, err := r.shadow(ctx)
	if err != nil {
		return d, fmt.Errorf("shadow: %w", err)
	}
	r.say("%s", shadowed)
	if why := shadowed.refusal(r.config.Routes[r.route].Experiment.Guard); len(why) > 0 {
		return d, errors.Join(fmt.Errorf("version %q is not tried: %s", r.version, strings.Join(why, "; ")), r.end())
	}
	if err := r.try(ctx); err != nil {
		return d, err
	}
	return d, r.end()
}

// serveTheSame returns an error if one of the sidecars that keep their state in the folders has another version in
// service: its model might be the one that is replaced.
func (r *refit) serveTheSame() error {
	for _, dir := range r.dirs {
		there := *r.config
		there.StateDir = dir
		version, _, err := choice.InService(&there, r.route, "")
		if err != nil {
			return err
		}
		if version != r.inService {
			return fmt.Errorf("version %q is in service by %s, and version %q by %s; put one in service everywhere: likeness model activate --route %s VERSION",
				r.inService, cmp.Or(r.config.StateDir, "the configuration"), version, dir, r.route)
		}
	}
	return nil
}

// begin goes on with the run in the folder, or begins another.
func (r *refit) begin() error {
	found, err := statedir.ReadJSON(r.file("run.json"), &r.begun)
	if err != nil {
		return fmt.Errorf("%s: %w; remove it to begin again", r.file("run.json"), err)
	}
	if found && r.begun.isOf(r.served.Version, r.version) {
		r.say("goes on with the run of %s", r.begun.Started.Format(time.RFC3339))
		return nil
	}
	for _, name := range []string{"train.parquet", "train-queries.parquet", "test.parquet", "test-queries.parquet", "model.safetensors", "model.safetensors.checkpoint", "report.json"} {
		if err := os.Remove(r.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	now := time.Now().UTC()
	r.begun = refitRun{Served: r.served.Version, Version: r.version, Started: now, Cut: now.Add(-r.newest)}
	return r.save()
}

func (r *refit) end() error {
	r.begun.Done = true
	return r.save()
}

func (r *refit) save() error {
	return statedir.WriteJSON(r.file("run.json"), r.begun)
}

// part is a part of the log.
type part struct {
	name     string
	from, to time.Time
}

// export writes the log of the fit and of the comparison. It returns why they are too short, or "".
func (r *refit) export(ctx context.Context) (short string, err error) {
	from, err := parseMoment(r.from)
	if err != nil {
		return "", usagef("--from: %w", err)
	}
	parts := []part{{"test", r.begun.Cut, r.begun.Started}, {"train", from, r.begun.Cut}}
	if r.onlyEval {
		parts = parts[:1]
	}
	for _, part := range parts {
		if r.has(part.name + ".parquet") {
			continue
		}
		got, err := export.Run(ctx, export.Options{
			StateDirs: r.dirs, Route: r.route, From: part.from, To: part.to, Log: r.file(part.name + ".parquet"), Queries: r.file(part.name + "-queries.parquet"),
		})
		if err != nil && !errors.Is(err, export.ErrInput) {
			return "", err
		}
		r.say("%s log until %s: %d answers, %d choices", part.name, part.to.Format(time.RFC3339), got.Answers, got.Chosen)
		if least := map[string]int64{"test": 1, "train": r.least}[part.name]; got.Chosen < least {
			return fmt.Sprintf("the %s log has %d choices, and %d are wanted (--least, --newest); nothing is changed", part.name, got.Chosen, least), nil
		}
	}
	return "", nil
}

// learn fits the model.
func (r *refit) learn(ctx context.Context) error {
	if r.has("model.safetensors") && !r.has("model.safetensors.checkpoint") {
		return nil
	}
	_, err := r.command(ctx, r.fitLine()...)
	return err
}

// fitLine returns the command line of the fit. It goes on with an interrupted one.
func (r *refit) fitLine() []string {
	args := append(r.data("fit", r.kind), "--queries", r.file("train-queries.parquet")+"#vector", "--pairs", r.file("train.parquet"),
		"--split", "time", "--out", r.file("model.safetensors"))
	if r.has("model.safetensors.checkpoint") {
		args = append(args, "--resume")
	}
	return append(args, r.fit...)
}

// compare evaluates the model beside the model in service and cosine.
func (r *refit) compare(ctx context.Context) (*eval.Report, error) {
	if !r.has("report.json") {
		models := []string{"--model", r.path}
		if !r.onlyEval {
			models = append(models, "--model", r.file("model.safetensors"))
		}
		text, err := r.command(ctx, slices.Concat(r.data("eval"), []string{"--queries", r.file("test-queries.parquet") + "#vector", "--pairs", r.file("test.parquet")},
			models, []string{"--output", "json"})...)
		if err != nil {
			return nil, err
		}
		if err := atomicfile.Write(r.file("report.json"), func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
			return nil, err
		}
	}
	b, err := os.ReadFile(r.file("report.json"))
	report := &eval.Report{}
	if err == nil {
		err = json.Unmarshal(b, report)
	}
	return report, err
}

// measure measures the gain of the model in service on the newest days.
func (r *refit) measure(ctx context.Context, d refitDecision) (refitDecision, error) {
	r.dir = filepath.Join(r.dir, "eval") // beside the files of a run
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return d, err
	}
	if err := r.begin(); err != nil {
		return d, err
	}
	short, err := r.export(ctx)
	if err != nil || short != "" {
		d.Reason = short
		return d, errors.Join(err, r.end())
	}
	report, err := r.compare(ctx)
	if err == nil {
		err = r.record(report)
	}
	if err != nil {
		return d, err
	}
	now := r.gainOf(report, r.served.Version)
	d.Reason = fmt.Sprintf("the model in service gains %+.4f of %s over %s (%+.4f to %+.4f)", now.Gain, now.Metric, report.BaselineName, now.Low, now.High)
	if s, err := gain.Read(r.dirs[0], r.route); err == nil && s != nil {
		d.Reason += fmt.Sprintf("; it was %+.4f at first, %s", s.First.Gain, s.First.Until.Format("2006-01-02"))
	}
	return d, r.end()
}

// gainOf returns what a model of the report gains, or nil if the report lacks the model.
func (r *refit) gainOf(report *eval.Report, version string) *gain.Measurement {
	m := modelOf(report, version)
	if m == nil {
		return nil
	}
	g := report.Judge(m).Gain
	return &gain.Measurement{Model: version, Metric: report.JudgedBy(), Until: r.begun.Started, Gain: g.Difference, Low: g.Low, High: g.High}
}

// modelOf returns the part of a report about a model, or nil if there is none.
func modelOf(report *eval.Report, version string) *eval.ModelReport {
	i := slices.IndexFunc(report.Models, func(m eval.ModelReport) bool { return m.Version == version })
	if i < 0 {
		return nil
	}
	return &report.Models[i]
}

// record keeps what the comparison says of the model in service, and of the fitted one.
func (r *refit) record(report *eval.Report) error {
	served := r.gainOf(report, r.served.Version)
	if served == nil {
		return fmt.Errorf("the report is not of model %s; remove %s", r.served.Version, r.file("report.json"))
	}
	var fitted *gain.Measurement
	for _, m := range report.Models {
		if m.Version != r.served.Version {
			fitted = r.gainOf(report, m.Version)
		}
	}
	for _, dir := range r.dirs {
		if err := gain.Record(dir, r.route, *served, fitted); err != nil {
			return fmt.Errorf("the gain was not recorded: %w", err)
		}
	}
	return nil
}

// betterThan says whether the fitted model is shown to be better than the baseline and than the model
// in service.
func betterThan(r *eval.Report, fitted, served string) (better bool, reason string, err error) {
	now, before := modelOf(r, fitted), modelOf(r, served)
	if now == nil || before == nil {
		return false, "", fmt.Errorf("the report is not of models %s and %s; remove report.json", fitted, served)
	}
	judged := r.Judge(now)
	values := fmt.Sprintf("%s is %.4f, of the model in service %.4f, of %s %.4f", r.JudgedBy(), judged.Value, r.Judge(before).Value, r.BaselineName, judged.Baseline)
	switch gain := judged.Gain; {
	case gain.Low <= 0:
		return false, fmt.Sprintf("not shown to be better than %s: %s (gain %+.4f to %+.4f)", r.BaselineName, values, gain.Low, gain.High), nil
	case before.ToBest == nil || now.ToBest != nil:
		return false, "not better than the model in service: " + values, nil
	case before.ToBest.High >= 0:
		return false, fmt.Sprintf("not shown to be better than the model in service: %s (gain %+.4f to %+.4f)", values, -before.ToBest.High, -before.ToBest.Low), nil
	}
	return true, fmt.Sprintf("better than the model in service: %s (gain %+.4f to %+.4f)", values, -before.ToBest.High, -before.ToBest.Low), nil
}

// register puts the model in the place of the candidate's, and builds what the candidate needs.
func (r *refit) register(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(r.target), 0o755); err != nil {
		return err
	}
	if err := r.keepReplaced(); err != nil {
		return fmt.Errorf("the model before was not kept: %w", err)
	}
	if err := copyFile(r.file("model.safetensors"), r.target); err != nil {
		return err
	}
	r.say("the model is in %s, version %q of the route", r.target, r.version)
	if !r.built {
		return nil
	}
	_, err := r.command(ctx, append(r.data("index"), "--version", r.version, "--force")...)
	return err
}

// keepReplaced copies the model in the candidate's place to replaced.safetensors, unless it is the fitted one.
func (r *refit) keepReplaced() error {
	before, err := model.Open(r.target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		fitted, err := model.Open(r.file("model.safetensors"))
		if err != nil || fitted.Version == before.Version {
			return err
		}
	}
	return copyFile(r.target, r.file("replaced.safetensors"))
}

// copyFile copies a file durably and in one step.
func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return atomicfile.Write(to, func(w io.Writer) error { _, err := io.Copy(w, f); return err })
}

// running describes the experiment of the route that runs, or whose candidate is still searched; it returns "" if there
// is none. It asks the sidecars of --admin, or reads the state folders. An experiment whose candidate was never open, as before the first refit, does not run.
func (r *refit) running(ctx context.Context) (string, error) {
	var all []trial.Status
	for _, dir := range r.dirs {
		state, err := trial.Read(dir, r.route)
		if err != nil {
			return "", err
		}
		if state != nil && len(r.admin) == 0 { // what a sidecar says is newer
			all = append(all, trial.StatusOf(r.route, state))
		}
	}
	for _, admin := range r.admin {
		now, err := r.ports.experiments(ctx, admin)
		if err != nil {
			return "", err
		}
		all = append(all, now...)
	}
	for _, s := range all {
		if s.Route == r.route && (s.Searched || s.Model != "" && !s.IsOver()) {
			return fmt.Sprintf("the experiment with version %q is %s since %s, %s", s.Version, s.Stage, s.Started.Format("2006-01-02 15:04"), s.Leader()), nil
		}
	}
	return "", nil
}

// stopExperiment stops an experiment with the candidate, and waits until nothing searches it.
func (r *refit) stopExperiment(ctx context.Context) error {
	for stopped := false; ; stopped = true {
		running, err := r.running(ctx)
		switch {
		case err != nil || running == "":
			return err
		case !r.stop:
			return fmt.Errorf("%s; it began during this run, which goes on when the experiment is over, or with --stop-experiment", running)
		case !stopped:
			if err := r.post(ctx, r.admined("/experiments/stop")); err != nil {
				return fmt.Errorf("the experiment was not stopped: %w", err)
			}
			r.say("%s; it is stopped, since --stop-experiment says so", running)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the experiment does not end: %s: %w", running, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// try begins the route's experiment again, or says how.
func (r *refit) try(ctx context.Context) error {
	if len(r.admin) == 0 {
		r.say("begin the experiment: curl -X POST 'ADMIN%s'; or put it in service: likeness model activate --route %s %s", r.restart(), r.route, r.version)
		return nil
	}
	if err := r.post(ctx, r.restart()); err != nil {
		return fmt.Errorf("the experiment was not begun: %w", err)
	}
	r.say("the experiment begins")
	return nil
}

// restart returns the path that begins an experiment with the candidate.
func (r *refit) restart() string {
	return r.admined("/experiments/restart") + "&version=" + url.QueryEscape(r.version)
}

// admined returns the path of a change of the route's experiment on the admin port.
func (r *refit) admined(path string) string { return path + "?route=" + url.QueryEscape(r.route) }

// post changes the route's experiment on every sidecar.
func (r *refit) post(ctx context.Context, path string) error {
	for _, admin := range r.admin {
		if _, err := r.ports.ask(ctx, admin, http.MethodPost, path, http.StatusNoContent); err != nil {
			return err
		}
	}
	return nil
}

// data begins the command line of a command that reads the route's collection.
func (r *refit) data(command ...string) []string {
	args := append(slices.Clone(command), "--config", r.source.File, "--route", r.route)
	for _, set := range r.source.Set {
		args = append(args, "--set", set)
	}
	return args
}

// command runs another command of likeness, and returns what it prints to standard output.
func (r *refit) command(ctx context.Context, args ...string) ([]byte, error) {
	r.say("likeness %s", strings.Join(args, " "))
	var out bytes.Buffer
	root := newRootCommand(&app{stdin: strings.NewReader(""), stdout: &out, stderr: r.app.stderr})
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		return nil, fmt.Errorf("likeness %s: %w", args[0], err)
	}
	return out.Bytes(), nil
}
