package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

const indexLong = `Reads a route's collection once. Builds the table (feature rows that stay in the
sidecar's memory) and the companion (a collection with the same ids and payloads, and
with the derived fields that the strategies search).

A relevance-based model needs the ranker's scores of every item; the command asks the
ranker for scores that are not stored.

` + rankerHelp + `

An interrupted build goes on where it stopped; only --force replaces existing files. At
the end the command verifies checksums, the number of rows, and a thousand rows.
--partition and --merge divide a build among machines (docs/concepts/scale.md). Without
a configuration, --model and --items build a table from a file.`

// indexFlags are the flags of index.
type indexFlags struct {
	route, version, only         string
	companion, files, strategies string
	weights                      string
	features, force              bool
	batch                        int
	model, items, ids, owners    string
	collection, table, behaviour string
	format, layout               string
	full                         bool
	partition                    string
	merge, rate                  int
	verify, verifyAll            bool
	checkpoint                   time.Duration
	payload                      string
	stored, anyVersion           bool
	ask                          rankerFlags
}

func newIndexCommand(a *app) *cobra.Command {
	f := &indexFlags{}
	cmd := &cobra.Command{
		Use:   "index",
		Short: "Build a route's table and companion collection",
		Long:  indexLong,
		Example: `  likeness index --config likeness.yaml --route products
  likeness index --config likeness.yaml --route products --version v2 --rows-per-second 5000
  likeness index --config likeness.yaml --route products --companion products_mol --strategies per_embedding
  likeness index --config likeness.yaml --route products --max-calls 1000000 --calls-per-second 500
  likeness index --config likeness.yaml --route products --partition 2/4
  likeness index --config likeness.yaml --route products --merge 4
  likeness index --config likeness.yaml --route products --verify --output json
  likeness index --model my-model/ --items items.npy --ids ids.npy --collection products --table products.table`,
		Args: cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	f.add(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.verify {
			return a.verifyIndex(cmd.Context(), f, src, *out)
		}
		if err := f.checkVerifyAll(); err != nil {
			return err
		}
		p := newProgress(a.stderr)
		built, err := f.run(cmd.Context(), src, p)
		if err == nil && f.verifyAll {
			built.Drift, err = f.driftOf(cmd.Context(), src, p)
		}
		if err != nil {
			return err
		}
		err = a.print(*out, built, func(w io.Writer) error { return printBuilt(w, built) })
		return cmp.Or(err, driftError(built.Drift))
	}
	return cmd
}

func (f *indexFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.route, "route", "", "the route of the configuration to build for")
	flags.StringVar(&f.version, "version", "", "the version of the route; empty is the one in service")
	flags.StringVar(&f.only, "only", "", "build only the table or only the companion")
	flags.StringVar(&f.companion, "companion", "", "name of the companion; empty is the route's")
	flags.StringVar(&f.files, "files", "", "folder for the companion as .npy files, for an embedded store")
	flags.StringVar(&f.strategies, "strategies", "per_embedding,average,combined,companion", "strategies that will search the companion")
	flags.StringVar(&f.weights, "weights", "", "uniform or gates, of the averaged search; empty is the route's")
	flags.BoolVar(&f.features, "features", false, "also write the fields that the derived placement reads")
	flags.BoolVar(&f.force, "force", false, "replace existing files; begin an interrupted run again")
	flags.StringVar(&f.partition, "partition", "", "build one part of several, as 2/4; /4 in an indexed Kubernetes job")
	flags.IntVar(&f.merge, "merge", 0, "join the table from this many parts")
	flags.BoolVar(&f.verify, "verify", false, "build nothing: compare every row with the collection; exit code 1 if any differs")
	flags.BoolVar(&f.verifyAll, "verify-all", false, "compare as --verify does, after the build")
	flags.DurationVar(&f.checkpoint, "checkpoint", 5*time.Second, "how often progress is saved")
	flags.IntVar(&f.rate, "rows-per-second", 0, "rows read a second at most; 0 is as fast as it can be")
	flags.IntVar(&f.batch, "batch", 1000, "rows read at once; 0 is the store's choice")
	flags.StringVar(&f.model, "model", "", "without a configuration: model file or directory")
	flags.StringVar(&f.items, "items", "", "without a configuration: item vectors, .npy, .safetensors or .parquet")
	flags.StringVar(&f.ids, "ids", "", "without a configuration: item ids, .npy, text with one a line, or .parquet")
	flags.StringVar(&f.owners, "owners", "", "without a configuration: item of each max-sim row, in a file like --ids")
	flags.StringVar(&f.collection, "collection", "", "without a configuration: name of the table's collection")
	flags.StringVar(&f.behaviour, "behaviour", "", "common name of behavioural vectors' files; empty is the model's")
	flags.StringVar(&f.payload, "payload", "", "without a configuration: items' payload for a ranker, a JSON object a line")
	flags.BoolVar(&f.stored, "stored-scores", false, "the stored vectors are the ranker's scores: ask no ranker")
	flags.BoolVar(&f.anyVersion, "any-version", false, "allow a ranker of another name or version than the model's")
	f.ask.register(cmd)
	flags.StringVar(&f.table, "table", "", "where to write the table; empty is the route's")
	flags.StringVar(&f.format, "format", "", "float32, bfloat16, float16 or int8; empty is the route's")
	flags.StringVar(&f.layout, "layout", "", "rows, or tiles, which only a scan reads faster; empty is the route's")
	flags.BoolVar(&f.full, "full-precision", false, "keep the rows in float32 too, for exact scores")
	for name, extensions := range map[string][]string{"items": vectorFiles, "ids": idFiles, "owners": idFiles} {
		_ = cmd.MarkFlagFilename(name, extensions...)
	}
	_ = cmd.MarkFlagDirname("files")
	cmd.MarkFlagsMutuallyExclusive("route", "items")
	cmd.MarkFlagsOneRequired("route", "items")
	cmd.MarkFlagsRequiredTogether("model", "items", "collection")
}

