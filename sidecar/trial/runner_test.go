package trial_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/trial"
)

// slowVersions opens no candidate: that of the route "a" takes until the context ends, others fail at once.
type slowVersions struct{ opened chan string }

func (slowVersions) Serving(string) (version, model string, err error) { return "v1", "m1", nil }

func (slowVersions) Activated(context.Context, string, string) (bool, error) { return false, nil }

func (v slowVersions) OpenCandidate(ctx context.Context, route, _ string) (*rollout.Candidate, error) {
	v.opened <- route
	if route == "a" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, errors.New("its model is not there")
}

// TestSlowCandidate: a candidate that takes long to open delays no other experiment, and a changed
// configuration or the end does not wait for it.
func TestSlowCandidate(t *testing.T) {
	settings := config.Experiment{Candidate: "v2", Kind: "interleave", Alpha: 0.05, Session: time.Minute, Share: 0.5}
	c := &config.Config{Routes: map[string]config.Route{}}
	book, dir := events.Book{}, t.TempDir()
	for _, name := range []string{"a", "b"} {
		of, err := events.OpenRoute(filepath.Join(dir, name), name, events.RouteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = of.Close() })
		book[name], c.Routes[name] = of, config.Route{Experiment: settings}
	}
	synctest.Test(t, func(t *testing.T) {
		opened := make(chan string, 100)
		r := trial.New(trial.Options{Versions: slowVersions{opened}, Events: book, StateDir: dir, Logger: slog.New(slog.DiscardHandler)}, c)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx)
		}()
		time.Sleep(65 * time.Second) //nolint:forbidigo // of the bubble: no time passes
		waits := map[string]string{}
		for _, s := range r.Statuses() {
			waits[s.Route] = s.Waits
		}
		if len(waits) != 2 || waits["a"] != "" || waits["b"] != "its model is not there" {
			t.Errorf("experiments wait for %q", waits)
		}
		if tries := len(opened); tries != 8 {
			t.Errorf("%d tries to open candidates; want one of a, and seven of b", tries)
		}
		settings.Share = 0.6
		c.Routes["a"] = config.Route{Experiment: settings}
		for len(opened) > 0 {
			<-opened
		}
		r.Configure(c)
		synctest.Wait()
		if len(opened) != 1 || <-opened != "a" {
			t.Errorf("the changed experiment does not begin")
		}
		cancel()
		<-ended
	})
}
