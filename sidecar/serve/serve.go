// Package serve runs a sidecar: it opens what a configuration describes,
// listens, checks the routes in the background, and ends in order.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/sidecar/admission"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/pipeline"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/proxy"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/server"
	"github.com/likenessdb/likeness/sidecar/telemetry"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// Addresses are where a sidecar really listens.
type Addresses struct {
	GRPC  string `json:"grpc"`
	Admin string `json:"admin,omitempty"`
	// Proxy is where a database's clients connect.
	Proxy *proxy.Addresses `json:"proxy,omitempty"`
}

// Options are what Run needs beside the configuration.
type Options struct {
	Logger *slog.Logger
	Build  buildinfo.Info
	// Reload, if set, reads the configuration again when a version is activated, so
	// that versions can be added to it.
	Reload func() (*config.Config, error)
	// Listening, if set, is called once when the listeners are open.
	Listening func(Addresses)
	// Ready, if set, is called once when searches are answered.
	Ready func(Addresses)
	// Answer, if set, answers calls in place of a listener, until the server drains or
	// there is nobody left to ask; Run then ends. Whoever it lets in is trusted: tokens
	// and TLS of the configuration are for listeners.
	Answer func(*server.Server) error
	// SpareThread lets one thread more run than there are processors to score on, for
	// as long as Run does. Scoring keeps every processor busy, and Go looks at the
	// network only when a thread has nothing else to do: with one to spare, the
	// system gives a message that came its turn within a millisecond, not ten.
	SpareThread bool
}

// Run serves until ctx is done, then drains. Stores that are down do not keep it
// from starting: their routes are checked until they can be served. It returns
// config.ErrConfig, the errors of wiring.Open, pipeline.ErrSetup for a route that
// contradicts itself, or that of a listener.
func Run(ctx context.Context, c *config.Config, o Options) (err error) {
	if len(c.Routes) == 0 {
		return fmt.Errorf("%w: it has no route; give --config, see `likeness config print --default`", config.ErrConfig)
	}
	if c.Limits.Memory > 0 {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(c.Limits.Memory)))
	}
	parts, err := rollout.Open(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	traces, err := telemetry.NewTracerProvider(ctx, telemetry.TraceOptions{
		Endpoint: c.Trace.Endpoint, Insecure: c.Trace.Insecure, SampleRatio: c.Trace.SampleRatio, Version: o.Build.Version, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	defer flush(traces, o.Logger)
	metrics := telemetry.NewMetrics(o.Build, parts.Routes)
	rankers, err := wiring.OpenRankers(context.WithoutCancel(ctx), c, wiring.RankerOptions{Logger: o.Logger, Observer: metrics})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rankers.Close()) }()
	parts.Ask(rankers)
	metrics.WatchPlugins(rankers.States)
	metrics.WatchDevices(rankers.Devices)
	followers, err := wiring.Follow(c, parts, follow.Options{Logger: o.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endFollowing(followers, c.Shutdown.Grace)) }()
	s, err := newSidecar(c, o, parts, followers, traces, metrics)
	if err != nil {
		return err
	}
	s.follow(followers)
	s.openings.rankers, s.openings.devices = rankers.States, rankers.Devices
	s.admin.Handle("GET /plugins", plugins.Handler(rankers.States))
	if o.SpareThread { // after everything above has counted the processors
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1))
	}
	defer func() { err = errors.Join(err, s.closeVersions()) }()
	return s.run(ctx, c)
}

// closeVersions waits until no version that was replaced is in use.
func (s *sidecar) closeVersions() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.versions.Close(ctx)
}

// flush sends the last traces, or gives them up after a while.
func flush(traces *trace.TracerProvider, log *slog.Logger) {
	if traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := traces.Shutdown(ctx); err != nil {
		log.Warn("the last traces are lost", "error", err)
	}
}

// maxFollowing bounds how long a sidecar that ends follows what it saw: the rest
// is in the journal.
const maxFollowing = 10 * time.Second

