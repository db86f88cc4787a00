package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/eval/report"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/rollout/choice"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

const calibrateLong = `The promise is: recall@K is at least --recall for a --share of the queries, with
--confidence. The command sends queries at growing depth, compares the answers with the
exact ones, and stops at the first depth that proves the promise, which it stores in
state_dir. Each of n depths is tested with a confidence of 1 − (1 − confidence)/n, so that
stopping early costs none of it.

.95 and .95 need at least 59 queries like those of production for one depth, 109 for 13. An interrupted command
goes on when it runs again. If no depth proves the promise, the exit code is 1 and an
earlier calibration stays. docs/how-to/promise-a-recall.md has the steps.`

// calibrateFlags are the flags of calibrate.
type calibrateFlags struct {
	route, version                  string
	queries, embedder, userIDs      string
	seen, queryIDs                  string
	state, html                     string
	fromCollection, sample, holdOut int
	seed                            uint64
	confidence                      float64
	dryRun                          bool

	input calibrate.Input // what the flags of the promise and the searches set
}

func newCalibrateCommand(a *app) *cobra.Command {
	f := &calibrateFlags{}
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Find the depth at which a route can promise a recall",
		Long:  calibrateLong,
		Example: `  likeness calibrate --config likeness.yaml --route products --queries asked.npy --recall 0.9 --share 0.95
  likeness calibrate --config likeness.yaml --route products --queries asked.npy --sample 1000 --hold-out 500 \
    --html calibration.html --output json
  likeness calibrate --config likeness.yaml --route products --from-collection 500 --dry-run`,
		Args: cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	f.add(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, path, err := f.run(cmd.Context(), src, newProgress(a.stderr))
		if err != nil {
			return err
		}
		if f.html != "" {
			if err := report.WriteCalibration(f.html, r); err != nil {
				return err
			}
		}
		if err := a.print(*out, r, func(w io.Writer) error { return printCalibration(w, r, path) }); err != nil {
			return err
		}
		if last := r.Rules[len(r.Rules)-1]; r.Calibration == nil {
			return fmt.Errorf("no depth shows the promise; at the greatest, %d, the share is %.4g at least: promise less, or raise --depths or max_depth",
				last.Depth, last.LeastShare)
		}
		return nil
	}
	return cmd
}

// alphaOf returns 1 − confidence without the rounding error of the subtraction: .05 for .95.
func alphaOf(confidence float64) float64 { return math.Round((1-confidence)*1e12) / 1e12 }

func (f *calibrateFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.route, "route", "r", "", "the route of the configuration")
	flags.StringVar(&f.version, "version", "", "the version of the route; empty is the one in service")
	flags.StringVar(&f.queries, "queries", "", "queries: vectors (.npy, .safetensors, .parquet) or texts (.jsonl)")
	addEmbedderFlag(cmd, &f.embedder)
	flags.StringVar(&f.userIDs, "user-ids", "", "user id of each query, .npy, for models with user-id embeddings")
	flags.StringVar(&f.seen, "seen", "", "items seen before a query, which no answer has: a log with the columns query and item")
	flags.StringVar(&f.queryIDs, "query-ids", "", "ids by which --seen names the queries: .npy of integers, text with one a line, or .parquet")
	flags.IntVar(&f.fromCollection, "from-collection", 0, "take this many stored vectors, drawn at random, for queries")
	flags.IntVar(&f.sample, "sample", 0, "ask this many of the queries, drawn at random; 0 is all")
	flags.IntVar(&f.holdOut, "hold-out", 0, "further random queries to check the promise with")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the draws")
	flags.Float64Var(&f.input.Promise.Recall, "recall", 0.9, "recall@k to promise")
	flags.Float64Var(&f.input.Promise.Share, "share", 0.95, "share of the queries that it is promised for")
	flags.Float64Var(&f.confidence, "confidence", 0.95, "confidence of the promise")
	flags.IntVar(&f.input.Promise.K, "k", 10, "length of an answer")
	flags.IntSliceVar(&f.input.Depths, "depths", nil, "depths to test; empty is k to ten times the route's")
	flags.IntVar(&f.input.Parallel, "parallel", 2, "queries asked at a time")
	flags.DurationVar(&f.input.IndexWait, "index-wait", 5*time.Minute, "wait this long at most while the store builds an index")
	flags.StringVar(&f.state, "state", "", "folder of the calibration; empty is state_dir")
	flags.StringVar(&f.html, "html", "", "write a report with plots to this file")
	flags.BoolVar(&f.dryRun, "dry-run", false, "report, and keep nothing")
	cmd.MarkFlagsMutuallyExclusive("queries", "from-collection")
	cmd.MarkFlagsOneRequired("queries", "from-collection")
	_ = cmd.MarkFlagRequired("route")
	_ = cmd.MarkFlagFilename("queries", queryFiles...)
	cmd.MarkFlagsMutuallyExclusive("seen", "from-collection")
	_ = cmd.MarkFlagFilename("user-ids", "npy")
	_ = cmd.MarkFlagFilename("seen", "csv", "jsonl", "ndjson", "parquet")
	_ = cmd.MarkFlagFilename("query-ids", idFiles...)
	_ = cmd.MarkFlagFilename("html", "html")
	_ = cmd.MarkFlagDirname("state")
}

