package plugins_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/plugins/faulty"
)

// The test binary is the plugin too, and a host that can be killed.
const (
	asPlugin = "as-plugin"
	asHost   = "as-host"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == asPlugin || os.Args[1] == asHost) {
		run := faulty.Main
		if os.Args[1] == asHost {
			run = func([]string, io.Writer) error { return hostForever() }
		}
		if err := run(os.Args[2:], os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// hostForever hosts a plugin, prints its process, and waits to be killed.
func hostForever() error {
	p, err := plugins.Start(context.Background(), plugins.Options{Name: "orphan", Path: os.Args[0], Args: []string{asPlugin}, TempDir: os.Args[2]})
	if err != nil {
		return err
	}
	if err := p.Ready(context.Background()); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(os.Stdout, p.State().PID)
	select {}
}

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// options describes a faulty plugin, which is this binary.
func options(t testing.TB, args ...string) plugins.Options {
	t.Helper()
	dir, err := os.MkdirTemp("", "p") //nolint:usetesting // the names of t.TempDir are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("%v, left behind: %v", err, left)
		}
		os.RemoveAll(dir)
	})
	return plugins.Options{
		Name: "ranker", Path: os.Args[0], Args: append([]string{asPlugin}, args...), TempDir: dir,
		HealthTimeout: 2 * time.Second, // the race detector and a busy machine take their time
		StartTimeout:  30 * time.Second,
		Quarantine:    100 * time.Millisecond,
	}
}

func start(t testing.TB, o plugins.Options) *plugins.Plugin {
	t.Helper()
	p, err := plugins.Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func ready(t testing.TB, p *plugins.Plugin) {
	t.Helper()
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// until waits for a state.
func until(t testing.TB, p *plugins.Plugin, what string, is func(s plugins.State) bool) plugins.State {
	t.Helper()
	s, err := backoff.Retry(t.Context(), func() (plugins.State, error) {
		if s := p.State(); is(s) {
			return s, nil
		}
		return plugins.State{}, errors.New("not yet")
	}, backoff.WithBackOff(backoff.NewConstantBackOff(5*time.Millisecond)), backoff.WithMaxElapsedTime(30*time.Second))
	if err != nil {
		t.Fatalf("never %s: %+v", what, p.State())
	}
	return s
}

func ended(reason plugins.Reason) func(plugins.State) bool {
	return func(s plugins.State) bool { return s.Ends[reason] > 0 }
}

func items(n int) []plugin.Item {
	out := make([]plugin.Item, n)
	for i := range out {
		out[i].ID = rerank.UintID(uint64(i))
	}
	return out
}

func score(ctx context.Context, p *plugins.Plugin, of []plugin.Item) ([]float32, error) {
	return p.Scorer().Score(ctx, plugin.Query{Text: "q"}, of)
}

// answers asks for scores until they come, and compares them.
func answers(t testing.TB, p *plugins.Plugin) {
	t.Helper()
	of := items(3)
	got, err := backoff.Retry(t.Context(), func() ([]float32, error) {
		got, err := score(t.Context(), p, of)
		if err != nil && !errors.Is(err, plugin.ErrUnavailable) {
			return nil, backoff.Permanent(err)
		}
		return got, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(5*time.Millisecond)), backoff.WithMaxElapsedTime(30*time.Second))
	if err != nil {
		t.Fatalf("%v; %+v", err, p.State())
	}
	for i, item := range of {
		if got[i] != faulty.Score(item.ID) {
			t.Errorf("item %d: %g, want %g", i, got[i], faulty.Score(item.ID))
		}
	}
}

// inFlight asks something that is not answered, and returns how it ends.
func inFlight(t testing.TB, p *plugins.Plugin) <-chan error {
	t.Helper()
	end := make(chan error, 1)
	go func() {
		_, err := score(context.Background(), p, items(1))
		end <- err
	}()
	return end
}

func unavailable(t testing.TB, err error, say ...string) {
	t.Helper()
	if !errors.Is(err, plugin.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
		return
	}
	for _, word := range say {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func contains(text, part string) bool { return strings.Contains(text, part) }

// serveAt runs a plugin that serves at an address, until the returned function.
func serveAt(t testing.TB, args ...string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{asPlugin}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	kill = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	t.Cleanup(kill)
	return kill
}
