package wiring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/ranker/httprank"
)

// RankerOptions are what rankers can do without.
type RankerOptions struct {
	Logger *slog.Logger
	// Observer is told what rankers are asked; nil: nobody is.
	Observer ranker.Observer
}

// Rankers are the plugins and the rankers of a configuration. What several routes name
// is one. It is safe for concurrent use.
type Rankers struct {
	rankers map[string]*ranker.Client
	plugins map[string]*plugins.Plugin
	closers []io.Closer
	log     *slog.Logger

	mu      sync.Mutex
	devices map[*offload.Scorer]bool // that were not closed
}

func newRankers(o RankerOptions) *Rankers {
	return &Rankers{
		rankers: map[string]*ranker.Client{}, plugins: map[string]*plugins.Plugin{},
		log: o.Logger, devices: map[*offload.Scorer]bool{},
	}
}

// OpenRankers starts the plugins and makes the rankers of a configuration, and waits
// for none of them: what is not there yet is asked when it is. They live until ctx is
// done or Close. It returns config.ErrConfig for what can never work.
func OpenRankers(ctx context.Context, c *config.Config, o RankerOptions) (*Rankers, error) {
	r := newRankers(o)
	var failed []error
	for _, name := range c.PluginNames() {
		failed = append(failed, r.startPlugin(ctx, c, name, o))
	}
	for _, name := range c.RankerNames() {
		failed = append(failed, r.makeRanker(c, name, o))
	}
	if err := errors.Join(failed...); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// CheckRankers returns the errors that OpenRankers would return, and also those of a
// plugin's files, which are no reason not to start: a plugin whose files are missing is
// started once they are there. It starts no plugin.
func CheckRankers(c *config.Config) error {
	r := &Rankers{rankers: map[string]*ranker.Client{}}
	var failed []error
	for _, name := range c.PluginNames() {
		o, err := pluginOptions(c, name, nil)
		if err == nil {
			err = pluginRefused(name, o.Validate())
		}
		failed = append(failed, err, checkPluginFiles(name, c.Plugins[name]))
	}
	for _, name := range c.RankerNames() {
		failed = append(failed, r.makeRanker(c, name, RankerOptions{}))
	}
	return errors.Join(append(failed, r.Close())...)
}

// checkPluginFiles wants the files that a plugin is made of to be there.
func checkPluginFiles(name string, p config.Plugin) error {
	var failed []error
	for _, file := range []struct{ key, path string }{{"path", p.Path}, {"manifest", p.Manifest}} {
		if file.path == "" {
			continue
		}
		info, err := os.Stat(file.path)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%w: plugins.%s.%s: %w", config.ErrConfig, name, file.key, err))
		case !info.Mode().IsRegular():
			failed = append(failed, fmt.Errorf("%w: plugins.%s.%s: %s is no file", config.ErrConfig, name, file.key, file.path))
		}
	}
	return errors.Join(failed...)
}

// OpenRanker opens one ranker of a configuration, with the plugin that it is, which
// the caller closes. It returns what OpenRankers does.
func OpenRanker(ctx context.Context, c *config.Config, name string, o RankerOptions) (*ranker.Client, io.Closer, error) {
	of, ok := c.Rankers[name]
	if !ok {
		return nil, nil, fmt.Errorf("%w: there is no ranker %q; there are %q", config.ErrConfig, name, c.RankerNames())
	}
	r := newRankers(o)
	var err error
	if of.Plugin != "" {
		err = r.startPlugin(ctx, c, of.Plugin, o)
	}
	if err == nil {
		err = r.makeRanker(c, name, o)
	}
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return r.rankers[name], r, nil
}

// Ranker is the one of that name, nil if there is none.
func (r *Rankers) Ranker(name string) ranker.Ranker {
	if client, ok := r.rankers[name]; ok {
		return client
	}
	return nil
}

// Breaker is the state of a ranker's breaker: closed, open or half-open; empty if there
// is no such ranker.
func (r *Rankers) Breaker(name string) string {
	if client, ok := r.rankers[name]; ok {
		return client.Breaker()
	}
	return ""
}

