package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/sidecar/config"
)

// source holds the flags that say where the configuration comes from.
type source struct{ config.Source }

func addConfigFlags(cmd *cobra.Command) *source {
	s := &source{}
	cmd.Flags().StringVarP(&s.File, "config", "c", "", "configuration file (YAML)")
	cmd.Flags().StringArrayVar(&s.Set, "set", nil, "set a key, as limits.max_k=100; may be repeated")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return s
}

func newConfigCommand(a *app) *cobra.Command {
	return newGroup("config", "Check and print the configuration",
		newConfigValidateCommand(a), newConfigPrintCommand(a), newConfigSchemaCommand(a))
}

func newConfigPrintCommand(a *app) *cobra.Command {
	var defaults bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the configuration in force, without secrets",
		Example: `  likeness config print --config likeness.yaml --set limits.max_k=100
  likeness config print --default > likeness.yaml`,
		Args: cobra.NoArgs,
	}
	src := addConfigFlags(cmd)
	cmd.Flags().BoolVar(&defaults, "default", false, "print every key with its default and an example")
	cmd.RunE = func(*cobra.Command, []string) error {
		if defaults {
			return config.PrintDefault(a.stdout)
		}
		c, err := config.Load(src.Source)
		if err != nil {
			return err
		}
		return c.Print(a.stdout)
	}
	return cmd
}

func newConfigSchemaCommand(a *app) *cobra.Command {
	var markdown bool
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON schema of the configuration",
		Example: "  likeness config schema > config.schema.json",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print the reference page instead")
	cmd.RunE = func(*cobra.Command, []string) error {
		var write func(io.Writer) error = config.WriteSchema
		if markdown {
			write = config.WriteReference
		}
		return write(a.stdout)
	}
	return cmd
}
