package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/sidecar/buildinfo"
)

func newVersionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version and what it was built from and for",
		Example: "  likeness version\n  likeness version --output json",
		Args:    cobra.NoArgs,
	}
	out := addOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		info := buildinfo.Read(stamp())
		return a.print(*out, info, func(w io.Writer) error { return printVersion(w, info) })
	}
	return cmd
}

func printVersion(w io.Writer, i buildinfo.Info) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range [][2]string{
		{"likeness", i.Version}, {"commit", i.Commit}, {"date", i.Date}, {"go", i.Go},
		{"platform", i.Platform}, {"cpu", i.CPUText()}, {"api", i.API}, {"model format", i.ModelFormat},
	} {
		if _, err := fmt.Fprintf(t, "%s\t%s\n", row[0], row[1]); err != nil {
			return err
		}
	}
	return t.Flush()
}

// Set by the linker: -ldflags "-X main.version=1.2.3 -X main.commit=… -X main.date=…".
var version, commit, date string

func stamp() buildinfo.Stamp {
	return buildinfo.Stamp{Version: version, Commit: commit, Date: date}
}
