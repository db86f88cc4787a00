//go:build cuda

// Command likeness-gpu scores the tables of a sidecar's routes on an NVIDIA device:
// it is a plugin that the sidecar starts, or reaches on another machine. Without a
// driver it ends before main.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/sidecar/buildinfo"
)

// Set by the linker.
var version, commit, date string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		os.Exit(1)
	}
}

// run executes one command line. It prints an error that it returns to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "likeness-gpu:", err)
	}
	return err
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "likeness-gpu",
		Short: "Score the tables of a sidecar's routes on an NVIDIA device",
		Long: `likeness-gpu keeps the tables of a sidecar's routes in the memory of an NVIDIA device
and scores them there. A sidecar starts it as a plugin and a route names it as its
device; see docs/how-to/gpu.md. It needs a driver of CUDA 12.0 or above
and nothing else.`,
		SilenceErrors: true, SilenceUsage: true,
		Version: build().Version,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(newServe(stderr), newCheck(stdout, stderr), newBench(stdout, stderr))
	return root
}

func build() buildinfo.Info {
	return buildinfo.Read(buildinfo.Stamp{Version: version, Commit: commit, Date: date})
}
