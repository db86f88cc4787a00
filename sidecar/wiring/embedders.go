package wiring

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/embed"
)

// EmbedderOptions are optional settings of embedders.
type EmbedderOptions struct {
	Logger *slog.Logger
	// Observer is told of the calls of embedders; it may be nil.
	Observer embed.Observer
}

// Embedders holds the embedders of a configuration by name. Routes that name the same embedder
// share it, and its cache.
type Embedders map[string]*embed.Client

// OpenEmbedders makes the embedders of a configuration. It does not call them. It returns
// config.ErrConfig for settings that can never work.
func OpenEmbedders(c *config.Config, o EmbedderOptions) (Embedders, error) {
	all := Embedders{}
	var failed []error
	for _, name := range c.EmbedderNames() {
		client, err := OpenEmbedder(c, name, o)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		all[name] = client
	}
	if err := errors.Join(failed...); err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return all, nil
}

// OpenEmbedder makes one embedder of a configuration, which the caller closes. It returns the
// errors of OpenEmbedders.
func OpenEmbedder(c *config.Config, name string, o EmbedderOptions) (*embed.Client, error) {
	options, err := embedderOptions(c, name, o)
	if err != nil {
		return nil, err
	}
	client, err := embed.New(options)
	if err != nil {
		return nil, fmt.Errorf("%w: embedders.%s: %w", config.ErrConfig, name, err)
	}
	return client, nil
}

func embedderOptions(c *config.Config, name string, o EmbedderOptions) (embed.Options, error) {
	of, ok := c.Embedders[name]
	if !ok {
		return embed.Options{}, fmt.Errorf("%w: there is no embedder %q; there are %q", config.ErrConfig, name, c.EmbedderNames())
	}
	token, err := c.EmbedderToken(name)
	if err != nil {
		return embed.Options{}, err
	}
	return embed.Options{
		Name: name, URL: of.URL, Form: strings.TrimPrefix(of.Form, "auto"), Model: of.Model, Token: token.Reveal(),
		QueryPrefix: of.QueryPrefix, DocumentPrefix: of.DocumentPrefix,
		Dimension: of.Dimension, Shorten: of.Shorten, Batch: of.Batch, Parallel: of.Parallel, Timeout: of.Timeout,
		CacheBytes: int64(of.Cache), BreakAfter: of.BreakAfter, BreakFor: of.BreakFor, RetryBudget: of.RetryBudget,
		Observer: o.Observer, Logger: o.Logger,
	}, nil
}

// Embedder returns the embedder of that name, or nil.
func (all Embedders) Embedder(name string) embed.Embedder {
	if client := all[name]; client != nil {
		return client
	}
	return nil
}

// States returns the states of the embedders by name.
func (all Embedders) States() map[string]embed.State {
	states := map[string]embed.State{}
	for name, client := range all {
		states[name] = client.State()
	}
	return states
}

// Close closes the embedders.
func (all Embedders) Close() error {
	var failed []error
	for _, client := range all {
		failed = append(failed, client.Close())
	}
	return errors.Join(failed...)
}