// run calibrates the route and stores the promise. It returns the report and the path of the stored
// promise.
func (f *calibrateFlags) run(ctx context.Context, src *source, p *progress) (_ *calibrate.Report, path string, err error) {
	c, err := config.Load(src.Source)
	if err != nil {
		return nil, "", err
	}
	parts, rt, err := f.open(ctx, c)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	in := f.input
	in.Route, in.Progress, in.Promise.Alpha = rt, p.begin, alphaOf(f.confidence)
	if !f.dryRun {
		path = calibrate.Path(c.StateDir, f.route, in.Route.Model.Version)
		in.Journal = calibrate.JournalPath(c.StateDir, f.route, in.Route.Model.Version)
	}
	if err := f.drawQueries(ctx, c, &in); err != nil {
		return nil, "", err
	}
	r, err := calibrate.Run(ctx, in)
	if errors.Is(err, calibrate.ErrInput) || errors.Is(err, rerank.ErrQuery) {
		err = usageError{err}
	}
	if err != nil || f.dryRun || r.Calibration == nil {
		return r, "", err
	}
	return r, path, r.Save(path)
}

// open opens the route alone, and sets the state folder.
func (f *calibrateFlags) open(ctx context.Context, c *config.Config) (*wiring.Assembly, *route.Route, error) {
	version, r, err := choice.InService(c, f.route, f.version) // in service according to the configuration's own state folder
	if err != nil {
		return nil, nil, badRoute(err)
	}
	c.StateDir = cmp.Or(f.state, c.StateDir)
	switch {
	case r.RankerName != "":
		return nil, nil, usagef("what is audited is the similarity's order, and the answers of route %q are in that of ranker %q; "+
			"calibrate a route of the same model without a ranker", f.route, r.RankerName)
	case c.StateDir == "" && !f.dryRun:
		return nil, nil, usagef("there is no folder to keep the calibration in; set state_dir, or give --state or --dry-run")
	case f.sample < 0 || f.holdOut < 0 || f.fromCollection < 0 || f.input.Parallel < 1:
		return nil, nil, usagef("--sample %d, --hold-out %d, --from-collection %d, --parallel %d: want 0 at least, and 1 for --parallel",
			f.sample, f.holdOut, f.fromCollection, f.input.Parallel)
	}
	parts, err := wiring.Open(ctx, c, wiring.Only(f.route, version))
	if err != nil {
		return nil, nil, err
	}
	return parts, parts.Versions[f.route].Route, nil
}

// drawQueries reads the queries and splits off those that are held out.
func (f *calibrateFlags) drawQueries(ctx context.Context, c *config.Config, in *calibrate.Input) error {
	var queries []rerank.Query
	var seen [][]string
	var err error
	random := rand.New(rand.NewPCG(f.seed, 0))
	if f.queries != "" {
		queries, seen, err = f.readQueries(ctx, c, in)
	} else {
		queries, err = f.storedQueries(ctx, in, random)
	}
	if err != nil {
		return err
	}
	if d := in.Route.Model.Similarity.Spec().QueryDim; len(queries) > 0 && len(queries[0].Vector) != d {
		return usagef("the queries have %d elements, model %s takes %d", len(queries[0].Vector), in.Route.Model.Name, d)
	}
	n := f.sample
	if n == 0 {
		n = len(queries) - f.holdOut
	}
	if n < 0 || n+f.holdOut > len(queries) {
		return usagef("--sample %d and --hold-out %d of %d queries; ask for fewer", f.sample, f.holdOut, len(queries))
	}
	random.Shuffle(len(queries), func(i, j int) {
		queries[i], queries[j] = queries[j], queries[i]
		if seen != nil {
			seen[i], seen[j] = seen[j], seen[i]
		}
	})
	if seen != nil {
		in.Seen = seen[:n+f.holdOut]
	}
	in.Queries, in.HeldOut = queries[:n], queries[n:n+f.holdOut]
	return nil
}

