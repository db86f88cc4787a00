package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/eval/report"
	"github.com/likenessdb/likeness/learn/trial"
)

const tryLong = `Looks at a collection of Qdrant or Milvus, says which similarities could serve it and
how exact their answers could be, measures the database's own search, learns a
similarity from what is there, and says whether it is worth it. It needs no
configuration and writes nothing to the database.

It learns from a log (--pairs with --queries, or with queries as text --questions with
--embedder) or from a payload field whose rows belong together by value (--label).
Without any it says what is missing; without COLLECTION it lists the collections.

The folder --out gets a report with examples, the model, and likeness.yaml, which
serves exactly this.`

func newTryCommand(a *app) *cobra.Command {
	f := &tryFlags{}
	cmd := &cobra.Command{
		Use:   "try URL [COLLECTION]",
		Short: "Try likeness on a collection of Qdrant or Milvus, without writing to it",
		Long:  tryLong,
		Example: `  likeness try http://localhost:6333 products
  likeness try localhost:19530 products --label category
  likeness try https://db.example.com:6333 products --queries queries.npy --pairs log.csv
  likeness try localhost:6333 products --questions log.jsonl --text title --embedder http://localhost:11434/v1/embeddings#all-minilm`,
		Args: cobra.RangeArgs(1, 2),
	}
	f.add(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := f.of(args)
		if err != nil {
			return err
		}
		p := newProgress(a.stderr)
		o.Progress, o.Note = p.begin, p.note
		r, err := try(cmd.Context(), o)
		if err != nil {
			return err
		}
		return a.print(*out, r, func(w io.Writer) error { return printTrial(w, r) })
	}
	return cmd
}

// tryFlags are the flags of `likeness try`.
type tryFlags struct {
	options   trial.Options
	questions string
}

// of returns the options for the arguments, a database and perhaps a collection.
func (f *tryFlags) of(args []string) (trial.Options, error) {
	o := f.options
	o.URL = args[0]
	if len(args) == 2 {
		o.Collection = args[1]
	}
	if strings.Contains(o.Collection, "://") {
		return o, usagef("%s looks like a URL; the URL comes first, and then the collection", o.Collection)
	}
	if f.questions != "" {
		if !dataset.HoldsTexts(f.questions) {
			return o, usagef("--questions %s: want .jsonl or .ndjson", f.questions)
		}
		o.Log.Queries, o.Log.Pairs = f.questions, f.questions
	}
	o.Embedder.URL, o.Embedder.Model, _ = strings.Cut(o.Embedder.URL, "#")
	o.Title = cmp.Or(o.Title, o.Embedder.Field)
	return o, nil
}

func (f *tryFlags) add(cmd *cobra.Command) {
	flags, o := cmd.Flags(), &f.options
	flags.StringVar(&o.Vector, "vector", "", "vector field; empty is the only or unnamed one")
	flags.StringVar(&o.Label, "label", "", "payload field: rows of one value belong together")
	flags.StringVar(&o.Log.Pairs, "pairs", "", "logged pairs: .csv, .jsonl or .parquet")
	flags.StringVar(&o.Log.Queries, "queries", "", "queries of the log: vectors in .npy, .safetensors or .parquet, or texts in .jsonl")
	flags.StringVar(&o.Log.QueryIDs, "query-ids", "", "ids by which the log names the queries: .npy, text or .parquet")
	flags.StringVar(&f.questions, "questions", "", `log in .jsonl with the queries as texts: {"query": "…", "item": 7}`)
	flags.StringVar(&o.Embedder.URL, "embedder", "", "what embeds texts: URL#MODEL, as http://localhost:11434/v1/embeddings#all-minilm; its token is in "+trial.EmbedderKey)
	flags.StringVar(&o.Embedder.QueryPrefix, "query-prefix", "", `put before every query that is embedded, as "query: " for E5`)
	flags.StringVar(&o.Embedder.DocumentPrefix, "document-prefix", "", `put before the text of a row that is embedded, as "passage: " for E5`)
	flags.StringVar(&o.Embedder.Field, "text", "", "payload field from which the vectors were made, to check the embedder; examples show it")
	flags.StringVar(&o.Title, "title", "", "payload field that examples show; empty picks one")
	flags.StringVar(&o.KeyEnv, "api-key-env", "", "environment variable with the API key or Milvus's token; empty is QDRANT_API_KEY or MILVUS_TOKEN, if set")
	flags.StringVar(&o.KeyFile, "api-key-file", "", "file with the API key or token")
	flags.StringVar(&o.Database, "database", "", "database of Milvus")
	flags.StringVar(&o.GRPC, "grpc", "", "host:port of Qdrant's gRPC port, if URL has its REST port and the gRPC port is not the next one")
	flags.StringVar(&o.CAFile, "ca-file", "", "authorities that sign the server's certificate, PEM")
	flags.IntVar(&o.Rows, "rows", 20_000, "rows to read, at most; of a larger collection from random places, if its ids can be divided")
	flags.IntVar(&o.K, "k", 10, "length of an answer")
	flags.StringVar(&o.Metric, "metric", "", "metric of the verdict; empty is mrr@k for a log and ndcg@k for a label")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the fit and of the intervals")
	flags.StringVar(&o.Out, "out", "likeness-try", "folder to write")
	flags.BoolVar(&o.Force, "force", false, "write to a folder that is not empty")
	cmd.MarkFlagsRequiredTogether("pairs", "queries")
	cmd.MarkFlagsRequiredTogether("questions", "embedder")
	cmd.MarkFlagsMutuallyExclusive("pairs", "label", "questions")
	cmd.MarkFlagsMutuallyExclusive("api-key-env", "api-key-file")
	_ = cmd.MarkFlagFilename("pairs", "csv", "jsonl", "ndjson", "parquet")
	_ = cmd.MarkFlagFilename("questions", "jsonl", "ndjson")
	_ = cmd.MarkFlagFilename("queries", queryFiles...)
	_ = cmd.MarkFlagFilename("query-ids", idFiles...)
	_ = cmd.MarkFlagDirname("out")
}

func try(ctx context.Context, o trial.Options) (*trial.Report, error) {
	if o.Rows < 2 || o.K < 1 {
		return nil, usagef("--rows %d, --k %d: want 2 and 1 at least", o.Rows, o.K)
	}
	r, err := trial.Run(ctx, o)
	var refused *trial.RefusalError
	switch {
	case errors.As(err, &refused) && !errors.Is(err, adapters.ErrUnavailable):
		return nil, usageError{err}
	case err != nil:
		return nil, err
	}
	return r, report.WriteTrial(filepath.Join(o.Out, trial.ReportFile), r)
}
