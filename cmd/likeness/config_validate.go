package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/pipeline"
	"github.com/likenessdb/likeness/sidecar/rollout"
)

// validation is what `likeness config validate` prints.
type validation struct {
	Stores  int  `json:"stores"`
	Models  int  `json:"models"`
	Routes  int  `json:"routes"`
	Connect bool `json:"connected"`
}

func newConfigValidateCommand(a *app) *cobra.Command {
	var connect bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration with the files that it names",
		Long: `validate checks the configuration, the model, table and vector files, and that
models, tables and routes fit each other. With --connect it also asks the stores
for the collections.`,
		Example: `  likeness config validate --config likeness.yaml
  likeness config validate --config likeness.yaml --connect --timeout 10s`,
		Args: cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	cmd.Flags().BoolVar(&connect, "connect", false, "ask the stores too")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "time for --connect")
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := config.Load(src.Source)
		if err != nil {
			return err
		}
		if err := validateFiles(cmd.Context(), c, connect, timeout); err != nil {
			return err
		}
		v := validation{Stores: len(c.Stores), Models: len(c.Models), Routes: len(c.Routes), Connect: connect}
		return a.print(*out, v, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "valid: %d stores, %d models, %d routes\n", v.Stores, v.Models, v.Routes)
			return err
		})
	}
	return cmd
}

func validateFiles(ctx context.Context, c *config.Config, connect bool, timeout time.Duration) (err error) {
	if len(c.Routes) == 0 {
		return fmt.Errorf("%w: it has no route, so there is nothing to serve; is --config given?", config.ErrConfig)
	}
	parts, err := rollout.Open(ctx, c)
	if err != nil {
		return fmt.Errorf("%w: %w", config.ErrConfig, err)
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	p, err := pipeline.New(parts.Routes, pipeline.Options{})
	if err != nil {
		return fmt.Errorf("%w: %w", config.ErrConfig, err)
	}
	if !connect {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := p.Open(ctx); errors.Is(err, pipeline.ErrSetup) {
		return fmt.Errorf("%w: %w", config.ErrConfig, err)
	} else if err != nil {
		return err
	}
	return nil
}
