// Command proxy measures what a call through the proxy costs in addition to a direct call.
// A real Qdrant, `likeness proxy` and `likeness serve` run as separate processes, and this
// process is their client:
//
//	make bench-proxy
//	taskset -c 0,1 go run ./bench/proxy -rounds 1 -out /tmp
//
// It prints the tables of docs/benchmarks/proxy-overhead.md, and writes that file and its
// figures, proxy-overhead.json.
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

	rounds, callers int
	alone, load     time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/proxy:", err)
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
	return s.Publish(stdout, "proxy-overhead", r.markdown(), r)
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s.AddTo(flags)
	flags.IntVar(&s.rounds, "rounds", 3, "rounds")
	flags.DurationVar(&s.alone, "alone", 3*time.Second, "time of one comparison, one call at a time, in a round")
	flags.DurationVar(&s.load, "load", 2*time.Second, "time of each of four blocks of a comparison under load, in a round")
	flags.IntVar(&s.callers, "callers", 16, "calls in flight under load")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.rounds < 1 || s.callers < 1 || s.alone <= 0 || s.load <= 0 {
		return s, errors.New("-rounds and -callers start at 1, -alone and -load are more than 0")
	}
	return s, s.Find()
}

// measure starts all processes, measures, and stops them.
func (s settings) measure(ctx context.Context, stderr io.Writer) (_ *report, err error) {
	say := func(format string, a ...any) { _, _ = fmt.Fprintf(stderr, format+"\n", a...) }
	say("starting Qdrant, likeness proxy and likeness serve")
	b, err := open(ctx, s, stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	r := newReport(s, b.version)
	for round := range s.rounds {
		for i, c := range b.alone() {
			say("round %d of %d: %s, one at a time", round+1, s.rounds, c.name)
			if err := c.alternate(ctx, s.alone, r.alone(i, c)); err != nil {
				return nil, err
			}
		}
		for i, c := range b.loaded() {
			say("round %d of %d: %s, %d in flight", round+1, s.rounds, c.name, s.callers)
			if err := c.load(ctx, s, b.processes, r.loaded(i, c)); err != nil {
				return nil, err
			}
		}
	}
	r.finish()
	return r, nil
}
