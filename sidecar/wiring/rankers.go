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

// RankerOptions are optional settings of rankers.
type RankerOptions struct {
	Logger *slog.Logger
	// Observer is told of the calls of rankers; it may be nil.
	Observer ranker.Observer
}

// Rankers holds the plugins and the rankers of a configuration. Routes that name the same
// ranker share it. Rankers is safe for concurrent use.
type Rankers struct {
	rankers map[string]*ranker.Client
	plugins map[string]*plugins.Plugin
	closers []io.Closer
	log     *slog.Logger

	mu      sync.Mutex
	devices map[*offload.Scorer]bool // devices that were not closed
}

func newRankers(o RankerOptions) *Rankers {
	return &Rankers{
		rankers: map[string]*ranker.Client{}, plugins: map[string]*plugins.Plugin{},
		log: o.Logger, devices: map[*offload.Scorer]bool{},
	}
}

// OpenRankers starts the plugins and makes the rankers of a configuration. It does not wait
// until they can answer. They live until ctx is done or Close. OpenRankers returns
// config.ErrConfig for settings that can never work.
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

// CheckRankers returns the errors that OpenRankers would return, and an error for each
// plugin file that is missing. OpenRankers tolerates a missing file and starts the plugin
// when the file appears. CheckRankers starts no plugin.
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

// checkPluginFiles returns an error for each file of a plugin that does not exist.
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
			failed = append(failed, fmt.Errorf("%w: plugins.%s.%s: there is no file %s", config.ErrConfig, name, file.key, file.path))
		}
	}
	return errors.Join(failed...)
}

// OpenRanker opens one ranker of a configuration and, if the ranker is a plugin, starts that
// plugin. The caller closes the io.Closer. OpenRanker returns the errors of OpenRankers.
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

// Ranker returns the ranker of that name, or nil.
func (r *Rankers) Ranker(name string) ranker.Ranker {
	if client, ok := r.rankers[name]; ok {
		return client
	}
	return nil
}

// Breaker returns the state of a ranker's circuit breaker: closed, open or half-open. It
// returns "" if no ranker has that name.
func (r *Rankers) Breaker(name string) string {
	if client, ok := r.rankers[name]; ok {
		return client.Breaker()
	}
	return ""
}

// Plugin returns the plugin of that name, or nil.
func (r *Rankers) Plugin(name string) *plugins.Plugin { return r.plugins[name] }

// States lists the states of the plugins, sorted by name.
func (r *Rankers) States() []plugins.State {
	states := make([]plugins.State, 0, len(r.plugins))
	for _, name := range sortedKeys(r.plugins) {
		states = append(states, r.plugins[name].State())
	}
	return states
}

// Close ends the plugins, and waits until their processes are gone.
func (r *Rankers) Close() error {
	r.closeDevices()
	var failed []error
	for _, closer := range r.closers {
		failed = append(failed, closer.Close())
	}
	r.closers = nil
	return errors.Join(failed...)
}

// StartPlugin starts a plugin of a configuration, or connects to it if it runs already. The
// caller closes it.
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

// pluginOptions returns the options of a plugin, as the configuration has them. It returns
// config.ErrConfig if a TLS file cannot be used.
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
	scorer, err := r.scorer(c, name)
	if err != nil || scorer == nil {
		return err
	}
	r.rankers[name] = ranker.New(scorer, rankerOptions(name, c.Rankers[name], o))
	return nil
}

func rankerOptions(name string, r config.Ranker, o RankerOptions) ranker.Options {
	return ranker.Options{
		Name: name, MaxItems: r.MaxItems, Parallel: r.Parallel, Timeout: r.Timeout,
		BreakAfter: r.BreakAfter, BreakFor: r.BreakFor, RetryBudget: r.RetryBudget, Twice: r.Twice, Observer: o.Observer,
	}
}

// scorer returns the plugin or the service that does the work of a ranker. It returns nil if
// the plugin failed to start: that error is known.
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

// service makes the client of a rerank service. It does not call the service.
func (r *Rankers) service(c *config.Config, name string) (plugin.Scorer, error) {
	token, err := c.RankerToken(name)
	if err != nil {
		return nil, err
	}
	s, err := httprank.New(serviceOptions(c.Rankers[name], token))
	if err != nil {
		return nil, fmt.Errorf("%w: rankers.%s.http: %w", config.ErrConfig, name, err)
	}
	r.closers = append(r.closers, s)
	return s, nil
}

func serviceOptions(r config.Ranker, token config.Secret) httprank.Options {
	return httprank.Options{
		URL: r.HTTP.URL, Dialect: r.HTTP.Dialect, Model: r.HTTP.Model, Token: token.Reveal(), Fields: r.HTTP.Fields,
		Version: r.HTTP.Version, Cost: r.HTTP.Cost, Parallel: r.Parallel,
	}
}
