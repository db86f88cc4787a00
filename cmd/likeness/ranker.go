package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/learn/relevance"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/telemetry"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// rankerHelp is the part of a command's help that describes rankerFlags.
const rankerHelp = `The ranker is named in the configuration (--ranker), or is a plugin (--scorer) or a
rerank service (--scorer-url). If the command runs again, it asks only for scores that
--cache lacks. --estimate prints the number of calls, their cost and time, and stops.`

// rankerFlags name a ranker and limit how it is asked.
type rankerFlags struct {
	ranker, scorer, url, dialect  string
	args, env, fields             []string
	model, version, token         string
	timeout                       time.Duration
	maxItems, parallel, perSecond int
	cache                         string
	maxCalls                      int64
	estimate                      bool
}

func (f *rankerFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.ranker, "ranker", "", "ranker of the configuration; empty is the route's")
	flags.StringVar(&f.scorer, "scorer", "", "executable of a plugin that is the ranker")
	flags.StringArrayVar(&f.args, "scorer-arg", nil, "argument of --scorer; may be repeated")
	flags.StringArrayVar(&f.env, "scorer-env", nil, "environment variable that --scorer may see; may be repeated")
	flags.StringVar(&f.url, "scorer-url", "", "a service's rerank method, https://host/rerank")
	flags.StringVar(&f.dialect, "dialect", "tei", "form of its requests: tei, cohere or jina")
	flags.StringSliceVar(&f.fields, "scorer-fields", nil, "payload fields that make an item's text for --scorer-url")
	flags.StringVar(&f.model, "scorer-model", "", "model that a request to --scorer-url names")
	flags.StringVar(&f.version, "scorer-version", "", "names the scores of --scorer-url")
	flags.StringVar(&f.token, "scorer-token-file", "", "file with the bearer token for --scorer-url")
	flags.DurationVar(&f.timeout, "scorer-timeout", time.Minute, "time for one request of the ranker, at least")
	flags.IntVar(&f.maxItems, "scorer-items", 0, "items per request; 0 is the ranker's own number")
	flags.IntVar(&f.parallel, "scorer-parallel", 0, "concurrent requests; 0 is the ranker's own number")
	flags.IntVar(&f.perSecond, "calls-per-second", 0, "ranker calls a second at most; 0 is no limit")
	flags.StringVar(&f.cache, "cache", "", "folder of kept scores; empty is the model's path with .scores")
	flags.Int64Var(&f.maxCalls, "max-calls", 0, "refuse to begin if more calls are needed; 0 is no limit")
	flags.BoolVar(&f.estimate, "estimate", false, "measure the cost with some calls, print it, and stop")
	cmd.MarkFlagsMutuallyExclusive("ranker", "scorer", "scorer-url")
	_ = cmd.RegisterFlagCompletionFunc("dialect", cobra.FixedCompletions([]string{"tei", "cohere", "jina"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagDirname("cache")
}

// direct reports whether the flags describe the ranker themselves, so that no configuration is
// read.
func (f *rankerFlags) direct() bool { return f.scorer != "" || f.url != "" }

func (f *rankerFlags) given() bool { return f.direct() || f.ranker != "" }

// directName names the ranker that the flags describe.
const directName = "scorer"

// configuration writes the ranker of the flags as a configuration and parses it, so that it is
// validated and gets the same defaults.
func (f *rankerFlags) configuration() (*config.Config, error) {
	ranker := map[string]any{"max_items": f.maxItems, "parallel": f.parallel}
	all := map[string]any{"rankers": map[string]any{directName: ranker}}
	if f.scorer != "" {
		path, err := filepath.Abs(f.scorer)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			return nil, usagef("--scorer %s is no executable file", f.scorer)
		}
		ranker["plugin"] = directName
		all["plugins"] = map[string]any{directName: map[string]any{"path": path, "args": f.args, "env": f.env}}
	} else {
		http := map[string]any{"url": f.url, "dialect": f.dialect, "fields": f.fields, "model": f.model, "version": f.version}
		if f.token != "" {
			path, err := filepath.Abs(f.token)
			if err != nil {
				return nil, err
			}
			http["token_file"] = path
		}
		ranker["http"] = http
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	c, err := config.Parse("", text, os.Environ(), nil)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// openRanker is a ranker that is running, with the scores that it gave in earlier runs.
type openRanker struct {
	*relevance.Asker

	dir     string
	closers []io.Closer
}

func (a *openRanker) Close() error {
	var failed []error
	for _, c := range a.closers {
		failed = append(failed, c.Close())
	}
	return errors.Join(failed...)
}

// open starts the ranker and opens its stored scores, in the folder of --cache if it is given, else
// in dir. load reads the configuration, and is called only if the ranker is named there. With
// keptOnly the ranker is not asked for scores that are not stored. The caller closes the result.
func (f *rankerFlags) open(ctx context.Context, load func() (*config.Config, error), dir string, keptOnly bool, stderr io.Writer) (_ *openRanker, err error) {
	name := f.ranker
	if f.direct() {
		load, name = f.configuration, directName
	}
	c, err := load()
	if err != nil {
		return nil, err
	}
	f.raiseTimeouts(c)
	options := f.options(dir, keptOnly)
	log, err := telemetry.NewLogger(stderr, "warn", "auto")
	if err != nil {
		return nil, err
	}
	client, closer, err := wiring.OpenRanker(ctx, c, name, wiring.RankerOptions{Logger: log})
	if err != nil {
		return nil, err
	}
	a := &openRanker{dir: options.Dir, closers: []io.Closer{closer}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	options.Ranker, options.Hopeless = client, func() bool { return quarantined(closer) }
	a.Asker, err = relevance.New(ctx, options)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, usageError{err}
	}
	if err != nil {
		return nil, err
	}
	a.closers = append([]io.Closer{a.Asker}, a.closers...)
	if _, lost := a.Kept(); lost > 0 {
		log.Warn("stored scores damaged, asking the ranker for them again", "folder", options.Dir, "bytes", lost)
	}
	return a, nil
}

// options returns how the ranker is asked. The folder of --cache takes precedence over dir.
func (f *rankerFlags) options(dir string, keptOnly bool) relevance.Options {
	return relevance.Options{Dir: cmp.Or(f.cache, dir), PerSecond: f.perSecond, KeptOnly: keptOnly}
}

// quarantined reports whether a plugin failed so often that it is not started again.
func quarantined(of io.Closer) bool {
	rankers, ok := of.(*wiring.Rankers)
	return ok && slices.ContainsFunc(rankers.States(), func(s plugins.State) bool { return s.Status == plugins.Quarantined })
}

// raiseTimeouts raises the timeouts of plugins and rankers to --scorer-timeout: no search waits for
// them here, and a busy ranker may be slow to answer a health check.
func (f *rankerFlags) raiseTimeouts(c *config.Config) {
	for name, p := range c.Plugins {
		p.HealthTimeout, p.StartTimeout = max(p.HealthTimeout, f.timeout/2), max(p.StartTimeout, f.timeout)
		c.Plugins[name] = p
	}
	for name, r := range c.Rankers {
		r.Timeout = max(r.Timeout, f.timeout)
		c.Rankers[name] = r
	}
}

// permit refuses an estimate of more calls than --max-calls.
func (f *rankerFlags) permit(e relevance.Estimate) error {
	if f.maxCalls > 0 && e.Calls > f.maxCalls {
		return usagef("%s; --max-calls permits %d", estimateText(e), f.maxCalls)
	}
	return nil
}

// estimateText describes an estimate in one line.
func estimateText(e relevance.Estimate) string {
	text := fmt.Sprintf("ranker %s, version %s: %d items for %d queries are %d calls", e.Ranker, e.Version, e.Items, e.Queries, e.Calls)
	if e.Kept > 0 {
		text += fmt.Sprintf(" beside %d that are kept", e.Kept)
	}
	if e.Calls > 0 {
		text += fmt.Sprintf(", in %d requests of %d items at most, %d at a time", e.Requests, e.ItemsPerRequest, e.ParallelRequests)
	}
	if e.Cost > 0 {
		text += fmt.Sprintf("; cost %.6g", e.Cost)
	}
	if e.PerSecond > 0 {
		text += fmt.Sprintf("; about %v at %.0f/s", time.Duration(e.Seconds*float64(time.Second)).Round(time.Second), e.PerSecond)
	}
	return text
}

// withStoredScores adds to the error of an interrupted run where its scores are stored.
func (a *openRanker) withStoredScores(err error) error {
	if err == nil {
		return nil
	}
	if scores, _ := a.Kept(); scores > 0 && !errors.Is(err, relevance.ErrCache) {
		return fmt.Errorf("%w; %d scores are kept in %s, and the same command goes on from there", err, scores, a.dir)
	}
	return err
}
