// Package plugintest is the conformance kit of scorers. It tests everything that likeness
// relies on. The author of a plugin runs it in a test, or with `likeness plugin check`.
//
//	func TestScorer(t *testing.T) { plugintest.Run(t, myScorer{}, plugintest.Options{}) }
package plugintest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/plugin/internal/hosted"
)

// Options adapts the kit to a scorer. By default the kit generates queries and items from
// the scorer's Description. A scorer that needs vectors of a certain length, or particular
// payloads, cannot read these.
type Options struct {
	// Query is a query that the scorer can read.
	Query *plugin.Query
	// Items are at least two different items that the scorer can read. Missing vectors of
	// these items and of Query are generated.
	Items []plugin.Item
	// Dim is the length of generated vectors. 0 means 384.
	Dim int
	// Timeout limits a case. 0 means thirty seconds.
	Timeout time.Duration
	// Tolerance is how far two scores of the same item may differ, relative to the greater
	// score or to 1. It allows for the effect of batching on arithmetic. 0 means 1e-5.
	Tolerance float64
	// Conn, if set, is a connection to the scorer's process. The kit then also tests its
	// health checks and malformed messages.
	Conn grpc.ClientConnInterface
}

// Result is the outcome of a case.
type Result struct {
	Case string `json:"case"`
	// Wants describes the expected behaviour.
	Wants string `json:"wants"`
	// State is passed, failed or skipped.
	State string `json:"state"`
	// Detail says what was found instead, or why the case was skipped.
	Detail  string  `json:"detail,omitempty"`
	Seconds float64 `json:"seconds"`
}

// The states of a Result.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped"
)

// skip is the error of a case that does not apply.
type skip string

func (s skip) Error() string { return string(s) }

// Run runs every case as a subtest.
func Run(t *testing.T, s plugin.Scorer, o Options) {
	t.Helper()
	k := newKit(s, o)
	for _, c := range k.cases() {
		t.Run(c.name, func(t *testing.T) {
			switch r := k.run(t.Context(), c); r.State {
			case Failed:
				t.Errorf("want %s: %s", r.Wants, r.Detail)
			case Skipped:
				t.Skip(r.Detail)
			}
		})
	}
}

// Check runs every case, one after the other. It calls told, if not nil, with each result
// as it arrives.
func Check(ctx context.Context, s plugin.Scorer, o Options, told func(Result)) []Result {
	k := newKit(s, o)
	var all []Result
	for _, c := range k.cases() {
		r := k.run(ctx, c)
		if told != nil {
			told(r)
		}
		all = append(all, r)
	}
	return all
}

// Command describes a program to start as likeness would: with mutual TLS, and with no
// environment except Env.
type Command struct {
	Path string
	Args []string
	Env  []string
	// Stderr, if not nil, receives the program's output.
	Stderr io.Writer
	// StartTimeout limits the time until the program reports its address. 0 means ten
	// seconds.
	StartTimeout time.Duration
}

// Start starts a plugin. stop ends it, and kills it after five seconds.
func Start(ctx context.Context, c Command) (conn *grpc.ClientConn, stop func(), err error) {
	path, err := filepath.Abs(c.Path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w; give the path of the plugin's executable", err)
	}
	p, err := hosted.Start(ctx, hosted.Options{
		Command: append([]string{path}, c.Args...), Env: c.Env, Handshake: plugin.Handshake(), Set: plugin.ScorerSet,
		Protocol: plugin.ProtocolVersion, StartTimeout: c.StartTimeout, Stderr: c.Stderr,
	})
	if err != nil {
		return nil, nil, err
	}
	return p.Conn, func() { p.Close(5 * time.Second) }, nil
}

// RunCommand starts a program and runs every case against it.
func RunCommand(t *testing.T, c Command, o Options) {
	t.Helper()
	conn, stop, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	o.Conn = conn
	Run(t, plugin.NewClient(conn), o)
}

// kit is a scorer with the query and items for it.
type kit struct {
	scorer      plugin.Scorer
	options     Options
	description plugin.Description
	query       plugin.Query
	items       []plugin.Item
}

func newKit(s plugin.Scorer, o Options) *kit {
	if o.Dim == 0 {
		o.Dim = 384
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Tolerance == 0 {
		o.Tolerance = 1e-5
	}
	return &kit{scorer: s, options: o}
}

func (k *kit) run(ctx context.Context, c check) Result {
	ctx, cancel := context.WithTimeout(ctx, k.options.Timeout)
	defer cancel()
	start := time.Now()
	r := Result{Case: c.name, Wants: c.wants, State: Passed}
	err := k.prepare(ctx)
	if err == nil {
		err = c.run(ctx, k)
	}
	if err == nil {
		err = k.alive(ctx)
	}
	var why skip
	if errors.As(err, &why) {
		r.State, r.Detail = Skipped, err.Error()
	} else if err != nil {
		r.State, r.Detail = Failed, err.Error()
	}
	r.Seconds = time.Since(start).Seconds()
	return r
}

// prepare reads the scorer's description, and then generates the query and the items.
func (k *kit) prepare(ctx context.Context) error {
	if k.items != nil {
		return nil
	}
	d, err := k.scorer.Describe(ctx)
	if err != nil {
		return fmt.Errorf("it does not say what it is: %w", err)
	}
	k.description = d
	k.query, k.items = k.makeQuery(), k.makeItems(k.fits(ordinaryItems))
	made := k.items
	if n := len(k.options.Items); n > 0 {
		k.items = slices.Clone(k.options.Items[:min(n, k.fits(ordinaryItems))])
	}
	for i := range k.items {
		if k.items[i].Vector == nil {
			k.items[i].Vector = made[i].Vector
		}
	}
	if q := k.options.Query; q != nil {
		vector := k.query.Vector
		if k.query = *q; q.Vector == nil {
			k.query.Vector = vector
		}
	}
	return nil
}

// fits returns how many of n items the scorer accepts in one call.
func (k *kit) fits(n int) int {
	if k.description.MaxItems > 0 {
		return min(n, k.description.MaxItems)
	}
	return n
}

// alive checks that the scorer still answers after a case.
func (k *kit) alive(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("not done in %v", k.options.Timeout)
	}
	if _, err := k.score(ctx, k.items[:1]); err != nil {
		return fmt.Errorf("afterwards a query that it had answered fails: %w", err)
	}
	return nil
}

// score scores items for the kit's query, and checks what must hold for every answer.
func (k *kit) score(ctx context.Context, items []plugin.Item) ([]float32, error) {
	scores, err := k.scorer.Score(ctx, k.query, items)
	if err != nil {
		return nil, err
	}
	return scores, valid(scores, len(items))
}