// Plugin is the one of that name, nil if there is none.
func (r *Rankers) Plugin(name string) *plugins.Plugin { return r.plugins[name] }

// States lists the states of the plugins, by name.
func (r *Rankers) States() []plugins.State {
	states := make([]plugins.State, 0, len(r.plugins))
	for _, name := range sortedKeys(r.plugins) {
		states = append(states, r.plugins[name].State())
	}
	return states
}

// Close ends the plugins, and waits until nothing of them is left.
func (r *Rankers) Close() error {
	r.closeDevices()
	var failed []error
	for _, closer := range r.closers {
		failed = append(failed, closer.Close())
	}
	r.closers = nil
	return errors.Join(failed...)
}

// StartPlugin starts a plugin of the configuration, or connects to it. The caller closes it.
func StartPlugin(ctx context.Context, c *config.Config, name string, logger *slog.Logger) (*plugins.Plugin, error) {
	o, err := pluginOptions(c, name, logger)
	if err != nil {
		return nil, err
	}
	p, err := plugins.Start(ctx, o)
	return p, pluginRefused(name, err)
}

func pluginRefused(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: plugins.%s: %w", config.ErrConfig, name, err)
}

// pluginOptions are the options of a plugin of the configuration. It returns
// config.ErrConfig if a file of its TLS cannot be used.
func pluginOptions(c *config.Config, name string, logger *slog.Logger) (plugins.Options, error) {
	of := c.Plugins[name]
	secure, err := StoreTLS(of.TLS)
	if err != nil {
		return plugins.Options{}, fmt.Errorf("plugins.%s: %w", name, err)
	}
	return plugins.Options{
		Name: name, Path: of.Path, Args: of.Args, Env: c.PluginEnv(name), SHA256: of.SHA256, Manifest: of.Manifest,
		Address: of.Address, TLS: secure,
		StartTimeout: of.StartTimeout, HealthInterval: of.HealthInterval, HealthTimeout: of.HealthTimeout,
		Memory: int64(of.Memory), MaxMessageBytes: int(of.MaxMessageBytes), QuarantineAfter: of.QuarantineAfter, Quarantine: of.Quarantine,
		Logger: logger,
	}, nil
}

func (r *Rankers) startPlugin(ctx context.Context, c *config.Config, name string, o RankerOptions) error {
	p, err := StartPlugin(ctx, c, name, o.Logger)
	if err != nil {
		return err
	}
	r.plugins[name], r.closers = p, append(r.closers, p)
	return nil
}

func (r *Rankers) makeRanker(c *config.Config, name string, o RankerOptions) error {
	of := c.Rankers[name]
	scorer, err := r.scorer(c, name)
	if err != nil || scorer == nil {
		return err
	}
	r.rankers[name] = ranker.New(scorer, ranker.Options{
		Name: name, MaxItems: of.MaxItems, Parallel: of.Parallel, Timeout: of.Timeout,
		BreakAfter: of.BreakAfter, BreakFor: of.BreakFor, RetryBudget: of.RetryBudget, Twice: of.Twice, Observer: o.Observer,
	})
	return nil
}

// scorer is what a ranker asks; nil if its plugin failed, which is reported already.
func (r *Rankers) scorer(c *config.Config, name string) (plugin.Scorer, error) {
	of := c.Rankers[name]
	if of.Plugin == "" {
		return r.service(c, name)
	}
	if p := r.plugins[of.Plugin]; p != nil {
		return p.Scorer(), nil
	}
	return nil, nil
}

// service is a rerank service, which is not asked yet.
func (r *Rankers) service(c *config.Config, name string) (plugin.Scorer, error) {
	token, err := c.RankerToken(name)
	if err != nil {
		return nil, err
	}
	of := c.Rankers[name]
	s, err := httprank.New(httprank.Options{
		URL: of.HTTP.URL, Dialect: of.HTTP.Dialect, Model: of.HTTP.Model, Token: token.Reveal(), Fields: of.HTTP.Fields,
		Version: of.HTTP.Version, Cost: of.HTTP.Cost, Parallel: of.Parallel,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: rankers.%s.http: %w", config.ErrConfig, name, err)
	}
	r.closers = append(r.closers, s)
	return s, nil
}