// built is the report of `likeness index`.
type built struct {
	Table     *builtTable     `json:"table,omitempty"`
	Companion *builtCompanion `json:"companion,omitempty"`
	Drift     *follow.Drift   `json:"drift,omitempty"` // with --verify-all
	Asked     *indexAsked     `json:"asked,omitempty"` // nil if no ranker was asked
}

type builtTable struct {
	Path string `json:"path"`
	Kept bool   `json:"kept,omitempty"` // built by an earlier run
	index.Result
}

type builtCompanion struct {
	Name   string   `json:"name"`
	Files  string   `json:"files,omitempty"` // directory
	Fields []string `json:"fields"`
	ids    string   // file of the ids; empty: row numbers
	owner  string   // field with each row's item; empty: rows are items
	owners string   // file of the items
	index.Result
}

// target describes the table and companion to build: their model, collection and settings.
type target struct {
	source    index.Source
	close     io.Closer // closes what the source reads
	model     route.Model
	vectors   *maxsim.Vectors // behavioural vectors; nil if the model has none
	owner     string          // field of the companion with the item of a behavioural vector
	table     string
	format    rerank.Format
	layout    table.Layout
	full      bool // also keep rows in full precision
	companion string
	weights   rerank.Weights
	features  bool
	modelPath string
	ranker    string  // ranker of the route
	fittedTo  string  // name and version of the ranker that the model was fitted to; empty: unknown
	ranked    *ranked // nil if base vectors are stored
}

func (t *target) closeAll() error {
	err := t.close.Close()
	if t.ranked != nil {
		err = errors.Join(err, t.ranked.Close())
	}
	if t.vectors != nil {
		err = errors.Join(err, t.vectors.Close())
	}
	return err
}

func (f *indexFlags) run(ctx context.Context, src *source, p *progress) (_ built, err error) {
	t, err := f.target(ctx, src)
	if err != nil {
		return built{}, err
	}
	defer func() { err = errors.Join(err, t.closeAll()) }()
	if err := f.applyTo(&t); err != nil {
		return built{}, err
	}
	wantTable, companion := t.table != "" && f.only != "companion", t.companion != "" && f.only != "table"
	if f.only != "" && f.only != "table" && f.only != "companion" {
		return built{}, usagef("--only %q is neither table nor companion", f.only)
	}
	companion = companion && f.merge == 0 // the parts were written into one companion
	t.table = partPath(t.table, t.source.Part)
	if !wantTable && !companion {
		return built{}, usagef("nothing to build: neither a table nor a companion is named; give --table or --companion")
	}
	if f.merge == 0 {
		if err := f.throughRanker(ctx, src, &t, p, false); err != nil {
			return built{}, err
		}
	}
	var job index.CompanionJob
	if companion { // refuses what cannot be built before the table is built
		if job, err = f.companionJob(t, p); err != nil {
			return built{}, fmt.Errorf("building the companion: %w", err)
		}
	}
	var b built
	if b.Asked, err = f.estimateAsked(ctx, &t, p); err != nil || f.ask.estimate && b.Asked != nil {
		return b, t.withStoredScores(err)
	}
	defer func() { err = t.countAsked(b.Asked, err) }()
	if wantTable {
		b.Table, err = f.buildTable(ctx, t, p)
		// An earlier run may have ended after it wrote the table, or a queue may have repeated the
		// job.
		if errors.Is(err, index.ErrExists) && f.merge == 0 && (companion || t.source.Part.Of > 0) {
			b.Table, err = keptTable(t)
		}
		if err != nil {
			return b, fmt.Errorf("building the table: %w", err)
		}
	}
	if companion {
		if b.Companion, err = f.buildCompanion(ctx, t, job); err != nil {
			return b, fmt.Errorf("building the companion: %w", err)
		}
	}
	return b, nil
}

