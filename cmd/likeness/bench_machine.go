package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/sidecar/bench"
)

func newBenchMachineCommand(a *app) *cobra.Command {
	var threads, tableMiB, rowBytes int
	var name string
	cmd := &cobra.Command{
		Use:     "machine",
		Short:   "Measure what the processor and the memory can do at most",
		Long:    `Measures float32 multiply-adds, and reads of memory in sequence and by random rows.`,
		Example: "  likeness bench machine --threads 2 --output json",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&threads, "threads", 1, "threads at once")
	flags.IntVar(&tableMiB, "table-mib", 512, "size of the table; well above the cache's")
	flags.IntVar(&rowBytes, "row-bytes", 1024, "size of a row, in steps of 512")
	flags.StringVar(&name, "kernel", "", "go, avx2, avx512 or neon; empty is the fastest")
	out := addOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		k, err := kernel.Named(name)
		switch {
		case err != nil:
			return usagef("--%w", err)
		case threads < 1 || threads > runtime.NumCPU():
			return usagef("--threads %d: this machine runs 1 to %d at once", threads, runtime.NumCPU())
		case tableMiB < 1 || rowBytes < 512 || rowBytes > tableMiB<<20:
			return usagef("--table-mib starts at 1, --row-bytes at 512; a row is no longer than the table")
		}
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
		m := bench.MeasureMachine(k, threads, tableMiB<<20, rowBytes)
		return a.print(*out, m, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, `%d thread(s), kernel %s
%.1f GFLOP/s of float32 multiply-adds
%.1f GB/s sequentially, %.1f GB/s in random rows of %d bytes, from %d MiB
`, m.Threads, m.Kernel, m.PeakGFLOPS, m.SequentialGBs, m.RandomGBs, m.RowBytes, m.TableBytes>>20)
			return err
		})
	}
	return cmd
}
