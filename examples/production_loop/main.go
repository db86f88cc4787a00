// Command production_loop shows a route that learns from its own traffic, on real questions and a real
// Qdrant: cosine serves unmodified clients through the proxy, simulated people click, `likeness refit`
// learns from what they clicked, and an experiment proves the new model better and puts it in service.
// Then people ask about topics that the model has not learned: its gain falls, and another refit mends
// that. A bad model that is tried next is found out and stopped. One sidecar serves all of this time.
//
//	make build && docker run -d -p 6334:6334 qdrant/qdrant
//	go run ./examples/production_loop -qdrant 127.0.0.1:6334
//
// Questions and topics are BANKING77's. People look at position k with chance 1/k, click the right
// topic where they look, and a wrong one with chance 0.02 (a position-based click model).
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/likenessdb/likeness/examples/internal/sidecar"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/trial"
)

// settings say what to run.
type settings struct {
	binary string // likeness
	data   string // directory of the data
	dir    string // directory for the files; empty: a temporary directory
	qdrant string // address of its gRPC API
	topics int    // people ask about so many of the collection's
	people int    // who ask before each refit
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
	defer func() { err = errors.Join(err, l.questions.Close()) }()
	if err := l.serve(ctx, l.live); err != nil {
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
	flags.IntVar(&s.topics, "topics", 20, "people ask about so many of the 77 topics in the collection, at first about two thirds of these")
	flags.IntVar(&s.people, "people", 5000, "people who ask before each of the two refits")
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

	// The sidecar's API, and its proxy.
	api      likenessv1.SearchServiceClient
	feedback likenessv1.FeedbackServiceClient
	points   qdrant.PointsClient

	questions *npy.Matrix                 // of people
	right     []int                       // the topic of each
	asked     []int                       // the questions that people ask now
	clicked   []*likenessv1.FeedbackEvent // not sent yet

	before, after    float64 // MRR@10 of what was in service at first, and at last
	labelled         float64 // MRR@10 of a fit on all labels
	searches, failed int     // of the client of Qdrant
}

func (l *loop) print(format string, args ...any) { _, _ = fmt.Fprintf(l.stdout, format, args...) }

func (l *loop) heading(title string) {
	l.print("\n%s\n%s\n\n", title, strings.Repeat("=", len(title)))
}

func (l *loop) path(name string) string { return filepath.Join(l.dir, name) }

// configuration has an experiment whose candidate has no model yet: refit fits it.
const configuration = `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
state_dir: state
stores: {qdrant: {kind: qdrant, address: %q}}
models: {first: {path: v1.safetensors}, second: {path: v2.safetensors}, bad: {path: bad.safetensors}}
routes:
  topics:
    store: qdrant
    collection: topics
    active: v1
    versions: {v1: {model: first}, v2: {model: second}, bad: {model: bad}}
    events: {share: 1, keep: [vector, user], hash: [user]}
    experiment: {candidate: v2, share: 0.25, session: 1s, feedback: {click: 1}, guard: {latency_p99: 5s}, promote: auto}
proxy: {store: qdrant, listen_grpc: "127.0.0.1:0"}
`

// addresses is where the sidecar listens.
type addresses struct {
	Admin string `json:"admin"`
	Proxy struct {
		GRPC string `json:"grpc"`
	} `json:"proxy"`
}

// serve runs the sidecar while f runs.
func (l *loop) serve(ctx context.Context, f func(ctx context.Context, admin string) error) error {
	return sidecar.Serve(ctx, l.binary, l.path("likeness.yaml"), l.stderr, func(api *grpc.ClientConn) error {
		text, err := os.ReadFile(l.path("ready.json"))
		var at addresses
		if err == nil {
			err = json.Unmarshal(text, &at)
		}
		if err != nil {
			return err
		}
		proxy, err := grpc.NewClient(at.Proxy.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer proxy.Close()
		l.api, l.points = likenessv1.NewSearchServiceClient(api), qdrant.NewPointsClient(proxy)
		l.feedback = likenessv1.NewFeedbackServiceClient(api)
		return f(ctx, "http://"+at.Admin)
	})
}

// live is all that happens while the sidecar runs, whose admin port has a URL.
func (l *loop) live(ctx context.Context, admin string) (err error) {
	known := l.topics * 2 / 3
	// The first fit has no clicks on the topics to come. Unguarded, it would find them worse than cosine, people would not see them
	// among the first, and the next fit would have few clicks to learn them from.
	if err := l.round(ctx, admin, "Cosine in service", known, "--", "--cold", "guard"); err != nil {
		return err
	}
	if err := l.round(ctx, admin, fmt.Sprintf("The learned model in service, while people ask about %d more topics", l.topics-known), l.topics); err != nil {
		return err
	}
	l.heading("A bad model, interleaved with the learned one")
	began := time.Now()
	if err := l.post(ctx, admin+"/experiments/restart?route=topics&version=bad"); err != nil {
		return err
	}
	if err := l.compare(ctx, admin, began, experiment.Stopped); err != nil {
		return err
	}
	l.after, err = l.quality(ctx)
	return err
}

// round lets people ask about the first topics, measures what the model in service gains, learns from
// all clicks so far, and tries what it learned if that is better by the clicks. fit has more arguments of the refit.
func (l *loop) round(ctx context.Context, admin, title string, topics int, fit ...string) error {
	l.heading(title)
	quality, err := l.quality(ctx)
	if err != nil {
		return err
	}
	l.before = cmp.Or(l.before, quality)
	began := time.Now()
	l.asked = questionsOf(l.right, topics)
	if err := l.visit(ctx, func(visits int) (bool, error) { return visits < l.people, nil }); err != nil {
		return err
	}
	l.print("%d people asked, MRR@10 %.3f on other questions about all topics\n", l.people, quality)
	l.heading("Refit")
	collected, lasted := time.Now(), time.Since(began)
	// newest reaches back over the last fifth of the time in which people clicked, however long a command takes.
	newest := func() string { return (time.Since(collected) + lasted/5).Round(time.Millisecond).String() }
	refit := func(flags ...string) error {
		return l.likeness(ctx, slices.Concat([]string{"refit", "--config", "likeness.yaml", "--route", "topics", "--newest", newest(), "--least", "500"}, flags)...)
	}
	if err := refit("--only-eval"); err != nil {
		return err
	}
	before, err := l.models()
	if err != nil {
		return err
	}
	began = time.Now()
	if err := refit(append([]string{"--admin", admin}, fit...)...); err != nil {
		return err
	}
	if after, err := l.models(); err != nil || bytes.Equal(before, after) {
		return err
	}
	l.heading("The new model, interleaved with the one in service")
	return l.compare(ctx, admin, began, experiment.Promoted)
}

// models returns the files of both models, which take turns to be in service. The second one is not there at first.
func (l *loop) models() (all []byte, err error) {
	for _, name := range []string{"v1", "v2"} {
		b, err := os.ReadFile(l.path(name + ".safetensors"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		all = append(all, b...)
	}
	return all, nil
}

// compare lets people ask until the experiment that began after a moment is over. It returns an error if it ends
// otherwise than wanted.
func (l *loop) compare(ctx context.Context, admin string, since time.Time, want experiment.Stage) error {
	last := trial.Status{}
	err := l.visit(ctx, func(visits int) (bool, error) {
		now, err := l.status(ctx, admin)
		if err != nil || now.Started.Before(since) {
			return true, err
		}
		if now.Share != last.Share || now.Decision != last.Decision {
			l.print("after %5d questions: %s at share %g, %d sessions, mean preference %+.2f: %s\n", visits, now.Stage, now.Share, now.Test.Units, now.Mean, now.Leader())
		}
		last = now
		return now.Ended.IsZero(), nil
	})
	if err != nil {
		return err
	}
	l.print("%s: %s\n", last.Stage, strings.Join(last.Why, "; "))
	if last.Stage != want {
		return fmt.Errorf("the experiment with %s is %s, and should be %s", last.Version, last.Stage, want)
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

// status reads the state of the experiment from the admin port.
func (l *loop) status(ctx context.Context, admin string) (trial.Status, error) {
	var all []trial.Status
	err := l.ask(ctx, http.MethodGet, admin+"/experiments", &all)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("the sidecar has %d experiments, want 1", len(all))
	}
	if err != nil {
		return trial.Status{}, err
	}
	return all[0], nil
}

// post asks the admin port for a change.
func (l *loop) post(ctx context.Context, url string) error {
	return l.ask(ctx, http.MethodPost, url, nil)
}

// ask sends a request without a body, and reads the answer into a value unless that is nil.
func (l *loop) ask(ctx context.Context, method, url string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	switch {
	case got.StatusCode/100 != 2:
		return fmt.Errorf("%s: %s", url, got.Status)
	case answer == nil:
		return nil
	}
	return json.NewDecoder(got.Body).Decode(answer)
}
