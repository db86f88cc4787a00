// Command fit_from_logs goes the whole way from a log to a served similarity, on
// real data: it writes the log of a help desk, in which people chose one of 77
// topics for their question, fits a bilinear similarity to it and a simpler one,
// or behavioural vectors, judges them on questions that were asked later, and
// serves the first beside plain cosine. Every command that it runs is printed, so that you can run it on
// your own log.
//
//	make build && go run ./examples/fit_from_logs
//	go run ./examples/fit_from_logs -kind maxsim
//
// Questions and topics are BANKING77's. The ids, weights and times of the log are
// made up, since that data has none.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// settings say what to run.
type settings struct {
	binary string // likeness
	data   string // directory of the data
	dir    string // directory for the files; empty: a temporary directory
	kind   string // of the fit: bilinear or maxsim
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fit_from_logs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	start := time.Now()
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "likeness-fit-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	}
	w := walk{settings: s, stdout: stdout, stderr: stderr}
	for _, step := range []func(context.Context) error{w.writeLogs, w.fit, w.evaluate, w.configure, w.index, w.serve} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(stdout, "\nAll of this took %.0f s.\n", time.Since(start).Seconds())
	return err
}

func parse(args []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("fit_from_logs", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", filepath.Join("bin", "likeness"), "the likeness binary, as make build leaves it")
	flags.StringVar(&s.data, "data", filepath.Join("examples", "data", "banking77"), "directory of the data")
	flags.StringVar(&s.dir, "dir", "", "keep what is made in this directory")
	flags.StringVar(&s.kind, "kind", "bilinear", "what is fitted: bilinear or maxsim")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.kind != "bilinear" && s.kind != "maxsim" {
		return s, fmt.Errorf("-kind %q is neither bilinear nor maxsim", s.kind)
	}
	var failed [2]error
	s.binary, failed[0] = filepath.Abs(s.binary)
	s.data, failed[1] = filepath.Abs(s.data)
	if _, err := os.Stat(s.binary); err != nil {
		return s, fmt.Errorf("%w; build it with `make build`", err)
	}
	return s, errors.Join(failed[:]...)
}

// walk is the way from the log to the route.
type walk struct {
	settings
	stdout, stderr io.Writer
}

func (w *walk) title(text string) {
	_, _ = fmt.Fprintf(w.stdout, "\n%s\n%s\n\n", text, strings.Repeat("=", len(text)))
}

// likeness runs a command of the binary in the directory and prints both.
func (w *walk) likeness(ctx context.Context, args ...string) error {
	_, _ = fmt.Fprintf(w.stdout, "$ likeness %s\n\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, w.binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.dir, w.stdout, w.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("likeness %s: %w", args[0], err)
	}
	return nil
}

// fit learns from the first part of the log, and a bilinear similarity also as a diagonal, to
// compare with.
func (w *walk) fit(ctx context.Context) error {
	w.title("Fit")
	if err := w.likeness(ctx, w.fitArgs("topics.safetensors")...); err != nil || w.kind != "bilinear" {
		return err
	}
	return w.likeness(ctx, append(w.fitArgs("diagonal.safetensors"), "--form", "diagonal")...)
}

// fitArgs are the arguments of a fit. The items come straight from the collection, by the
// configuration that serves it; the queries from a file.
func (w *walk) fitArgs(out string) []string {
	return []string{
		"fit", w.kind, "--config", "likeness.yaml", "--collection", "topics",
		"--queries", filepath.Join(w.data, "train_vectors.npy"), "--query-ids", "questions.txt", "--pairs", "log.jsonl", "--out", out,
	}
}

// evaluate judges the models on questions that were asked after the log ended.
func (w *walk) evaluate(ctx context.Context) error {
	w.title("Judge")
	args := []string{"eval", "--model", "topics.safetensors"}
	if w.kind == "bilinear" {
		args = append(args, "--model", "diagonal.safetensors")
	}
	return w.likeness(ctx, append(args, "--config", "likeness.yaml", "--collection", "topics",
		"--queries", filepath.Join(w.data, "test_vectors.npy"), "--query-ids", "later.txt", "--pairs", "later.jsonl", "--trained-pairs", "log.jsonl")...)
}

// index builds the table of a route that has one: behavioural vectors stand in no
// collection.
func (w *walk) index(ctx context.Context) error {
	if w.kind != "maxsim" {
		return nil
	}
	w.title("Index")
	return w.likeness(ctx, "index", "--config", "likeness.yaml", "--route", "after")
}