func endFollowing(followers wiring.Followers, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(grace, maxFollowing))
	defer cancel()
	return followers.Close(ctx)
}

// sidecar is what runs.
type sidecar struct {
	options  Options
	pipeline *pipeline.Pipeline
	// admission stands before the pipeline, for whoever calls it.
	admission *admission.Searcher
	versions  *rollout.Manager
	server    *server.Server
	metrics   *telemetry.Metrics
	admin     *telemetry.Admin
	openings  *openings
	proxy     *proxy.Proxy // nil: there is none
	auditor   *calibrate.Auditor
	followers wiring.Followers
}

func (s *sidecar) follow(followers wiring.Followers) {
	s.followers = followers
	s.metrics.WatchFollowing(followers.Status)
}

// reconcile brings what a route derives in step with its collection.
func (s *sidecar) reconcile(ctx context.Context, route string) (follow.Drift, error) {
	for _, r := range s.pipeline.Routes() {
		if r.Name == route {
			return s.followers.Reconcile(ctx, r)
		}
	}
	return follow.Drift{}, fmt.Errorf("%w: %q", pipeline.ErrRoute, route)
}

func newSidecar(c *config.Config, o Options, parts *wiring.Assembly, followers wiring.Followers, traces *trace.TracerProvider, metrics *telemetry.Metrics) (*sidecar, error) {
	s := &sidecar{options: o, metrics: metrics}
	recent := rollout.NewRecent(c.RouteNames())
	s.auditor = calibrate.NewAuditor(calibrate.AuditorOptions{
		Routes: wiring.Audits(c), Busy: func() bool { return s.admission.Busy() }, Recorder: s.metrics, Logger: o.Logger,
	})
	settings := pipeline.Options{Observer: pipeline.Observers{s.metrics, recent, s.auditor}, Logger: o.Logger}
	serverOptions := server.Options{
		OpenAdmin: loopback(c.Listen.GRPC) || o.Answer != nil, Logger: o.Logger, Recorder: s.metrics,
		Limits: server.Limits{
			MaxMessageBytes: int(c.Limits.MaxMessageBytes), MaxConcurrentStreams: c.Limits.MaxConcurrentStreams,
			MaxBatch: c.Limits.MaxBatch, BatchParallelism: c.Limits.BatchParallelism,
		},
	}
	if o.Answer == nil {
		serverOptions.TLS, serverOptions.TokensFile = serverTLS(c.Listen.TLS), c.Listen.Auth.TokensFile
	}
	if traces != nil {
		settings.Tracer = traces.Tracer("github.com/likenessdb/likeness")
		serverOptions.TracerProvider = traces
	}
	var err error
	if s.pipeline, err = pipeline.New(parts.Routes, settings); err != nil {
		return nil, err
	}
	if s.versions, err = rollout.New(rollout.Options{
		Pipeline: s.pipeline, Assembly: parts, Config: c, Reload: o.Reload, Recent: recent, Logger: o.Logger,
		Follower: followers, Switched: s.metrics.RouteServed,
	}); err != nil {
		return nil, err
	}
	serverOptions.Admin, serverOptions.Models, serverOptions.Reconcile = s.versions, s.versions.Models, s.reconcile
	s.admission = admission.New(s.pipeline, admission.Options{MaxSearches: c.Limits.MaxSearches, Adaptive: c.Limits.Adaptive})
	s.metrics.WatchLoad(s.admission)
	serverOptions.Searcher = s.admission
	if s.server, err = server.New(serverOptions); err != nil {
		return nil, err
	}
	s.openings = newOpenings(c.RouteNames())
	s.admin = telemetry.NewAdmin(s.metrics, s.openings.ready, o.Logger)
	return s, nil
}

// loopback reports whether only this machine can reach an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

