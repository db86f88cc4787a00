// Package faulty is a plugin that misbehaves on purpose, for testing likeness's reaction.
// Apart from its fault, it returns the scores of Score, so that a test knows the right
// answer.
//
//	path, err := faulty.Build(ctx, folder)
//	plugins.Start(ctx, plugins.Options{Path: path, Args: []string{"-fault", "crash", "-after", "100"}})
package faulty

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

// The faults. A fault begins after -after good calls, except flap and slow-start, which
// begin with the process.
const (
	None      = "none"
	Crash     = "crash"      // the process kills itself during a call
	Stop      = "stop"       // the process stops itself by SIGSTOP
	Hang      = "hang"       // calls are not answered, but health checks are
	Slow      = "slow"       // an answer takes longer, by -delay
	Count     = "count"      // one score too few
	NaN       = "nan"        // no item has a score
	Infinite  = "infinite"   // every score is +Inf
	Shuffled  = "shuffled"   // scores belong to other items: they are in reverse order
	Fail      = "fail"       // calls fail
	Grow      = "grow"       // each call allocates -bytes that are never freed
	Flap      = "flap"       // the process ends -delay after its start
	SlowStart = "slow-start" // the process reports nothing for -delay
	NoStart   = "no-start"   // the process ends at once, with an error message
	Panic     = "panic"      // a goroutine panics during a call, which ends the process with a stack trace
)

// Faults returns all faults.
func Faults() []string {
	return []string{None, Crash, Stop, Hang, Slow, Count, NaN, Infinite, Shuffled, Fail, Grow, Flap, SlowStart, NoStart, Panic}
}

// Score returns R(x, q) of an item. It is in [0, 1), depends only on the item's id, and is
// the same for every query.
func Score(id rerank.ID) float32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, id.String())
	return float32(h.Sum32()>>8) / (1 << 24)
}

// Build builds the plugin into a folder and returns its path.
func Build(ctx context.Context, folder string) (string, error) {
	path := filepath.Join(folder, "faulty-plugin")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	//nolint:gosec // the folder is the test's own
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/likenessdb/likeness/sidecar/plugins/faulty/plugin").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
}

// settings holds the plugin's arguments.
type settings struct {
	fault   string
	after   int64
	delay   time.Duration
	bytes   int
	version string
	env     bool
	say     string
	sayFile string
	pad     int
	until   string
	listen  plugin.Option
}

// isHealed reports whether the fault has ended, because the file named by -until exists.
func (s settings) isHealed() bool {
	_, err := os.Stat(s.until)
	return s.until != "" && err == nil
}

func parse(args []string, stderr io.Writer) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("faulty", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.fault, "fault", None, "what is wrong: "+strings.Join(Faults(), ", "))
	flags.Int64Var(&s.after, "after", 0, "good answers before it")
	flags.DurationVar(&s.delay, "delay", 0, "time that a good answer takes; of slow, flap and slow-start: theirs")
	flags.IntVar(&s.bytes, "bytes", 1<<20, "what each call keeps, of grow")
	flags.StringVar(&s.version, "version", "1", "what it says that it is")
	flags.BoolVar(&s.env, "env", false, "describe itself by the names of its environment variables")
	flags.StringVar(&s.say, "say", "", "say this to stderr at the start")
	flags.StringVar(&s.sayFile, "say-file", "", "say the content of this file to stderr at the start")
	flags.IntVar(&s.pad, "pad", 0, "describe itself with so many bytes more")
	flags.StringVar(&s.until, "until", "", "no fault any more once this file exists")
	s.listen = plugin.ListenFlags(flags)
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if !slices.Contains(Faults(), s.fault) {
		return s, fmt.Errorf("-fault %q: one of %s", s.fault, strings.Join(Faults(), ", "))
	}
	return s, nil
}

// Main is the plugin's main function.
func Main(args []string, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if s.say != "" {
		_, _ = fmt.Fprintln(stderr, s.say)
	}
	if s.sayFile != "" {
		content, err := os.ReadFile(s.sayFile)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(stderr, "%s\n", content)
	}
	if s.isHealed() {
		s.fault = None
	}
	switch s.fault {
	case NoStart:
		return errors.New("no model here")
	case SlowStart:
		<-time.After(s.delay)
	case Flap:
		time.AfterFunc(s.delay, killMyself)
	default:
	}
	d := plugin.Description{Name: "faulty: " + s.fault + strings.Repeat(".", s.pad), Version: s.version, Parallel: 64}
	if s.env {
		names := []string{}
		for _, variable := range os.Environ() {
			name, _, _ := strings.Cut(variable, "=")
			names = append(names, name)
		}
		slices.Sort(names)
		d.Name = strings.Join(names, " ")
	}
	return plugin.Serve(d, (&scorer{settings: s}).score, s.listen)
}

type scorer struct {
	settings
	calls atomic.Int64
	kept  atomic.Pointer[[]byte]
}

func (s *scorer) score(ctx context.Context, _ plugin.Query, items []plugin.Item) ([]float32, error) {
	scores := make([]float32, len(items))
	for i := range items {
		scores[i] = Score(items[i].ID)
	}
	faulty := s.calls.Add(1) > s.after && !s.isHealed()
	if s.delay > 0 && s.fault != Flap && s.fault != SlowStart && (faulty || s.fault != Slow) {
		if err := wait(ctx, s.delay); err != nil {
			return nil, err
		}
	}
	if faulty {
		return s.spoil(ctx, scores)
	}
	return scores, nil
}

// spoil applies the fault to an answer.
func (s *scorer) spoil(ctx context.Context, scores []float32) ([]float32, error) {
	switch s.fault {
	case Crash:
		killMyself()
		return nil, wait(ctx, time.Hour)
	case Stop:
		stopMyself()
	case Hang:
		return nil, wait(ctx, time.Hour)
	case Count:
		return scores[:max(len(scores)-1, 0)], nil
	case NaN:
		fill(scores, float32(math.NaN()))
	case Infinite:
		fill(scores, float32(math.Inf(1)))
	case Shuffled:
		slices.Reverse(scores)
	case Fail:
		return nil, errors.New("the model is upset")
	case Grow:
		s.grow()
	case Panic:
		past := len(scores)
		go func() { scores[past] = 0 }() // out of range
		return nil, wait(ctx, time.Hour)
	default:
	}
	return scores, nil
}

// grow allocates memory, touches it, and keeps it.
func (s *scorer) grow() {
	was := s.kept.Load()
	now := make([]byte, s.bytes)
	if was != nil {
		now = make([]byte, len(*was)+s.bytes)
	}
	for i := 0; i < len(now); i += 4096 {
		now[i] = 1
	}
	s.kept.Store(&now)
}

func fill(scores []float32, with float32) {
	for i := range scores {
		scores[i] = with
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func killMyself() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
}
