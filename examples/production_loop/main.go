// Command production_loop shows a route that learns from its own traffic, on real questions and a real
// Qdrant: cosine serves unmodified clients through the proxy, simulated people click, `likeness refit`
// learns from what they clicked, and an experiment proves the new model better and puts it in service.
// Then people ask about topics that the model has not learned: its gain falls, and another refit mends
// that. A bad model that is tried next is found out and stopped.
//
//	make build && docker run -d -p 6334:6334 qdrant/qdrant
//	go run ./examples/production_loop -qdrant 127.0.0.1:6334
//
// Questions and topics are BANKING77's. People look at position k with chance 1/k, click the right
// topic where they look, and a wrong one with chance 0.02 (a position-based click model).
package main

import (
	"bytes"
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
	"github.com/likenessdb/likeness/sidecar/experiment"
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
	if err := l.prepare(ctx); err != nil {
		return err
	}
	// People first ask about some of the topics. Version v2 learns from their clicks.
	if err := l.round(ctx, "Cosine in service", 50, "v2"); err != nil {
		return err
	}
	// Then they ask about all. The gain of v2 falls, and v1, which was cosine, learns from all clicks so far.
	if err := l.round(ctx, "The learned model in service, while people ask about 27 more topics", 77, "v1"); err != nil {
		return err
	}
	// Better answers show more of the right topics, from which the next model learns.
	if err := l.round(ctx, "The second model in service", 77, "v2"); err != nil {
		return err
	}
	if err := l.protect(ctx); err != nil {
		return err
	}
	if err := l.judge(ctx); err != nil {
		return err
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

// loop is the way from the first question to the last experiment.
type loop struct {
	settings
	stdout, stderr io.Writer
	rng            *rand.Rand

	topics           int           // people ask about the first ones
	collected        time.Duration // how long people clicked
	before, after    float64       // MRR@10 of what was in service at first, and at last
	labelled         float64       // MRR@10 of a fit on all labels
	searches, failed int           // of the client of Qdrant
}

func (l *loop) print(format string, args ...any) { _, _ = fmt.Fprintf(l.stdout, format, args...) }

func (l *loop) heading(title string) {
	l.print("\n%s\n%s\n\n", title, strings.Repeat("=", len(title)))
}

func (l *loop) path(name string) string { return filepath.Join(l.dir, name) }

// configure writes the configuration, with an experiment if there is one.
func (l *loop) configure(experiment string) error {
	return os.WriteFile(l.path("likeness.yaml"), fmt.Appendf(nil, `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
state_dir: state
stores: {qdrant: {kind: qdrant, address: %q}}
models: {first: {path: v1.safetensors}, second: {path: v2.safetensors}, bad: {path: v3.safetensors}}
routes:
  topics:
    store: qdrant
    collection: topics
    active: v1
    versions: {v1: {model: first}, v2: {model: second}, v3: {model: bad}}
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

// round lets people ask about the first topics, measures what the model in service gains, learns from
// all clicks so far, and tries what it learned if that is better by the clicks.
func (l *loop) round(ctx context.Context, title string, topics int, candidate string) error {
	l.topics = topics
	if err := l.collect(ctx, title); err != nil {
		return err
	}
	l.heading("Refit")
	collected := time.Now()
	// newest reaches back over the last fifth of the time in which people clicked, however long a command takes.
	newest := func() string { return (time.Since(collected) + l.collected/5).Round(time.Millisecond).String() }
	if err := l.likeness(ctx, "refit", "--config", "likeness.yaml", "--route", "topics", "--only-eval", "--newest", newest(), "--least", "500"); err != nil {
		return err
	}
	before, err := l.modelOf(candidate)
	if err != nil {
		return err
	}
	if err := l.likeness(ctx, "refit", "--config", "likeness.yaml", "--route", "topics", "--version", candidate, "--newest", newest(), "--least", "500"); err != nil {
		return err
	}
	if after, err := l.modelOf(candidate); err != nil || bytes.Equal(before, after) {
		return err
	}
	l.heading("The new model, interleaved with the one in service")
	return l.compare(ctx, candidate, experiment.Promoted)
}

// modelOf returns the model file of a version, or nothing if there is none yet.
func (l *loop) modelOf(version string) ([]byte, error) {
	b, err := os.ReadFile(l.path(version + ".safetensors"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return b, err
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