func serverTLS(t config.TLS) server.TLS {
	out := server.TLS{CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCAFile: t.ClientCAFile, MinVersion: tls.VersionTLS12}
	if t.MinVersion == "1.3" {
		out.MinVersion = tls.VersionTLS13
	}
	return out
}

// run listens until ctx is done or a listener fails, and drains.
func (s *sidecar) run(ctx context.Context, c *config.Config) error {
	listeners, err := listen(ctx, c.Listen, s.options.Answer == nil)
	if err != nil {
		return err
	}
	log := s.options.Logger
	addresses := listeners.addresses()
	if s.proxy, err = s.openProxy(ctx, c); err != nil {
		return errors.Join(err, listeners.close())
	}
	if s.proxy != nil {
		at := s.proxy.Addresses()
		addresses.Proxy = &at
		log.Info("standing before a database", "store", c.Proxy.Store, "grpc", at.GRPC, "rest", at.REST)
	}
	log.Info("listening", "grpc", addresses.GRPC, "admin", addresses.Admin, "tls", c.Listen.TLS.CertFile != "",
		"version", s.options.Build.Version)
	if s.options.Answer == nil {
		warnOfPlainTokens(log, c.Listen)
	}
	if s.options.Listening != nil {
		s.options.Listening(addresses)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.answer(listeners.grpc) })
	if listeners.admin != nil {
		group.Go(func() error { return s.admin.Serve(listeners.admin) })
	}
	if s.proxy != nil {
		group.Go(func() error { return s.proxy.Run(ctx) })
	}
	group.Go(func() error { return s.auditor.Run(ctx, s.pipeline) })
	group.Go(func() error {
		s.openRoutes(ctx, c.RouteNames(), addresses)
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return s.drain(c.Shutdown.Grace)
	})
	if err := group.Wait(); !errors.Is(err, errNobody) {
		return err
	}
	return nil
}

// errNobody ends Run without an error: nobody is left to ask.
var errNobody = errors.New("nobody is left to ask")

// answer answers calls until the server drains.
func (s *sidecar) answer(listener net.Listener) error {
	if s.options.Answer == nil {
		return s.server.Serve(listener)
	}
	if err := s.options.Answer(s.server); err != nil {
		return err
	}
	return errNobody
}

func warnOfPlainTokens(log *slog.Logger, l config.Listen) {
	if l.Auth.TokensFile != "" && l.TLS.CertFile == "" {
		log.Warn("tokens cross the network in plain text; set listen.tls, or listen on a loopback address")
	}
}

// drain ends the gRPC server and then the admin server, which shows it ending.
func (s *sidecar) drain(grace time.Duration) error {
	s.options.Logger.Info("draining", "grace", grace.String())
	s.openings.close()
	s.server.Drain(grace)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.admin.Shutdown(ctx)
	s.options.Logger.Info("drained")
	return err
}

type listeners struct{ grpc, admin net.Listener }

// listen opens the admin listener, and that of the API where there is one.
func listen(ctx context.Context, l config.Listen, api bool) (listeners, error) {
	var (
		out    listeners
		err    error
		dialer net.ListenConfig
	)
	if api {
		if out.grpc, err = dialer.Listen(ctx, "tcp", l.GRPC); err != nil {
			return out, fmt.Errorf("listen.grpc: %w", err)
		}
	}
	if l.Admin == "" {
		return out, nil
	}
	if out.admin, err = dialer.Listen(ctx, "tcp", l.Admin); err != nil {
		return out, errors.Join(fmt.Errorf("listen.admin: %w", err), out.close())
	}
	return out, nil
}

func (l listeners) close() error {
	var err error
	for _, listener := range []net.Listener{l.grpc, l.admin} {
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
	}
	return err
}

func (l listeners) addresses() Addresses {
	var a Addresses
	if l.grpc != nil {
		a.GRPC = l.grpc.Addr().String()
	}
	if l.admin != nil {
		a.Admin = l.admin.Addr().String()
	}
	return a
}