// readQueries reads the queries, and the items that were seen before each of them if there is a
// file of these.
func (f *calibrateFlags) readQueries(ctx context.Context, c *config.Config, in *calibrate.Input) (_ []rerank.Query, seen [][]string, err error) {
	var by embed.Embedder
	if client, err := queryEmbedder(c, f.queries, f.embedder, f.route); err != nil {
		return nil, nil, err
	} else if client != nil {
		defer func() { err = errors.Join(err, client.Close()) }()
		by = client
	}
	vectors, err := dataset.OpenQueries(ctx, f.queries, by, dataset.Progress(in.Progress))
	if err != nil {
		return nil, nil, badText(badDataset(err))
	}
	defer vectors.Close()
	var users []int64
	if f.userIDs != "" {
		if users, err = npy.ReadInts(f.userIDs); err != nil {
			return nil, nil, usageError{err}
		}
		if len(users) != vectors.Rows {
			return nil, nil, usagef("%s has %d user ids for %d queries", f.userIDs, len(users), vectors.Rows)
		}
	}
	queries := make([]rerank.Query, vectors.Rows)
	for i := range queries {
		queries[i].Vector = append([]float32(nil), vectors.Row(i)...)
		if users != nil {
			queries[i].UserID, queries[i].HasUserID = users[i], true
		}
	}
	digest, err := dataset.FileDigest(f.queries)
	if errors.Is(err, os.ErrNotExist) { // a FILE#NAME argument
		digest, err = "", nil
	}
	in.Source = f.queries
	if digest != "" {
		in.Source += " sha256:" + digest
	}
	if err == nil {
		seen, err = f.readSeen(ctx, vectors)
	}
	return queries, seen, err
}

// readSeen reads the items that were seen before each query.
func (f *calibrateFlags) readSeen(ctx context.Context, queries *dataset.Vectors) ([][]string, error) {
	if f.seen == "" {
		return nil, nil
	}
	ids := queries.IDs
	if f.queryIDs != "" {
		var err error
		if ids, err = dataset.ReadIDs(f.queryIDs); err != nil {
			return nil, badDataset(err)
		}
		if len(ids) != queries.Rows {
			return nil, usagef("%s has %d ids for %d queries", f.queryIDs, len(ids), queries.Rows)
		}
	}
	seen, err := dataset.ReadSeenIDs(ctx, f.seen, queries.Rows, ids)
	return seen, badDataset(err)
}

// storedQueries draws stored vectors of the collection as queries, all with the same probability
// (reservoir sampling).
func (f *calibrateFlags) storedQueries(ctx context.Context, in *calibrate.Input, random *rand.Rand) ([]rerank.Query, error) {
	r := in.Route
	scanner := adapters.AbilitiesOf(r.Store).Scan
	spec := r.Model.Similarity.Spec()
	switch {
	case scanner == nil:
		return nil, usagef("--from-collection: store %q cannot list its rows; give --queries", r.StoreName)
	case spec.QueryDim != spec.ItemDim || spec.UserIDs:
		return nil, usagef("--from-collection: a stored vector is no query of model %s, which takes %d elements for %d of an item%s; give --queries",
			r.Model.Name, spec.QueryDim, spec.ItemDim, map[bool]string{true: ", and a user id"}[spec.UserIDs])
	}
	var queries []rerank.Query
	var missing adapters.Missing
	seen := 0
	err := scanner.Scan(ctx, adapters.ScanRequest{Collection: r.Collection, Vectors: []string{r.Vector}}, func(rows adapters.Rows, _ string) error {
		rows = missing.Drop(rows)
		for i := range rows.IDs {
			seen++
			q := rerank.Query{Vector: append([]float32(nil), rows.Vectors[0].Row(i)...)}
			if len(queries) < f.fromCollection {
				queries = append(queries, q)
			} else if at := random.IntN(seen); at < len(queries) {
				queries[at] = q
			}
		}
		return nil
	})
	in.Source = fmt.Sprintf("%d stored vectors of collection %s%s", len(queries), r.Collection, missing)
	return queries, err
}
