// Command search measures how the time of a search is divided: in one process, over a real
// Qdrant, and in a sidecar at 80 % of its capacity.
//
//	make bench-search
//
// It writes docs/benchmarks/search.json; `make generate` renders the page.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/likenessdb/likeness/bench/internal/host"
)

// settings are the command-line settings.
type settings struct {
	host.Files
	sidecarCPU, otherCPU string

	searches int
	load     time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/search:", err)
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
	r, err := s.measure(ctx, stderr)
	if err != nil {
		return err
	}
	return s.Write(stdout, "search", r)
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("search", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s.AddTo(flags)
	flags.StringVar(&s.sidecarCPU, "sidecar-cpu", "0", "processor of the sidecar, for taskset")
	flags.StringVar(&s.otherCPU, "other-cpu", "1", "processor of Qdrant and of the generator of the load")
	flags.IntVar(&s.searches, "searches", 500, "searches of each case, one after the other")
	flags.DurationVar(&s.load, "load", 10*time.Second, "time of each loop of the load")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.searches < 1 || s.load <= 0 {
		return s, errors.New("-searches starts at 1, -load is more than 0")
	}
	return s, s.Find()
}
