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
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// dataHelp is the part of a command's help that describes dataFlags.
const dataHelp = `Items are read from a file or from a collection (--config with --collection or --route).
The log has the columns query and item, and optionally weight, time and seen, or answer and
position of what was shown (docs/fit.md).
Queries are vectors, or lines of text like {"query": "…"} that an --embedder reads, or
--history: the mean of the items that a person had before, as in a search by item_ids.`

// dataFlags are the flags that name the vectors and the log.
type dataFlags struct {
	dataset.Sources
	config *source

	route, store, collection, vector string
	embedder                         string
}

func (f *dataFlags) registerData(cmd *cobra.Command, pairsRequired bool) {
	flags := cmd.Flags()
	flags.StringVar(&f.Items, "items", "", "item vectors: .npy, .safetensors or .parquet")
	flags.StringVar(&f.Queries, "queries", "", "queries: vectors (.npy, .safetensors, .parquet) or texts (.jsonl)")
	flags.StringVar(&f.History.Path, "history", "", "in place of --queries: items that a query has before it is asked, a file like --pairs")
	flags.DurationVar(&f.History.HalfLife, "half-life", 0, "age at which an item of --history counts half, as 720h; 0: all ages alike")
	flags.BoolVar(&f.History.Keep, "keep-history", false, "keep the items of --history among the answers")
	flags.StringVar(&f.Pairs, "pairs", "", "logged pairs: .csv, .jsonl or .parquet")
	flags.StringVar(&f.Seen, "seen", "", "items seen before a query, which no answer has: a file like --pairs")
	flags.StringVar(&f.ItemIDs, "item-ids", "", "ids of the items: .npy of integers, text with one a line, or .parquet")
	flags.StringVar(&f.QueryIDs, "query-ids", "", "ids of the queries, in a file like --item-ids")
	flags.StringVar(&f.UserIDs, "user-ids", "", "user id of each query, .npy, for models with user-id embeddings")
	addEmbedderFlag(cmd, &f.embedder)
	f.config = addConfigFlags(cmd)
	flags.StringVar(&f.route, "route", "", "read the items from this route's collection")
	flags.StringVar(&f.collection, "collection", "", "read the items from this collection")
	flags.StringVar(&f.store, "store", "", "store of --collection; empty is the only one")
	flags.StringVar(&f.vector, "vector", "", "vector field of --collection; empty is the only or unnamed one")
	cmd.MarkFlagsMutuallyExclusive("items", "collection", "route")
	cmd.MarkFlagsOneRequired("items", "collection", "route")
	cmd.MarkFlagsMutuallyExclusive("queries", "history")
	cmd.MarkFlagsOneRequired("queries", "history")
	if pairsRequired {
		_ = cmd.MarkFlagRequired("pairs")
	}
	for name, extensions := range map[string][]string{
		"items": vectorFiles, "queries": queryFiles, "pairs": {"csv", "jsonl", "ndjson", "parquet"}, "seen": {"csv", "jsonl", "ndjson", "parquet"}, "history": {"csv", "jsonl", "ndjson", "parquet"},
		"item-ids": idFiles, "query-ids": idFiles, "user-ids": {"npy"},
	} {
		_ = cmd.MarkFlagFilename(name, extensions...)
	}
}

// Completions of the shell.
var (
	vectorFiles = []string{"npy", "safetensors", "parquet"}
	queryFiles  = []string{"npy", "safetensors", "parquet", "jsonl", "ndjson"}
	idFiles     = []string{"npy", "txt", "parquet"}
)

// registerCounts adds the flags of items and queries of several vectors.
func (f *dataFlags) registerCounts(cmd *cobra.Command) {
	f.ManyVectors = true
	flags := cmd.Flags()
	flags.StringVar(&f.ItemCounts, "item-counts", "", "number of vectors of each item, .npy, for late interaction; a collection's multi-vector field needs none")
	flags.StringVar(&f.QueryCounts, "query-counts", "", "number of vectors of each query, .npy, for late interaction")
	for _, name := range []string{"item-counts", "query-counts"} {
		_ = cmd.MarkFlagFilename(name, "npy")
	}
}

