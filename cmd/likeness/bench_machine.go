package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/sidecar/bench"
)

// benchMachineFlags are the flags of bench machine.
type benchMachineFlags struct {
	threads, tableMiB, rowBytes int
	kernel                      string
}

func newBenchMachineCommand(a *app) *cobra.Command {
	f := &benchMachineFlags{}
	cmd := &cobra.Command{
		Use:     "machine",
		Short:   "Measure what the processor and the memory can do at most",
		Long:    `Measures float32 multiply-adds, and reads of memory in sequence and by random rows.`,
		Example: "  likeness bench machine --threads 2 --output json",
		Args:    cobra.NoArgs,
	}
	f.flags(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		k, err := kernel.Named(f.kernel)
		switch {
		case err != nil:
			return usagef("--%w", err)
		case f.threads < 1 || f.threads > runtime.NumCPU():
			return usagef("--threads %d: this machine runs 1 to %d at once", f.threads, runtime.NumCPU())
		case f.tableMiB < 1 || f.rowBytes < 512 || f.rowBytes > f.tableMiB<<20:
			return usagef("--table-mib starts at 1, --row-bytes at 512; a row is no longer than the table")
		}
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(f.threads))
		m := bench.MeasureMachine(k, f.threads, f.tableMiB<<20, f.rowBytes)
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

// flags adds the flags to cmd.
func (f *benchMachineFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.threads, "threads", 1, "threads at once")
	flags.IntVar(&f.tableMiB, "table-mib", 512, "size of the table; well above the cache's")
	flags.IntVar(&f.rowBytes, "row-bytes", 1024, "size of a row, in steps of 512")
	flags.StringVar(&f.kernel, "kernel", "", "go, avx2, avx512 or neon; empty is the fastest")
}
