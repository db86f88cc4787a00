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
	"github.com/likenessdb/likeness/rerank/model"
)

func newModelDotCommand(a *app) *cobra.Command {
	return newModelUnfittedCommand(a, rerank.KindDot, &cobra.Command{
		Use:   "dot TO",
		Short: "Write the plain inner product, or the cosine, as a model",
		Long: `A route with this model keeps the order of the database. Use it on a route with a
ranker, or to compare a fit with it.`,
		Example: `  likeness model dot cosine.safetensors --dim 384 --normalise`,
	})
}

func newModelLateCommand(a *app) *cobra.Command {
	return newModelUnfittedCommand(a, rerank.KindLate, &cobra.Command{
		Use:   "late TO",
		Short: "Write late interaction as a model",
		Long: `A route with this model scores an item by all of its vectors and all of the query's:
the sum, over the query's vectors, of the best inner product with a vector of the item.`,
		Example: `  likeness model late colbert.safetensors --dim 128 --normalise`,
	})
}

// newModelUnfittedCommand returns a command that writes a model of a kind that has a dimension and
// nothing to fit.
func newModelUnfittedCommand(a *app, kind rerank.Kind, cmd *cobra.Command) *cobra.Command {
	var c unfitted
	var force bool
	cmd.Args = cobra.ExactArgs(1)
	flags := cmd.Flags()
	flags.IntVar(&c.Dim, "dim", 0, "dimension of the vectors")
	flags.BoolVar(&c.Normalise, "normalise", false, "divide all vectors by their norms, so that inner products are cosines")
	flags.BoolVar(&force, "force", false, "replace existing files")
	_ = cmd.MarkFlagRequired("dim")
	out := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		m, err := newUnfitted(args[0], kind, c)
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

// unfitted is the configuration of a kind with nothing to fit.
type unfitted struct {
	Dim       int  `json:"dim"`
	Normalise bool `json:"normalise"`
}

func newUnfitted(path string, kind rerank.Kind, c unfitted) (*model.Model, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(path), model.Extension)
	return model.New(model.Parameters{Kind: kind, Name: name, Config: config})
}
