// Command production_loop shows a route that learns from its own traffic, on real questions and a real
// Qdrant: cosine serves unmodified clients through the proxy, simulated people click, `likeness refit`
// learns from what they clicked, an experiment proves the new model better and puts it in service, and
// a bad model that is tried next is found out and stopped.
//
//	make build && docker run -d -p 6334:6334 qdrant/qdrant
//	go run ./examples/production_loop -qdrant 127.0.0.1:6334
//
// Questions and topics are BANKING77's. People look at position k with chance 1/k, click the right
// topic where they look, and a wrong one with chance 0.02 (a position-based click model).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/examples/internal/sidecar"
)

// settings say what to run.
type settings struct {
	binary string // likeness
	data   string // directory of the data
	dir    string // directory for the files; empty: a temporary directory
	qdrant string // address of its gRPC API
	people int    // whose clicks are learned from
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "production_loop:", err)
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
		if s.dir, err = os.MkdirTemp("", "likeness-loop-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	}
	l := &loop{settings: s, stdout: stdout, stderr: stderr, rng: rand.New(rand.NewPCG(7, 7))}
	for _, step := range []func(context.Context) error{l.prepare, l.collect, l.refit, l.improve, l.protect, l.judge} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	l.print("\nThe right topic among ten, MRR@10 on questions that nobody asked before: cosine %.3f, now %.3f,\nand %.3f of a model that was fitted to the right topic of every question, without a click: %.3f of that.\n%d searches by a client of Qdrant, %d errors. %.0f s.\n",
		l.before, l.after, l.labelled, l.after/l.labelled, l.searches, l.failed, time.Since(start).Seconds())
	return nil
}

func parse(args []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("production_loop", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", filepath.Join("bin", "likeness"), "the likeness binary, as make build leaves it")
	flags.StringVar(&s.data, "data", filepath.Join("examples", "data", "banking77"), "directory of the data")
	flags.StringVar(&s.dir, "dir", "", "keep what is made in this directory")
	flags.StringVar(&s.qdrant, "qdrant", "127.0.0.1:6334", "gRPC address of a Qdrant, in which the collection topics is made anew")
	flags.IntVar(&s.people, "people", 24000, "people whose clicks are learned from")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	var failed [2]error
	s.binary, failed[0] = filepath.Abs(s.binary)
	s.data, failed[1] = filepath.Abs(s.data)
	if _, err := os.Stat(s.binary); err != nil {
		return s, fmt.Errorf("%w; build it with `make build`", err)
	}
	return s, errors.Join(failed[:]...)
}

// loop is the way from the first question to the second experiment.
type loop struct {
	settings
	stdout, stderr io.Writer
	rng            *rand.Rand

	collected        time.Duration // how long people clicked
	before, after    float64       // MRR@10 of what was in service at first, and at last
	labelled         float64       // MRR@10 of a fit on all labels
	searches, failed int           // of the client of Qdrant
}

func (l *loop) print(format string, args ...any) { _, _ = fmt.Fprintf(l.stdout, format, args...) }

func (l *loop) path(name string) string { return filepath.Join(l.dir, name) }

// configure writes the configuration, with an experiment if there is one.
func (l *loop) configure(experiment string) error {
	return os.WriteFile(l.path("likeness.yaml"), fmt.Appendf(nil, `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
state_dir: state
stores: {qdrant: {kind: qdrant, address: %q}}
models: {plain: {path: plain.safetensors}, learned: {path: learned.safetensors}, bad: {path: bad.safetensors}}
routes:
  topics:
    store: qdrant
    collection: topics
    active: v1
    versions: {v1: {model: plain}, v2: {model: learned}, v3: {model: bad}}
    events: {share: 1, keep: [vector, user], hash: [user]}
    experiment: %s
proxy: {store: qdrant, listen_grpc: "127.0.0.1:0"}
`, l.qdrant, experiment), 0o600)
}

// addresses is where a sidecar listens.
type addresses struct {
	Admin string `json:"admin"`
	Proxy struct {
		GRPC string `json:"grpc"`
	} `json:"proxy"`
}

// serve runs the sidecar while f runs.
func (l *loop) serve(ctx context.Context, f func(api *grpc.ClientConn, at addresses) error) error {
	if err := os.Remove(l.path("ready.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return sidecar.Serve(ctx, l.binary, l.path("likeness.yaml"), l.stderr, func(conn *grpc.ClientConn) error {
		text, err := os.ReadFile(l.path("ready.json"))
		var at addresses
		if err == nil {
			err = json.Unmarshal(text, &at)
		}
		if err != nil {
			return err
		}
		return f(conn, at)
	})
}

// refit learns from what people clicked, and puts the model where the candidate's lies.
func (l *loop) refit(ctx context.Context) error {
	l.print("\nRefit\n=====\n\n")
	args := []string{"refit", "--config", "likeness.yaml", "--route", "topics", "--version", "v2", "--newest", (l.collected / 5).Round(time.Millisecond).String(), "--least", "500", "--decide", "experiment"}
	if err := l.likeness(ctx, args...); err != nil {
		return err
	}
	if _, err := os.Stat(l.path("learned.safetensors")); err != nil {
		return fmt.Errorf("nothing better was learned: %w", err)
	}
	return nil
}

// likeness runs a command.
func (l *loop) likeness(ctx context.Context, args ...string) error {
	l.print("$ likeness %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, l.binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.dir, l.stdout, l.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("likeness %s: %w", args[0], err)
	}
	return nil
}