// applyTo replaces settings of the route by flags that were given.
func (f *indexFlags) applyTo(t *target) (err error) {
	t.source.Batch, t.source.RowsPerSecond, t.source.Checkpoint = f.batch, f.rate, f.checkpoint
	if t.source.Part, err = f.part(); err != nil {
		return err
	}
	t.table, t.companion = cmp.Or(f.table, t.table), cmp.Or(f.companion, t.companion)
	return f.tableFormat(t)
}

// tableFormat replaces settings of the route's table by flags that were given.
func (f *indexFlags) tableFormat(t *target) error {
	t.format, t.layout = cmp.Or(rerank.Format(f.format), t.format), cmp.Or(table.Layout(f.layout), t.layout)
	t.full = t.full || f.full
	if t.format != "" && !slices.Contains(rerank.Formats(), t.format) {
		return usagef("--format %q is none of %q", t.format, rerank.Formats())
	}
	if t.layout != "" && t.layout != table.LayoutRows && t.layout != table.LayoutTiles {
		return usagef("--layout %q is neither %q nor %q", t.layout, table.LayoutRows, table.LayoutTiles)
	}
	return nil
}

func (f *indexFlags) buildTable(ctx context.Context, t target, p *progress) (*builtTable, error) {
	if f.merge > 0 {
		return f.mergeTable(t)
	}
	result, err := index.BuildTable(ctx, index.TableJob{
		Source: t.source, Model: t.model, Vectors: t.vectors, Path: t.table, Format: t.format, Layout: t.layout, Full: t.full,
		Force: f.force, Progress: t.rowProgress(p),
	})
	return &builtTable{Path: t.table, Result: result}, err
}

// keptTable returns the existing table if it belongs to this model and collection.
func keptTable(t target) (*builtTable, error) {
	there, err := table.Open(t.table, table.Expect{ModelVersion: t.model.Version, Collection: t.source.Collection})
	if err != nil {
		return nil, fmt.Errorf("%w; replace it with --force", err)
	}
	rows := index.Result{Rows: there.Meta().Rows, Items: there.Len(), Verified: index.Verified{Rows: int64(there.Meta().Rows)}}
	return &builtTable{Path: t.table, Kept: true, Result: rows}, there.Close()
}

// companionJob returns the arguments of buildCompanion, except its writer and state.
func (f *indexFlags) companionJob(t target, p *progress) (job index.CompanionJob, err error) {
	job = index.CompanionJob{
		Source: t.source, Model: t.model, Vectors: t.vectors, Owner: t.owner, Name: t.companion, Weights: t.weights, Features: t.features || f.features,
		Force: f.force, Progress: t.rowProgress(p),
	}
	if f.weights != "" {
		job.Weights = rerank.Weights(f.weights)
	}
	if job.Strategies, err = parseStrategies(f.strategies); err != nil {
		return job, err
	}
	_, err = job.Fields()
	return job, err
}

func (f *indexFlags) buildCompanion(ctx context.Context, t target, job index.CompanionJob) (_ *builtCompanion, err error) {
	fields, err := job.Fields()
	if err != nil {
		return nil, err
	}
	b := &builtCompanion{Name: t.companion, Files: f.files}
	for _, field := range fields {
		b.Fields = append(b.Fields, field.Name)
	}
	if f.files != "" {
		files := &index.Files{Dir: f.files}
		job.Writer = files
		b.Result, err = index.BuildCompanion(ctx, job)
		err = errors.Join(err, files.Close())
		b.ids, b.owners = files.IDs, files.Owners
		if t.vectors != nil {
			b.owner = t.owner
		}
		return b, err
	}
	writer := adapters.AbilitiesOf(t.source.Store).Write
	if _, inProcess := t.source.Store.(*embedded.Store); writer == nil || inProcess {
		return nil, usagef("the store keeps no new collection; write the companion as files with --files")
	}
	job.Writer, job.State = writer, partPath(t.companion+".companion.json", t.source.Part)
	b.Result, err = index.BuildCompanion(ctx, job)
	return b, err
}

