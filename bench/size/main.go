// Command size measures what a collection of any number of items costs: the time, memory and disk of
// indexing it from a real Qdrant with its vectors on disk, opening its table, scanning it, following
// writes to a share of it, and switching to another version.
//
//	make build servers && LIKENESS_SERVERS=$PWD/.cache/servers go run ./bench/size -items 1000000 -out docs/benchmarks
//
// The items are the shipped vectors, projected to -dim numbers and changed at random by a tenth of their
// length. It writes size-ITEMS.json into -out. At ten million items it takes half an hour, 10 GB of disk
// and, for `likeness index`, 4 GB of memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/likenessdb/likeness/bench/internal/host"
)

// settings are the command-line settings.
type settings struct {
	host.Files
	items, dim, starts, scans int
	changed                   float64
	work                      string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/size:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := s.measure(ctx, stderr) // after an error, what was measured before it
	if r == nil {
		return err
	}
	return errors.Join(err, s.Write(stdout, fmt.Sprintf("size-%d", s.items), r))
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("size", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s.AddTo(flags)
	flags.IntVar(&s.items, "items", 1_000_000, "items of the collection")
	flags.IntVar(&s.dim, "dim", 64, "numbers of a vector")
	flags.IntVar(&s.starts, "starts", 5, "starts of the sidecar, each timed to its first exact answer")
	flags.IntVar(&s.scans, "scans", 20, "searches by scan, one after the other")
	flags.Float64Var(&s.changed, "changed", 0.01, "share of the items that is written again, through the proxy")
	flags.StringVar(&s.work, "work", "", "directory for the data, some 12·dim bytes an item; empty is a temporary one")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.items < 1000 || s.dim < 1 || s.starts < 1 || s.scans < 1 || s.changed < 0 || s.changed > 1 {
		return s, errors.New("-items starts at 1,000, -dim, -starts and -scans at 1, -changed is 0 to 1")
	}
	if s.work != "" {
		absolute, err := filepath.Abs(s.work)
		if err != nil {
			return s, err
		}
		s.work = absolute
	}
	return s, s.Find()
}
