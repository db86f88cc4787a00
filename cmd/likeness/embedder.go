package main

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/trial"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// embedderTimeout bounds a call of an embedder that a flag names by its URL. Nobody waits for it as for
// a search.
const embedderTimeout = time.Minute

// addEmbedderFlag adds the flag that names the embedder of queries that are text.
func addEmbedderFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "embedder", "", "what embeds --queries of .jsonl: a name in the configuration, or URL#MODEL")
}

// queryEmbedder opens the embedder of a file of queries, or returns nil if the file has vectors. named
// is the value of --embedder; if it is empty, the route's embedder, or the only one, is meant.
func queryEmbedder(c *config.Config, queries, named, route string) (*embed.Client, error) {
	if !dataset.HoldsTexts(queries) {
		if named != "" {
			return nil, usagef("--embedder: %s holds vectors; leave it out, or give texts in .jsonl", queries)
		}
		return nil, nil //nolint:nilnil // the file needs none
	}
	names := c.EmbedderNames()
	if named = cmp.Or(named, c.Routes[route].EmbedderName); named == "" && len(names) == 1 {
		named = names[0]
	}
	if named == "" {
		return nil, usagef("%s holds texts, of which an embedder makes vectors; give --embedder, a name in the configuration or URL#MODEL", queries)
	}
	return openEmbedder(c, named)
}

// openEmbedder opens an embedder of the configuration, or the one at a URL, whose fragment is the
// model and whose token is in the environment variable trial.EmbedderKey. The caller closes it.
func openEmbedder(c *config.Config, named string) (*embed.Client, error) {
	if slices.Contains(c.EmbedderNames(), named) {
		return wiring.OpenEmbedder(c, named, wiring.EmbedderOptions{})
	}
	if !strings.Contains(named, "://") {
		return nil, usagef("--embedder: the configuration has no embedder %q; it has %q. Name one, or give a URL", named, c.EmbedderNames())
	}
	url, model, _ := strings.Cut(named, "#")
	client, err := embed.New(embed.Options{Name: url, URL: url, Model: model, Token: os.Getenv(trial.EmbedderKey), Timeout: embedderTimeout, RetryBudget: 0.1})
	if err != nil {
		return nil, usagef("--embedder: %w; want URL#MODEL, such as http://localhost:11434/v1/embeddings#all-minilm", err)
	}
	return client, nil
}

// badText turns the error of a text that cannot be embedded into wrong usage.
func badText(err error) error {
	if errors.Is(err, embed.ErrText) {
		return usageError{err}
	}
	return err
}
