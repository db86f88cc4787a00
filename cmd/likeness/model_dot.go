package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/model"
)

func newModelDotCommand(a *app) *cobra.Command {
	var c dot.Config
	var force bool
	cmd := &cobra.Command{
		Use:   "dot TO",
		Short: "Write the plain inner product, or the cosine, as a model",
		Long: `A route with this model keeps the order of the database. Use it on a route with a
ranker, or to compare a fit with it.`,
		Example: `  likeness model dot cosine.safetensors --dim 384 --normalise`,
		Args:    cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.IntVar(&c.Dim, "dim", 0, "dimension of the vectors")
	flags.BoolVar(&c.Normalise, "normalise", false, "divide both sides by their norms: the cosine")
	flags.BoolVar(&force, "force", false, "replace existing files")
	_ = cmd.MarkFlagRequired("dim")
	out := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		m, err := newDot(args[0], c)
		if err != nil {
			return badModel(err)
		}
		if _, err := os.Lstat(args[0]); err == nil && !force {
			return usagef("%s exists; replace it with --force", args[0])
		}
		if err := model.Write(args[0], m); err != nil {
			return err
		}
		return a.print(*out, importResult{Description: m.Describe(), Path: args[0]}, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "wrote %s: model %s, version %s\n", args[0], m.Name, m.Version)
			return err
		})
	}
	return cmd
}

func newDot(path string, c dot.Config) (*model.Model, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(path), model.Extension)
	return model.New(model.Parameters{Kind: rerank.KindDot, Name: name, Config: config})
}
