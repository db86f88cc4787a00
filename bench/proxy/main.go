// Command proxy measures what a search through the proxy costs beside a direct one: passed,
// rewritten, and rescored from a table by a list of candidates and by a scan. Each database,
// `likeness proxy` and `likeness serve` run as separate processes, and this process is
// their client:
//
//	make bench-proxy
//	taskset -c 0,1 go run ./bench/proxy -rounds 1 -out /tmp
//
// It writes docs/benchmarks/proxy-overhead.json; `make generate` renders the page.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/likenessdb/likeness/bench/internal/host"
)

// settings are the command-line settings.
type settings struct {
	host.Files

	system, ways      string // "": all
	rounds, callers   int
	alone, full, open time.Duration
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
	if len(args) > 0 && args[0] == copyCommand {
		return copyBytes(ctx, args[1:], stderr)
	}
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
	return s.Write(stdout, "proxy-overhead", r)
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s.AddTo(flags)
	flags.StringVar(&s.system, "system", "", "the one system to measure, such as \"Qdrant, gRPC\"; empty: all of them")
	flags.StringVar(&s.ways, "ways", "", "the ways to measure beside the direct one, such as passed,rewritten; empty: all of them")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds")
	flags.IntVar(&s.callers, "callers", 16, "calls in flight under full load")
	flags.DurationVar(&s.alone, "alone", 4*time.Second, "time of one call at a time by each way in turn, a round")
	flags.DurationVar(&s.full, "full", time.Second, "time of each of the two blocks of a way under full load, a round")
	flags.DurationVar(&s.open, "open", 1250*time.Millisecond, "time of a way at each share of the load, a round")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.rounds < 1 || s.callers < 1 || s.alone <= 0 || s.full <= 0 || s.open <= 0 {
		return s, errors.New("-rounds and -callers start at 1, -alone, -full and -open are more than 0")
	}
	return s, s.Find()
}

// measure starts all processes, measures, and stops them.
func (s settings) measure(ctx context.Context, stderr io.Writer) (_ *report, err error) {
	say := func(format string, a ...any) { _, _ = fmt.Fprintf(stderr, format+"\n", a...) }
	b := &benchmark{settings: s, stderr: stderr}
	defer func() { err = errors.Join(err, b.close()) }()
	say("starting the databases and likeness, building tables")
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	if b.systems = s.choose(b.systems); len(b.systems) == 0 {
		return nil, fmt.Errorf("-system %q: there is no such system", s.system)
	}
	r := &report{
		Processor: host.Processor(), Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), Databases: b.versions,
		Load: [2]float64{host.Load()}, Callers: s.callers, Rounds: s.rounds, Systems: make([]systemResult, len(b.systems)),
	}
	for round := range s.rounds {
		for i, system := range b.systems {
			say("round %d of %d: %s", round+1, s.rounds, system.name)
			if err := system.measure(ctx, s, &r.Systems[i]); err != nil {
				return nil, err
			}
		}
	}
	r.finish()
	r.Load[1] = host.Load()
	return r, nil
}

// choose returns the systems and the ways that the flags name.
func (s settings) choose(all []system) (chosen []system) {
	for _, system := range all {
		if s.system != "" && system.name != s.system {
			continue
		}
		if named := strings.Split(s.ways, ","); s.ways != "" {
			system.ways = slices.DeleteFunc(system.ways, func(w way) bool { return w.name != wayDirect && !slices.Contains(named, w.name) })
		}
		chosen = append(chosen, system)
	}
	return chosen
}
