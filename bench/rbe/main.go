// Command rbe makes the figures of docs/benchmarks/rbe.json: what share of a ranker's best
// items relevance-based embeddings find, for every selection of support items, and what a
// budget of ranker calls achieves compared with reranking the database's own order.
// boosted.py and cross.py compute the scores and store them in a folder:
//
//	bench/rbe/run.sh                          # everything, from the texts to the figures
//	go run ./bench/rbe hits -dir DIR -ranker boosted
//	go run ./bench/rbe budget -dir DIR -ranker boosted
//	go run ./bench/rbe figures -dir DIR
//
// hits and budget append to a file in DIR and continue from there when restarted.
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

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// settings are the command-line settings.
type settings struct {
	what, dir, ranker, out string
	seeds                  int
	supports               int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/rbe:", err)
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
	switch s.what {
	case "hits":
		return s.hits(ctx, stdout)
	case "budget":
		return s.budget(ctx, stdout)
	default:
		return s.write(stdout)
	}
}

func parse(args []string, stderr io.Writer) (settings, error) {
	if len(args) == 0 || args[0] != "hits" && args[0] != "budget" && args[0] != "figures" {
		return settings{}, errors.New("want hits, budget or figures, and flags after it")
	}
	s := settings{what: args[0]}
	flags := flag.NewFlagSet("rbe "+s.what, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.dir, "dir", "", "the `folder` with the rankers' scores, and the results")
	flags.StringVar(&s.ranker, "ranker", "boosted", "boosted or cross")
	flags.IntVar(&s.seeds, "seeds", 5, "seeds, from 1 on")
	flags.IntVar(&s.supports, "supports", 0, "hits of so many support items only; runs of different ones may go on at once")
	flags.StringVar(&s.out, "out", "docs/benchmarks/rbe", "where figures and plot go, less the .json and .svg")
	if err := flags.Parse(args[1:]); err != nil {
		return s, err
	}
	if s.dir == "" || s.seeds < 1 {
		return s, fmt.Errorf("-dir is %q and -seeds %d; want the folder of the scores, and a seed at least", s.dir, s.seeds)
	}
	return s, nil
}

// file returns the path of one of the ranker's files.
func (s settings) file(name string) string { return filepath.Join(s.dir, s.ranker+"_"+name) }

func matrix(path string) (rerank.Matrix, error) {
	m, err := npy.Open(path)
	if err != nil {
		return rerank.Matrix{}, err
	}
	return m.Matrix, nil
}