func parseStrategies(text string) ([]rerank.Strategy, error) {
	var strategies []rerank.Strategy
	for name := range strings.SplitSeq(text, ",") {
		s := rerank.Strategy(strings.TrimSpace(name))
		if !slices.Contains(rerank.Strategies(), s) {
			return nil, usagef("--strategies: %q is none of %q", name, rerank.Strategies())
		}
		strategies = append(strategies, s)
	}
	return strategies, nil
}

// target opens the route or the files that the flags name.
func (f *indexFlags) target(ctx context.Context, src *source) (target, error) {
	if f.items != "" {
		return f.fileTarget(ctx)
	}
	c, err := config.Load(src.Source)
	if err != nil {
		return target{}, err
	}
	return f.routeTarget(ctx, c)
}

func (f *indexFlags) fileTarget(ctx context.Context) (t target, err error) {
	t.table, t.source.Collection, t.owner, t.modelPath = f.table, f.collection, maxsim.Owner, f.model
	if t.model, t.fittedTo, err = openModel(f.model); err != nil {
		return t, err
	}
	if t.vectors, err = openVectors(f.model, f.behaviour, t.model.Similarity); err != nil {
		return t, err
	}
	items, err := dataset.OpenVectors(ctx, f.items)
	if err != nil {
		return t, usageError{err}
	}
	c := embedded.Collection{Fields: []embedded.Field{{Vectors: items.Matrix}}, IDs: items.IDs}
	if f.ids != "" {
		if c.IDs, err = dataset.ReadIDs(f.ids); err != nil {
			return t, errors.Join(err, items.Close())
		}
	}
	if f.payload != "" {
		if c.Payloads, err = dataset.ReadPayloads(f.payload); err != nil {
			return t, errors.Join(usageError{err}, items.Close())
		}
	}
	if f.owners != "" {
		c.OwnerField, t.source.Owner = "owner", "owner"
		if c.Owners, err = dataset.ReadIDs(f.owners); err != nil {
			return t, errors.Join(err, items.Close())
		}
	}
	store := embedded.New()
	t.source.Store, t.close = store, items
	return t, store.Load(f.collection, c)
}

func (f *indexFlags) routeTarget(ctx context.Context, c *config.Config) (t target, err error) {
	r, err := routeOf(c, f.route, f.version)
	if err != nil {
		return t, err
	}
	t.table, t.companion, t.weights = r.Table, r.Companion, r.Weights
	t.format, t.layout, t.full = rerank.Format(r.TableFormat), table.Layout(r.TableLayout), r.TableFullPrecision
	t.features = r.Placement == route.PlacementDerived
	parts, err := wiring.Open(ctx, c, wiring.Part{Route: f.route, Version: f.version, Tables: wiring.NoTables})
	if err != nil {
		return t, err
	}
	opened := parts.Versions[f.route]
	t.close, t.model = parts, opened.Route.Model
	t.modelPath, t.ranker, t.fittedTo = c.Models[r.ModelName].Path, r.RankerName, opened.Model.Provenance[rankerKey]
	if t.vectors, err = openVectors(t.modelPath, f.behaviour, t.model.Similarity); err != nil {
		return t, errors.Join(err, parts.Close())
	}
	t.source = index.Source{Store: opened.Route.Store, Collection: r.Collection, Vector: opened.Route.ItemField(), Owner: r.Owner}
	if t.vectors != nil {
		t.source.Owner, t.owner = "", cmp.Or(r.Owner, maxsim.Owner)
	}
	return t, nil
}

// routeOf returns the configuration of a route's version. An empty version means the one in
// service.
func routeOf(c *config.Config, rt, version string) (config.Route, error) {
	_, at, err := choice.InService(c, rt, version)
	return at, badRoute(err)
}

// badRoute turns the error for an unknown route or version into wrong usage.
func badRoute(err error) error {
	switch {
	case errors.Is(err, route.ErrUnknown):
		return usagef("--route: %w", err)
	case errors.Is(err, route.ErrVersion):
		return usagef("--version: %w", err)
	}
	return err
}