// open reads the dataset. Its errors count as wrong usage if the input is invalid.
func (f *dataFlags) open(ctx context.Context, p *progress) (_ *dataset.Dataset, err error) {
	f.Progress = p.begin
	switch {
	case f.History.HalfLife < 0:
		return nil, usagef("--half-life is %v; want 0 or more", f.History.HalfLife)
	case f.History.Path == "" && (f.History.HalfLife > 0 || f.History.Keep):
		return nil, usagef("--half-life and --keep-history say how the items of --history count, and there is no --history")
	}
	c := &config.Config{}
	if f.Items == "" || dataset.HoldsTexts(f.Queries) {
		if c, err = config.Load(f.config.Source); err != nil {
			return nil, err
		}
	}
	by, err := queryEmbedder(c, f.Queries, f.embedder, f.route)
	if err != nil {
		return nil, err
	}
	if by != nil {
		defer func() { err = errors.Join(err, by.Close()) }()
		f.Embedder = by
	}
	if f.Items == "" {
		store, failed := f.openCollection(ctx, c)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, store.Close()) }() // the vectors are in a temporary file by then
	}
	d, err := dataset.Open(ctx, f.Sources)
	if errors.Is(err, dataset.ErrInput) || errors.Is(err, adapters.ErrNotFound) || errors.Is(err, adapters.ErrField) {
		return nil, usageError{err}
	}
	return d, badText(err)
}

// openCollection opens the store of the collection that the flags name.
func (f *dataFlags) openCollection(ctx context.Context, c *config.Config) (io.Closer, error) {
	name, from, err := f.named(c)
	if err != nil {
		return nil, err
	}
	parts, err := wiring.Open(ctx, c, wiring.OnlyStore(name))
	if err != nil {
		return nil, err
	}
	from.Store, f.Collection = parts.Stores[name], &from
	return parts, nil
}

// named returns the collection and the vector field that the flags name, and the name of the store, which is
// not open yet.
func (f *dataFlags) named(c *config.Config) (store string, from dataset.Collection, err error) {
	store, from = f.store, dataset.Collection{Name: f.collection, Vector: f.vector}
	if f.route != "" {
		r, ok := c.Routes[f.route]
		if !ok {
			return "", from, usagef("--route: the configuration has no route %q; it has %q", f.route, c.RouteNames())
		}
		store, from = r.StoreName, dataset.Collection{Name: r.Collection, Vector: r.Vector}
		if f.ManyVectors && r.Vectors != "" {
			from.Vector = r.Vectors
		}
	}
	names := c.StoreNames()
	switch {
	case len(names) == 0:
		return "", from, usagef("--collection needs a configuration that says where its store is; give --config")
	case store == "" && len(names) == 1:
		store = names[0]
	case store == "" || !slices.Contains(names, store):
		return "", from, usagef("--store %q is none of the configuration's stores: %q", store, names)
	}
	return store, from, nil
}

// droppedLines returns one line for each reason why rows of the log were left out.
func droppedLines(c *dataset.Counts) []string {
	var lines []string
	for _, d := range []struct {
		n    int
		what string
	}{
		{c.DuplicatePairs, "rows of a pair given before: weights are added; without weights fit maxsim counts the rows, and other commands the pair once"},
		{c.UnknownItems, "rows dropped: their item is not among the items"},
		{c.UnknownQueries, "rows dropped: their query is not among the queries"},
		{c.UnknownSeen, "rows of seen items dropped: their query or item is unknown"},
		{c.UnknownHistory, "rows of histories dropped: their item is not among the items"},
		{c.NoHistory, "queries dropped: no item of their history came before them"},
		{c.ZeroWeights, "rows dropped: weight 0"},
		{c.SeveralTimes, "queries have pairs of several times"},
		{c.NotFiniteItems, "items have NaN or an infinity in their vector; they rank last"},
	} {
		if d.n > 0 {
			lines = append(lines, fmt.Sprintf("%d %s", d.n, d.what))
		}
	}
	if c.MissingItems > 0 {
		lines = append(lines, fmt.Sprintf("%d rows of the collection left out: they have no such vector; the first is %s", c.MissingItems, c.FirstMissingItem))
	}
	if len(c.Ignored) > 0 {
		lines = append(lines, fmt.Sprintf("columns that are not used: %s", strings.Join(c.Ignored, ", ")))
	}
	return lines
}
